from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.errors import ConfigError
from fedops.core.facts import Aggregate, Decision, Excluded, Stop, Submission, Wait
from fedops.core.findings import finding
from fedops.core.ids import Digest, SiteId
from fedops.core.policy import (
    consumed_after,
    decide,
    eligible,
    inputs_digest,
    is_impossible,
    overtaken,
    policy_digest,
    record_inputs,
    trigger_of,
)
from fedops.core.records import VersionRecord
from fedops.core.settings import Sites
from tests.core.samples import contribution, excluded_entry, hex64, minutes, policy, roster, submission, version

# ---------------------------------------------------------------- policy digest


def test_policy_digest_is_that_of_what_sha256sum_prints() -> None:
    a, b = hex64("sites"), hex64("federation")
    lines = f"{b}  federation.yaml\n{a}  policies/sites.yaml\n"
    got = policy_digest({"policies/sites.yaml": a, "federation.yaml": b})
    assert got == "sha256:" + hashlib.sha256(lines.encode()).hexdigest()


def test_policy_digest_sorts_by_path_bytes() -> None:
    one, two = hex64("1"), hex64("2")
    # In UTF-8 the second is larger; in UTF-16 it would be smaller.
    lines = f"{one}  policies/\uffee.yaml\n{two}  policies/\U0001f600.yaml\n"
    got = policy_digest({"policies/\U0001f600.yaml": two, "policies/\uffee.yaml": one})
    assert got == "sha256:" + hashlib.sha256(lines.encode()).hexdigest()


def test_policy_digest_reads_names_that_are_not_utf8() -> None:
    raw = b"policies/\xff.yaml"
    lines = hex64("x").encode() + b"  " + raw + b"\n"
    got = policy_digest({raw.decode("utf-8", "surrogateescape"): hex64("x")})
    assert got == "sha256:" + hashlib.sha256(lines).hexdigest()


def test_a_line_break_in_a_name_cannot_forge_a_second_file() -> None:
    with pytest.raises(ConfigError, match="line break"):
        policy_digest({f"policies/a\n{hex64('b')}  policies/b": hex64("a")})


# ---------------------------------------------------------------- eligible

ROSTER = roster("hospital-a", "hospital-b", "clinic-c", suspended=["bank-d"])


def split(
    merged: list[Submission], record: VersionRecord, sites: Sites = ROSTER, maximum: int | None = 5
) -> tuple[list[str], dict[str, tuple[str, Any, Any]]]:
    """Sites to use, and site -> (slug, got, expected) of the excluded."""
    use, excluded = eligible(merged, record, sites, policy(staleness={"kind": "inverse", "max": maximum}))
    assert all(e.judged == "tree" for e in excluded)
    return [s.site for s in use], {
        e.submission.site: (e.finding.slug, e.finding.got, e.finding.expected) for e in excluded
    }


def test_what_no_version_read_yet_is_eligible_in_site_order() -> None:
    merged = [submission("hospital-b", 8), submission("clinic-c", 6), submission("hospital-a", 7)]
    assert split(merged, version(8, consumed={"hospital-a": 6})) == (["clinic-c", "hospital-a", "hospital-b"], {})


def test_a_used_base_is_passed_over_and_not_excluded_again() -> None:
    merged = [submission("hospital-a", 7), submission("hospital-b", 6)]
    assert split(merged, version(8, consumed={"hospital-a": 7, "hospital-b": 7})) == ([], {})


def test_version_0_is_a_base_for_a_site_without_entry() -> None:
    assert split([submission("hospital-a", 0)], version(0, kind="init")) == (["hospital-a"], {})


def test_a_base_that_does_not_exist_never_enters() -> None:
    use, excluded = eligible([submission("hospital-a", 9)], version(8), ROSTER, policy())
    assert (use, excluded) == ((), ())
    assert consumed_after(version(8), use, excluded) == {}


def test_too_stale_says_how_stale_and_how_much_is_allowed() -> None:
    merged = [submission("hospital-a", 3), submission("hospital-b", 4), submission("clinic-c", 9)]
    assert split(merged, version(9)) == (["clinic-c", "hospital-b"], {"hospital-a": ("too_stale", 6, 5)})


def test_no_limit_excludes_no_age() -> None:
    assert split([submission("hospital-a", 0)], version(900), maximum=None) == (["hospital-a"], {})


def test_suspended_and_unknown_sites_are_excluded() -> None:
    merged = [submission("bank-d"), submission("gone")]
    assert split(merged, version(8)) == (
        [],
        {"bank-d": ("site_suspended", "suspended", "active"), "gone": ("site_unknown", "gone", None)},
    )


def test_only_the_first_reason_is_given() -> None:
    assert split([submission("gone", 0)], version(9))[1]["gone"][0] == "site_unknown"


def test_bytes_of_another_contribution_of_the_current_version_are_refused() -> None:
    first = submission("hospital-a", 7, content="same")
    record = version(8, contributions=[contribution(first)], consumed={"hospital-a": 7})
    _, excluded = eligible([submission("hospital-b", 8, content="same")], record, ROSTER, policy())
    (one,) = excluded
    assert (one.finding.slug, one.finding.got) == ("duplicate_submission", hex64("same"))
    assert one.finding.detail == {"site": "hospital-b", "same_as": "hospital-a"}
    assert one.finding.where == "sites/hospital-b/submission.json"


def test_bytes_of_a_used_up_record_on_main_are_refused_from_another_site() -> None:
    merged, taken = [submission("hospital-b", 8, content="same")], {hex64("same"): SiteId("hospital-a")}
    use, excluded = eligible(merged, version(8), ROSTER, policy(), taken=taken)
    assert use == ()
    assert [(e.finding.slug, (e.finding.detail or {})["same_as"]) for e in excluded] == [
        ("duplicate_submission", "hospital-a")
    ]
    own = {hex64("same"): SiteId("hospital-b")}
    assert eligible(merged, version(8), ROSTER, policy(), taken=own)[1] == ()


def test_a_site_may_arrive_at_its_own_bytes_again() -> None:
    first = submission("hospital-a", 7, content="same")
    record = version(8, contributions=[contribution(first)], consumed={"hospital-a": 7})
    assert split([submission("hospital-a", 8, content="same")], record) == (["hospital-a"], {})


def test_of_equal_bytes_the_later_merge_loses() -> None:
    merged = [submission("clinic-c", content="same", at=5), submission("hospital-b", content="same", at=4)]
    use, excluded = split(merged, version(8))
    assert (use, list(excluded)) == (["hospital-b"], ["clinic-c"])


def test_of_equal_bytes_merged_at_once_the_lower_site_id_wins() -> None:
    merged = [submission("hospital-b", content="same"), submission("clinic-c", content="same")]
    use, excluded = split(merged, version(8))
    assert (use, list(excluded)) == (["clinic-c"], ["hospital-b"])


def test_an_excluded_site_still_owns_its_bytes() -> None:
    # DESIGN: bytes identical to another site's record on main are refused, whatever becomes of that record.
    merged = [submission("bank-d", content="same", at=1), submission("hospital-b", content="same", at=4)]
    assert {site: slug for site, (slug, _, _) in split(merged, version(8))[1].items()} == {
        "bank-d": "site_suspended",
        "hospital-b": "duplicate_submission",
    }


# ---------------------------------------------------------------- decide

THREE = [submission("clinic-c", at=30), submission("hospital-a", at=10), submission("hospital-b", at=20)]


def decision(
    use: list[Submission],
    *,
    now: float = 60,
    record: VersionRecord | None = None,
    pull: int | None = None,
    sites: Sites = ROSTER,
    stop: dict[str, Any] | None = None,
    excluded: Any = (),
    **trigger: Any,
) -> Decision:
    rule = policy(trigger={"quorum": 3} | trigger, stop=stop or {"max_version": None})
    return decide(rule, use, excluded, record or version(8), sites=sites, open_version_pull=pull, now=minutes(now))


def test_quorum_aggregates_in_site_order() -> None:
    late = eligible([submission("gone"), submission("bank-d")], version(8), ROSTER, policy())[1]
    got = decision(THREE, excluded=list(reversed(late)))
    assert isinstance(got, Aggregate)
    assert [s.site for s in got.use] == ["clinic-c", "hospital-a", "hospital-b"]
    assert [e.submission.site for e in got.excluded] == ["bank-d", "gone"]
    assert got.trigger == "quorum"


def test_below_quorum_it_says_who_is_missing_and_that_no_time_helps() -> None:
    assert decision(THREE[:2]) == Wait("quorum", (SiteId("hospital-b"),), None)


def test_nothing_to_use_waits_for_all_active_sites() -> None:
    assert decision([]) == Wait("nothing_new", (SiteId("clinic-c"), SiteId("hospital-a"), SiteId("hospital-b")))


def test_only_excluded_submissions_make_no_empty_version() -> None:
    excluded = eligible([submission("hospital-a", 0)], version(8), ROSTER, policy())[1]
    got = decision([], excluded=excluded, quorum=1, max_wait_hours=0.5, now=10**6)
    assert isinstance(got, Wait)
    assert (got.reason, got.missing) == ("nothing_new", ("clinic-c", "hospital-a", "hospital-b"))


def test_an_excluded_submission_does_not_count_for_the_quorum_and_its_site_is_missing() -> None:
    excluded = eligible([submission("hospital-b", 0)], version(8), ROSTER, policy())[1]
    assert decision(THREE[:2], excluded=excluded) == Wait("quorum", (SiteId("hospital-b"),), None)


def test_an_open_version_pull_request_is_waited_for_even_with_quorum() -> None:
    assert decision(THREE, pull=12) == Wait("review", (), None, pull=12)


@pytest.mark.parametrize("number", [9, 10])
def test_the_last_version_stops(number: int) -> None:
    assert decision(THREE, record=version(number), stop={"max_version": 9}) == Stop("max_version")
    assert isinstance(decision(THREE, record=version(8), stop={"max_version": 9}), Aggregate)


def test_a_final_version_stops_also_while_a_pull_request_is_open() -> None:
    assert decision(THREE, record=version(8, status="final"), pull=12) == Stop("max_version")


def test_grace_runs_from_the_merge_that_completed_the_quorum() -> None:
    # Quorum 2 was complete with hospital-b at minute 20, whichever order they are listed in.
    waits = decision(THREE, quorum=2, grace_minutes=15, now=34.9)
    assert waits == Wait("grace", (), minutes(35))
    got = decision(THREE, quorum=2, grace_minutes=15, now=35)
    assert isinstance(got, Aggregate)
    assert (got.trigger, len(got.use)) == ("quorum", 3)


def test_grace_names_those_who_may_still_come() -> None:
    assert decision(THREE[:2], quorum=2, grace_minutes=15, now=31) == Wait(
        "grace", (SiteId("hospital-b"),), minutes(45)
    )


def test_after_max_wait_fewer_are_enough() -> None:
    # The oldest merge is at minute 10, so two hours end at minute 130.
    two = THREE[:2]
    assert decision(two, max_wait_hours=2, now=129) == Wait("quorum", (SiteId("hospital-b"),), minutes(130))
    got = decision(two, max_wait_hours=2, now=130)
    assert isinstance(got, Aggregate)
    assert (got.trigger, [s.site for s in got.use]) == ("max_wait", ["clinic-c", "hospital-a"])


def test_after_max_wait_too_few_go_on_waiting_and_no_time_in_the_past_is_promised() -> None:
    two = THREE[:2]
    before = decision(two, quorum=5, max_wait_hours=2, quorum_after_wait=3, now=60)
    assert before == Wait("quorum", (SiteId("hospital-b"),), minutes(130))
    after = decision(two, quorum=5, max_wait_hours=2, quorum_after_wait=3, now=1000)
    assert after == Wait("quorum", (SiteId("hospital-b"),), None)


def test_one_more_submission_never_makes_the_others_wait_longer() -> None:
    # At minute 130 one site alone would fire; a quorum completed a minute before must not start a new wait.
    one = submission("hospital-a", at=10)
    alone = decision([one], quorum=2, grace_minutes=60, max_wait_hours=2, now=130)
    both = decision([one, submission("hospital-b", at=129)], quorum=2, grace_minutes=60, max_wait_hours=2, now=130)
    assert isinstance(alone, Aggregate)
    assert isinstance(both, Aggregate)
    assert both.trigger == "max_wait"


def test_grace_until_is_the_window_that_ends_first() -> None:
    got = decision(THREE, grace_minutes=600, max_wait_hours=2, now=60)
    assert got == Wait("grace", (), minutes(130))


def test_a_merge_dated_in_the_future_only_delays_by_that_difference() -> None:
    ahead = [submission(s, at=100) for s in ("hospital-a", "hospital-b", "clinic-c")]
    assert decision(ahead, grace_minutes=15, now=60) == Wait("grace", (), minutes(115))
    assert isinstance(decision(ahead, now=60), Aggregate)  # no window: a clock decides nothing
    assert isinstance(decision(ahead, grace_minutes=15, now=115), Aggregate)


def test_absurd_windows_never_end_instead_of_failing() -> None:
    assert decision(THREE[:1], max_wait_hours=1e300, now=60) == Wait(
        "quorum", (SiteId("hospital-a"), SiteId("hospital-b")), dt.datetime.max.replace(tzinfo=dt.UTC)
    )


# ---------------------------------------------------------------- strategies that need several updates

KRUM = {"name": "krum", "f": 1}
FIVE = [submission(site, at=at) for at, site in enumerate(("a", "b", "c", "d", "e"), start=10)]


def with_krum(use: Sequence[Submission], *, now: float = 60, **trigger: Any) -> Decision:
    rule = policy(strategy=KRUM, trigger={"quorum": 3} | trigger)
    sites = roster("a", "b", "c", "d", "e")
    return decide(rule, use, [], version(8), sites=sites, open_version_pull=None, now=minutes(now))


def test_fewer_than_the_strategy_needs_are_waited_for_as_if_the_quorum_said_so() -> None:
    assert with_krum(FIVE[:4]) == Wait("quorum", (SiteId("e"),), None)
    got = with_krum(FIVE)
    assert isinstance(got, Aggregate)
    assert (got.trigger, len(got.use)) == ("quorum", 5)
    assert with_krum(FIVE, quorum=6) == Wait("quorum", (), None)


def test_no_wait_makes_so_few_enough() -> None:
    # The oldest merge is at minute 10.
    assert with_krum(FIVE[:4], max_wait_hours=1.0, now=1000) == Wait("quorum", (SiteId("e"),), None)
    got = with_krum(FIVE, quorum=6, max_wait_hours=1.0, now=1000)
    assert isinstance(got, Aggregate)
    assert got.trigger == "max_wait"


def test_the_trigger_is_the_policys_where_the_strategy_needs_no_more() -> None:
    for strategy in ({"name": "fedavg"}, {"name": "median"}, {"name": "trimmed_mean", "beta": "0.2"}, {"name": "no"}):
        rule = policy(strategy=strategy, trigger={"quorum": 1, "max_wait_hours": 2.0})
        assert trigger_of(rule) == rule.trigger
    raised = trigger_of(policy(strategy=KRUM, trigger={"quorum": 6, "grace_minutes": 3.0}))
    assert (raised.quorum, raised.quorum_after_wait, raised.grace_minutes) == (6, 5, 3.0)


# ---------------------------------------------------------------- consumed


def test_used_and_excluded_submissions_are_consumed_and_the_rest_is_carried() -> None:
    use, excluded = eligible([submission("hospital-a", 7), submission("hospital-b", 1)], version(8), ROSTER, policy())
    got = consumed_after(version(8, consumed={"zeta": 3, "hospital-a": 2}), use, excluded)
    assert got == {"hospital-a": 7, "hospital-b": 1, "zeta": 3}
    assert list(got) == sorted(got)


def test_consumed_never_falls() -> None:
    assert consumed_after(version(8, consumed={"hospital-a": 7}), [submission("hospital-a", 3)], []) == {
        "hospital-a": 7
    }


SITES = [f"site-{c}" for c in "abcde"]
EVENT = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(SITES), st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("run"), st.integers(0, 90), st.integers(0, 0), st.integers(0, 0)),
)


@given(st.lists(EVENT, max_size=60), st.integers(1, 3), st.sampled_from([None, 0, 2]), st.sampled_from([None, 0.5]))
def test_over_any_schedule_each_submission_counts_at_most_once_and_consumed_never_falls(
    events: list[Any], quorum: int, limit: int | None, wait: float | None
) -> None:
    """Sites merge updates on old and new bases, bytes repeat; runs come at any time; each record is its site's last."""
    rule = policy(staleness={"kind": "inverse", "max": limit}, trigger={"quorum": quorum, "max_wait_hours": wait})
    sites = roster(*SITES[:-1], suspended=SITES[-1:])
    record, main, clock = version(0, kind="init"), dict[str, Submission](), 0.0
    counted: list[tuple[str, int]] = []  # (site, base) of each used or excluded submission
    bytes_used: dict[int, list[str]] = {}
    for kind, who, age, content in events:
        if kind == "submit":
            base = max(0, record.version - age)
            mine = main.get(who)
            if base <= record.consumed.get(who, -1) or (mine is not None and base < mine.base_version):
                continue  # the validation of pull requests refuses it
            main[who] = submission(who, base, at=clock, content=f"content {content} on v{base}")
            continue
        clock += who
        use, excluded = eligible(list(main.values()), record, sites, rule)
        got = decide(rule, use, excluded, record, sites=sites, open_version_pull=None, now=minutes(clock))
        if not isinstance(got, Aggregate):
            continue
        assert len(got.use) >= (1 if wait else quorum)
        consumed = consumed_after(record, got.use, got.excluded)
        assert all(consumed[SiteId(s)] >= base for s, base in record.consumed.items())
        counted += [(s.site, s.base_version) for s in (*got.use, *(e.submission for e in got.excluded))]
        bytes_used[record.version + 1] = [s.sha256 for s in got.use]
        contributions = [contribution(s, staleness=record.version - s.base_version) for s in got.use]
        record = version(record.version + 1, consumed=consumed, contributions=contributions)
    assert len(counted) == len(set(counted))
    for number, digests in bytes_used.items():
        here_and_before = digests + bytes_used.get(number - 1, [])
        assert len(set(here_and_before)) == len(here_and_before), "the same bytes under two names"


@given(st.permutations(["hospital-a", "hospital-b", "clinic-c", "bank-d", "gone"]))
def test_decisions_do_not_depend_on_the_order_of_the_records(order: list[str]) -> None:
    merged = [submission(s, 8 if s != "clinic-c" else 1, at=5) for s in order]
    use, excluded = eligible(merged, version(8), ROSTER, policy())
    assert [s.site for s in use] == ["hospital-a", "hospital-b"]
    assert [e.submission.site for e in excluded] == ["bank-d", "clinic-c", "gone"]


# ---------------------------------------------------------------- overtaken


def test_a_record_merged_on_a_base_that_the_current_version_then_used_is_overtaken() -> None:
    read, later = submission("hospital-a", 7), submission("hospital-a", 7, content="again")
    record = version(8, contributions=[contribution(read)], consumed={"hospital-a": 7})
    assert overtaken(later, record)
    assert not overtaken(read, record)


def test_after_an_exclusion_a_later_record_on_that_base_is_overtaken_too() -> None:
    read, later = submission("hospital-a", 1), submission("hospital-a", 1, content="again")
    record = version(8, excluded=[excluded_entry(read)], consumed={"hospital-a": 1})
    assert overtaken(later, record)
    assert not overtaken(read, record)


def test_a_newer_base_is_eligible_and_not_overtaken() -> None:
    record = version(8, contributions=[contribution(submission("hospital-a", 7))], consumed={"hospital-a": 7})
    assert not overtaken(submission("hospital-a", 8), record)
    assert not overtaken(submission("hospital-b", 0), record)


def test_what_an_earlier_version_used_is_not_called_overtaken() -> None:
    record = version(8, contributions=[contribution(submission("hospital-b", 7))], consumed={"hospital-a": 5})
    assert not overtaken(submission("hospital-a", 5), record)


# ---------------------------------------------------------------- the inputs of a version

RULES = Digest("sha256:" + hex64("rules"))


def inputs(
    *use: Submission, without: Sequence[Excluded] = (), current: int = 8, rules: Digest = RULES, trigger: str = "quorum"
) -> Digest:
    return inputs_digest(Aggregate(use, tuple(without), trigger), version(current), rules)


def test_a_version_is_known_by_its_inputs_and_not_by_its_moment() -> None:
    a, b = submission("hospital-a"), submission("hospital-b")
    late = Excluded(submission("clinic-c", 1), finding("too_stale", "x"), "tree")
    same = inputs(a, b, without=[late])
    assert inputs(a, b, without=[late], trigger="max_wait") == same
    others = [
        inputs(a, without=[late]),
        inputs(a, b),
        inputs(a, submission("hospital-b", content="other"), without=[late]),
        inputs(a, b, without=[late], current=9),
        inputs(a, b, without=[late], rules=Digest("sha256:" + hex64("other rules"))),
        inputs(a, b, without=[Excluded(late.submission, finding("site_suspended", "x"), "tree")]),
    ]
    assert len({same, *others}) == 7


def test_a_record_tells_the_inputs_that_were_decided_on() -> None:
    a, b, c = submission("hospital-a"), submission("hospital-b"), submission("clinic-c", 1)
    record = version(9, contributions=[contribution(a), contribution(b)], excluded=[excluded_entry(c)])
    record = record.model_copy(update={"policy": RULES})
    assert record_inputs(record) == inputs(a, b, without=[Excluded(c, finding("too_stale", "x"), "tree")])


def test_a_merge_that_is_dated_more_than_an_hour_ahead_takes_the_newest_possible_date_of_another() -> None:
    sites = ("hospital-a", "hospital-b", "clinic-c")
    three = [submission(s, at=at) for s, at in zip(sites, (0, 10, 60 * 24 * 365), strict=True)]
    assert decision(three, grace_minutes=30, now=39) == Wait("grace", (), minutes(40))
    assert isinstance(decision(three, grace_minutes=30, now=40), Aggregate)
    assert isinstance(decision(three, quorum=9, max_wait_hours=1, quorum_after_wait=3, now=60), Aggregate)


def test_dates_that_are_all_impossible_say_that_it_may_be_the_deciding_clock_that_is_broken() -> None:
    ahead = [submission(s, at=1000) for s in ("hospital-a", "hospital-b", "clinic-c")]
    assert decision(ahead, grace_minutes=30, now=60) == Wait("grace", (), minutes(1030))
    assert isinstance(decision(ahead, now=60), Aggregate)


@pytest.mark.parametrize(("at", "impossible"), [(119.0, False), (120.0, False), (121.0, True)])
def test_an_hour_ahead_is_possible_and_more_is_not(at: float, impossible: bool) -> None:
    assert is_impossible(minutes(at), minutes(60)) is impossible
