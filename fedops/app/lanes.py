"""A second process beside this one, so that a pass over a large model keeps two processors busy.

A process and not a thread: numpy's calls on a chunk are so short that threads spend half their time waiting for the
interpreter. It is a fork, which has all files open already and takes milliseconds, and it is only made where that is
safe; elsewhere this process does everything itself, with the same bytes.
"""

from __future__ import annotations

import mmap
import multiprocessing
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedops.core.chunks import Chunk
from fedops.core.errors import FedopsError

ROOMS = 16  # chunks on their way in a shared pass; what finished early waits there for its turn
_AT_ONCE = 8  # chunks that the other process is given ahead: this one may be held up by the disk for some milliseconds

Plan: TypeAlias = Callable[[], Iterator[Chunk]]  # the chunks of a pass in ascending index; each process takes its own


class Part(Protocol):
    """What one process does in a pass; made by the process that uses it."""

    def work(self, chunk: Chunk) -> None:
        """Do one chunk; each process gets some of them, in ascending index."""
        ...

    def told(self) -> Any:
        """What this process has found out, after its last chunk; not large."""
        ...


class Ring:
    """Memory that both processes see, with rooms that chunks use in turn.

    It has no name, so nothing is left behind when the last process ends, however it ends.

    Args:
        rooms: chunks on their way at a time.
        size: bytes of a room.
    """

    def __init__(self, rooms: int, size: int) -> None:
        memory = mmap.mmap(-1, max(1, rooms * size))
        self._rooms = np.frombuffer(memory, np.uint8)[: rooms * size].reshape(rooms, size)

    def room(self, chunk: Chunk) -> NDArray[np.uint8]:
        """The chunk's room, of shape (size,)."""
        room: NDArray[np.uint8] = self._rooms[chunk.index % len(self._rooms)]
        return room


def can_fork() -> bool:
    """True if a copy of this process would run: on Linux, and with no other thread, whose locks nobody would release."""
    if sys.platform != "linux" or multiprocessing.current_process().daemon:  # such a process may start no other
        return False
    with suppress(OSError):
        return len(list(Path("/proc/self/task").iterdir())) == 1
    return False


class Beside:
    """The other process; it ends with this object or with the process that made it, however that one ends.

    Args:
        plan: of the pass.
        part: makes what it does.
    """

    def __init__(self, plan: Plan, part: Callable[[], Part]) -> None:
        fork = multiprocessing.get_context("fork")
        self._link, theirs = fork.Pipe()
        self._process = fork.Process(target=serve, args=(theirs, self._link, plan, part), daemon=True)
        self._process.start()
        theirs.close()
        self._heard = select.poll()  # Connection.poll takes ten times as long
        self._heard.register(self._link.fileno(), select.POLLIN)
        self._busy: deque[int] = deque()  # chunks in the order in which they were given
        self._ended: dict[int, Exception | None] = {}

    def give(self, chunk: Chunk) -> None:
        """Let it do a chunk; the indexes must ascend."""
        try:
            self._link.send(chunk.index)
        except OSError as e:
            raise _lost() from e
        self._busy.append(chunk.index)

    @property
    def hungry(self) -> bool:
        """True if it soon has nothing to do."""
        while self._busy and self._heard.poll(0):
            self._hear()
        return len(self._busy) < _AT_ONCE

    def has_done(self, chunk: Chunk, *, wait: bool) -> bool:
        """True if it has done a chunk that it was given; False only without `wait`.

        Raises:
            Exception: what happened to it there.
            FedopsError: the process is gone.
        """
        while chunk.index not in self._ended:
            if not wait and not self._heard.poll(0):
                return False
            self._hear()
        error = self._ended.pop(chunk.index)
        if error is not None:
            raise error
        return True

    def told(self) -> Any:
        """What it has found out; when it has done all that it was given."""
        try:
            self._link.send(None)
            return self._link.recv()
        except (EOFError, OSError) as e:
            raise _lost() from e

    def _hear(self) -> None:
        try:
            self._ended[self._busy[0]] = self._link.recv()
        except (EOFError, OSError) as e:
            raise _lost() from e
        self._busy.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()
        self._process.kill()  # it has nothing of its own to bring to an end
        self._process.join()
        self._process.close()


def _lost() -> FedopsError:
    return FedopsError(
        "the process that computes beside this one was killed, nothing was written",
        slug="process_lost",
        cause="temporary",
        hint="most often the system had no memory left: free some, then repeat the command",
    )


def beside(plan: Plan, part: Callable[[], Part], *, wanted: bool) -> AbstractContextManager[Beside | None]:
    """The other process; None if it is not wanted, or if the system allows no more processes."""
    if wanted:
        with suppress(OSError):
            return Beside(plan, part)
    return nullcontext()


def serve(link: Connection, other_end: Connection, plan: Plan, part: Callable[[], Part]) -> None:
    """What the other process runs: chunk for chunk as it is told, until it is asked what it found or nobody is there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the one that was asked decides
    other_end.close()  # or the end of that process would go unnoticed
    with suppress(EOFError, OSError):
        mine, chunks = part(), plan()
        while (index := link.recv()) is not None:
            error = None
            try:
                mine.work(next(chunk for chunk in chunks if chunk.index == index))
            except Exception as e:  # noqa: BLE001 raised again in the process that asked
                error = e
            link.send(error)
        link.send(mine.told())


def share(plan: Plan, part: Callable[[], Part], deliver: Callable[[Chunk], None], other: Beside | None) -> list[Any]:
    """Do every chunk of a pass, here or beside, and hand each over in order.

    Args:
        plan: of the pass.
        part: makes what this process does.
        deliver: called here for each chunk, in order, after it was done; at most ROOMS are done and not delivered.
        other: the second process; None: there is none.

    Returns:
        What each process has to tell.

    Raises:
        Exception: what happened to the first chunk that went wrong, whoever did it.
    """
    mine = part()
    if other is None:
        for chunk in plan():
            mine.work(chunk)
            deliver(chunk)
        return [mine.told()]
    here: dict[int, Exception | None] = {}  # chunks done by this process, and what happened
    line: deque[Chunk] = deque()

    def pass_on(*, wait: bool) -> bool:
        chunk = line[0]
        if chunk.index not in here and not other.has_done(chunk, wait=wait):
            return False
        if (error := here.pop(chunk.index, None)) is not None:
            raise error
        deliver(line.popleft())
        return True

    for chunk in plan():
        line.append(chunk)
        if other.hungry:
            other.give(chunk)
        else:
            here[chunk.index] = _outcome(mine, chunk)
        while line and pass_on(wait=len(line) == ROOMS):
            pass
    while line:
        pass_on(wait=True)
    return [mine.told(), other.told()]


def _outcome(part: Part, chunk: Chunk) -> Exception | None:
    """What is told when the chunk's turn comes, so that the first error of a model is the same at any time."""
    try:
        part.work(chunk)
    except Exception as e:  # noqa: BLE001 raised again in its turn
        return e
    return None
