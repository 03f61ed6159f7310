"""The order of pull requests: nobody who opens many, or breaks them, keeps others waiting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedops.core.facts import Account, Pull
from fedops.core.ids import CommitId
from fedops.core.turns import in_turn
from tests.core.samples import minutes


def pull(number: int, author: int) -> Pull:
    return Pull(number, True, Account(f"a{author}", author), CommitId(f"{number:040x}"), "b", "t", "open", minutes(0))


def numbers(pulls: list[Pull], *, members: set[int] | None = None, again: tuple[int, ...] = (), before: tuple[int, ...] = (), salt: str = "1") -> list[int]:  # fmt: skip
    heads = {p.number: p.head for p in pulls}
    known = {p.author.id for p in pulls} if members is None else members
    turns = in_turn(pulls, known, again={heads[n] for n in again}, before={heads[n] for n in before}, salt=salt)
    return [p.number for p in turns]


def test_one_of_each_account_before_the_second_of_any() -> None:
    pulls = [pull(1, 7), pull(2, 7), pull(3, 7), pull(4, 8), pull(5, 9), pull(6, 8)]
    assert numbers(pulls) == [1, 4, 5, 2, 6, 3]


def test_members_before_strangers() -> None:
    assert numbers([pull(1, 5), pull(2, 6), pull(3, 7), pull(4, 5)], members={7}) == [3, 1, 2, 4]


def test_what_this_run_has_tried_in_vain_comes_last() -> None:
    assert numbers([pull(1, 5), pull(2, 6), pull(3, 99)], members={5, 6}, again=(1,)) == [2, 3, 1]


def test_what_nobody_has_looked_at_comes_first_in_its_round() -> None:
    assert numbers([pull(1, 5), pull(2, 6), pull(3, 5)], before=(1,)) == [2, 1, 3]


def test_those_that_were_looked_at_in_vain_take_turns() -> None:
    """Whatever a budget cuts off, each of them is among the first ones now and then."""
    pulls = [pull(n, n) for n in range(1, 9)]
    seen = tuple(range(1, 9))
    firsts = {numbers(pulls, before=seen, salt=f"2026-03-02T09:{m:02}")[0] for m in range(60)}
    assert firsts == set(seen)


@given(st.lists(st.integers(1, 4), max_size=12), st.integers(0, 3))
def test_every_pull_request_has_one_turn_whatever_the_order_given(authors: list[int], known: int) -> None:
    pulls = [pull(n, a) for n, a in enumerate(authors, 1)]
    members = set(range(known))
    assert sorted(numbers(pulls, members=members)) == [p.number for p in pulls]
    assert numbers(pulls[::-1], members=members) == numbers(pulls, members=members)
