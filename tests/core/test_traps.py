"""Known mistakes of published designs: each test computes the right value by itself, and shows that the mistake differs.

The mean is taken here in fractions, straight from the formula `new = current + sum w_i (update_i - base_i) / D`;
only weights and D come from the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import isqrt

import pytest

from fedops.core.facts import Submission
from fedops.core.findings import finding
from fedops.core.ids import SiteId, StoreRef, site_id_fault
from fedops.core.plan import CloseSignal, Signal
from fedops.core.policy import consumed_after, eligible, overtaken
from fedops.core.settings import Aggregation
from fedops.core.signals import plan_signals, signal_marker
from fedops.core.weights import Weighing, weigh
from tests.core.samples import contribution, policy, roster, submission, version
from tests.core.test_signals import issue, text

GLOBALS = {4: Fraction(0), 7: Fraction(1)}  # version -> the one parameter of the model


def aggregate(rule: Aggregation, updates: Mapping[str, tuple[Submission, Fraction]], current: int) -> Fraction:
    """The next value of the one parameter, by the documented formula."""
    got = weigh(rule, [s for s, _ in updates.values()], current)
    assert isinstance(got, Weighing)
    moved = sum(
        Fraction(w.weight) * (updates[w.submission.site][1] - GLOBALS[w.submission.base_version]) for w in got.weighted
    )
    return GLOBALS[current] + moved / Fraction(got.denominator)


FRESH_AND_STALE = {
    "hospital-a": (submission("hospital-a", 7, 100), Fraction(2)),
    "hospital-b": (submission("hospital-b", 4, 100), Fraction(3)),
}


def test_1_an_update_counts_as_difference_to_its_own_base_not_to_the_current_version() -> None:
    got = aggregate(policy(), FRESH_AND_STALE, 7)
    # 100 (2 - 1) + 25 (3 - 0), over 125.
    assert got == 1 + Fraction(100 * 1 + 25 * 3, 125)
    trap = 1 + Fraction(100 * (2 - 1) + 25 * (3 - 1), 125)
    full_weights = Fraction(100 * 2 + 25 * 3, 125)
    assert got not in (trap, full_weights)


def test_2_with_count_equally_stale_updates_shorten_the_step() -> None:
    both_stale = {
        "hospital-a": (submission("hospital-a", 4, 100), Fraction(2)),
        "hospital-b": (submission("hospital-b", 4, 300), Fraction(4)),
    }
    undamped = Fraction(100 * 2 + 300 * 4, 400)  # mean delta, with no discount at all
    by_count = aggregate(policy(weights={"normalize": "count"}), both_stale, 7)
    assert by_count == 1 + undamped / 4  # staleness 3: a quarter of the step
    # Dividing the discounted weights by their own sum cancels the discount; it is the documented default's meaning.
    by_weights = aggregate(policy(), both_stale, 7)
    assert by_weights == 1 + undamped != by_count
    # Dividing n_i s_i by the number of sites would scale the step by the number of examples.
    by_k = 1 + Fraction(25 * 2 + 75 * 4, 2)
    assert by_count != by_k


def test_3_updates_on_an_older_base_are_eligible_within_the_limit() -> None:
    merged = [submission("hospital-a", 7), submission("hospital-b", 4), submission("clinic-c", 1)]
    use, excluded = eligible(merged, version(7), roster("hospital-a", "hospital-b", "clinic-c"), policy())
    # Staleness 0 and 3 of at most 5 count, 6 does not.
    assert [s.site for s in use] == ["hospital-a", "hospital-b"]
    assert [e.submission.site for e in excluded] == ["clinic-c"]
    of_current_version_only = [s.site for s in merged if s.base_version == 7]
    assert [s.site for s in use] != of_current_version_only


def test_4_a_stale_update_inside_the_window_is_used_once() -> None:
    sites, rule = roster("hospital-a"), policy()
    mine = submission("hospital-a", 4)
    record, times = version(7), 0
    for number in (8, 9, 10):
        use, excluded = eligible([mine], record, sites, rule)
        times += len(use)
        record = version(
            number, consumed=consumed_after(record, use, excluded), contributions=[contribution(s) for s in use]
        )
    assert times == 1
    in_window_each_time = sum(n - 1 - mine.base_version <= 5 for n in (8, 9, 10))
    assert in_window_each_time == 3


# Three published ways to read a site out of a tag `<site>-v<N>`, and out of a branch that ends in it.
def by_letters(tag: str) -> str | None:
    match = re.match(r"([a-z-]+)-v[0-9]+$", tag)
    return match[1] if match else None


def by_split(tag: str) -> str | None:
    return tag.split("-v", maxsplit=1)[0]


def by_suffix(tag: str) -> str | None:
    site = tag.rsplit("-v", 1)[0]
    return next((known for known in ("hospital-a", "hospital-vienna") if site.endswith(known)), site)


@pytest.mark.parametrize(
    ("site", "mistake"), [("site2", by_letters), ("hospital-vienna-v7", by_split), ("x-hospital-a", by_suffix)]
)
def test_5_who_handed_in_is_never_parsed_out_of_a_tag(site: str, mistake: Callable[[str], str | None]) -> None:
    assert mistake(f"{site}-v8") != site
    assert site_id_fault(site) is None
    sites = roster(site, "hospital-a", "hospital-vienna")
    use, _ = eligible([submission(site), submission("hospital-a")], version(8), sites, policy())
    assert {s.site for s in use} == {site, "hospital-a"}
    assert StoreRef.parse(StoreRef(SiteId(site), 8).text) == StoreRef(SiteId(site), 8)


def test_6_a_retrain_on_a_used_base_replaces_nothing() -> None:
    sites, rule = roster("hospital-a"), policy()
    reviewed = submission("hospital-a", 7, content="reviewed")
    swapped = submission("hospital-a", 7, content="swapped after the check")
    use, excluded = eligible([reviewed], version(7), sites, rule)
    record = version(
        8, consumed=consumed_after(version(7), use, excluded), contributions=[contribution(s) for s in use]
    )
    # The version names what it used by digest, so the swap changes nothing, is never used, and is noticed.
    assert [c.sha256 for c in record.contributions] == [reviewed.sha256]
    assert eligible([swapped], record, sites, rule) == ((), ())
    assert overtaken(swapped, record)
    by_mutable_tag = {"hospital-a-v7": reviewed} | {"hospital-a-v7": swapped}
    assert by_mutable_tag["hospital-a-v7"].sha256 != record.contributions[0].sha256


def test_8_a_site_whose_training_failed_is_not_taken_for_done() -> None:
    sites, rule = roster("hospital-a", "hospital-b", "clinic-c"), policy()
    told = [issue(1, "hospital-b", 8), issue(2, "clinic-c", 8)]
    # v9 came from hospital-a alone. Both others were told of v8 and their training failed: hospital-b never handed
    # anything in, clinic-c did so for v7 and its bytes are gone.
    record = version(9, contributions=[contribution(submission("hospital-a", 8))], consumed={"hospital-a": 8})
    waiting = {SiteId("hospital-b"): None, SiteId("clinic-c"): finding("object_missing", "sites/clinic-c")}
    steps = plan_signals(record, waiting, sites, told, rule, body=text)
    assert {s.site for s in steps if isinstance(s, Signal)} == {"hospital-a", "hospital-b", "clinic-c"}
    assert [s.number for s in steps if isinstance(s, CloseSignal)] == [1, 2]
    # The mistake: "released" is written whether training worked or not, and only sites without it are told.
    last_submitted = {"hospital-a": 8, "hospital-b": 8, "clinic-c": 8}
    assert not {site for site in ("hospital-b", "clinic-c") if last_submitted[site] < 8}


def test_8_a_site_that_failed_and_is_left_alone_keeps_its_open_signal() -> None:
    record = version(9, contributions=[contribution(submission("hospital-a", 8))], consumed={"hospital-a": 8, "b": 5})
    steps = plan_signals(record, {}, roster("hospital-a", "b"), [issue(1, "b", 8)], policy(), body=text)
    assert [s.marker for s in steps if isinstance(s, Signal)] == [signal_marker(SiteId("hospital-a"), 9)]
    assert [s for s in steps if isinstance(s, CloseSignal)] == []


def test_11_each_discount_has_its_own_name() -> None:
    def weight(kind: str) -> float:
        got = weigh(policy(staleness={"kind": kind, "max": None}), [submission("a", 4, 1)], 7)
        assert isinstance(got, Weighing)
        return got.weighted[0].weight

    # Staleness 3: FedBuff's rule is 1/sqrt(1 + 3), not 1/(1 + 3); neither is 1/(1 + sqrt(3)).
    assert weight("inverse_sqrt") == 1 / isqrt(4) == 0.5
    assert weight("inverse") == 0.25
    third = 1 / (1 + 3**0.5)
    assert third not in (weight("inverse"), weight("inverse_sqrt"))


def test_12_an_absurd_claim_of_examples_does_not_own_the_mean() -> None:
    use = [submission("evil", 7, 10**9), *(submission(f"site-{i}", 7, 100) for i in range(4))]

    def share(**weights: object) -> float:
        got = weigh(policy(weights=weights), use, 7)
        assert isinstance(got, Weighing)
        return next(w.share for w in got.weighted if w.submission.site == "evil")

    assert share() > 0.999999  # what trusting the claim gives
    assert share(max_num_examples=200) == float(Fraction(200, 600))
    assert share(max_share=0.25) == 0.25
    assert share(by="uniform") == 0.2
