"""Machines whose clocks differ: no window closes early by more than they do, and a broken clock holds up nobody else."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.app.reconcile import Reconciled
from tests.forge_worlds import ManualClock
from tests.scenario.fed import Fed, GitFed, MemoryFed, arrays
from tests.scenario.oracle import check_all

APART = dt.timedelta(minutes=15)
YEAR = dt.timedelta(days=365)
A, B, C = "hospital-a", "hospital-b", "clinic-c"


def run(fed: Fed, off: dt.timedelta = dt.timedelta()) -> Reconciled:
    """One run of CI on a machine whose clock is off by so much."""
    return fed.reconcile(fed.context(clock=ManualClock(fed.clock.now() + off)))


def made(done: Reconciled) -> list[int]:
    return [v.version for v in done.published]


def after(fed: Fed, minutes: float, off: dt.timedelta = dt.timedelta()) -> list[int]:
    fed.clock.sleep(60 * minutes)
    return made(run(fed, off))


@pytest.mark.parametrize("merging", [-APART, dt.timedelta(), APART])
@pytest.mark.parametrize("deciding", [-APART, dt.timedelta(), APART])
@pytest.mark.parametrize("trigger", [{"quorum": 2, "grace_minutes": 60}, {"quorum": 9, "max_wait_hours": 1.0}])
def test_a_window_is_off_by_the_difference_of_the_two_clocks_and_no_more(
    tmp_path: Path, merging: dt.timedelta, deciding: dt.timedelta, trigger: dict[str, float]
) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": trigger})
    fed.submit(A, 1.0)
    fed.submit(B, 2.0)
    assert made(run(fed, merging)) == []
    late = (
        merging - deciding
    ).total_seconds() / 60  # minutes by which the window ends too late, as the decider sees it
    assert after(fed, 60 + late - 1, deciding) == []
    assert after(fed, 1, deciding) == [1]
    check_all(fed, rerun=lambda: run(fed).changed)


TRIGGERS = {
    "grace": {"quorum": 3, "grace_minutes": 30},
    "max_wait": {"quorum": 9, "max_wait_hours": 0.5, "quorum_after_wait": 3},
    "no window": {"quorum": 3},
}


@pytest.mark.parametrize("name", TRIGGERS)
@pytest.mark.parametrize("first", [True, False], ids=["the first merge", "the last merge"])
def test_a_merge_dated_a_year_ahead_counts_and_neither_opens_nor_delays_a_window(
    tmp_path: Path, name: str, first: bool
) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": TRIGGERS[name]})
    merged = []  # minutes at which the others were merged
    for minute, site in enumerate((C, A, B) if first else (A, B, C)):
        pull = fed.submit(site, 1.0 + minute)
        if site == C:
            fed.clock.at += YEAR
            assert fed.merge_by_hand(pull.number)
            fed.clock.at -= YEAR
        else:
            merged.append(minute)
        done = run(fed)
        fed.clock.sleep(60)
    if name == "no window":
        assert made(done) == [1]
        return
    assert made(done) == []
    [_, warned] = done.findings  # the first: a person merged it
    assert (warned.slug, warned.where, warned.severity) == ("merge_in_future", f"sites/{C}/submission.json", "warning")
    end = 30 + (max(merged) if name == "grace" else min(merged))
    assert after(fed, end - 4) == []  # three minutes have passed
    assert after(fed, 1) == [1]
    assert {c.site for c in fed.version.contributions} == {A, B, C}
    check_all(fed, rerun=lambda: run(fed).changed)


def test_a_date_within_the_hour_is_believed(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1, "grace_minutes": 1}})
    fed.submit(A, 1.0)
    run(fed, dt.timedelta(minutes=59))
    assert run(fed).findings == []
    assert after(fed, 59) == []
    assert after(fed, 1) == [1]


def test_alone_a_merge_dated_a_year_ahead_waits_and_the_next_site_starts_the_window(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 9, "max_wait_hours": 1.0}})
    fed.submit(C, 1.0)
    run(fed, YEAR)
    assert after(fed, 600) == []
    fed.submit(A, 2.0)
    assert made(run(fed)) == []
    assert after(fed, 59) == []
    assert after(fed, 1) == [1]
    check_all(fed, rerun=lambda: run(fed).changed)


@pytest.mark.parametrize("off", [YEAR, -YEAR])
def test_a_version_by_a_machine_that_is_a_year_off_is_like_any_other(tmp_path: Path, off: dt.timedelta) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    for site in (A, B):
        fed.submit(site, 1.0 + len(site))
    fed.submit(B, 5.0)
    assert made(run(fed, off)) == [1]
    for issue in fed.forge("lena").issues(frozenset({"fedops"})):
        fed.forge("lena").close_issue(issue.number)
    assert not run(fed).changed, "closed signals stay closed"
    fed.clock.sleep(3600)
    fed.submit(A, 3.0)
    fed.submit(B, 4.0)
    assert made(run(fed)) == [2]
    check_all(fed, rerun=lambda: run(fed).changed)


def test_a_commit_on_main_dated_a_year_ahead_is_in_nobodys_way(tmp_path: Path) -> None:
    fed = GitFed(tmp_path, rules={"trigger": {"quorum": 2}}, people=("lena", A, B), sites=(A, B))
    try:
        for off in (YEAR, -2 * YEAR):
            fed.clock.sleep(off.total_seconds())
            fed.commit({f"docs/{off.days}.md": b"x"})
            fed.clock.sleep(-off.total_seconds())
        fed.submit(A, 1.0)
        fed.submit(B, 2.0)
        assert made(run(fed)) == [1]
        fed.submit(A, 3.0)
        assert fed.merge_by_hand(fed.forge("lena").open_pulls()[0].number)
        assert list(fed.forge("lena").open_pulls()) == []
        check_all(fed, rerun=lambda: run(fed).changed)
    finally:
        fed.close()


@pytest.fixture
def local_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("change", ["2026-03-29T00:59:00+00:00", "2026-10-25T00:59:00+00:00"], ids=["spring", "autumn"])
@pytest.mark.usefixtures("local_time")
def test_the_hour_that_summer_time_takes_or_gives_is_nobodys(tmp_path: Path, change: str) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1, "grace_minutes": 60}})
    fed.clock.sleep((dt.datetime.fromisoformat(change) - fed.clock.now()).total_seconds())
    now = fed.clock.now().timestamp()
    assert time.localtime(now).tm_isdst != time.localtime(now + 60).tm_isdst
    fed.submit(A, arrays(1.0))
    assert made(run(fed)) == []
    assert after(fed, 59) == []
    assert after(fed, 1) == [1]
    check_all(fed, rerun=lambda: run(fed).changed)
