from __future__ import annotations

import datetime as dt

import pytest

from fedops.core.findings import finding
from fedops.core.ids import SiteId
from fedops.core.settings import Trigger
from fedops.core.status import (
    Heartbeat,
    LocalWork,
    OpenPull,
    Phase,
    Silence,
    SiteLine,
    is_stalled,
    must_act,
    next_command,
    silence_of,
)

NOTHING = LocalWork(None, None)
SITE = SiteId("hospital-a")
NOW = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
LOST = finding("object_missing", "sites/hospital-a/submission.json")


def opened(verdict: str | None) -> OpenPull:
    return OpenPull(3, verdict, "", dt.datetime(2026, 3, 2, tzinfo=dt.UTC), owned=True)


@pytest.mark.parametrize("phase", ["suspended", "done", "ready"])
def test_a_site_that_can_only_wait_has_no_next_command(phase: Phase) -> None:
    assert next_command(SiteLine(SITE, phase, base_version=8), LocalWork(8, 9), 9) == ""


@pytest.mark.parametrize("verdict", [None, "pending", "success"])
def test_while_ci_has_not_refused_the_pull_request_the_site_waits(verdict: str | None) -> None:
    assert next_command(SiteLine(SITE, "open", pull=opened(verdict)), LocalWork(9, None), 9) == ""


def test_a_site_whose_pull_request_was_refused_goes_on_with_its_work() -> None:
    line = SiteLine(SITE, "open", pull=opened("failure"))
    assert next_command(line, LocalWork(9, 9), 9) == "fedops submit"
    assert next_command(line, LocalWork(9, None), 9) == "fedops train"


@pytest.mark.parametrize(
    ("work", "handed_in", "command"),
    [
        (NOTHING, None, "fedops pull"),
        (LocalWork(8, None), None, "fedops pull"),  # v9 is out
        (LocalWork(9, None), 8, "fedops train"),
        (LocalWork(9, 8), 8, "fedops train"),  # what was trained is handed in
        (LocalWork(9, 9), 8, "fedops submit"),
        (LocalWork(8, 8), None, "fedops submit"),  # trained on an older version, never handed in: not lost
    ],
)
def test_pull_train_and_submit_follow_each_other(work: LocalWork, handed_in: int | None, command: str) -> None:
    assert next_command(SiteLine(SITE, "due", base_version=handed_in), work, 9) == command


@pytest.mark.parametrize(
    ("max_wait_hours", "hours", "stalled"),
    [(None, 24, False), (None, 24.01, True), (2.0, 2, False), (2.0, 2.01, True), (100.0, 99, False), (None, -5, False)],
)
def test_a_site_is_stalled_once_it_was_silent_for_longer_than_the_federation_waits(
    max_wait_hours: float | None, hours: float, stalled: bool
) -> None:
    now = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
    trigger = Trigger(max_wait_hours=max_wait_hours)
    assert is_stalled(now - dt.timedelta(hours=hours), trigger, now) == stalled


@pytest.mark.parametrize(
    ("line", "acts"),
    [
        (SiteLine(SITE, "new"), True),
        (SiteLine(SITE, "due", 8), True),
        (SiteLine(SITE, "refused", 8, reason=LOST), True),
        (SiteLine(SITE, "ready", 8), False),
        (SiteLine(SITE, "ready", 8, reason=LOST), True),
        (SiteLine(SITE, "open", pull=opened("failure")), True),
        (SiteLine(SITE, "open", pull=opened("pending")), False),
        (SiteLine(SITE, "open", pull=opened(None)), False),
        (SiteLine(SITE, "suspended", 8), False),
        (SiteLine(SITE, "done", 8), False),
    ],
)
def test_who_has_something_to_do_and_who_can_only_wait(line: SiteLine, acts: bool) -> None:
    assert must_act(line) == acts


def test_only_bytes_that_may_come_back_make_a_site_unavailable() -> None:
    assert SiteLine(SITE, "ready", 8, reason=LOST).is_unavailable
    assert not SiteLine(SITE, "ready", 8).is_unavailable
    assert not SiteLine(SITE, "refused", 8, reason=LOST).is_unavailable


@pytest.mark.parametrize(
    ("base", "work", "command"),
    [
        (9, LocalWork(9, 9), "fedops submit"),  # the file is here: its bytes are uploaded again
        (9, LocalWork(9, None), "fedops train"),  # it was handed in from elsewhere
        (9, NOTHING, "fedops pull"),
        (8, LocalWork(8, 8), "fedops pull"),  # a newer version is out: an update on that is worth more
        (8, LocalWork(9, 9), "fedops submit"),
    ],
)
def test_a_site_whose_bytes_are_lost_hands_in_again(base: int, work: LocalWork, command: str) -> None:
    assert next_command(SiteLine(SITE, "ready", base_version=base, reason=LOST), work, 9) == command


def test_a_site_that_never_sent_a_heartbeat_is_stalled_since_it_was_told() -> None:
    told = Silence(7, NOW - dt.timedelta(hours=25))
    line = SiteLine(SITE, "due", 6)
    assert silence_of(line, told, Trigger(), NOW) == told
    assert silence_of(line, told, Trigger(max_wait_hours=26.0), NOW) is None
    assert silence_of(SiteLine(SITE, "ready", 6), told, Trigger(), NOW) is None, "it can only wait"
    heard = Heartbeat(7, "training", NOW - dt.timedelta(hours=30), stalled=True)
    assert silence_of(SiteLine(SITE, "due", 6, beat=heard), told, Trigger(), NOW) is None, "its heartbeat says more"


def test_a_stall_counts_from_the_last_heartbeat_or_else_from_what_the_site_was_told() -> None:
    at = NOW - dt.timedelta(hours=30)
    assert SiteLine(SITE, "due").stalled_since is None
    assert SiteLine(SITE, "due", silence=Silence(7, at)).stalled_since == at
    assert SiteLine(SITE, "due", beat=Heartbeat(7, "training", at, stalled=True)).stalled_since == at
    assert SiteLine(SITE, "due", beat=Heartbeat(7, "training", at, stalled=False)).stalled_since is None
