from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.facts import Submission, Weighted
from fedops.core.findings import Finding
from fedops.core.settings import Aggregation, Weights
from fedops.core.weights import Weighing, aggregate_metrics, cap_shares, effective_examples, weigh
from tests.core.samples import policy, submission


def weighed(result: Weighing | Finding) -> Weighing:
    assert isinstance(result, Weighing)
    return result


def by_site(weighing: Weighing) -> dict[str, float]:
    return {w.submission.site: w.weight for w in weighing.weighted}


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize(
    ("weights", "num_examples", "expected"),
    [
        (Weights(), 150, 150),
        (Weights(max_num_examples=100), 150, 100),
        (Weights(max_num_examples=100), 99, 99),
        (Weights(by="uniform"), 150, 1),
        (Weights(by="uniform", max_num_examples=100), 7, 1),
        (Weights(), 2**63, 2**63),
    ],
)
def test_effective_examples_are_capped_or_one(weights: Weights, num_examples: int, expected: int) -> None:
    assert effective_examples(weights, num_examples) == expected


# ---------------------------------------------------------------- cap


def water_level(weights: Sequence[float], s: Fraction) -> Fraction:
    """The cap c, found another way: the only c with c = s * sum(min(w, c)), tried with the k largest at the cap."""
    exact = sorted((Fraction(w) for w in weights), reverse=True)
    for k in range(len(exact)):
        c = s * sum(exact[k:]) / (1 - k * s)
        if exact[k] <= c and (k == 0 or exact[k - 1] > c):
            return c
    raise AssertionError("not feasible")


def test_the_largest_weight_is_lowered_to_the_share_of_what_results() -> None:
    # 200 of 200 + 100 + 100 + 100 is 40 %.
    assert cap_shares([1000.0, 100.0, 100.0, 100.0], 0.4) == ((200.0, 100.0, 100.0, 100.0), True)


def test_capping_one_can_make_the_next_one_too_large() -> None:
    # 1000 alone would become 0.4 * 130 / 0.6 = 86.7, and 90 is above that: both become c = 0.4 * (40 + 2c) = 80.
    capped, held = cap_shares([1000.0, 90.0, 20.0, 20.0], 0.4)
    assert (capped, held) == ((80.0, 80.0, 20.0, 20.0), True)


def test_weights_at_the_share_are_left_alone() -> None:
    assert cap_shares([40.0, 30.0, 30.0], 0.4) == ((40.0, 30.0, 30.0), True)
    assert cap_shares([30.0, 30.0, 20.0, 20.0], 0.3) == ((30.0, 30.0, 20.0, 20.0), True)  # 0.3 as float64 is below 3/10


def test_one_over_k_is_feasible_and_makes_all_equal() -> None:
    assert cap_shares([7.0, 5.0, 9.0, 100.0, 6.0], 0.2) == ((5.0,) * 5, True)


def test_a_share_below_one_over_k_makes_all_equal_and_says_so() -> None:
    assert cap_shares([7.0, 5.0, 9.0], 0.3) == ((5.0, 5.0, 5.0), False)
    assert cap_shares([7.0], 0.5) == ((7.0,), False)


def test_zero_weights_stay_zero_and_do_not_make_a_share_feasible() -> None:
    assert cap_shares([10.0, 0.0, 0.0], 0.5) == ((10.0, 0.0, 0.0), False)
    assert cap_shares([10.0, 0.0, 30.0], 0.5) == ((10.0, 0.0, 10.0), True)
    assert cap_shares([0.0, 0.0], 0.9) == ((0.0, 0.0), False)


SOME_WEIGHTS = st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=12)


@given(SOME_WEIGHTS, st.integers(1, 100))
def test_caps_hold_whenever_they_can_and_equal_the_water_level(weights: list[float], hundredths: int) -> None:
    s = Fraction(hundredths, 100)
    capped, held = cap_shares(weights, hundredths / 100)
    assert held == (s * len(weights) >= 1)
    if held:
        level = water_level(weights, s)
        assert capped == tuple(w if Fraction(w) <= level else float(level) for w in weights)
        total = sum(map(Fraction, capped))
        assert max(Fraction(w) / total for w in capped) <= s * (1 + Fraction(1, 2**51))  # one rounding each
    else:
        assert capped == (min(weights),) * len(weights)
    assert all(after <= before for after, before in zip(capped, weights, strict=True))


@given(SOME_WEIGHTS, st.integers(1, 100), st.randoms())
def test_caps_do_not_depend_on_order(weights: list[float], hundredths: int, random: Random) -> None:
    order = list(range(len(weights)))
    random.shuffle(order)
    straight, _ = cap_shares(weights, hundredths / 100)
    shuffled, _ = cap_shares([weights[i] for i in order], hundredths / 100)
    assert shuffled == tuple(straight[i] for i in order)


# ---------------------------------------------------------------- weigh


def test_weights_are_examples_times_discount_in_site_order() -> None:
    use = [submission("hospital-b", 4, 100), submission("hospital-a", 7, 100)]
    got = weighed(weigh(policy(staleness={"kind": "polynomial", "alpha": 0.5, "max": 5}), use, 7))
    assert [(w.submission.site, w.staleness, w.weight) for w in got.weighted] == [
        ("hospital-a", 0, 100.0),
        ("hospital-b", 3, 50.0),
    ]
    assert got.denominator == 150.0
    assert [w.share for w in got.weighted] == [float(Fraction(2, 3)), float(Fraction(1, 3))]
    assert got.findings == ()


def test_count_divides_by_the_undiscounted_examples() -> None:
    use = [submission("a", 7, 100), submission("b", 4, 100)]
    rule = policy(staleness={"kind": "inverse", "max": 5}, weights={"normalize": "count"})
    got = weighed(weigh(rule, use, 7))
    assert by_site(got) == {"a": 100.0, "b": 25.0}
    assert got.denominator == 200.0
    assert [w.share for w in got.weighted] == [0.8, 0.2]  # of the weights all the same


def test_count_with_uniform_weights_is_the_number_of_updates() -> None:
    use = [submission("a", 7, 5), submission("b", 6, 500), submission("c", 6, 9)]
    got = weighed(weigh(policy(weights={"by": "uniform", "normalize": "count"}), use, 7))
    assert by_site(got) == {"a": 1.0, "b": 0.5, "c": 0.5}
    assert got.denominator == 3.0


def test_the_cap_on_examples_also_holds_in_the_denominator_of_count() -> None:
    use = [submission("a", 7, 10**9), submission("b", 7, 50)]
    got = weighed(weigh(policy(weights={"max_num_examples": 100, "normalize": "count"}), use, 7))
    assert (by_site(got), got.denominator) == ({"a": 100.0, "b": 50.0}, 150.0)


def test_the_cap_on_the_share_is_applied_after_the_discount() -> None:
    # b: 400 / 4 = 100; then a = 900 -> c = 0.5 (100 + c) = 100.
    use = [submission("a", 7, 900), submission("b", 4, 400)]
    got = weighed(weigh(policy(weights={"max_share": 0.5}), use, 7))
    assert (by_site(got), got.denominator, got.findings) == ({"a": 100.0, "b": 100.0}, 200.0, ())


def test_a_cap_that_cannot_hold_is_a_warning_that_reaches_the_caller() -> None:
    use = [submission("a", 7, 900), submission("b", 7, 300), submission("c", 7, 600)]
    got = weighed(weigh(policy(weights={"max_share": 0.25}), use, 7))
    assert by_site(got) == {"a": 300.0, "b": 300.0, "c": 300.0}
    (warning,) = got.findings
    assert (warning.slug, warning.severity, warning.got, warning.expected) == ("share_capped", "warning", 1 / 3, 0.25)
    assert warning.detail == {"sites": 3}


@pytest.mark.parametrize(("denominator", "expected"), [("participants", 2.0), (10, 10.0)])
def test_privacy_counts_every_site_once_whatever_it_claims(denominator: object, expected: float) -> None:
    use = [submission("a", 7, 10**9), submission("b", 3, 1)]
    private = {"clip_norm": 1.0, "noise_multiplier": 1.0, "denominator": denominator}
    got = weighed(weigh(policy(privacy=private, weights={"normalize": "count"}), use, 7))
    assert by_site(got) == {"a": 1.0, "b": 1.0}
    assert got.denominator == expected
    assert [w.share for w in got.weighted] == [0.5, 0.5]


def test_no_submission_has_no_weight() -> None:
    nothing = weigh(policy(), [], 7)
    assert isinstance(nothing, Finding)
    assert (nothing.slug, nothing.detail) == ("no_weight", {"submissions": 0})


def test_discounts_that_round_to_zero_have_no_weight() -> None:
    hard = policy(staleness={"kind": "polynomial", "alpha": 1000, "max": None}, weights={"max_share": 0.5})
    nothing = weigh(hard, [submission("a", 1), submission("b", 2)], 7)
    assert isinstance(nothing, Finding)
    assert (nothing.id, nothing.slug, nothing.severity, nothing.got) == ("FO-301", "no_weight", "error", 0.0)


def test_large_counts_do_not_overflow() -> None:
    use = [submission(s, 7, 2**62) for s in ("a", "b", "c", "d")]
    got = weighed(weigh(policy(weights={"normalize": "count"}), use, 7))
    assert got.denominator == float(4 * 2**62)


SOME_SITES = st.lists(
    st.tuples(st.integers(1, 10**9), st.integers(0, 8)), min_size=1, max_size=8
)  # num_examples, base version
RULES = st.sampled_from(
    [
        policy(),
        policy(staleness={"kind": "hinge", "a": 0.3, "b": 1.5, "max": None}, weights={"normalize": "count"}),
        policy(staleness={"kind": "inverse_sqrt", "max": None}, weights={"max_share": 0.4, "max_num_examples": 5000}),
        policy(weights={"by": "uniform", "normalize": "count"}),
    ]
)


def some(pairs: Sequence[tuple[int, int]], scale: int = 1) -> list[Submission]:
    return [submission(f"site-{i}", base, n * scale) for i, (n, base) in enumerate(pairs)]


@given(SOME_SITES, RULES, st.randoms())
def test_weights_do_not_depend_on_the_order_of_arrival(
    pairs: list[tuple[int, int]], rule: Aggregation, random: Random
) -> None:
    use = some(pairs)
    straight = weigh(rule, use, 8)
    random.shuffle(use)
    assert weigh(rule, use, 8) == straight


@given(SOME_SITES, RULES)
def test_shares_sum_to_one_and_sites_ascend(pairs: list[tuple[int, int]], rule: Aggregation) -> None:
    got = weighed(weigh(rule, some(pairs), 8))
    assert math.fsum(w.share for w in got.weighted) == pytest.approx(1.0, abs=1e-15 * len(pairs))
    sites = [w.submission.site for w in got.weighted]
    assert sites == sorted(sites)


@given(SOME_SITES, st.sampled_from([2, 4, 1024]))
def test_scaling_all_examples_scales_weights_and_denominator_and_keeps_shares(
    pairs: list[tuple[int, int]], scale: int
) -> None:
    # Powers of two, so that float64 scales exactly.
    one, many = weighed(weigh(policy(), some(pairs), 8)), weighed(weigh(policy(), some(pairs, scale), 8))
    assert [w.weight * scale for w in one.weighted] == [w.weight for w in many.weighted]
    assert one.denominator * scale == many.denominator
    assert [w.share for w in one.weighted] == [w.share for w in many.weighted]


# ---------------------------------------------------------------- metrics


def with_metrics(*rows: tuple[int, dict[str, float]]) -> list[Weighted]:
    return [
        Weighted(submission(f"site-{i}", 7, n, metrics=metrics), 0, 1.0, 1.0) for i, (n, metrics) in enumerate(rows)
    ]


def test_metrics_are_averaged_by_examples_over_the_sites_that_report_them() -> None:
    got = aggregate_metrics(with_metrics((100, {"loss": 0.5, "accuracy": 0.75}), (300, {"loss": 0.25}), (50, {})))
    assert got == {"accuracy": 0.75, "loss": 0.3125}
    assert list(got) == ["accuracy", "loss"]


def test_no_metrics_give_an_empty_map() -> None:
    assert aggregate_metrics(with_metrics((100, {}))) == {}
    assert aggregate_metrics([]) == {}


def test_absurd_metrics_stay_finite_so_that_no_site_can_stop_a_version() -> None:
    got = aggregate_metrics(
        with_metrics((10**7, {"loss": 1.7e308}), (10**7, {"loss": 1.7e308}), (1, {"loss": -1.7e308}))
    )
    assert math.isfinite(got["loss"])


@given(st.lists(st.tuples(st.integers(1, 10**7), st.floats(-1e300, 1e300)), min_size=1, max_size=6))
def test_a_mean_lies_between_its_values(rows: list[tuple[int, float]]) -> None:
    got = aggregate_metrics(with_metrics(*((n, {"loss": v}) for n, v in rows)))["loss"]
    assert min(v for _, v in rows) <= got <= max(v for _, v in rows)
