"""Order statistics across the sites, for each value of a chunk: comparisons and elementwise sums alone.

The bits are the same on any processor and for any size of chunk, and do not depend on which site brought which value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from fedops.core.facts import F64

NETWORK_MOST = 100  # sites up to which a sorting network is faster than numpy's sort
TILE = 16_384  # values of each site that are sorted together: few enough for the cache, enough for each call

# Rows of float64, shape (m,), of which some ranks are in their place, ascending; out: shape (m,), overwritten.
Finish: TypeAlias = Callable[[Sequence[F64], F64], None]
Step: TypeAlias = tuple[int, int, bool, bool]  # row, later row; and whether the smaller, the larger is needed of them


class Ranked:
    """Combines one chunk by the values of some ranks; a Combine.

    Args:
        n: sites.
        first, last: the ranks that are needed, from 0 on; `last` is the first that is not.
        finish: makes the new delta of the rows of those ranks, in ascending order of value.
    """

    def __init__(self, n: int, first: int, last: int, finish: Finish) -> None:
        self._n, self._first, self._last, self._finish = n, first, last, finish
        self._steps = network(n, first, last) if n <= NETWORK_MOST else None
        self._memory: F64 = np.empty((n + 1, 0))  # the same for every chunk, since new memory is slow; only scratch

    def __call__(self, deltas: Iterator[F64], out: F64, state: Mapping[str, F64]) -> None:  # noqa: ARG002
        if self._memory.shape[1] < out.size:
            self._memory = np.empty((self._n + 1, out.size))
        for row, delta in zip(self._memory, deltas, strict=False):  # the last row is spare
            row[: out.size] = delta
        with np.errstate(over="ignore"):
            for start in range(0, out.size, TILE):
                stop = min(start + TILE, out.size)
                ordered = self._sorted(self._memory[:, start:stop])
                self._finish(ordered[self._first : self._last], out[start:stop])
        # NOTE: which zero a comparison returns of 0.0 and -0.0 depends on the processor; this makes both 0.0.
        np.add(out, 0.0, out)

    def _sorted(self, block: F64) -> Sequence[F64]:
        """The first n rows with the needed ranks in place."""
        if self._steps is None:
            block[:-1].sort(axis=0)
            return list(block[:-1])
        *rows, spare = block
        for low, high, smaller, larger in self._steps:
            a, b = rows[low], rows[high]
            if smaller and larger:
                np.minimum(a, b, out=spare)
                rows[low], spare = spare, a
            elif smaller:
                np.minimum(a, b, out=a)
            if larger:
                np.maximum(a, b, out=b)
        return rows


def middle(rows: Sequence[F64], out: F64) -> None:
    """The one row, or the mean of the two: the median."""
    low, high = rows[0], rows[-1]
    if low is high:
        out[...] = low
        return
    np.add(low, high, out)
    np.multiply(out, 0.5, out)
    wide = ~np.isfinite(out)
    if wide.any():  # the sum of two finite values has no float64 value, its half has
        out[wide] = low[wide] * 0.5 + high[wide] * 0.5


def mean(rows: Sequence[F64], out: F64) -> None:
    """The sum of the rows, added one after the other, divided by their number."""
    out[...] = rows[0]
    for row in rows[1:]:
        np.add(out, row, out)
    np.divide(out, float(len(rows)), out)


def network(n: int, first: int, last: int) -> tuple[Step, ...]:
    """Comparisons that bring the ranks from first to last - 1 into place.

    Source: Batcher 1968, Sorting networks and their applications, as in Knuth, The art of computer programming,
        volume 3, algorithm 5.2.2M; of which those are left out whose results are not needed.
    """
    needed = set(range(first, last))
    steps: list[Step] = []
    for low, high in reversed(list(_merge_exchange(n))):
        if low in needed or high in needed:
            steps.append((low, high, low in needed, high in needed))
            needed |= {low, high}
    return tuple(reversed(steps))


def _merge_exchange(n: int) -> Iterator[tuple[int, int]]:
    top = 1 << max(0, (n - 1).bit_length() - 1)
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            for i in range(n - d):
                if i & p == r:
                    yield i, i + d
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
