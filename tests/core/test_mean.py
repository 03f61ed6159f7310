"""One chunk of the weighted mean: the order of the operations is the documented one, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedops.core.casts import storage, widen
from fedops.core.facts import Dtype
from fedops.core.mean import Mean
from fedops.core.norms import clip_factor


def by_python(
    updates: list[list[float]], weights: list[float], bases: list[list[float]], sums: list[float]
) -> list[float]:
    """Python's floats are IEEE float64: the documented order of operations, one element at a time."""
    out = []
    for i in range(len(updates[0])):
        acc = weights[0] * updates[0][i]
        for update, weight in zip(updates[1:], weights[1:], strict=True):
            acc += weight * update[i]
        for base, total in zip(bases, sums, strict=True):
            acc -= total * base[i]
        out.append(acc / 7.5)
    return out


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_mean_is_taken_in_float64_in_the_order_of_the_calls(dtype: Dtype, data: st.DataObject) -> None:
    sites, bases, count = (data.draw(st.integers(1, 4)) for _ in range(3))
    seed = data.draw(st.integers(0, 2**32))
    rng = np.random.Generator(np.random.PCG64(seed))
    stored: Any = (rng.standard_normal((sites + bases, count)) * 4).astype(storage(dtype))
    if dtype == "BF16":
        stored = rng.integers(0x3F00, 0x4100, (sites + bases, count)).astype(np.uint16)
    wide = np.empty(stored.shape)
    for row, out in zip(stored, wide, strict=True):
        widen(row, dtype, out)
    factors = rng.uniform(0.1, 1000, sites + bases).tolist()
    acc, term = np.full(count + 3, np.nan), np.full(count + 3, np.nan)
    for round_ in range(2):  # the second chunk must not see the first
        mean = Mean(acc[:count], term[:count])
        for row, values, factor in zip(stored[:sites], wide, factors, strict=False):
            assert np.array_equal(mean.load(row, dtype), values)
            mean.add(factor if round_ else np.array(factor))
        for i in range(sites, sites + bases):
            if i == sites:  # the scratch row may hold a base
                term[:count] = wide[i]
            mean.subtract(term[:count] if i == sites else wide[i], factors[i])
        got = mean.delta(7.5)
    rows = wide.tolist()
    assert got.tolist() == by_python(rows[:sites], factors[:sites], rows[sites:], factors[sites:])


def test_clip_factor_shortens_and_never_lengthens() -> None:
    assert clip_factor(0.0, 2.5) == 1.0
    assert clip_factor(2.5, 2.5) == 1.0
    assert clip_factor(1.0, 2.5) == 1.0
    assert clip_factor(10.0, 2.5) == 0.25
