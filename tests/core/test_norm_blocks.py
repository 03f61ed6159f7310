"""Blocks of a norm that are folded one by one: the same bits as by chunks."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fedops.core.norms import BLOCK, SHORT, BlockNorm, fold, fold_rows


def folded(squares: list[float]) -> float:
    """One block, padded with 0 and folded in halves, as documented."""
    row = squares + [0.0] * (BLOCK - len(squares))
    while len(row) > 1:
        half = len(row) // 2
        row = [a + b for a, b in zip(row[:half], row[half:], strict=True)]
    return row[0]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 1000, SHORT - 1, SHORT, SHORT + 1, BLOCK - 1, BLOCK])
def test_short_block_is_folded_as_if_it_were_padded(count: int) -> None:
    values = np.random.Generator(np.random.PCG64(count)).standard_normal(count)
    expected = folded([x * x for x in values.tolist()])
    assert fold(values * values).tolist() == [expected]
    rows = np.zeros((3, SHORT))
    part = fold(values * values, SHORT)
    rows[1, : part.size] = part
    assert fold_rows(rows) == [0.0, expected, 0.0]


def test_blocks_and_chunks_give_the_same_norm_in_any_order_and_from_any_thread() -> None:
    values = np.random.Generator(np.random.PCG64(7)).standard_normal(5 * BLOCK + 17)
    by_chunk, by_block = BlockNorm(), BlockNorm()
    by_chunk.add(values)
    sums = [float(fold(values[i : i + BLOCK] ** 2)[0]) for i in range(0, values.size, BLOCK)]
    threads = [threading.Thread(target=by_block.add_block, args=(s,)) for s in reversed(sums)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert by_block.value() == by_chunk.value()
