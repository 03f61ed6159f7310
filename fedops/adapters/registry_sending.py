"""What is sent to a registry, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from fedops.adapters import durable
from fedops.adapters.durable import Readable
from fedops.adapters.meter import Meter
from fedops.adapters.refusals import refusal
from fedops.ports import BlobReader


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
