"""Who is told how far a transfer is, by bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedops.adapters.durable import Readable
from fedops.ports import Progress


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
