"""The weighted mean of engine 1 over one chunk: float64, elementwise, term by term, one cast at the end.

No BLAS, no einsum, no reduction over sites: those change bits with the processor and with the chunk size, ufuncs do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.core.casts import widen
from fedops.core.facts import F64, Dtype


class Mean:
    """acc = sum_i w_i update_i - sum_b W_b base_b, built term by term in the order of the calls.

    Args:
        acc: float64, shape (n,): the sum.
        term: float64, shape (n,): scratch.
    """

    def __init__(self, acc: F64, term: F64) -> None:
        self._acc, self._term = acc, term
        self._empty = True

    def begin(self) -> None:
        """Start a new chunk."""
        self._empty = True

    def add(self, stored: NDArray[Any], dtype: Dtype, weight: float) -> None:
        """Add weight * stored.

        Args:
            stored: one site's update, shape (m,), m <= n, as stored.
            dtype: of `stored`.
            weight: w_i.
        """
        out = self._acc if self._empty else self._term
        term = out[: stored.size]
        widen(stored, dtype, term)
        np.multiply(term, weight, term)
        if not self._empty:
            acc = self._acc[: stored.size]
            np.add(acc, term, acc)
        self._empty = False

    def subtract(self, stored: NDArray[Any], dtype: Dtype, weight: float, keep: F64 | None = None) -> None:
        """Subtract weight * stored, after all sites were added.

        Args:
            stored: one base version, shape (m,), as stored.
            dtype: of `stored`.
            weight: W_b, the sum of the weights of the sites on it.
            keep: float64, shape (n,), overwritten with the base's values; None if nobody wants them.
        """
        term, acc = self._term[: stored.size], self._acc[: stored.size]
        values = term if keep is None else keep[: stored.size]
        widen(stored, dtype, values)
        np.multiply(values, weight, term)
        np.subtract(acc, term, acc)

    def delta(self, count: int, denominator: float) -> F64:
        """Acc / denominator, shape (count,): a view of `acc`, valid until the next `begin`."""
        acc = self._acc[:count]
        np.divide(acc, denominator, acc)
        return acc
