"""Merging one after the other: who stands, who is superseded, who is refused."""

from __future__ import annotations

import pytest

from fedops.core.merge_order import Handed, Merged, merge_in_order
from fedops.core.settings import SubmissionPolicy


def merge(*submissions: tuple[str, int, str], resubmit: str = "supersede") -> Merged:
    """Merge (site, base version, bytes)."""
    policy = SubmissionPolicy.model_validate_json(f'{{"resubmit": "{resubmit}"}}')
    handed = [Handed(f"submissions/{i}", *s) for i, s in enumerate(submissions)]
    return merge_in_order(handed, policy)


def reasons(merged: Merged) -> dict[int, list[tuple[object, object]]]:
    """Place -> (got, expected) of each finding."""
    assert {f.slug for found in merged.refused.values() for f in found} <= {"duplicate_submission"}
    assert all(f.where == f"submissions/{i}" for i, found in merged.refused.items() for f in found)
    return {i: [(f.got, f.expected) for f in found] for i, found in merged.refused.items()}


def test_one_of_each_site_stands() -> None:
    assert merge(("b", 3, "1"), ("a", 4, "2")) == Merged((0, 1), (), {})
    assert merge() == Merged((), (), {})


def test_the_same_base_again_supersedes_or_is_refused_as_the_policy_says() -> None:
    again = (("a", 3, "1"), ("b", 3, "2"), ("a", 3, "3"))
    assert merge(*again) == Merged((1, 2), (0,), {})
    rejected = merge(*again, resubmit="reject")
    assert (rejected.standing, rejected.superseded, reasons(rejected)) == ((0, 1), (), {2: [(3, 4)]})


@pytest.mark.parametrize("resubmit", ["supersede", "reject"])
def test_a_newer_base_always_supersedes_and_an_older_one_never(resubmit: str) -> None:
    newer = merge(("a", 3, "1"), ("a", 4, "2"), resubmit=resubmit)
    assert newer == Merged((1,), (0,), {})
    older = merge(("a", 4, "2"), ("a", 3, "1"), resubmit=resubmit)
    assert (older.standing, older.superseded, reasons(older)) == ((0,), (), {1: [(3, 4)]})


def test_the_same_bytes_again_are_refused_on_the_same_base_only() -> None:
    again = merge(("a", 3, "1"), ("a", 3, "1"))
    assert (again.standing, reasons(again)) == ((0,), {1: [("1", None)]})
    assert merge(("a", 3, "1"), ("a", 4, "1")) == Merged((1,), (0,), {})


def test_bytes_that_stand_for_another_site_are_refused_and_those_that_no_longer_do_are_not() -> None:
    copied = merge(("a", 3, "1"), ("b", 4, "1"))
    assert (copied.standing, reasons(copied)) == ((0,), {1: [("1", None)]})
    assert copied.refused[1][0].detail == {"site": "b", "same_as": "a"}
    assert merge(("a", 3, "1"), ("a", 3, "2"), ("b", 3, "1")) == Merged((1, 2), (0,), {})
    before = merge(("a", 3, "1"), ("b", 3, "1"), ("a", 3, "2"))
    assert (before.standing, before.superseded, list(before.refused)) == ((2,), (0,), [1])


def test_all_reasons_are_told() -> None:
    both = merge(("b", 3, "1"), ("a", 4, "2"), ("a", 3, "1"))
    assert (both.standing, reasons(both)) == ((0, 1), {2: [(3, 4), ("1", None)]})
