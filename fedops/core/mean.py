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

    Weights are floats, or float64 arrays of shape (), which numpy takes faster.

    Args:
        acc: float64, shape (m,): the sum.
        term: float64, shape (m,): scratch.
    """

    def __init__(self, acc: F64, term: F64) -> None:
        self._acc, self._term = acc, term
        self._empty = True

    def load(self, stored: NDArray[Any], dtype: Dtype) -> F64:
        """Take one site's update, to be added next.

        Args:
            stored: shape (m,), as stored.
            dtype: of `stored`.

        Returns:
            float64, shape (m,): its values, until `add`.
        """
        values = self._acc if self._empty else self._term
        widen(stored, dtype, values)
        return values

    def add(self, weight: float | F64) -> None:
        """Add weight * what was loaded."""
        if self._empty:
            self._empty = False
            np.multiply(self._acc, weight, self._acc)
            return
        np.multiply(self._term, weight, self._term)
        np.add(self._acc, self._term, self._acc)

    def subtract(self, values: F64, weight: float | F64) -> None:
        """Subtract weight * values, after all sites were added.

        Args:
            values: float64, shape (m,): one base version; may be `term`.
            weight: W_b, the sum of the weights of the sites on it.
        """
        np.multiply(values, weight, self._term)
        np.subtract(self._acc, self._term, self._acc)

    def delta(self, denominator: float | F64) -> F64:
        """Acc / denominator, shape (m,): in `acc`."""
        np.divide(self._acc, denominator, self._acc)
        return self._acc
