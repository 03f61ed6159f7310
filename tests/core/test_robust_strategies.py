"""Median, trimmed mean and Krum against exact arithmetic, at every number of sites, and what must not change them."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedops.core.facts import F64, Scan, Weighted
from fedops.core.findings import Finding
from fedops.core.strategies import Combine, chosen, ranked
from fedops.core.strategies.ranked import NETWORK_MOST, TILE, network
from tests.core.samples import submission
from tests.core.test_strategies import made

MAX = sys.float_info.max


def weights(n: int) -> list[Weighted]:
    return [Weighted(submission(f"s{i:03}", 0, 100), 0, 100.0, 1 / n) for i in range(n)]


def combine(name: str, n: int, scan: Scan | None = None, **parameters: Any) -> Combine:
    got = made(name, **parameters).prepare(weights(n), 1.0, scan)
    assert not isinstance(got, Finding)
    return got


def apply(rule: Combine, rows: Sequence[F64]) -> F64:
    """Args: rows: each is gone when the next is taken, as in the engine."""
    passed, out = np.empty(rows[0].size), np.full(rows[0].size, np.nan)

    def deltas() -> Any:
        for row in rows:
            passed[:] = row
            yield passed
        passed[:] = np.nan

    rule(deltas(), out, {})
    return out


def table(points: Sequence[Sequence[float]]) -> Scan:
    """The scan of updates with few values, whose squared distances are exact."""
    rows = [
        tuple(float(sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(p, q, strict=True))) for q in points)
        for p in points
    ]
    return Scan((), tuple(rows))


def random_rows(n: int, m: int, seed: int = 0) -> list[NDArray[np.float64]]:
    """Few different values, so that there are ties."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return [rng.integers(-4, 5, m) / 4 + rng.integers(0, 2, m) * rng.standard_normal(m) for _ in range(n)]


def exact_median(values: Sequence[float]) -> Fraction:
    ordered = sorted(map(Fraction, values))
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def exact_trimmed(values: Sequence[float], beta: Fraction) -> Fraction:
    ordered = sorted(map(Fraction, values))
    cut = math.floor(beta * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept, Fraction(0)) / len(kept)


# ---------------------------------------------------------------- median


@pytest.mark.parametrize("n", [*range(1, 14), 40, 41, NETWORK_MOST, NETWORK_MOST + 1, NETWORK_MOST + 2])
def test_median_is_the_exact_middle_rounded_once(n: int) -> None:
    rows = random_rows(n, 50)
    got = apply(combine("median", n), rows)
    assert got.tolist() == [float(exact_median([r[i] for r in rows])) for i in range(50)]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_median_of_any_finite_values_has_a_value(values: list[float]) -> None:
    got = apply(combine("median", len(values)), [np.array([v]) for v in values])
    assert got[0] == float(exact_median(values))


def test_mean_of_the_two_middle_values_does_not_overflow() -> None:
    rows = [np.array([x, 1.0, -x]) for x in (MAX, MAX, MAX / 2, MAX)]
    assert apply(combine("median", 4), rows).tolist() == [MAX, 1.0, -MAX]
    assert apply(combine("median", 2), [rows[0], np.array([MAX / 2, 2.0, MAX])]).tolist() == [0.75 * MAX, 1.5, 0.0]


@pytest.mark.parametrize("count", [1, TILE - 1, TILE, TILE + 1, 3 * TILE + 5])
def test_no_size_of_a_chunk_changes_a_bit_and_its_memory_is_used_again(count: int) -> None:
    rows = random_rows(5, count)
    rule = combine("median", 5)
    got = apply(rule, rows)
    assert np.array_equal(got, np.sort(np.stack(rows), axis=0)[2])
    cuts = [0, min(7, count), count // 2, count]
    parts = [apply(rule, [r[a:b] for r in rows]) for a, b in itertools.pairwise(cuts) if a < b]
    if cuts == sorted(cuts):
        assert np.array_equal(np.concatenate(parts), got)


# ---------------------------------------------------------------- trimmed mean


@pytest.mark.parametrize("beta", ["0", "0.1", "0.2", "0.25", "0.3", "0.45", "0.49"])
@pytest.mark.parametrize("n", [*range(1, 13), NETWORK_MOST, NETWORK_MOST + 1])
def test_trimmed_mean_leaves_out_the_floor_of_beta_n_at_each_end(n: int, beta: str) -> None:
    rows = random_rows(n, 40, seed=3)
    got = apply(combine("trimmed_mean", n, beta=beta), rows)
    for i in range(40):
        exact = exact_trimmed([r[i] for r in rows], Fraction(beta))
        assert abs(Fraction(float(got[i])) - exact) <= n * Fraction(2) ** -52 * max(
            map(abs, (r[i] for r in rows)), default=0
        )


@pytest.mark.parametrize(("beta", "n", "cut"), [("0.3", 10, 3), (0.3, 10, 3), ("0.29", 100, 29), (0.29, 100, 29)])
def test_share_is_the_decimal_number_that_is_written(beta: Any, n: int, cut: int) -> None:
    strategy = made("trimmed_mean", beta=beta)
    assert strategy.withstands(n) == cut
    rows = [np.array([1e6 if i < cut else float(i)]) for i in range(n)]
    # The absurd values are the upper ones, so that the lower ones go from the others: 2 cut, …, n - 1 are left.
    assert apply(combine("trimmed_mean", n, beta=beta), rows).tolist() == [(2 * cut + n - 1) / 2]


def test_what_is_kept_is_added_in_ascending_order_of_value() -> None:
    values = [3.0, 2.0**53, 1.0, 1.0, -(2.0**53), 1.0]
    expected = 0.0
    for value in sorted(values):
        expected += value
    expected /= 6
    for order in itertools.permutations(values):
        got = apply(combine("trimmed_mean", 6, beta="0.1"), [np.array([v]) for v in order])
        assert got[0] == expected


def test_with_half_of_an_odd_number_the_median_is_left_and_of_an_even_number_nothing() -> None:
    strategy = made("trimmed_mean", beta="0.5")
    assert [strategy.refuses(n) is None for n in range(1, 8)] == [True, False, True, False, True, False, True]
    found = strategy.refuses(4)
    assert found is not None
    assert (found.slug, found.got, found.expected) == ("trim_too_large", 4, "fewer than 4")
    assert found.detail == {"beta": "0.5", "updates": 4}
    rows = random_rows(5, 30)
    assert np.array_equal(apply(combine("trimmed_mean", 5, beta="0.5"), rows), apply(combine("median", 5), rows))


@given(st.fractions(0, Fraction(49, 100)), st.integers(1, 300))
def test_below_one_half_something_is_left_of_any_number(beta: Fraction, n: int) -> None:
    strategy = made("trimmed_mean", beta=f"{float(beta):.6f}")
    assert strategy.least == 1
    assert strategy.refuses(n) is None


# ---------------------------------------------------------------- both


@pytest.mark.parametrize(("name", "parameters"), [("median", {}), ("trimmed_mean", {"beta": "0.25"})])
@pytest.mark.parametrize("n", [4, 5, NETWORK_MOST + 1])
def test_neither_the_order_of_sites_nor_which_zero_they_bring_changes_a_bit(name: str, parameters: Any, n: int) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    rows = [rng.choice([0.0, -0.0, 1.0, -1.0], 200) for _ in range(n)]
    results = set()
    for _ in range(8):
        order = [rows[i] for i in rng.permutation(n)]
        got = apply(combine(name, n, **parameters), order)
        results.add(got.tobytes())
        assert not np.signbit(got[got == 0]).any()
    assert len(results) == 1


@pytest.mark.parametrize(("name", "parameters", "wrong"), [("median", {}, 2), ("trimmed_mean", {"beta": "0.4"}, 2)])
def test_as_many_as_it_withstands_cannot_take_it_beyond_the_others(name: str, parameters: Any, wrong: int) -> None:
    assert made(name, **parameters).withstands(5) == wrong
    honest = random_rows(5 - wrong, 60)
    low, high = np.min(honest, axis=0), np.max(honest, axis=0)
    for absurd in (MAX, -MAX, 1e30):
        got = apply(combine(name, 5, **parameters), [*honest, *[np.full(60, absurd)] * wrong])
        assert ((low <= got) & (got <= high)).all()


@pytest.mark.parametrize("n", range(1, 12))
def test_network_sorts_every_row_of_zeros_and_ones(n: int) -> None:
    """And so, by the zero-one principle, every row of numbers; with fewer steps where fewer ranks are needed."""
    for first, last in {(0, n), ((n - 1) // 2, n // 2 + 1), (n // 3, n - n // 3)}:
        steps = network(n, first, last)
        assert len(steps) <= len(network(n, 0, n))
        for bits in itertools.product((0, 1), repeat=n):
            row = list(bits)
            for low, high, smaller, larger in steps:
                a, b = row[low], row[high]
                row[low] = min(a, b) if smaller else -9
                row[high] = max(a, b) if larger else -9
            assert row[first:last] == sorted(bits)[first:last]


def test_the_sites_are_sorted_alike_by_the_network_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(30, 100)
    by_network = apply(combine("median", 30), rows)
    monkeypatch.setattr(ranked, "NETWORK_MOST", 0)
    assert np.array_equal(apply(combine("median", 30), rows), by_network)


def test_memory_that_is_asked_for_is_what_is_used() -> None:
    assert [made("median").buffers(n) for n in (1, 30)] == [2, 31]
    assert [made("trimmed_mean", beta="0.2").buffers(n) for n in (1, 30)] == [2, 31]
    assert made("krum", f=1).buffers(30) == 1
    assert {made(name, **p).linear for name, p in (("median", {}), ("krum", {"f": 1}))} == {False}
    assert made("median").withstands(1) == made("median").withstands(2) == 0
    assert made("median").refuses(1) is None
    assert made("median").scores(None) == made("trimmed_mean", beta="0.2").scores(None) == ()


# ---------------------------------------------------------------- Krum


def exact_scores(points: Sequence[Sequence[float]], f: int) -> list[Fraction]:
    scores = []
    for i, p in enumerate(points):
        near = sorted(
            sum(((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(p, q, strict=True)), Fraction(0))
            for j, q in enumerate(points)
            if j != i
        )
        scores.append(sum(near[: len(points) - f - 2], Fraction(0)))
    return scores


def krum(points: Sequence[Sequence[float]], f: int) -> list[float]:
    """The delta that is taken."""
    return list(map(float, apply(combine("krum", len(points), table(points), f=f), [np.array(p) for p in points])))


@pytest.mark.parametrize(("n", "f"), [(3, 0), (4, 0), (5, 0), (5, 1), (6, 1), (7, 2), (9, 1), (9, 3), (13, 5)])
def test_krum_takes_the_delta_with_the_lowest_exact_score(n: int, f: int) -> None:
    rng = np.random.Generator(np.random.PCG64(n))
    points = [[float(x) for x in rng.integers(-50, 50, 3)] for _ in range(n)]
    exact = exact_scores(points, f)
    assert made("krum", f=f).scores(table(points)) == tuple(map(float, exact))
    assert krum(points, f) == points[min(range(n), key=lambda i: (exact[i], i))]


def test_of_equal_scores_the_smallest_site_is_taken() -> None:
    assert krum([[3.0], [1.0], [2.0], [0.0]], 0) == [1.0]  # 1 and 2 have the score 1 + 1
    assert krum([[7.0]] * 5, 1) == [7.0]
    assert chosen({"b": 1.0, "a": 1.0, "c": 0.5, "d": 0.5}) == "c"
    assert chosen({}) is None


def test_an_update_further_than_float64_reaches_is_ranked_last() -> None:
    points = [[1.0], [2.0], [1e200], [2.5], [4.0]]
    strategy, scan = made("krum", f=1), table([[1.0], [2.0], [0.0], [2.5], [4.0]])
    far = tuple(
        tuple(math.inf if 2 in (i, j) and i != j else d for j, d in enumerate(row))
        for i, row in enumerate(scan.distances)
    )
    scores = strategy.scores(Scan((), far))
    assert scores == (1 + 2.25, 1.25, MAX, 0.25 + 2.25, 2.25 + 4)
    assert apply(combine("krum", 5, Scan((), far), f=1), [np.array(p) for p in points]).tolist() == [2.0]


def test_a_sum_beyond_float64_is_the_largest_number() -> None:
    row = (0.0, MAX, MAX, MAX)
    scan = Scan((), (row, (MAX, 0.0, 1.0, 2.0), (MAX, 1.0, 0.0, 3.0), (MAX, 2.0, 3.0, 0.0)))
    assert made("krum", f=0).scores(scan) == (MAX, 3.0, 4.0, 5.0)


def test_nobody_is_taken_where_all_are_too_far_apart() -> None:
    scan = Scan((), tuple(tuple(0.0 if i == j else math.inf for j in range(3)) for i in range(3)))
    found = made("krum", f=0).prepare(weights(3), 1.0, scan)
    assert isinstance(found, Finding)
    assert (found.slug, found.where, found.got) == ("non_finite_result", "policies/aggregation.yaml", "inf")


@pytest.mark.parametrize(("f", "least"), [(0, 3), (1, 5), (2, 7), (10, 23)])
def test_krum_needs_two_f_and_three_updates(f: int, least: int) -> None:
    strategy = made("krum", f=f)
    assert strategy.least == least
    assert strategy.refuses(least) is None
    assert (strategy.withstands(least), strategy.withstands(least - 1)) == (f, 0)
    found = strategy.refuses(least - 1)
    assert found is not None
    assert (found.slug, found.got, found.expected, found.detail) == ("krum_too_few", least - 1, least, {"f": f})
