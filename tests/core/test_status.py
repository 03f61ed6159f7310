from __future__ import annotations

import datetime as dt

import pytest

from fedops.core.ids import SiteId
from fedops.core.settings import Trigger
from fedops.core.status import LocalWork, OpenPull, Phase, SiteLine, is_stalled, next_command

NOTHING = LocalWork(None, None)
SITE = SiteId("hospital-a")


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
