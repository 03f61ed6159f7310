"""What the engine reads: open model files, each handed over chunk by chunk and hashed in passing if that was asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.core.casts import storage
from fedops.core.chunks import Chunk
from fedops.core.facts import F64, Dtype, Weighted
from fedops.core.findings import Finding, finding
from fedops.core.tensors import DTYPES
from fedops.ports import OpenModel

_HUGE_PAGE = 1 << 21


@dataclass(frozen=True)
class Input:
    """One site's update.

    Attributes:
        weighted: the submission with its weight.
        model: its bytes; names, shapes, dtypes are those of the current version (checked by `validate_model`).
        where: for findings.
        sha256: hex digest that the bytes must have; None: not checked here.
    """

    weighted: Weighted
    model: OpenModel
    where: str
    sha256: str | None = None

    @property
    def site(self) -> str:
        return self.weighted.submission.site

    @property
    def base(self) -> int | None:
        """The version to subtract; None for a payload that is the difference itself."""
        submission = self.weighted.submission
        return submission.base_version if submission.payload == "full" else None


@dataclass(frozen=True)
class Base:
    """A global version: the current one, or one that an update was trained on.

    Attributes:
        model: its bytes.
        where: for findings.
        sha256: hex digest that the bytes must have; None: not checked here.
    """

    model: OpenModel
    where: str
    sha256: str | None = None


class Feed:
    """One file on its way through a pass.

    Args:
        model: the file.
        sha256: hex digest to check; it costs no second pass if the file is in canonical order.
    """

    def __init__(self, model: OpenModel, sha256: str | None) -> None:
        self._model = model
        self._expected = sha256
        head = model.head if sha256 is not None else None
        self._digest = hashlib.sha256(head) if head is not None else None
        self._got: str | None = None
        self._elsewhere: Callable[[Chunk], NDArray[np.uint8]] | None = None

    @property
    def in_order(self) -> bool:
        """True if the bytes come over the network, once, and are compared there."""
        return self._model.in_order

    @property
    def every_chunk(self) -> bool:
        """True if each chunk must be read, in order, because all bytes are hashed."""
        return self._digest is not None

    @property
    def digest(self) -> str | None:
        """Hex digest of what was read; None: nothing is hashed in passing."""
        return self._got or (None if self._digest is None else self._digest.hexdigest())

    def read_elsewhere(self, found: Callable[[Chunk], NDArray[np.uint8]]) -> None:
        """From now on somebody else reads and hashes this file, and here a chunk's bytes are found by `found`."""
        self._elsewhere = found

    def was_read_elsewhere(self, digest: str) -> None:
        """All chunks were read and have this hex digest."""
        self._got = digest

    def read(self, chunk: Chunk, room: Room) -> NDArray[Any]:
        """A chunk as stored, in the room or where it was read before: not to be written to."""
        if self._elsewhere is not None:
            return Room.of(self._elsewhere(chunk), chunk).values
        self.fill(chunk, room)
        return room.values

    def fill(self, chunk: Chunk, room: Room) -> None:
        """Read a chunk from the file into the room."""
        self._model.read_into(chunk.position, room.raw)
        if self._digest is not None:
            self._digest.update(room.raw)

    def check(self, where: str, detail: Mapping[str, Any]) -> Finding | None:
        """The finding if the digest is another one; after all chunks were read.

        Raises:
            StoreError: the file was changed meanwhile.
        """
        got = self.digest
        if got is not None and got == self._expected:
            return None  # these very bytes were read, whatever has happened to the file since
        self._model.check_unchanged()
        if self._expected is None:
            return None
        got = got or self._model.sha256()
        if got == self._expected:
            return None
        return finding("hash_mismatch", where, got=got, expected=self._expected, detail=detail)


@dataclass(frozen=True)
class Room:
    """The place of a chunk.

    Attributes:
        values: of the chunk's storage type, shape (chunk.count,).
        raw: the same memory as bytes.
    """

    values: NDArray[Any]
    raw: memoryview

    @classmethod
    def of(cls, memory: NDArray[np.uint8], chunk: Chunk) -> Room:
        """The beginning of some memory, which is large enough."""
        stored = memory[: chunk.count * DTYPES[chunk.dtype].itemsize]
        return cls(stored.view(storage(chunk.dtype)), stored.data)


class Buffers:
    """One process's memory, used again for every chunk.

    Args:
        elements: of the largest chunk.
        rows: how many float64 arrays.
    """

    def __init__(self, elements: int, rows: int) -> None:
        size = 8 * elements
        total = (rows + 1) * size
        # NOTE: one block on huge pages: buffers on scattered small pages push each other out of the cache (a third slower).
        block = np.empty(max(total, 2 * _HUGE_PAGE) + _HUGE_PAGE, np.uint8)
        start = -block.ctypes.data % _HUGE_PAGE
        cuts = [block[start + i * size : start + (i + 1) * size] for i in range(rows + 1)]
        self._rows = [cut.view(np.float64) for cut in cuts[:rows]]
        self._raw = cuts[rows]
        self._last: tuple[Dtype, int] | None = None

    def places(self, chunk: Chunk) -> tuple[Room, Sequence[F64]]:
        """Where a chunk goes as stored, and the float64 arrays of shape (chunk.count,)."""
        if self._last != (chunk.dtype, chunk.count):  # most chunks are as large as the one before
            self._last = (chunk.dtype, chunk.count)
            self._places = Room.of(self._raw, chunk), [row[: chunk.count] for row in self._rows]
        return self._places
