"""Model bytes by digest, and what some stores can do besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from fedops.core.facts import (
    Artifact,
    Layer,
)
from fedops.core.ids import Digest


class Store(Protocol):
    """Model bytes by digest. put is idempotent and tags only by content; `tag` sets a display tag such as v9 later."""

    def put(self, repository: str, file: Path, annotations: Mapping[str, str], config: bytes = b"{}") -> Artifact:
        """Upload one file as a one-layer manifest, tagged :md5-<hex> and :m-<manifest hex>.

        Args:
            repository: "global", "sites/<id>" or "archive".
            file: the layer's bytes; its title is fixed by the repository ("update.<ext>" or "model.<ext>").
        """
        ...

    def tag(self, repository: str, digest: Digest, tag: str) -> None: ...

    def drop(self, repository: str, digest: Digest) -> bool:
        """Remove a manifest and its bytes (retention); False: this store cannot."""
        ...

    def copy(self, source: Store, repository: str, digest: Digest, target_repository: str) -> Artifact:
        """Copy one manifest and its blobs from source's repository into this store's target_repository."""
        ...

    def manifest(self, repository: str, digest: Digest) -> Artifact:
        """Read one manifest by digest; its bytes are checked against the digest; one layer, known types.

        Raises:
            StoreError: slug object_missing, digest_mismatch, foreign_layer_refused, layer_title_invalid, …
        """
        ...

    def get(self, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        """Download one layer; size, sha256 (and md5) checked in one pass, then renamed to target.

        Raises:
            StoreError: slug object_missing, size_mismatch, hash_mismatch.
        """
        ...

    def resolve(self, ref: str) -> Digest | None:
        """Manifest digest of "<repository>:<tag>"; mutable, for display and audit only."""
        ...


class BlobReader(Protocol):
    """The bytes of one layer, read once and in order by one thread at a time; memory is the caller's buffer.

    The call that would give the last byte raises instead if size, sha256 (or md5) are wrong: what came before must not
    be used then.
    """

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a buffer of bytes from its beginning; returns how many came (at least 1), 0 after the last.

        Raises:
            StoreError: slug size_mismatch, hash_mismatch; or the store is broken, after retries where it stopped.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class Streaming(Protocol):
    """A store whose layers can be used while they come, without a file; several at once."""

    def open_blob(self, repository: str, layer: Layer, *, md5: str | None = None) -> BlobReader:
        """Begin to read one layer.

        Args:
            layer: as the record says: what comes is compared with it.
            md5: hex digest that the bytes must have besides; None: not taken.

        Raises:
            StoreError: slug object_missing, size_mismatch.
        """
        ...


@runtime_checkable
class WriteProbe(Protocol):
    """A store that can say whether it would take a model, without taking one."""

    def write_fault(self, repository: str) -> str | None:
        """Why nothing can be put into a repository; None if nothing is known against it.

        Raises:
            StoreError: the store cannot be reached.
        """
        ...


@runtime_checkable
class InPlace(Protocol):
    """A store that keeps each layer as a plain file on this machine, so that nothing must be copied to be read."""

    def layer_file(self, repository: str, layer: Layer) -> Path:
        """The file of one layer, of the size that the layer says; its bytes are not looked at: whoever reads, hashes.

        Raises:
            StoreError: slug object_missing, size_mismatch.
        """
        ...

    def small_files(self, repository: str, artifact: Artifact) -> Sequence[Path]:
        """The files of an artifact's manifest and config."""
        ...
