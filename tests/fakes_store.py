"""A store in memory, with faults on demand; it passes the same contract suite as the real ones."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from fedops.core.artifacts import (
    Blob,
    build_manifest,
    format_of_title,
    is_display_tag,
    is_repository,
    layer_title,
    manifest_digest,
    manifest_tag,
    md5_tag,
    parse_manifest,
    split_ref,
    titles_of,
)
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact, Layer
from fedops.core.ids import Digest, digest_of_hex, hex_of_digest, is_digest, is_hex
from fedops.ports import Store

Operation = Literal["put", "tag", "drop", "copy", "manifest", "get", "resolve"]


def _refuse(slug: str, where: str) -> StoreError:
    return StoreError(f"{where}: {slug}", slug=slug)


class FakeStore:
    """Blobs and tags in dicts, one pair for each repository; `calls` counts what was asked, refused calls included."""

    def __init__(self, *, can_drop: bool = True) -> None:
        self.can_drop = can_drop
        self.calls: dict[str, int] = defaultdict(int)
        self._blobs: dict[str, dict[str, bytes]] = defaultdict(dict)  # repository -> hex of the sha256 -> bytes
        self._tags: dict[str, dict[str, Digest]] = defaultdict(dict)  # repository -> tag -> manifest
        self._faults: dict[str, list[StoreError]] = defaultdict(list)

    # faults

    def fail_next(self, operation: Operation, error: StoreError) -> None:
        """Let the next call of an operation raise; several are raised in the order in which they were given."""
        self._faults[operation].append(error)

    def lose(self, repository: str, digest: Digest) -> None:
        """Delete a blob: a manifest, a config or a layer ("sha256:<hex>")."""
        del self._blobs[repository][hex_of_digest(digest)]

    def damage(self, repository: str, digest: Digest) -> None:
        """Flip one bit of a blob; its length stays."""
        data = self._blobs[repository][hex_of_digest(digest)]
        self._blobs[repository][hex_of_digest(digest)] = data[:-1] + bytes([data[-1] ^ 1])

    def plant(self, repository: str, manifest: bytes) -> Digest:
        """Let somebody else upload manifest bytes as they are, whose blobs may be absent."""
        return digest_of_hex(self._add(repository, manifest))

    # the port

    def put(self, repository: str, file: Path, annotations: Mapping[str, str], config: bytes = b"{}") -> Artifact:
        self._begin("put", repository)
        data = file.read_bytes()
        title = layer_title(repository, "bin" if file.suffix == ".bin" else "safetensors")
        layer = Layer(hashlib.sha256(data).hexdigest(), len(data), title)
        artifact = self._keep(repository, data, layer, annotations, config)
        self._tags[repository][md5_tag(hashlib.md5(data).hexdigest())] = artifact.manifest
        return artifact

    def tag(self, repository: str, digest: Digest, tag: str) -> None:
        self._begin("tag", repository)
        if not is_display_tag(tag):
            raise _refuse("tag_name_invalid", f"{repository}:{tag}")
        self._read(repository, digest)
        self._tags[repository][tag] = digest

    def drop(self, repository: str, digest: Digest) -> bool:
        self._begin("drop", repository)
        if not is_digest(digest):
            raise _refuse("digest_mismatch", f"{repository}@{digest}")
        if not self.can_drop:
            return False
        blobs, tags = self._blobs[repository], self._tags[repository]
        lost = blobs.get(hex_of_digest(digest), b"").decode(errors="replace")
        others = {
            d: blobs[hex_of_digest(d)].decode(errors="replace")
            for d in set(tags.values()) - {digest}
            if hex_of_digest(d) in blobs
        }
        doomed = [h for h in blobs if h in lost and not any(h in text for text in others.values())]
        for tag in [tag for tag, named in tags.items() if named == digest]:
            del tags[tag]
            if tag.startswith("md5-") and (heir := self._heir(repository, lost, others)):
                tags[tag] = heir
        for name in [*doomed, hex_of_digest(digest)]:
            blobs.pop(name, None)
        return True

    def copy(self, source: Store, repository: str, digest: Digest, target_repository: str) -> Artifact:
        self._begin("copy", target_repository)
        artifact = source.manifest(repository, digest)
        data = self._blobs[target_repository].get(artifact.layer.sha256, b"")
        if hashlib.sha256(data).hexdigest() != artifact.layer.sha256:
            data = _bytes_of(source, repository, artifact.layer)
        return self._keep(target_repository, data, artifact.layer, artifact.annotations, artifact.config)

    def manifest(self, repository: str, digest: Digest) -> Artifact:
        self._begin("manifest", repository)
        layer, annotations, config = self._parse(repository, digest, self._read(repository, digest))
        data = self._read(repository, digest_of_hex(config.sha256))
        if len(data) != config.size:
            raise _refuse("size_mismatch", f"{repository}@{digest}")
        return Artifact(f"{repository}@{digest}", digest, layer, annotations, data)

    def get(self, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        self._begin("get", repository)
        where = f"{repository}@{layer.sha256}"
        data = self._blobs[repository].get(layer.sha256)
        if data is None:
            raise _refuse("object_missing" if is_hex(layer.sha256, 64) else "hash_mismatch", where)
        if len(data) != layer.size:
            raise _refuse("size_mismatch", where)
        if hashlib.sha256(data).hexdigest() != layer.sha256 or md5 not in (None, hashlib.md5(data).hexdigest()):
            raise _refuse("hash_mismatch", where)
        temporary = target.with_name(f"{target.name}.part-{id(data):016x}")
        temporary.write_bytes(data)
        temporary.replace(target)

    def resolve(self, ref: str) -> Digest | None:
        parts = split_ref(ref)
        self._begin("resolve", parts[0] if parts else "global")
        return self._tags[parts[0]].get(parts[1]) if parts else None

    # the rest

    def _begin(self, operation: Operation, repository: str) -> None:
        self.calls[operation] += 1
        if self._faults[operation]:
            raise self._faults[operation].pop(0)
        if not is_repository(repository):
            raise _refuse("path_not_allowed", repr(repository))

    def _add(self, repository: str, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        self._blobs[repository][sha256] = data
        return sha256

    def _keep(
        self, repository: str, data: bytes, layer: Layer, annotations: Mapping[str, str], config: bytes
    ) -> Artifact:
        manifest = build_manifest(layer, annotations, config, format=format_of_title(layer.title))
        digest = manifest_digest(manifest)
        self._parse(repository, digest, manifest)
        for blob in (data, config, manifest):
            self._add(repository, blob)
        self._tags[repository][manifest_tag(digest)] = digest
        return Artifact(f"{repository}@{digest}", digest, layer, dict(annotations), config)

    def _read(self, repository: str, digest: Digest) -> bytes:
        where = f"{repository}@{digest}"
        data = self._blobs[repository].get(hex_of_digest(digest))
        if data is None:
            raise _refuse("object_missing" if is_digest(digest) else "digest_mismatch", where)
        if manifest_digest(data) != digest:
            raise _refuse("digest_mismatch", where)
        return data

    @staticmethod
    def _parse(repository: str, digest: Digest, data: bytes) -> tuple[Layer, Mapping[str, str], Blob]:
        parsed = parse_manifest(data, where=f"{repository}@{digest}", allowed_titles=titles_of(repository))
        if parsed.layer is None or parsed.config is None:
            raise _refuse(parsed.findings[0].slug, f"{repository}@{digest}")
        return parsed.layer, parsed.annotations, parsed.config

    @staticmethod
    def _heir(repository: str, lost: str, others: Mapping[Digest, str]) -> Digest | None:
        layer = parse_manifest(lost.encode(), where=repository).layer
        return next((digest for digest, text in others.items() if layer is not None and layer.sha256 in text), None)


def _bytes_of(source: Store, repository: str, layer: Layer) -> bytes:
    """The layer's bytes through the port, which hands them out as files only."""
    with TemporaryDirectory() as folder:
        target = Path(folder) / layer.title
        source.get(repository, layer, target)
        return target.read_bytes()
