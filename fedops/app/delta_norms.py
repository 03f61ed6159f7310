"""Norms of all sites' deltas, and distances between them, gathered chunk by chunk in any order, by several processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from fedops.core.chunks import Chunk
from fedops.core.facts import F64
from fedops.core.norms import SHORT, exact_sum, few_with_same_sum, fold, fold_rows

_MOST_BLOCKS = 512  # of one pair, which are then replaced by a few numbers of the same sum


class DeltaNorms:
    """Folded squares of the blocks that one process has seen.

    Args:
        sites: how many.
    """

    def __init__(self, sites: int) -> None:
        self.blocks: list[list[float]] = [[] for _ in range(sites)]
        self._short = np.empty((sites, SHORT))

    def add(self, site: int, chunk: Chunk, delta: F64) -> None:
        """Take one chunk of one site's delta.

        Args:
            site: its place.
            chunk: of a float dtype; its pieces are whole blocks, or the last one of a tensor.
            delta: float64, shape (chunk.count,); overwritten.
        """
        np.multiply(delta, delta, delta)
        if len(chunk.pieces) == 1:  # many small steps take long, so the last of them are made for all sites at once
            row, folded = self._short[site], fold(delta, SHORT)
            row[: folded.size] = folded
            row[folded.size :] = 0
            return
        start = 0
        for piece in chunk.pieces:
            self.blocks[site].append(float(fold(delta[start : start + piece.count])[0]))
            start += piece.count

    def end(self, chunk: Chunk) -> None:
        """All sites' deltas of the chunk were taken."""
        if len(chunk.pieces) == 1:
            for blocks, total in zip(self.blocks, fold_rows(self._short), strict=True):
                blocks.append(total)


class DeltaDistances:
    """Folded squares of the differences between all pairs of deltas, of the blocks that one process has seen.

    Args:
        sites: how many.
    """

    def __init__(self, sites: int) -> None:
        self._later: list[list[list[float]]] = [[[] for _ in range(later)] for later in reversed(range(sites))]
        self._short = np.empty((sites, SHORT))

    @property
    def blocks(self) -> list[list[float]]:
        """Of the pairs (0, 1), (0, 2), …, (1, 2), …"""
        return list(chain.from_iterable(self._later))

    def add(self, chunk: Chunk, deltas: F64, scratch: F64) -> None:
        """Take one chunk of all sites' deltas.

        Args:
            chunk: as for `DeltaNorms.add`.
            deltas: float64, shape (sites, chunk.count).
            scratch: float64, shape (chunk.count,), overwritten.
        """
        start = 0
        for piece in chunk.pieces:
            self._add_block(deltas[:, start : start + piece.count], scratch[: piece.count])
            start += piece.count

    def _add_block(self, deltas: F64, scratch: F64) -> None:
        for site, pairs in enumerate(self._later):
            others = deltas[site + 1 :]
            squares = self._short[: len(others)]
            if scratch.size <= SHORT:  # calls on few values take long, so one is made for all others at once
                squares = self._short.reshape(-1)[: others.size].reshape(others.shape)
                np.subtract(others, deltas[site], squares)
                np.multiply(squares, squares, squares)
            else:
                for row, other in zip(squares, others, strict=True):
                    np.subtract(other, deltas[site], scratch)
                    np.multiply(scratch, scratch, scratch)
                    folded = fold(scratch, SHORT)
                    row[: folded.size] = folded
                    row[folded.size :] = 0
            for blocks, total in zip(pairs, fold_rows(squares), strict=True):
                blocks.append(total)
                if len(blocks) > _MOST_BLOCKS:
                    blocks[:] = few_with_same_sum(blocks)


def norms_of(parts: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """L2 norm of each site's delta, from the blocks that each process has seen.

    A norm is not finite if a value is not, or if its square has no float64 value.
    """
    return [math.sqrt(square) for square in squares_of(parts)]


def squares_of(parts: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """The squared norm of each delta or difference, likewise."""
    return [exact_sum(list(chain.from_iterable(lists))) for lists in zip(*parts, strict=True)]


def square_table(sites: int, pairs: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """The squared distances of each site to all, from those of the pairs in the order of `DeltaDistances`.

    Between two changes of which none has a float64 value the distance is infinite too.
    """
    table = [[0.0] * sites for _ in range(sites)]
    given: Iterator[float] = (math.inf if math.isnan(pair) else pair for pair in pairs)
    for i in range(sites):
        for j in range(i + 1, sites):
            table[i][j] = table[j][i] = next(given)
    return tuple(map(tuple, table))
