"""What the engine reads: open model files, each handed over chunk by chunk and hashed in passing if that was asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.app.lanes import Turns
from fedops.core.casts import storage
from fedops.core.chunks import Chunk
from fedops.core.facts import F64, Weighted
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
    """One file on its way through the lanes.

    Args:
        model: the file.
        sha256: hex digest to check; it costs no second pass if the file is in canonical order.
    """

    def __init__(self, model: OpenModel, sha256: str | None) -> None:
        self._model = model
        self._expected = sha256
        head = model.head if sha256 is not None else None
        self._digest = hashlib.sha256(head) if head is not None else None
        self.turns = Turns()

    @property
    def every_chunk(self) -> bool:
        """True if each chunk must be read, because all bytes are hashed."""
        return self._digest is not None

    def read(self, chunk: Chunk, buffer: memoryview) -> None:
        """Fill the buffer with the chunk's stored bytes."""
        self._model.read_into(chunk.position, buffer)
        if self._digest is not None:
            self.turns.wait(chunk.index)
            self._digest.update(buffer)
            self.turns.done(chunk.index)

    def check(self, where: str, detail: Mapping[str, Any]) -> Finding | None:
        """The finding if the digest is another one; after all chunks were read.

        Raises:
            StoreError: the file was changed meanwhile.
        """
        if self._digest is not None and self._digest.hexdigest() == self._expected:
            return None  # these very bytes were read, whatever has happened to the file since
        self._model.check_unchanged()
        if self._expected is None:
            return None
        got = self._model.sha256() if self._digest is None else self._digest.hexdigest()
        if got == self._expected:
            return None
        return finding("hash_mismatch", where, got=got, expected=self._expected, detail=detail)


class Buffers:
    """One lane's memory, used again for every chunk.

    Args:
        elements: of the largest chunk.
        rows: how many float64 arrays.
    """

    def __init__(self, elements: int, rows: int) -> None:
        room = 8 * elements
        total = (rows + 2) * room
        # NOTE: one block on huge pages: buffers on scattered small pages push each other out of the cache (a third slower).
        block = np.empty(max(total, 2 * _HUGE_PAGE) + _HUGE_PAGE, np.uint8)
        start = -block.ctypes.data % _HUGE_PAGE
        cuts = [block[start + i * room : start + (i + 1) * room] for i in range(rows + 2)]
        self.rows: Sequence[F64] = [cut.view(np.float64) for cut in cuts[:rows]]
        self._raw, self._out = cuts[rows], cuts[rows + 1]

    def stored(self, chunk: Chunk) -> tuple[NDArray[Any], memoryview]:
        """Where a file's chunk goes: an array of the storage type of shape (m,), and the same memory as bytes."""
        return _typed(self._raw, chunk)

    def result(self, chunk: Chunk) -> tuple[NDArray[Any], memoryview]:
        """The same for the new version's chunk."""
        return _typed(self._out, chunk)


def _typed(room: NDArray[np.uint8], chunk: Chunk) -> tuple[NDArray[Any], memoryview]:
    raw = room[: chunk.count * DTYPES[chunk.dtype].itemsize]
    return raw.view(storage(chunk.dtype)), raw.data
