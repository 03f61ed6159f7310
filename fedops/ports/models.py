"""Model files on disk: the one way by which use cases reach tensors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from fedops.core.facts import (
    Specs,
    TensorSource,
)
from fedops.core.findings import Finding
from fedops.core.settings import Limits
from fedops.ports.store import BlobReader


class OpenModel(TensorSource, Protocol):
    """A model file that passed its preflight: container, sizes, names, dtypes; values are not checked yet."""

    @property
    def format(self) -> Literal["safetensors", "npz"]: ...

    @property
    def size(self) -> int:
        """Bytes of the file."""
        ...

    @property
    def has_metadata(self) -> bool:
        """True if the file carries free metadata (refused in a repository, dropped from drafts)."""
        ...

    @property
    def in_order(self) -> bool:
        """True if the data comes over the network: it can be read once, from its beginning to its end, and nothing else.

        Then only `read_into` gives data, each time from where the last one ended.
        """
        ...

    @property
    def head(self) -> bytes | None:
        """What stands before the data, if the file is just that and the data in canonical order; else None.

        Whoever reads all data in order can then hash the file in passing.
        """
        ...

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill a buffer with stored little-endian bytes of the data in canonical order; safe in several threads.

        Args:
            position: bytes from the beginning of the canonical data.
            buffer: bytes, writable; overwritten.

        Raises:
            StoreError: the file has become shorter; or, with the last bytes of what comes in order, any of it was wrong.
        """
        ...

    def sha256(self) -> str:
        """Hex digest of the file as it was handed in, by a pass of its own."""
        ...

    def check_unchanged(self) -> None:
        """Raise StoreError if the file has changed since it was opened; to be called before its data is used."""
        ...

    def close(self) -> None: ...


class ModelSink(Protocol):
    """A canonical safetensors file that is being written; no file of the final name exists before `commit`."""

    def append(self, data: memoryview) -> None:
        """Write the next bytes of the canonical data; they may be overwritten when this returns."""
        ...

    def commit(self) -> tuple[str, str, int]:
        """Make the file durable, give it its name; returns (sha256 hex, md5 hex or "", size in bytes)."""
        ...


class Models(Protocol):
    """Opens model files; the one way by which use cases reach tensors on disk."""

    def open(self, path: Path, limits: Limits, where: str) -> tuple[OpenModel | None, tuple[Finding, ...]]:
        """Preflight a file by its content and open it; None if a finding is an error."""
        ...

    def stream(
        self, source: BlobReader, size: int, limits: Limits, where: str
    ) -> tuple[OpenModel | None, tuple[Finding, ...]]:
        """Open a safetensors file that is only now coming, by its header; None if a finding is an error.

        Args:
            source: at its beginning; closed with the model, or here if there is none.
            size: bytes of the whole file.

        Raises:
            StoreError: as the source.
        """
        ...

    def digests(self, path: Path) -> tuple[str, str, int]:
        """(sha256 hex, md5 hex, size in bytes) in one pass."""
        ...

    def rewrite(self, source: OpenModel, target: Path) -> tuple[str, str, int]:
        """Write the canonical safetensors file of a model; returns its (sha256 hex, md5 hex, size in bytes)."""
        ...

    def create(self, target: Path, specs: Specs, *, md5: bool = True) -> AbstractContextManager[ModelSink]:
        """Begin the canonical safetensors file of a model; what is not committed at the end of the block is removed.

        Args:
            md5: also take the md5 (DVC wants it); False is faster, and commit gives "" for it.
        """
        ...
