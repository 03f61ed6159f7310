"""The store `oci://host[:port]/path`: one OCI repository for each of its repositories, in any registry.

oras verifies no digest; here every byte that comes back is checked, and nothing is at its place before it is right.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedops.adapters import durable
from fedops.adapters.meter import metered
from fedops.adapters.refusals import refusal
from fedops.adapters.registry_client import RegistryClient
from fedops.adapters.registry_credentials import Lookup
from fedops.adapters.registry_drop import Dropper
from fedops.adapters.registry_http import ANSWER_SECONDS, CONNECT_SECONDS, Body, Sent, Wire
from fedops.adapters.registry_sending import FileBody, ReaderBody
from fedops.adapters.registry_stream import BlobStream
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
    EMPTY_CONFIG,
    Blob,
    build_manifest,
    config_blob,
    format_of_title,
    is_display_tag,
    layer_title,
    manifest_digest,
    manifest_tag,
    md5_tag,
    split_ref,
)
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact, Layer
from fedops.core.ids import Digest
from fedops.core.registry_address import RegistryAddress
from fedops.ports import Clock, Progress, Store, Streaming


class RegistryStore:
    """Models in an OCI registry; may be used by several threads.

    Args:
        address: of the store; `address.host` is the only one that is shown credentials.
        lookup: gives the credentials of a host, when it asks for them.
        token_hosts: further hosts that may be shown them, because a person named them as the registry's own.
        progress: told of the bytes that go up and come down; None: nobody is.
        seconds: how long to wait for a connection, and for the next bytes.
    """

    def __init__(
        self,
        address: RegistryAddress,
        *,
        clock: Clock,
        lookup: Lookup,
        token_hosts: frozenset[str] = frozenset(),
        progress: Progress | None = None,
        seconds: tuple[float, float] = (CONNECT_SECONDS, ANSWER_SECONDS),
    ) -> None:
        self.address = address
        wire = Wire(address, clock=clock, lookup=lookup, token_hosts=token_hosts, seconds=seconds)
        self._client = RegistryClient(wire, clock)
        self._dropper = Dropper(self._client)
        self._progress = progress
        self._with_empty: set[str] = set()  # repositories that were seen to have the empty config

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def put(self, repository: str, file: Path, annotations: Mapping[str, str], config: bytes = b"{}") -> Artifact:
        """Upload one file as a one-layer manifest; what the registry has already is not sent again.

        The layer is asked for first, so that a second call sends nothing.

        Raises:
            StoreError: the file cannot be read or is changed meanwhile, annotations or config are too large; the
                registry is broken (temporary) or refuses us (auth).
        """
        check_repository(repository)
        with durable.reported(file, "read it"), file.open("rb") as source:
            got = durable.stream(source, md5=True)
        title = layer_title(repository, "bin" if file.suffix == ".bin" else "safetensors")
        layer = Layer(got.sha256, got.size, title)
        manifest = build_manifest(layer, annotations, config, format=format_of_title(title))
        digest = manifest_digest(manifest)
        read_manifest(repository, digest, manifest)  # what could not be read again is not kept
        with metered(self._progress, f"upload to {repository}", layer.size) as meter:
            self._keep(
                repository, layer, manifest, config, [md5_tag(got.md5)], lambda: FileBody(file, layer.size, meter)
            )
        return Artifact(f"{repository}@{digest}", digest, layer, dict(annotations), config)

    def tag(self, repository: str, digest: Digest, tag: str) -> None:
        """Let a display tag name a manifest; one that names another is moved.

        Raises:
            StoreError: slug tag_name_invalid, object_missing, digest_mismatch.
        """
        check_repository(repository)
        if not is_display_tag(tag):
            raise refusal("tag_name_invalid", f"{repository}:{tag}")
        name = self.address.name(repository)
        self._client.want(name, push=True)
        data = self._manifest(repository, digest)
        if self._client.tagged(name, tag) != digest:
            self._client.put_manifest(name, tag, data)

    def drop(self, repository: str, digest: Digest) -> bool:
        """Remove a manifest, its tags, and those of its blobs that no other manifest names; False: not possible here.

        Registries give the room free when their operator collects garbage.

        Raises:
            StoreError: slug digest_mismatch: not a digest.
        """
        check_repository(repository)
        check_digest(repository, digest)
        return self._dropper.drop(self.address.name(repository), digest)

    def copy(self, source: Store, repository: str, digest: Digest, target_repository: str) -> Artifact:
        """Copy one manifest and its blobs from source's repository; the digest stays, the one tag is :m-<hex>.

        Inside one registry the blobs are lent, not sent: then their bytes are not looked at, and whoever gets the copy
        finds out if they were damaged before.
        """
        artifact = source.manifest(repository, digest)
        manifest = manifest_to_copy(artifact, digest)
        check_repository(target_repository)
        read_manifest(target_repository, digest, manifest)
        with _bodies(source, repository, artifact.layer) as body:
            lender = self._lender(source, repository)
            self._keep(target_repository, artifact.layer, manifest, artifact.config, [], body, lender=lender)
        return replace(artifact, ref=f"{target_repository}@{digest}")

    def manifest(self, repository: str, digest: Digest) -> Artifact:
        """Read one manifest and its config, both checked against their digests.

        Raises:
            StoreError: slug object_missing, digest_mismatch, foreign_layer_refused, layer_title_invalid, …
        """
        check_repository(repository)
        layer, annotations, config = read_manifest(repository, digest, self._manifest(repository, digest))
        # All manifests of sites name the same two bytes: they are fetched once.
        known = config == config_blob(EMPTY_CONFIG) and repository in self._with_empty
        data = EMPTY_CONFIG if known else self._client.read_blob(self.address.name(repository), config)
        if data == EMPTY_CONFIG:
            self._with_empty.add(repository)
        return Artifact(f"{repository}@{digest}", digest, layer, annotations, data)

    def get(self, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        """Download one layer to `target` and check it on the way; nothing is at `target` before all of it is right.

        Raises:
            StoreError: slug object_missing, size_mismatch, hash_mismatch.
        """
        where = f"{repository}@sha256:{layer.sha256}"
        with (
            durable.reported(target, "write it"),
            metered(self._progress, f"download from {repository}", layer.size) as meter,
            self._open(repository, layer) as source,
        ):
            save_layer(meter.reading(source), layer, target, where, md5=md5)

    def open_blob(self, repository: str, layer: Layer, *, md5: str | None = None) -> CheckedReader:
        """Read one layer in order while it comes, checked at its end; a cut connection is opened again where it stopped.

        Raises:
            StoreError: slug object_missing, size_mismatch; from the reader size_mismatch, hash_mismatch.
        """
        source = self._open(repository, layer)
        return CheckedReader(source, layer, f"{repository}@sha256:{layer.sha256}", md5=md5)

    def resolve(self, ref: str) -> Digest | None:
        """The manifest that "<repository>:<tag>" names now, by the registry's word; None if there is none."""
        parts = split_ref(ref)
        if parts is None:
            return None
        repository, tag = parts
        return self._client.tagged(self.address.name(repository), tag)

    def write_fault(self, repository: str) -> str | None:
        """Why the registry would not take an upload; None if it would. An upload is begun and given up again.

        Raises:
            StoreError: the registry does not answer.
        """
        check_repository(repository)
        try:
            self._client.may_upload(self.address.name(repository))
        except StoreError as e:
            if e.cause == "temporary":
                raise
            return e.message
        return None

    def _keep(
        self,
        repository: str,
        layer: Layer,
        manifest: bytes,
        config: bytes,
        tags: Sequence[str],
        body: Callable[[], Body],
        *,
        lender: str | None = None,
    ) -> None:
        """Upload what is not there yet, then what names it; a blob that the registry lost after all is sent again."""
        name, digest = self.address.name(repository), manifest_digest(manifest)
        for present in (None, False):
            sent = self._upload(name, Blob(layer.sha256, layer.size), body, lender, present)
            sent |= self._upload(name, config_blob(config), config, lender, present)
            try:
                for tag in (manifest_tag(digest), *tags):
                    if sent or self._client.tagged(name, tag) != digest:
                        self._client.put_manifest(name, tag, manifest)
            except StoreError as e:
                # NOTE: distribution says from its cache that it has blobs which its garbage collection took.
                if e.slug != "object_missing" or present is False:
                    raise
            else:
                return

    def _upload(self, name: str, blob: Blob, body: Sent, lender: str | None, present: bool | None) -> bool:
        if lender is not None and present is None:
            try:
                return self._client.upload(name, blob, body, source=lender)
            except StoreError as e:
                if e.cause != "auth":  # one right over both repositories may be more than we have
                    raise
        return self._client.upload(name, blob, body, present=present)

    def _lender(self, source: Store, repository: str) -> str | None:
        """The registry's name of the source's repository, if both stores are in this registry."""
        address = getattr(source, "address", None)
        same = isinstance(address, RegistryAddress) and address.host == self.address.host
        return address.name(repository) if same and address is not None else None

    def _manifest(self, repository: str, digest: Digest) -> bytes:
        """Manifest bytes that are those of their digest."""
        check_digest(repository, digest)
        data = self._client.manifest(self.address.name(repository), digest)
        if manifest_digest(data) != digest:
            raise refusal("digest_mismatch", f"{repository}@{digest}", got=manifest_digest(data), expected=digest)
        return data

    def _open(self, repository: str, layer: Layer) -> BlobStream:
        check_repository(repository)
        check_layer(f"{repository}@sha256:{layer.sha256}", layer)
        return self._client.open(self.address.name(repository), Blob(layer.sha256, layer.size))


@contextmanager
def _bodies(source: Store, repository: str, layer: Layer) -> Iterator[Callable[[], Body]]:
    """What gives the bytes of another store's layer, as often as they must be sent; on the disk only if it must be."""
    if isinstance(source, Streaming):
        where = f"{repository}@sha256:{layer.sha256}"
        yield lambda: ReaderBody(lambda: source.open_blob(repository, layer), layer.size, where)
        return
    with tempfile.TemporaryDirectory(prefix="fedops-") as folder:
        file = Path(folder) / "layer"

        def fetched() -> Body:
            if not file.exists():
                source.get(repository, layer, file)
            return FileBody(file, layer.size)

        yield fetched
