"""Integer and bool tensors of engine 1: exact rules, the dtype is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.core.settings import IntegerRule

Whole = NDArray[Any]  # shape (m,), an integer dtype or bool
_SAFE = 2**62  # sums below it cannot leave int64, nor can one more doubling


def combine_integers(
    rule: IntegerRule, current: Whole, updates: Sequence[Whole], bases: Sequence[Whole], weights: Sequence[float]
) -> Whole | None:
    """Apply a rule to one chunk.

    Args:
        rule: max = elementwise over current and updates (bool: or); keep = current; sum_of_deltas = current +
            sum(update - base); rounded_mean = sum(w * update) / sum(w), exact, then rounded half to even.
        current: the current version.
        updates: of the sites, in full, in site order; not looked at by keep.
        bases: of each site, in the same order; looked at by sum_of_deltas alone.
        weights: w_i in the same order; looked at by rounded_mean alone.

    Returns:
        The new values in the dtype of `current`; None if one does not fit it.
    """
    if rule == "keep":
        return current
    if rule == "max":
        out = current.copy()
        for update in updates:
            np.maximum(out, update, out=out)
        return out
    if rule == "sum_of_deltas":
        signs = [1] * (1 + len(updates)) + [-1] * len(bases)
        return _fit(_weighted_sum([current, *updates, *bases], signs), current.dtype)
    whole = whole_weights(weights)
    return _fit(_half_even(_weighted_sum(updates, whole), sum(whole)), current.dtype)


def whole_weights(weights: Sequence[float]) -> list[int]:
    """The smallest whole numbers in the same proportion; exact, since every float is a fraction of a power of two."""
    fractions = [Fraction(w) for w in weights]
    denominator = math.lcm(*(f.denominator for f in fractions))
    whole = [int(f * denominator) for f in fractions]
    divisor = math.gcd(*whole)
    return [w // divisor for w in whole]


def _weighted_sum(arrays: Sequence[Whole], weights: Sequence[int]) -> Whole:
    """Sum of weight * array, exact: int64 if every partial sum fits, else an object array of Python ints."""
    bound = sum(abs(w) * _magnitude(a) for a, w in zip(arrays, weights, strict=True))
    kind: Any = np.int64 if max(bound, *map(abs, weights)) < _SAFE else object
    total = np.zeros(arrays[0].shape, kind)
    for array, weight in zip(arrays, weights, strict=True):
        total += array.astype(kind) * weight
    return total


def _magnitude(array: Whole) -> int:
    return max(abs(int(array.min())), abs(int(array.max())))


def _half_even(total: Whole, divisor: int) -> Whole:
    """Total / divisor rounded to whole numbers, ties to even; exact."""
    if divisor >= _SAFE:
        total = total.astype(object)
    quotient = total // divisor
    twice = (total - quotient * divisor) * 2
    up = (twice > divisor) | ((twice == divisor) & (quotient % 2 == 1))
    rounded: Whole = quotient + up.astype(quotient.dtype)
    return rounded


def _fit(values: Whole, dtype: np.dtype[Any]) -> Whole | None:
    """Values in a dtype; None if one lies outside it."""
    low, high = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if int(values.min()) < low or int(values.max()) > high:
        return None
    return values.astype(dtype)
