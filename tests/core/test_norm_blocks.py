"""Blocks of a norm that are folded one by one: the same bits as by chunks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.norms import BLOCK, SHORT, BlockNorm, exact_sum, few_with_same_sum, fold, fold_rows


def folded(squares: list[float]) -> float:
    """One block, padded with 0 and folded in halves, as documented."""
    row = squares + [0.0] * (BLOCK - len(squares))
    while len(row) > 1:
        half = len(row) // 2
        row = [a + b for a, b in zip(row[:half], row[half:], strict=True)]
    return row[0]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 1000, SHORT - 1, SHORT, SHORT + 1, BLOCK - 1, BLOCK])
def test_short_block_is_folded_as_if_it_were_padded(count: int) -> None:
    values = np.random.Generator(np.random.PCG64(count)).standard_normal(count)
    expected = folded([x * x for x in values.tolist()])
    assert fold(values * values).tolist() == [expected]
    rows = np.zeros((3, SHORT))
    part = fold(values * values, SHORT)
    rows[1, : part.size] = part
    assert fold_rows(rows) == [0.0, expected, 0.0]


def test_blocks_and_chunks_give_the_same_norm_in_any_order() -> None:
    values = np.random.Generator(np.random.PCG64(7)).standard_normal(5 * BLOCK + 17)
    by_chunk = BlockNorm()
    by_chunk.add(values)
    sums = [float(fold(values[i : i + BLOCK] ** 2)[0]) for i in range(0, values.size, BLOCK)]
    assert math.sqrt(exact_sum(sums)) == math.sqrt(exact_sum(sums[::-1])) == by_chunk.value()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 1000, SHORT - 1, SHORT, SHORT + 1, 5000])
def test_rows_of_any_length_are_folded_as_if_they_were_padded(count: int) -> None:
    values = np.random.Generator(np.random.PCG64(count)).standard_normal((3, count))
    assert fold_rows(values * values) == [folded([x * x for x in row.tolist()]) for row in values]


@given(st.lists(st.floats(0, 1e300), max_size=40), st.integers(1, 39))
def test_a_few_numbers_take_the_place_of_many_with_exactly_the_same_sum(totals: list[float], at: int) -> None:
    few = few_with_same_sum(totals)
    assert sum(map(Fraction, few), Fraction(0)) == sum(map(Fraction, totals), Fraction(0))
    assert len(few) <= max(1, len(totals))
    assert exact_sum([*few_with_same_sum(totals[:at]), *totals[at:]]) == exact_sum(totals)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_sum_that_has_no_value_keeps_none(bad: float) -> None:
    assert repr(few_with_same_sum([1.0, bad, 2.0])) == repr([bad])
    assert few_with_same_sum([1e308, 1e308]) == [math.inf]
    assert exact_sum([1e308, 1e308]) == math.inf
    assert few_with_same_sum([]) == few_with_same_sum([0.0, 0.0]) == []
