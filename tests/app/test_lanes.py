"""Threads that share one line: everything is done once, in order at the narrow places, and an error ends all."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fedops.app.lanes import Line, Stopped, Turns, run_lanes


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_all_items_pass_once_and_in_order(threads: int) -> None:
    line, turns = Line(iter(range(300))), Turns()
    passed: list[int] = []
    hands: set[int] = set()

    def lane() -> None:
        for item in line:
            hands.add(threading.get_ident())
            turns.wait(item)
            passed.append(item)
            turns.done(item)

    run_lanes([lane] * threads, line, [turns])
    assert passed == list(range(300))
    assert 1 <= len(hands) <= threads


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_first_error_ends_all_lanes_and_is_raised(threads: int, error: type[BaseException]) -> None:
    line, turns = Line(iter(range(10**9))), Turns()

    def lane() -> None:
        for item in line:
            if item == 20:
                raise error("item 20")
            turns.wait(item)
            turns.done(item)

    with pytest.raises(error, match="item 20"):
        run_lanes([lane] * threads, line, [turns])
    assert next(line, None) is None
    with pytest.raises(Stopped):
        turns.wait(21)


def test_error_of_the_line_itself_is_raised() -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise OSError("gone")

    line = Line(broken())

    def lane() -> None:
        for _ in line:
            pass

    with pytest.raises(OSError, match="gone"):
        run_lanes([lane, lane], line, [])


def test_lane_that_waits_for_another_is_released_when_that_one_fails() -> None:
    turns = Turns()
    line: Line[int] = Line(iter(()))
    waiting = threading.Event()

    def waits() -> None:
        waiting.set()
        turns.wait(1)

    def fails() -> None:
        assert waiting.wait(10)
        raise ValueError("before its turn")

    with pytest.raises(ValueError, match="before its turn"):
        run_lanes([waits, fails], line, [turns])
