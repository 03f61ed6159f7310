"""What all stores do alike: names and digests are checked, manifests are read, and layers arrive checked or not at all."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from fedops.adapters import durable
from fedops.adapters.durable import Readable
from fedops.adapters.refusals import refusal, refused
from fedops.core.artifacts import (
    Blob,
    build_manifest,
    format_of_title,
    is_repository,
    manifest_digest,
    parse_manifest,
    titles_of,
)
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact, Layer
from fedops.core.ids import Digest, is_digest, is_hex

_REFERENCE = re.compile(rb"sha256:([0-9a-f]{64})")


def check_repository(repository: str) -> None:
    """Refuse other names before they become part of a path or a URL."""
    if not is_repository(repository):
        what = f"{repository!r}: not a repository of a store -> expected global, archive or sites/<id>"
        raise StoreError(what, slug="path_not_allowed")


def check_digest(repository: str, digest: Digest) -> None:
    """Refuse other text before it becomes part of a path or a URL."""
    if not is_digest(digest):
        raise refusal("digest_mismatch", repository, got=digest, expected="sha256:<64 hex>")


def check_layer(where: str, layer: Layer) -> None:
    """Refuse other text than a sha256 before it becomes part of a path or a URL."""
    if not is_hex(layer.sha256, 64):
        raise refusal("hash_mismatch", where, expected="64 hex digits")


def read_manifest(repository: str, digest: Digest, data: bytes) -> tuple[Layer, Mapping[str, str], Blob]:
    """What manifest bytes say: layer, annotations, config; the first finding is raised."""
    parsed = parse_manifest(data, where=f"{repository}@{digest}", allowed_titles=titles_of(repository))
    if parsed.layer is None or parsed.config is None:
        raise refused(parsed.findings[0])
    return parsed.layer, parsed.annotations, parsed.config


def digests_in(data: bytes) -> frozenset[str]:
    """Hex of every digest that manifest bytes name.

    Any text that looks like a digest counts, so that a damaged or foreign manifest keeps its blobs rather than loses
    them.
    """
    return frozenset(m.decode() for m in _REFERENCE.findall(data))


def manifest_to_copy(artifact: Artifact, digest: Digest) -> bytes:
    """Write the manifest of an artifact that another store read by `digest`.

    Raises:
        StoreError: slug digest_mismatch: that store told something else than what it keeps.
    """
    layer = artifact.layer
    manifest = build_manifest(layer, artifact.annotations, artifact.config, format=format_of_title(layer.title))
    if manifest_digest(manifest) != digest:
        raise refusal("digest_mismatch", artifact.ref, got=manifest_digest(manifest), expected=digest)
    return manifest


def save_layer(source: Readable, layer: Layer, target: Path, where: str, *, md5: str | None) -> None:
    """Write a layer to `target`, checked on the way; nothing is at `target` before all of it is right.

    Args:
        source: the bytes, from their beginning.
        where: repository and digest, for messages.
        md5: hex digest that the bytes must have besides; None: not taken.

    Raises:
        StoreError: slug size_mismatch, hash_mismatch.
    """
    durable.clean_parts(target.parent, of=target.name)
    with durable.part(target) as temporary:
        with temporary.open("xb") as out:
            got = durable.stream(source, out, limit=layer.size, md5=md5 is not None)
        if got.size != layer.size:
            raise refusal("size_mismatch", where, got=got.size, expected=layer.size)
        if got.sha256 != layer.sha256:
            raise refusal("hash_mismatch", where, got=got.sha256, expected=layer.sha256)
        if md5 is not None and got.md5 != md5:
            raise refusal("hash_mismatch", where, got=f"md5 {got.md5}", expected=f"md5 {md5}")
        durable.sync_file(temporary)
        temporary.replace(target)


class Source(Readable, Protocol):
    """Bytes that can be read once, in order, and must be closed."""

    def close(self) -> None: ...


class CheckedReader:
    """A layer's bytes in order; the call that would give the last of them raises instead if any of them was wrong.

    Args:
        source: the bytes, from their beginning; closed with this reader.
        where: repository and digest, for messages.
        md5: hex digest that the bytes must have besides; None: not taken.
    """

    def __init__(self, source: Source, layer: Layer, where: str, *, md5: str | None = None) -> None:
        self._source, self._layer, self._where, self._md5 = source, layer, where, md5
        self._digest = hashlib.sha256()
        self._weak = hashlib.md5(usedforsecurity=False)
        self._left = layer.size

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a buffer from its beginning; returns how many bytes came, 0 after the last.

        Raises:
            StoreError: slug size_mismatch, hash_mismatch: nothing that was read may be used. Or the store is broken.
        """
        if not self._left or not len(buffer):
            return 0
        with durable.reported(self._where, "read it"):
            count = self._source.readinto(buffer[: self._left])
        if not count:
            got = self._layer.size - self._left
            raise refusal("size_mismatch", self._where, got=got, expected=self._layer.size)
        self._digest.update(buffer[:count])
        if self._md5 is not None:
            self._weak.update(buffer[:count])
        self._left -= count
        if not self._left:
            self._check()
        return count

    def _check(self) -> None:
        if self._digest.hexdigest() != self._layer.sha256:
            raise refusal("hash_mismatch", self._where, got=self._digest.hexdigest(), expected=self._layer.sha256)
        if self._md5 is not None and self._weak.hexdigest() != self._md5:
            got = f"md5 {self._weak.hexdigest()}"
            raise refusal("hash_mismatch", self._where, got=got, expected=f"md5 {self._md5}")

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
