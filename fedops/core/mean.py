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
        self._rows = acc, term
        self._acc, self._term = acc, term
        self._empty = True

    def begin(self, count: int) -> None:
        """Start a chunk of `count` elements, at most n."""
        acc, term = self._rows
        self._acc, self._term = acc[:count], term[:count]
        self._empty = True

    def add(self, stored: NDArray[Any], dtype: Dtype, weight: float) -> None:
        """Add weight * stored.

        Args:
            stored: one site's update, shape (count,), as stored.
            dtype: of `stored`.
            weight: w_i.
        """
        acc = self._acc
        if self._empty:
            self._empty = False
            widen(stored, dtype, acc)
            np.multiply(acc, weight, acc)
            return
        term = self._term
        widen(stored, dtype, term)
        np.multiply(term, weight, term)
        np.add(acc, term, acc)

    def subtract(self, stored: NDArray[Any], dtype: Dtype, weight: float, keep: F64 | None = None) -> None:
        """Subtract weight * stored, after all sites were added.

        Args:
            stored: one base version, shape (count,), as stored.
            dtype: of `stored`.
            weight: W_b, the sum of the weights of the sites on it.
            keep: float64, shape (count,), overwritten with the base's values; None if nobody wants them.
        """
        values = self._term if keep is None else keep
        widen(stored, dtype, values)
        np.multiply(values, weight, self._term)
        np.subtract(self._acc, self._term, self._acc)

    def delta(self, denominator: float) -> F64:
        """Acc / denominator, shape (count,): valid until the next `begin`."""
        np.divide(self._acc, denominator, self._acc)
        return self._acc
