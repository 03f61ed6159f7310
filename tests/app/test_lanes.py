"""Two processes that share one line: everything is done once and handed over in order, and an error ends both."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedops.app import lanes
from fedops.app.lanes import ROOMS, Beside, Ring, beside, can_fork, serve, share
from fedops.core.chunks import Chunk, Piece
from fedops.core.errors import FedopsError, StoreError

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only on another system are there no forks"),
    # The test runner has threads of its own; what is forked here does not touch them.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
ROOT = Path(__file__).parents[2]
HERE = os.getpid()


def chunk(index: int) -> Chunk:
    return Chunk(index, 8 * index, "F64", None, (Piece("w", index, 1),))


def plan(count: int, step: int = 1) -> Callable[[], Iterator[Chunk]]:
    return lambda: (chunk(index) for index in range(0, count * step, step))


class Squares:
    """Writes the square of the index into the chunk's room; `happens` is called before, with the index."""

    def __init__(self, ring: Ring, happens: Callable[[int], None] = lambda _: None) -> None:
        self.ring, self.happens = ring, happens
        self.done: list[int] = []

    def work(self, chunk: Chunk) -> None:
        self.happens(chunk.index)
        self.ring.room(chunk).view(np.int64)[0] = chunk.index**2
        self.done.append(chunk.index)

    def told(self) -> tuple[int, list[int]]:
        return os.getpid(), self.done


def here(error: Callable[[], None]) -> Callable[[int], None]:
    """Something happens in this process; the other one waits for it, or it would do everything before."""
    gate = multiprocessing.get_context("fork").Event()

    def happens(_: int) -> None:
        if os.getpid() != HERE:
            assert gate.wait(30)
            return
        gate.set()
        error()

    return happens


def there(error: Callable[[], None]) -> Callable[[int], None]:
    return lambda index: error() if index >= 20 and os.getpid() != HERE else None


def run(count: int, happens: Callable[[int], None] = lambda _: None, *, two: bool = True, step: int = 1) -> Any:
    """(what was handed over, what was told) of one pass."""
    ring, passed = Ring(ROOMS, 8), []

    def deliver(chunk: Chunk) -> None:
        passed.append((chunk.index, int(ring.room(chunk).view(np.int64)[0])))

    def part() -> Squares:
        return Squares(ring, happens)

    with beside(plan(count, step), part, wanted=two) as other:
        return passed, share(plan(count, step), part, deliver, other)


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize(("count", "step"), [(0, 1), (1, 1), (2, 1), (ROOMS + 1, 1), (300, 1), (300, 3)])
def test_all_chunks_are_done_once_and_handed_over_in_order(count: int, step: int, two: bool) -> None:
    passed, told = run(count, two=two, step=step)
    assert passed == [(index, index**2) for index in range(0, count * step, step)]
    assert sorted(index for _, done in told for index in done) == [index for index, _ in passed]
    assert all(done == sorted(done) for _, done in told)
    assert len({pid for pid, _ in told}) == (2 if two else 1)
    assert multiprocessing.active_children() == []


def test_this_process_takes_chunks_while_the_other_one_is_busy_and_waits_for_it_at_the_end() -> None:
    gate = multiprocessing.get_context("fork").Event()

    def happens(index: int) -> None:
        if os.getpid() != HERE:
            assert gate.wait(30)
        else:
            gate.set()

    passed, told = run(60, happens)
    assert len(passed) == 60
    assert all(done for _, done in told)


@pytest.mark.parametrize("where", [here, there])
@pytest.mark.parametrize(
    "error", [ValueError("chunk 20"), StoreError("gone", hint="wait", slug="x", cause="temporary")]
)
def test_error_in_either_process_is_raised_here_as_it_was(where: Any, error: Exception) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        run(10**6, where(fails))
    assert (str(raised.value), vars(raised.value)) == (str(error), vars(error))
    assert multiprocessing.active_children() == []


def test_of_several_errors_the_one_of_the_first_chunk_is_raised() -> None:
    def happens(index: int) -> None:
        if index >= 20:
            raise ValueError(index)

    for _ in range(5):
        with pytest.raises(ValueError, match=r"^20$"):
            run(300, happens)


def test_ctrl_c_here_ends_both_at_once() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(10**6, here(interrupted))
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("two", [False, True])
def test_error_while_a_chunk_is_handed_over_ends_the_pass(two: bool) -> None:
    def full(_: Chunk) -> None:
        raise StoreError("disk full")

    def part() -> Squares:
        return Squares(Ring(ROOMS, 8))

    with beside(plan(100), part, wanted=two) as other, pytest.raises(StoreError, match="disk full"):
        share(plan(100), part, full, other)
    assert multiprocessing.active_children() == []


def test_killed_process_is_an_error_that_says_so() -> None:
    with pytest.raises(FedopsError, match="was killed, nothing was written") as raised:
        run(10**6, there(lambda: os.kill(os.getpid(), signal.SIGKILL)))
    assert (raised.value.slug, raised.value.cause) == ("process_lost", "temporary")
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("call", ["give", "has_done", "told"])
def test_process_that_is_gone_is_noticed_by_each_call(call: str) -> None:
    def gone() -> Any:
        os._exit(1)

    with Beside(plan(3), gone) as other:
        (child,) = multiprocessing.active_children() or (None,)
        if child is not None:
            child.join()
        calls: dict[str, Callable[[], Any]] = {
            "give": lambda: other.give(chunk(0)),
            "has_done": lambda: other.has_done(chunk(0), wait=True),
            "told": other.told,
        }
        with pytest.raises(FedopsError, match="was killed"):
            calls[call]()


def test_rooms_are_shared_and_used_in_turn() -> None:
    ring = Ring(3, 16)
    ring.room(chunk(1))[:] = 7
    assert ring.room(chunk(4)).tolist() == [7] * 16
    assert ring.room(chunk(2)).tolist() == ring.room(chunk(0)).tolist() == [0] * 16
    assert Ring(2, 0).room(chunk(1)).size == 0


# ---------------------------------------------------------------- the other end, without a process


@pytest.fixture
def ends() -> Iterator[tuple[Any, Any, Any]]:
    """(this end, that end, a copy of this end as the fork has it); the signal handler is put back."""
    before = signal.getsignal(signal.SIGINT)
    mine, theirs = multiprocessing.Pipe()
    copy, other = multiprocessing.Pipe()
    yield mine, theirs, copy
    signal.signal(signal.SIGINT, before)
    for end in (mine, theirs, copy, other):
        end.close()


def test_other_process_does_what_it_is_told_and_leaves_ctrl_c_to_the_first(ends: Any) -> None:
    mine, theirs, copy = ends
    ring = Ring(ROOMS, 8)

    def happens(index: int) -> None:
        if index == 4:
            raise ValueError("four")

    for message in (2, 4, 5, None):
        mine.send(message)
    serve(theirs, copy, plan(9), lambda: Squares(ring, happens))
    heard = [mine.recv() for _ in range(4)]
    assert heard[0] is None
    assert repr(heard[1]) == repr(ValueError("four"))
    assert heard[2:] == [None, (os.getpid(), [2, 5])]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert copy.closed


def test_other_process_ends_when_nobody_is_there(ends: Any) -> None:
    mine, theirs, copy = ends
    mine.close()
    serve(theirs, copy, plan(9), lambda: Squares(Ring(ROOMS, 8)))
    assert copy.closed


# ---------------------------------------------------------------- where a fork is safe


def test_there_is_no_fork_beside_other_threads() -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        gate.set()
        thread.join()


def test_there_is_no_fork_in_a_process_that_may_not_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([Path("1")]))
    assert can_fork()
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    assert not can_fork()


def test_there_is_no_fork_on_other_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lanes, "Path", lambda _: tmp_path / "no proc here")
    assert not can_fork()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not can_fork()


SCRIPT = """
import os, signal, sys, time
from fedops.app.lanes import Beside, can_fork
from tests.app.test_lanes import chunk, plan

class Waits:
    def work(self, chunk):
        print("at work", flush=True)
        if chunk.index == 0 and sys.argv[1] == "busy":
            signal.pause()
    def told(self): ...

assert can_fork()
with Beside(plan(9), Waits) as other:
    other.give(chunk(0))
    other.has_done(chunk(0), wait=True)
    print("main", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("how", "number"), [("idle", signal.SIGKILL), ("idle", signal.SIGINT), ("busy", signal.SIGINT)]
)
def test_other_process_does_not_outlive_this_one(how: str, number: signal.Signals) -> None:
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, how]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        if how == "idle":
            assert process.stdout.readline() == b"main\n"
        started = time.monotonic()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as the terminal does
        else:
            process.kill()
        process.communicate(timeout=30)  # the other process holds the pipe too: this is its end
        assert process.returncode == -number
        assert time.monotonic() - started < 20
