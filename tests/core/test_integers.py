"""Whole numbers: every rule against Python's own integers and fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedops.core.integers import combine_integers, whole_weights
from fedops.core.settings import IntegerRule

KINDS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
WEIGHTS = st.one_of(
    st.integers(1, 10**7).map(float),
    st.tuples(st.integers(1, 10**7), st.integers(1, 9)).map(lambda t: t[0] / t[1]),
    st.floats(1e-9, 1e9),
)


def limits(kind: str) -> tuple[int, int]:
    return (0, 1) if kind == "bool" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))


def reference(
    rule: IntegerRule, current: list[int], updates: list[list[int]], bases: list[list[int]], weights: list[float]
) -> list[int]:
    if rule == "keep":
        return current
    if rule == "max":
        return [max(column) for column in zip(current, *updates, strict=True)]
    if rule == "sum_of_deltas":
        moved = [[u - b for u, b in zip(us, bs, strict=True)] for us, bs in zip(updates, bases, strict=True)]
        return [c + sum(column) for c, column in zip(current, zip(*moved, strict=True), strict=True)]
    exact = [Fraction(w) for w in weights]
    return [
        round(sum(w * u for w, u in zip(exact, column, strict=True)) / sum(exact))  # Fraction rounds half to even
        for column in zip(*updates, strict=True)
    ]


@pytest.mark.parametrize("rule", ["max", "keep", "sum_of_deltas", "rounded_mean"])
@given(st.data())
def test_rule_gives_the_exact_value_or_says_that_it_does_not_fit(rule: IntegerRule, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    low, high = limits(kind)
    sites, count = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    near = st.one_of(st.integers(low, high), st.integers(max(low, -3), min(high, 3)), st.sampled_from([low, high]))
    rows = [data.draw(st.lists(near, min_size=count, max_size=count)) for _ in range(1 + 2 * sites)]
    weights = data.draw(st.lists(WEIGHTS, min_size=sites, max_size=sites))
    current, updates, bases = rows[0], rows[1 : 1 + sites], rows[1 + sites :]
    arrays: list[NDArray[Any]] = [np.array(row, kind) for row in rows]
    got = combine_integers(rule, arrays[0], arrays[1 : 1 + sites], arrays[1 + sites :], weights)
    expected = reference(rule, current, updates, bases, weights)
    if all(low <= x <= high for x in expected):
        assert got is not None
        assert got.dtype == np.dtype(kind)
        assert [int(x) for x in got] == expected
    else:
        assert got is None
    assert [[int(x) for x in a] for a in arrays] == rows  # nothing that was handed in has changed


def test_counters_beyond_2_to_53_lose_no_digit() -> None:
    big = 2**53 + 1
    row = np.array([big], np.int64)
    for rule, expected in (("max", big), ("sum_of_deltas", big + 2), ("rounded_mean", big)):
        updates = [row, row] if rule == "rounded_mean" else [row + 1, row - 1]
        if rule == "max":
            updates = [row - 1, row]
        got = combine_integers(rule, row, updates, [row - 1, row - 1], [1.0, 1 / 3])  # type: ignore[arg-type]
        assert got is not None
        assert int(got[0]) == expected


def test_ties_of_a_mean_go_to_even() -> None:
    got = combine_integers("rounded_mean", np.zeros(4, np.int8), [np.array([0, 1, 2, -1], np.int8), np.array([1, 2, 3, 0], np.int8)], [], [1 / 3, 1 / 3])  # fmt: skip
    assert got is not None
    assert got.tolist() == [0, 2, 2, 0]


def test_bool_is_or_by_default() -> None:
    got = combine_integers("max", np.array([False, False, True]), [np.array([False, True, False])], [], [1.0])
    assert got is not None
    assert got.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([30.0, 10.0], [3, 1]),
        ([0.5, 0.25], [2, 1]),
        ([100 / 3, 100 / 3], [1, 1]),
        ([1.0], [1]),
        ([1e300, 1e-300], [int(Fraction(1e300) / Fraction(1e-300)), 1]),
    ],
)
def test_weights_become_the_smallest_whole_numbers_of_the_same_proportion(
    weights: list[float], expected: list[int]
) -> None:
    got = whole_weights(weights)
    if len(set(weights)) == 2 and max(weights) > 1e200:
        assert Fraction(got[0], got[1]) == Fraction(weights[0]) / Fraction(weights[1])
    else:
        assert got == expected
