"""L2 norms of engine 1: the same bits on any machine and for any chunk size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedops.core.facts import F64

BLOCK = 65_536  # elements that are folded by pairwise addition before `math.fsum` takes over
SHORT = 2_048  # elements to which each site's block is folded alone, before the rest is folded for all sites at once


class BlockNorm:
    """The L2 norm over several tensors, fed chunk by chunk.

    float64 squares; each tensor is cut into blocks of BLOCK elements, the last padded with 0; a block is folded in
    halves by elementwise addition; `math.fsum` adds the blocks. (fsum over every element would take seconds for a
    model of 500 MB.) No numpy reduction: their order of addition differs between machines.
    """

    def __init__(self) -> None:
        self._blocks: list[float] = []

    def add(self, values: F64) -> None:
        """Take the next chunk of a tensor.

        Args:
            values: float64, shape (m,); m is a multiple of BLOCK unless the chunk ends its tensor.
        """
        padded = np.zeros(-(-values.size // BLOCK) * BLOCK)
        with np.errstate(over="ignore"):
            np.multiply(values, values, out=padded[: values.size])
            folded = padded.reshape(-1, BLOCK)
            while folded.shape[1] > 1:
                half = folded.shape[1] // 2
                folded = folded[:, :half] + folded[:, half:]
        self._blocks += folded[:, 0].tolist()

    def value(self) -> float:
        """The norm of everything added; inf if its square has no float64 value."""
        return math.sqrt(exact_sum(self._blocks))


def exact_sum(totals: Sequence[float]) -> float:
    """The sum of blocks, rounded once; inf if it has no float64 value."""
    try:
        return math.fsum(totals)
    except OverflowError:
        return math.inf


def few_with_same_sum(totals: Sequence[float]) -> list[float]:
    """A few numbers, at best one, whose exact sum is that of the totals: what `exact_sum` gives does not change.

    Args:
        totals: all of one sign, or one is not finite.
    """
    few: list[float] = []
    while rest := exact_sum([*totals, *(-part for part in few)]):
        few.append(rest)
        if not math.isfinite(rest):
            return [rest]
    return few


def clip_factor(norm: float, clip_norm: float) -> float:
    """min(1, clip_norm / norm), and 1 for a delta of norm 0: what shortens a delta to at most clip_norm."""
    return 1.0 if norm <= clip_norm else clip_norm / norm


def fold(squares: F64, count: int = 1) -> F64:
    """Fold the squares of one block in halves, in place; padding would only add zeros.

    Args:
        squares: float64, shape (m,), m from 1 to BLOCK: a whole block, or the last one of a tensor; overwritten.
        count: a power of 2: where to stop.

    Returns:
        The first elements of `squares`, at most `count`: of shape (1,) the sum of the block.
    """
    size = squares.size
    while size > count:
        half = 1 << ((size - 1).bit_length() - 1)
        np.add(squares[: size - half], squares[half:size], squares[: size - half])
        size = half
    return squares[:size]


def fold_rows(rows: F64) -> list[float]:
    """The sums of several blocks at once.

    Args:
        rows: float64, shape (n, m), m from 1 to BLOCK: the squares of a block, as for `fold`, or what it left of them, with
            or without zeros; overwritten.
    """
    size = rows.shape[1]
    while size > 1:
        half = 1 << ((size - 1).bit_length() - 1)
        np.add(rows[:, : size - half], rows[:, half:size], rows[:, : size - half])
        size = half
    sums: list[float] = rows[:, 0].tolist()
    return sums
