"""The norms of all sites' deltas, gathered chunk by chunk in any order and by several processes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedops.core.chunks import Chunk
from fedops.core.facts import F64
from fedops.core.norms import SHORT, BlockNorm, fold, fold_rows


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


def norms_of(parts: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """L2 norm of each site's delta, from the blocks that each process has seen.

    A norm is not finite if a value is not, or if its square has no float64 value.
    """
    norms = []
    for lists in zip(*parts, strict=True):
        norm = BlockNorm()
        for blocks in lists:
            for total in blocks:
                norm.add_block(total)
        norms.append(norm.value())
    return norms
