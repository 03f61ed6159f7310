"""Passes that only look: the norms of all deltas, and who brought a value that is not finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedops.app.feeds import Base, Buffers, Input
from fedops.app.lanes import Line, run_lanes
from fedops.core.casts import widen
from fedops.core.chunks import Chunk, plan_chunks
from fedops.core.facts import F64
from fedops.core.findings import Finding, finding
from fedops.core.norms import BLOCK, SHORT, BlockNorm, fold, fold_rows
from fedops.core.tensors import Placed, element_count, is_float
from fedops.ports import OpenModel

MAX_FINDINGS = 50  # of one file


def norms(layout: tuple[Placed, ...], inputs: Sequence[Input], bases: Mapping[int, Base], threads: int) -> list[float]:
    """L2 norm of each input's delta over all float tensors, in the order of the inputs.

    A norm is not finite if a value is not, or if its square has no float64 value.
    """
    totals = [BlockNorm() for _ in inputs]
    line = Line(chunk for chunk in plan_chunks(layout, {}, BLOCK) if chunk.is_float)
    wanted = sorted({i.base for i in inputs if i.base is not None})

    def lane() -> None:
        buffers = Buffers(BLOCK, len(wanted) + 1)
        origins = dict(zip(wanted, buffers.rows, strict=False))
        short = np.empty((len(inputs), SHORT))
        with np.errstate(all="ignore"):
            for chunk in line:
                for version, row in origins.items():
                    _read(bases[version].model, chunk, buffers, row)
                for given, total, tail in zip(inputs, totals, short, strict=True):
                    delta = _read(given.model, chunk, buffers, buffers.rows[-1])
                    if given.base is not None:
                        np.subtract(delta, origins[given.base][: delta.size], delta)
                    np.multiply(delta, delta, delta)
                    _add_blocks(chunk, delta, total, tail)
                if len(chunk.pieces) == 1:
                    for total, block in zip(totals, fold_rows(short), strict=True):
                        total.add_block(block)

    run_lanes([lane] * threads, line, ())
    return [total.value() for total in totals]


def _read(model: OpenModel, chunk: Chunk, buffers: Buffers, row: F64) -> F64:
    stored, raw = buffers.stored(chunk)
    model.read_into(chunk.position, raw)
    values = row[: stored.size]
    widen(stored, chunk.dtype, values)
    return values


def _add_blocks(chunk: Chunk, squares: F64, total: BlockNorm, tail: F64) -> None:
    """Fold the squares of one chunk; of a single piece only as far as `tail` goes, since many small steps take long."""
    if len(chunk.pieces) == 1:
        folded = fold(squares, SHORT)
        tail[: folded.size] = folded
        tail[folded.size :] = 0
        return
    start = 0
    for piece in chunk.pieces:
        total.add_block(float(fold(squares[start : start + piece.count])[0]))
        start += piece.count


def non_finite(layout: tuple[Placed, ...], inputs: Sequence[Input], bases: Mapping[int, Base]) -> tuple[Finding, ...]:
    """Read everything and name each float tensor with a value that is not finite, and whose it is.

    Only for the case that the result is not finite: a site's NaN makes it so, and nothing cheaper says whose it was.
    """
    found: list[Finding] = []
    for given in inputs:
        found += _tensors(layout, given.model, given.where, {"site": given.site})
    for version in sorted(bases):
        found += _tensors(layout, bases[version].model, bases[version].where, {"version": version})
    return tuple(found)


def _tensors(layout: tuple[Placed, ...], model: OpenModel, where: str, owner: Mapping[str, Any]) -> list[Finding]:
    found = []
    for placed in layout:
        if is_float(placed.spec) and (bad := _first_bad(model, placed)) is not None:
            index, value = bad
            detail = {**owner, "tensor": placed.name, "index": index}
            found.append(finding("non_finite", where, got=str(value), detail=detail))
    return found[:MAX_FINDINGS]


def _first_bad(model: OpenModel, placed: Placed) -> tuple[int, float] | None:
    total = element_count(placed.spec)
    for start in range(0, total, BLOCK):
        values: F64 = model.read(placed.name, start, min(BLOCK, total - start))
        finite = np.isfinite(values)
        if not finite.all():
            first = int(np.argmin(finite))
            return start + first, float(values[first])
    return None
