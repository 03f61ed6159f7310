"""Several models that come over the network at once, read in step, chunk by chunk, a few chunks ahead.

Threads and not a process: what takes time here is waiting for bytes and hashing them, and neither holds the interpreter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedops.app.feeds import Feed, Room
from fedops.core.chunks import Chunk

_THREADS = 4  # each reads some of the models, so that a line that stands still does not hold up all


class InStep:
    """Reads chunk after chunk of all feeds; to be used in a `with`, which ends the threads.

    Args:
        feeds: each is read by one thread alone, in order.
        rooms: chunks that may have begun and are not yet used.
        size: bytes of the largest chunk.
    """

    def __init__(self, feeds: Sequence[Feed], rooms: int, size: int) -> None:
        self._memory = np.empty((rooms, len(feeds), size), np.uint8)
        numbered = list(enumerate(feeds))
        groups = [numbered[first::_THREADS] for first in range(min(_THREADS, len(feeds)))]
        self._threads = [(ThreadPoolExecutor(1), group) for group in groups]
        self._begun: deque[list[Future[None]]] = deque()

    def place(self, number: int, chunk: Chunk) -> NDArray[np.uint8]:
        """Where the chunk of a feed lies after `wait`, of shape (size,), until `begin` is called for a later one."""
        place: NDArray[np.uint8] = self._memory[chunk.index % len(self._memory), number]
        return place

    def begin(self, chunk: Chunk) -> None:
        """Let the next chunk be read; at most `rooms` that were not waited for and used."""
        self._begun.append([pool.submit(self._read, group, chunk) for pool, group in self._threads])

    def wait(self) -> None:
        """Wait for the oldest chunk that has begun.

        Raises:
            Exception: what happened when it was read.
        """
        for reading in self._begun.popleft():
            reading.result()

    def _read(self, group: Sequence[tuple[int, Feed]], chunk: Chunk) -> None:
        for number, feed in group:
            feed.fill(chunk, Room.of(self.place(number, chunk), chunk))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool, _ in self._threads:
            pool.shutdown(wait=False, cancel_futures=True)
        for pool, _ in self._threads:
            pool.shutdown()
