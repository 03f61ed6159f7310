"""What is sent to a registry, block by block, and who is told how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedops.adapters import durable
from fedops.adapters.durable import Readable
from fedops.adapters.refusals import refusal
from fedops.ports import BlobReader, Progress


class Meter:
    """Tells of bytes; what is sent a second time after a fault is not counted twice.

    Args:
        progress: None: nobody is told.
        total: bytes in all.
    """

    def __init__(self, progress: Progress | None, what: str, total: int) -> None:
        self._progress, self._what, self._total = progress, what, total
        self._task: int | None = None
        self._reached = 0

    def at(self, position: int) -> None:
        """So many bytes are through now; the first call begins the task, so that a transfer that is not needed shows none."""
        if self._progress is None or position <= self._reached:
            return
        if self._task is None:
            self._task = self._progress.start(self._what, self._total, "bytes")
        self._progress.advance(self._task, position - self._reached)
        self._reached = position

    def finish(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.finish(self._task, f"{self._reached} bytes")

    def reading(self, source: Readable) -> Readable:
        """The same source, metered."""
        return _Metered(source, self)


class _Metered:
    def __init__(self, source: Readable, meter: Meter) -> None:
        self._source, self._meter = source, meter
        self._position = 0

    def readinto(self, buffer: memoryview, /) -> int:
        count = self._source.readinto(buffer)
        self._position += count
        self._meter.at(self._position)
        return count


@contextmanager
def metered(progress: Progress | None, what: str, total: int) -> Iterator[Meter]:
    """A meter for the length of the block; what came through is told at its end, however that comes."""
    meter = Meter(progress, what, total)
    try:
        yield meter
    finally:
        meter.finish()


class FileBody:
    """The first `size` bytes of a file, which is opened each time that they are sent."""

    def __init__(self, file: Path, size: int, meter: Meter | None = None) -> None:
        self._file, self._size, self._meter = file, size, meter

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[memoryview]:
        with durable.reported(self._file, "read it"), self._file.open("rb") as source:
            yield from _blocks(source, self._size, str(self._file), self._meter)


class ReaderBody:
    """A layer of another store, which is opened each time that it is sent; its last block is withheld if any was wrong."""

    def __init__(self, opening: Callable[[], BlobReader], size: int, where: str) -> None:
        self._opening, self._size, self._where = opening, size, where

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[memoryview]:
        with closing(self._opening()) as source:
            yield from _blocks(source, self._size, self._where, None)


def _blocks(source: Readable, size: int, where: str, meter: Meter | None) -> Iterator[memoryview]:
    """`size` bytes in blocks of 1 MiB; each is valid until the next is taken."""
    block = memoryview(bytearray(durable.BLOCK_BYTES))
    position = 0
    while position < size:
        count = source.readinto(block[: size - position])
        if not count:
            raise refusal("size_mismatch", where, got=position, expected=size)
        yield block[:count]
        position += count
        if meter is not None:
            meter.at(position)
