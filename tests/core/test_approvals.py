"""Who may approve a version, what a signed review must say, and the issue that holds a rejected version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.approvals import MAX_REVIEW_BYTES, Approval, approval, approves, held_by, hold_marker
from fedops.core.facts import Marker
from fedops.core.ids import CommitId, Digest
from fedops.core.settings import Lead, Sites

HEAD = CommitId("1a2b" * 10)
INPUTS = Digest("sha256:" + "5" * 64)


def sites(*leads: int) -> Sites:
    people = tuple(Lead(login=f"lead-{n}", id=n) for n in leads)
    return Sites(schema="fedops.sites/v1", leads=people)  # type: ignore[call-arg]  # by its alias


def test_approvals_are_counted_by_lead_and_no_others_count() -> None:
    said = [(1, "approved"), (1, "approved"), (99, "approved"), (2, "approved")]
    assert approval(said, sites(1, 2, 3), author=None, needed=3) == Approval((1, 2), (), 1)
    assert approval(said, sites(1, 2, 3), author=None, needed=2).given


def test_the_last_word_of_a_lead_counts() -> None:
    said = [(1, "changes_requested"), (1, "approved"), (2, "dismissed")]
    assert approval(said, sites(1, 2), author=None, needed=1) == Approval((1,), (), 0)


def test_one_lead_who_asks_for_changes_outweighs_all_approvals() -> None:
    said = [(1, "approved"), (2, "approved"), (3, "changes_requested")]
    count = approval(said, sites(1, 2, 3), author=None, needed=1)
    assert (count.rejected, count.missing, count.given) == ((3,), 0, False)


@pytest.mark.parametrize(("leads", "given"), [((1, 2), False), ((1,), True)])
def test_a_lead_s_own_proposal_is_judged_by_others_if_there_are_any(leads: tuple[int, ...], given: bool) -> None:
    assert approval([(1, "approved")], sites(*leads), author=1, needed=1).given is given


def review(**changes: Any) -> bytes:
    value = {"schema": "fedops.review/v1", "pull": 7, "head": HEAD, "state": "approved", "body": "fine"}
    return json.dumps(value | changes).encode()


def test_a_review_approves_the_head_that_it_names() -> None:
    assert approves(review(), HEAD)


@pytest.mark.parametrize(
    "data",
    [
        review(head="f" * 40),
        review(state="changes_requested"),
        review(schema="fedops.review/v2"),
        b"[]",
        b"{",
        b"",
        b" " * (MAX_REVIEW_BYTES + 1) + review(),
        review()[:-1] + b', "state": "approved"}',
    ],
)
def test_anything_else_approves_nothing(data: bytes) -> None:
    assert not approves(data, HEAD)


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_a_hold_is_read_as_it_was_written(version: int, pull: int) -> None:
    marker = hold_marker(version, INPUTS, pull)
    assert held_by(marker) == (version, INPUTS)
    assert marker.text.startswith("<!-- fedops:rejected v")


@pytest.mark.parametrize(
    "marker",
    [
        None,
        Marker("signal", f"v1/{INPUTS}/pull-1"),
        Marker("rejected", f"v01/{INPUTS}/pull-1"),
        Marker("rejected", "v1/sha256:5/pull-1"),
        Marker("rejected", f"v1/{INPUTS}"),
        Marker("rejected", "nothing"),
    ],
)
def test_anything_else_holds_nothing(marker: Marker | None) -> None:
    assert held_by(marker) is None
