"""The embedded store `ocidir:DIR`: a folder with one OCI image layout per repository, which skopeo and oras read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedops.adapters import durable
from fedops.adapters.meter import metered
from fedops.adapters.oci_layout import ImageLayout, descriptor, tag_of
from fedops.adapters.refusals import refusal
from fedops.adapters.store_parts import (
    CheckedReader,
    check_digest,
    check_layer,
    check_repository,
    manifest_to_copy,
    read_manifest,
    save_layer,
)
from fedops.core.artifacts import (
    MAX_MANIFEST_BYTES,
    build_manifest,
    format_of_title,
    is_display_tag,
    layer_title,
    manifest_digest,
    manifest_tag,
    md5_tag,
    split_ref,
)
from fedops.core.errors import STORE_EMPTY, StoreError
from fedops.core.facts import Artifact, Layer
from fedops.core.ids import Digest, hex_of_digest, repository_of
from fedops.ports import Progress, Store

_GLOBAL = repository_of(None)


class LayoutStore:
    """Models in the folder `root`, which must exist: an unmounted share must not look like an empty store.

    Args:
        progress: told of the bytes that are copied; None: nobody is.
        has_models: says whether there are models in it, by what others know; asked where it has no layout of global
            models, as the bare mount point has none. None: nobody knows.
    """

    def __init__(
        self, root: Path, *, progress: Progress | None = None, has_models: Callable[[], bool] | None = None
    ) -> None:
        self.root, self._progress, self._has_models = root, progress, has_models

    def put(self, repository: str, file: Path, annotations: Mapping[str, str], config: bytes = b"{}") -> Artifact:
        """Keep one file as a one-layer manifest; a damaged copy that is already there is replaced.

        Raises:
            StoreError: the file is empty or cannot be read, annotations or config are too large, the folder is broken.
        """
        extension = "bin" if file.suffix == ".bin" else "safetensors"
        with self._opened(repository, "keep a model") as layout:
            layout.create()
            with durable.part(layout.scratch) as temporary:
                with (
                    durable.reported(file, f"copy it into {layout.folder}"),
                    file.open("rb") as source,
                    temporary.open("xb") as target,
                    metered(self._progress, f"copy to {repository}", file.stat().st_size) as meter,
                ):
                    got = durable.stream(meter.reading(source), target, md5=True)
                layer = Layer(got.sha256, got.size, layer_title(repository, extension))
                manifest = build_manifest(layer, annotations, config, format=format_of_title(layer.title))
                if layout.is_whole(layer.sha256, layer.size):
                    temporary.unlink()
                else:
                    durable.sync_file(temporary)
                return _keep(layout, manifest, config, temporary, [md5_tag(got.md5)])

    def tag(self, repository: str, digest: Digest, tag: str) -> None:
        """Let a display tag name a manifest; one that names another is moved.

        Raises:
            StoreError: slug tag_name_invalid, object_missing, digest_mismatch.
        """
        if not is_display_tag(tag):
            raise refusal("tag_name_invalid", f"{repository}:{tag}")
        with self._opened(repository, "set a tag") as layout:
            if not layout.exists():
                raise refusal("object_missing", f"{repository}@{digest}")
            with layout.locked():
                data = _manifest_bytes(layout, digest)
                layout.set_tags([descriptor(digest, len(data), tag)])

    def drop(self, repository: str, digest: Digest) -> bool:
        """Remove a manifest, its tags, and those of its blobs that no other manifest names; always True.

        Raises:
            StoreError: slug digest_mismatch: not a digest.
        """
        with self._opened(repository, "remove a model") as layout:
            check_digest(layout.name, digest)
            if layout.exists():
                with layout.locked():
                    _drop(layout, digest)
        return True

    def copy(self, source: Store, repository: str, digest: Digest, target_repository: str) -> Artifact:
        """Copy one manifest and its blobs from source's repository; the digest stays, the one tag is :m-<hex>.

        The bytes are copied on the same disk too, not linked: a site that damages its own leaves the archive whole.
        """
        artifact = source.manifest(repository, digest)
        layer, manifest = artifact.layer, manifest_to_copy(artifact, digest)
        with self._opened(target_repository, "keep a copy") as layout:
            layout.create()
            with durable.part(layout.scratch) as temporary:
                if not layout.is_whole(layer.sha256, layer.size):
                    source.get(repository, layer, temporary)
                return _keep(layout, manifest, artifact.config, temporary, [])

    def manifest(self, repository: str, digest: Digest) -> Artifact:
        """Read one manifest and its config, both checked against their digests.

        Raises:
            StoreError: slug object_missing, digest_mismatch, foreign_layer_refused, layer_title_invalid, …
        """
        with self._opened(repository, "read a model") as layout:
            layer, annotations, config = read_manifest(repository, digest, _manifest_bytes(layout, digest))
            data = layout.read(config.sha256, max_bytes=config.size)
            where = f"{repository}@{digest}"
            if len(data) != config.size:
                raise refusal("size_mismatch", where, got=len(data), expected=config.size)
            return Artifact(where, digest, layer, annotations, data)

    def get(self, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        """Copy one layer to `target` and check it on the way; nothing is at `target` before all of it is right.

        Raises:
            StoreError: slug object_missing, size_mismatch, hash_mismatch.
        """
        where = f"{repository}@sha256:{layer.sha256}"
        with (
            self._opened(repository, f"copy a model to {target}") as layout,
            self._layer(layout, layer, where).open("rb") as source,
            metered(self._progress, f"copy from {repository}", layer.size) as meter,
        ):
            save_layer(meter.reading(source), layer, target, where, md5=md5)

    def open_blob(self, repository: str, layer: Layer, *, md5: str | None = None) -> CheckedReader:
        """Read one layer in order, checked at its end.

        Raises:
            StoreError: slug object_missing, size_mismatch.
        """
        where = f"{repository}@sha256:{layer.sha256}"
        with self._opened(repository, "read a model") as layout:
            source = self._layer(layout, layer, where).open("rb")
            return CheckedReader(source, layer, where, md5=md5)

    def layer_file(self, repository: str, layer: Layer) -> Path:
        """The file of one layer where it lies; of its bytes nothing but their number was looked at.

        Raises:
            StoreError: slug object_missing, size_mismatch.
        """
        with self._opened(repository, "read a model") as layout:
            return self._layer(layout, layer, f"{repository}@sha256:{layer.sha256}")

    def small_files(self, repository: str, artifact: Artifact) -> Sequence[Path]:
        """The blobs of an artifact's manifest and config."""
        with self._opened(repository, "read a model") as layout:
            config = hashlib.sha256(artifact.config).hexdigest()
            return [layout.blob(hex_of_digest(artifact.manifest)), layout.blob(config)]

    @staticmethod
    def _layer(layout: ImageLayout, layer: Layer, where: str) -> Path:
        """The file with a layer's bytes, of the right size."""
        check_layer(where, layer)
        blob = layout.blob(layer.sha256)
        if not blob.is_file():
            raise refusal("object_missing", where)
        if (size := blob.stat().st_size) != layer.size:
            raise refusal("size_mismatch", where, got=size, expected=layer.size)
        return blob

    def resolve(self, ref: str) -> Digest | None:
        """The manifest that "<repository>:<tag>" names now; None if there is none."""
        parts = split_ref(ref)
        if parts is None:
            return None
        repository, tag = parts
        with self._opened(repository, "read a tag") as layout:
            return next((Digest(entry["digest"]) for entry in layout.entries() if tag_of(entry) == tag), None)

    def write_fault(self, repository: str) -> str | None:
        """Why `put` would fail by the rights of folders and files; nothing is written.

        Raises:
            StoreError: the store's folder is not there: temporary.
        """
        with self._opened(repository, "keep a model") as layout:
            return layout.write_fault()

    @contextmanager
    def _opened(self, repository: str, doing: str) -> Iterator[ImageLayout]:
        """The layout of a repository, there or not; what the system refuses in the block is a StoreError."""
        check_repository(repository)
        folder = self.root / repository
        with durable.reported(folder, doing):
            if not self.root.is_dir():
                raise StoreError(
                    f"{self.root}: cannot {doing}, the store's folder is not there",
                    hint="mount it, or create it once with mkdir; `store` in federation.yaml names it",
                    cause="temporary",  # not mounted: nothing is known of what lies in it
                )
            self._demand_layout(doing)
            layout = ImageLayout(folder, repository)
            if not layout.blob("").resolve().is_relative_to(self.root.resolve()):
                raise StoreError(f"{folder}: a link leads out of the store {self.root}", hint="replace it by a folder")
            yield layout

    def _demand_layout(self, doing: str) -> None:
        """Tell a store without any layout, in which models are missing all at once, from one that lost a model."""
        if self._has_models is None or ImageLayout(self.root / _GLOBAL, _GLOBAL).is_begun() or not self._has_models():
            return
        folder = "is empty" if not any(self.root.iterdir()) else f"has no {_GLOBAL}/oci-layout"
        raise StoreError(
            f"{self.root}: cannot {doing}, the store's folder {folder}, and main has versions: is its disk not mounted?",
            hint="mount it, then repeat the command; nothing was lost (if the disk is gone for good: restore the store "
            "from a copy)",
            cause="temporary",
            slug=STORE_EMPTY,
        )


def _manifest_bytes(layout: ImageLayout, digest: Digest) -> bytes:
    check_digest(layout.name, digest)
    return layout.read(hex_of_digest(digest), max_bytes=MAX_MANIFEST_BYTES)


def _keep(layout: ImageLayout, manifest: bytes, config: bytes, temporary: Path, tags: Sequence[str]) -> Artifact:
    """Take the layer from `temporary`, unless it is there already, then write what names it, each after the other."""
    digest = manifest_digest(manifest)
    layer, annotations, _ = read_manifest(layout.name, digest, manifest)  # what could not be read again is not kept
    with layout.locked():
        layout.adopt(temporary, layer.sha256)
        layout.write(config)
        layout.write(manifest)
        names = [manifest_tag(digest), *tags]
        layout.set_tags([descriptor(digest, len(manifest), name) for name in names])
    return Artifact(f"{layout.name}@{digest}", digest, layer, annotations, config)


def _drop(layout: ImageLayout, digest: Digest) -> None:
    """Take a manifest out of the index, then delete its blobs, its own last: a second call finishes after a kill."""
    entries = layout.entries()
    kept = [entry for entry in entries if entry["digest"] != digest]
    needed = {entry["digest"]: layout.references(entry["digest"]) for entry in kept}
    layer = _layer_of(layout, digest)
    for tag in [tag_of(entry) or "" for entry in entries if entry["digest"] == digest]:
        # DVC looks for bytes by this tag, so it passes to another manifest of the same bytes.
        heir = next((entry for entry in kept if layer in needed[entry["digest"]]), None)
        if tag.startswith(md5_tag("")) and heir is not None:
            kept.append(descriptor(heir["digest"], heir["size"], tag))
    if kept != entries:
        layout.write_entries(kept)
    own = hex_of_digest(digest)
    doomed = layout.references(digest).difference(*needed.values())
    layout.remove([*sorted(doomed - {own}), *(doomed & {own})])


def _layer_of(layout: ImageLayout, digest: Digest) -> str | None:
    try:
        layer, _, _ = read_manifest(layout.name, digest, _manifest_bytes(layout, digest))
    except StoreError:  # gone or damaged: dropping it is right all the same
        return None
    return layer.sha256
