"""L2 norms of engine 1: the same bits on any machine and for any chunk size."""

from __future__ import annotations

import math

import numpy as np

from fedops.core.facts import F64

BLOCK = 65_536  # elements that are folded by pairwise addition before `math.fsum` takes over


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

    def add_squares(self, block: F64) -> None:
        """Take the squares of one block, from several threads if need be: the order of the blocks does not matter.

        Args:
            block: float64, shape (m,), m from 1 to BLOCK, the last block of a tensor without its padding; overwritten.
        """
        count = block.size
        while count > 1:
            half = 1 << ((count - 1).bit_length() - 1)  # the padding would only add zeros
            np.add(block[: count - half], block[half:count], block[: count - half])
            count = half
        self._blocks.append(float(block[0]))

    def value(self) -> float:
        """The norm of everything added; inf if its square has no float64 value."""
        try:
            return math.sqrt(math.fsum(self._blocks))
        except OverflowError:
            return math.inf


def clip_factor(norm: float, clip_norm: float) -> float:
    """min(1, clip_norm / norm), and 1 for a delta of norm 0: what shortens a delta to at most clip_norm."""
    return 1.0 if norm <= clip_norm else clip_norm / norm
