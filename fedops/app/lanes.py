"""Threads that share one line of chunks: each takes the next, results pass narrow places in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Stopped(Exception):  # noqa: N818 not an error: another lane has one
    """Another lane has ended the run."""


class Turns:
    """A place that chunks pass one by one, in order of their index."""

    def __init__(self) -> None:
        self._next = 0
        self._broken = False
        self._changed = threading.Condition()

    def wait(self, index: int) -> None:
        """Wait until all lower indexes have passed.

        Raises:
            Stopped: the run was ended.
        """
        if self._next != index:  # read without the lock: nobody else advances it to or beyond `index`
            with self._changed:
                self._changed.wait_for(lambda: self._broken or self._next == index)
        if self._broken:
            raise Stopped

    def done(self, index: int) -> None:
        """Let the next index pass."""
        with self._changed:
            self._next = index + 1
            self._changed.notify_all()

    def stop(self) -> None:
        """End the run: whoever waits, or comes later, gets Stopped."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()


class Line(Generic[T]):
    """An iterator from which several threads take, until it is stopped."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._lock = threading.Lock()
        self._stopped = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            if self._stopped:
                raise StopIteration
            return next(self._items)

    def stop(self) -> None:
        """Let nobody take another item."""
        self._stopped = True


def run_lanes(lanes: Sequence[Callable[[], None]], line: Line[T], places: Sequence[Turns]) -> None:
    """Run each lane in a thread, the first in this one, until all have returned.

    Args:
        lanes: take chunks from `line` and pass `places`.
        line: stopped when a lane fails.
        places: opened for good when a lane fails, so that none waits for ever.

    Raises:
        BaseException: the first error of a lane.
    """
    failures: list[BaseException] = []

    def guarded(lane: Callable[[], None]) -> None:
        try:
            lane()
        except BaseException as e:  # noqa: BLE001 raised again in the thread that asked
            failures.append(e)
            line.stop()
            for place in places:
                place.stop()

    threads = [threading.Thread(target=guarded, args=(lane,), daemon=True) for lane in lanes[1:]]
    for thread in threads:
        thread.start()
    guarded(lanes[0])
    for thread in threads:
        thread.join()
    if failures:  # the first one stopped the others
        raise failures[0]
