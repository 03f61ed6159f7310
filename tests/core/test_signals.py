from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.facts import Issue, Marker
from fedops.core.findings import finding
from fedops.core.ids import SiteId
from fedops.core.plan import CloseSignal, Signal, Step
from fedops.core.records import VersionRecord
from fedops.core.report import SignalReport
from fedops.core.settings import Sites
from fedops.core.signals import marker_in, markers_in, plan_signals, signal_marker, signal_of
from tests.core.samples import contribution, policy, roster, submission, version

ROSTER = roster("clinic-c", "hospital-a", "hospital-b", suspended=["bank-d"])
V9 = version(9, contributions=[contribution(submission("hospital-a"))], consumed={"hospital-a": 8, "clinic-c": 6})
STALE = finding("too_stale", "sites/clinic-c/submission.json", got=6, expected=5)


def text(report: SignalReport) -> str:
    return "please train\n\n" + "".join(f"{m.text}\n" for m in report.markers)


def plan(
    record: VersionRecord = V9,
    waiting: dict[str, Any] | None = None,
    issues: Sequence[Issue] = (),
    *,
    to: str = "contributors",
    sites: Sites = ROSTER,
    max_staleness: int | None = 5,
) -> tuple[Step, ...]:
    rule = policy(signals={"to": to}, staleness={"kind": "inverse", "max": max_staleness})
    waits = {SiteId(s): reason for s, reason in (waiting or {}).items()}
    return plan_signals(record, waits, sites, issues, rule, body=text)


def told(steps: Sequence[Step]) -> list[str]:
    return [s.site for s in steps if isinstance(s, Signal)]


def closed(steps: Sequence[Step]) -> list[int]:
    return [s.number for s in steps if isinstance(s, CloseSignal)]


def issue(number: int, site: str, version_: int, *, open_: bool = True, again: str = "", body: str = "") -> Issue:
    marker = signal_marker(SiteId(site), version_, again)
    reason = f"<!-- fedops:reason {again} -->\n" if again else ""
    labels = frozenset({"fedops", "signal:train", f"site:{site}"})
    return Issue(number, "Train", f"please{body}\n{reason}{marker.text}\n", labels, open_)


def after(steps: Sequence[Step], issues: Sequence[Issue]) -> list[Issue]:
    """The forge once the steps are done."""
    gone = closed(steps)
    kept = [Issue(i.number, i.title, i.body, i.labels, i.open and i.number not in gone) for i in issues]
    number = max((i.number for i in issues), default=0)
    new = [s for s in steps if isinstance(s, Signal)]
    return kept + [Issue(number + 1 + i, s.title, s.body, s.labels, True) for i, s in enumerate(new)]


# ---------------------------------------------------------------- markers


def test_a_marker_is_found_on_a_line_of_its_own() -> None:
    assert marker_in("text\n<!-- fedops:signal train/a/v9 -->\n") == Marker("signal", "train/a/v9")
    assert marker_in("text\r\n<!-- fedops:signal train/a/v9 -->\r\n") == Marker("signal", "train/a/v9")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no marker",
        "quoted: <!-- fedops:signal train/a/v9 -->",
        "> <!-- fedops:signal train/a/v9 -->",
        "<!-- fedops:signal train/a/v9 --> tail",
        "<!-- other:signal train/a/v9 -->",
        "<!-- fedops:signal two words -->",
        "&lt;!-- fedops:signal train/a/v9 --&gt;",
    ],
)
def test_anything_else_is_no_marker(body: str) -> None:
    assert marker_in(body) is None


def test_the_last_marker_counts() -> None:
    body = "<!-- fedops:signal train/evil/v1 -->\n<!-- fedops:signal train/a/v9 -->"
    assert marker_in(body) == Marker("signal", "train/a/v9")
    assert len(markers_in(body)) == 2


KEYS = st.from_regex(r"[a-z0-9][a-z0-9/_.-]{0,40}", fullmatch=True)


@given(st.from_regex(r"[a-z][a-z-]{0,10}", fullmatch=True), KEYS, st.text(alphabet="ab \n<>!-", max_size=40))
def test_reading_a_marker_is_the_inverse_of_writing_it(kind: str, key: str, before: str) -> None:
    assert marker_in(f"{before}\n{Marker(kind, key).text}\n") == Marker(kind, key)


@given(st.sampled_from(["a", "hospital-vienna-v7", "site2"]), st.integers(0, 10**6), st.sampled_from(["", "too_stale"]))
def test_reading_a_signal_marker_is_the_inverse_of_writing_it(site: str, number: int, again: str) -> None:
    assert signal_of(signal_marker(SiteId(site), number, again)) == (site, number)


def test_the_contract_names_the_key() -> None:
    assert signal_marker(SiteId("hospital-a"), 9).text == "<!-- fedops:signal train/hospital-a/v9 -->"


@pytest.mark.parametrize(
    "key",
    ["train/hospital-a", "eval/hospital-a/v9", "train/Hospital-A/v9", "train/a/9", "train/a/v9/x/y", "train/con/v9"],
)
def test_other_keys_are_no_train_signal(key: str) -> None:
    assert signal_of(Marker("signal", key)) is None


def test_other_kinds_are_no_train_signal() -> None:
    assert signal_of(None) is None
    assert signal_of(Marker("submission", "train/a/v9")) is None


# ---------------------------------------------------------------- whom


def test_contributors_are_signalled_and_those_in_flight_are_left_alone() -> None:
    in_flight = issue(4, "clinic-c", 7)
    steps = plan(issues=[in_flight, issue(5, "hospital-a", 8)])
    assert told(steps) == ["hospital-a"]
    assert closed(steps) == [5]


def test_a_signal_says_site_version_labels_and_marker() -> None:
    (step,) = plan()
    assert isinstance(step, Signal)
    assert (step.site, step.version, step.title) == ("hospital-a", 9, "Train on v9: hospital-a")
    assert step.labels == {"fedops", "signal:train", "site:hospital-a"}
    assert step.marker == marker_in(step.body) == Marker("signal", "train/hospital-a/v9")


@pytest.mark.parametrize("kind", ["init", "rollback", "revert"])
def test_after_init_rollback_and_revert_all_active_sites_are_signalled(kind: Any) -> None:
    assert told(plan(version(9, kind=kind, source=7))) == ["clinic-c", "hospital-a", "hospital-b"]


def test_active_sites_without_a_record_are_signalled_and_suspended_ones_are_not() -> None:
    assert told(plan(waiting={"hospital-b": None, "bank-d": None, "gone": STALE})) == ["hospital-a", "hospital-b"]


@pytest.mark.parametrize("slug", ["too_stale", "object_missing", "overtaken"])
def test_a_site_whose_record_is_not_used_is_told_why(slug: Any) -> None:
    reason = finding(slug, "sites/clinic-c/submission.json")
    seen: list[SignalReport] = []

    def body(report: SignalReport) -> str:
        seen.append(report)
        return text(report)

    steps = plan_signals(V9, {SiteId("clinic-c"): reason}, ROSTER, [issue(4, "clinic-c", 3)], policy(), body=body)
    assert told(steps) == ["clinic-c", "hospital-a"]
    assert closed(steps) == [4]
    assert [r.reason for r in seen] == [reason, None]
    assert seen[0].logins == ("clinic-c-user",)
    assert (seen[0].version, seen[0].size, seen[0].model[:7]) == (9, 260, "sha256:")


def test_all_signals_every_active_site() -> None:
    assert told(plan(to="all")) == ["clinic-c", "hospital-a", "hospital-b"]


def test_stale_adds_sites_whose_last_signal_leads_to_a_refused_update() -> None:
    record = version(
        12,
        contributions=[contribution(submission("hospital-a", 11))],
        consumed={"hospital-a": 11, "hospital-b": 6, "clinic-c": 5},
    )
    # max 5: an update on v7 still counts at v12, one on v6 does not. clinic-c was last told of v6.
    assert told(plan(record, to="stale")) == ["clinic-c", "hospital-a"]
    # An open signal of v9 shows what it is training on: it is in flight.
    assert told(plan(record, to="stale", issues=[issue(3, "clinic-c", 9)])) == ["hospital-a"]
    assert told(plan(record, to="stale", max_staleness=None)) == ["hospital-a"]


# ---------------------------------------------------------------- once


def test_what_is_there_is_not_planned_again() -> None:
    assert plan(issues=[issue(5, "hospital-a", 9)]) == ()


def test_a_signal_that_a_person_closed_is_not_opened_again() -> None:
    assert plan(issues=[issue(5, "hospital-a", 9, open_=False)]) == ()


def test_one_signal_stays_open_if_two_runs_opened_one_each() -> None:
    assert plan(issues=[issue(5, "hospital-a", 9), issue(6, "hospital-a", 9)]) == (CloseSignal(5),)


def test_a_reason_that_comes_later_opens_one_more_and_closes_the_first() -> None:
    steps = plan(waiting={"hospital-a": STALE}, issues=[issue(5, "hospital-a", 9)])
    (signal,) = [s for s in steps if isinstance(s, Signal)]
    assert signal.marker == Marker("signal", "train/hospital-a/v9/too_stale")
    assert closed(steps) == [5]
    assert plan(waiting={"hospital-a": STALE}, issues=after(steps, [issue(5, "hospital-a", 9)])) == ()


def test_a_reason_given_at_once_is_not_given_twice() -> None:
    waiting = {"clinic-c": STALE}
    steps = plan(waiting=waiting)
    assert [s.marker.key for s in steps if isinstance(s, Signal)] == ["train/clinic-c/v9", "train/hospital-a/v9"]
    assert plan(waiting=waiting, issues=after(steps, [])) == ()


def test_a_copy_without_the_labels_does_not_suppress_a_signal() -> None:
    forged = Issue(5, "x", signal_marker(SiteId("hospital-a"), 9).text, frozenset(), True)
    assert told(plan(issues=[forged])) == ["hospital-a"]


def test_issues_of_sites_that_left_the_roster_are_closed() -> None:
    assert closed(plan(issues=[issue(5, "hospital-a", 9), issue(7, "gone", 3)])) == [7]


def test_a_suspended_site_keeps_its_issue_so_that_it_is_told_once_it_is_active_again() -> None:
    told_before = [issue(5, "hospital-a", 9)]
    paused = roster("clinic-c", "hospital-b", suspended=["bank-d", "hospital-a"])
    assert plan(issues=told_before, sites=paused) == ()
    assert plan(issues=told_before) == ()


def test_a_late_runner_leaves_signals_of_a_newer_version_alone() -> None:
    assert closed(plan(issues=[issue(5, "hospital-a", 10)])) == []


def test_a_final_version_has_no_train_signal_and_closes_all() -> None:
    record = version(9, status="final", contributions=V9.contributions)
    issues = [issue(5, "hospital-a", 8), issue(6, "clinic-c", 9, open_=False), issue(7, "bank-d", 2)]
    assert plan(record, {"hospital-b": None}, issues) == (CloseSignal(5), CloseSignal(7))


WAITING = st.dictionaries(
    st.sampled_from(["clinic-c", "hospital-a", "hospital-b", "bank-d"]),
    st.sampled_from([None, STALE, finding("overtaken", "x"), finding("object_missing", "x")]),
)
ISSUES = st.lists(
    st.tuples(
        st.sampled_from(["clinic-c", "hospital-a", "hospital-b", "bank-d", "gone"]),
        st.integers(7, 10),
        st.booleans(),
        st.sampled_from(["", "too_stale", "overtaken"]),
    ),
    max_size=8,
)


@given(WAITING, ISSUES, st.sampled_from(["contributors", "all", "stale"]), st.sampled_from(["running", "final"]))
def test_doing_the_steps_leaves_nothing_to_do_and_at_most_one_open_signal_for_the_version(
    waiting: dict[str, Any], listed: list[Any], to: str, status: Any
) -> None:
    issues = [issue(i + 1, s, v, open_=o, again=a) for i, (s, v, o, a) in enumerate(listed)]
    record = version(9, contributions=V9.contributions, consumed=V9.consumed, status=status)
    steps = plan(record, waiting, issues, to=to)
    then = after(steps, issues)
    assert plan(record, waiting, then, to=to) == ()
    current = [signal_of(marker_in(i.body)) for i in then if i.open]
    assert all(current.count(x) == 1 for x in current if x is not None and x[1] == 9)
