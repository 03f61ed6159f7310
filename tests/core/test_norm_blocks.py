"""Blocks of a norm that are handed over as squares: the same bits as by chunks."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from fedops.core.norms import BLOCK, BlockNorm


def folded(squares: list[float]) -> float:
    """One block, padded with 0 and folded in halves, as documented."""
    row = squares + [0.0] * (BLOCK - len(squares))
    while len(row) > 1:
        half = len(row) // 2
        row = [a + b for a, b in zip(row[:half], row[half:], strict=True)]
    return row[0]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 1000, BLOCK - 1, BLOCK])
def test_short_block_is_folded_as_if_it_were_padded(count: int) -> None:
    values = np.random.Generator(np.random.PCG64(count)).standard_normal(count)
    norm = BlockNorm()
    norm.add_squares(values * values)
    assert norm.value() == math.sqrt(folded([x * x for x in values.tolist()]))


def test_squares_and_chunks_give_the_same_norm_in_any_order_and_from_any_thread() -> None:
    values = np.random.Generator(np.random.PCG64(7)).standard_normal(5 * BLOCK + 17)
    by_chunk, by_block = BlockNorm(), BlockNorm()
    by_chunk.add(values)
    blocks = [values[i : i + BLOCK] ** 2 for i in range(0, values.size, BLOCK)]
    threads = [threading.Thread(target=by_block.add_squares, args=(b,)) for b in reversed(blocks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert by_block.value() == by_chunk.value()
