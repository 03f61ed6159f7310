"""Passes that only look: norms of all deltas, distances between them, and who brought a value that is not finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedops.app.delta_norms import DeltaDistances, DeltaNorms, norms_of, square_table, squares_of
from fedops.app.feeds import Base, Buffers, Input, Room
from fedops.app.lanes import beside, share
from fedops.core.casts import widen
from fedops.core.chunks import Chunk, plan_chunks
from fedops.core.facts import F64, Scan
from fedops.core.findings import Finding, finding
from fedops.core.norms import BLOCK
from fedops.core.tensors import Placed, element_count, is_float
from fedops.ports import OpenModel

MAX_FINDINGS = 50  # of one file


def scan(
    layout: tuple[Placed, ...],
    inputs: Sequence[Input],
    bases: Mapping[int, Base],
    *,
    distances: bool,
    two_processes: bool,
) -> Scan:
    """Measure each input's delta over all float tensors, in the order of the inputs.

    A norm or a distance is not finite if a value is not, or if its square has no float64 value.

    Args:
        distances: also between all pairs; then a process holds one block of every delta.
        two_processes: True: a second process helps.
    """

    def plan() -> Iterator[Chunk]:
        return (chunk for chunk in plan_chunks(layout, {}, BLOCK) if chunk.is_float)

    def part() -> _Measuring:
        return _Measuring(inputs, bases, distances=distances)

    with beside(plan, part, wanted=two_processes) as other:
        told = share(plan, part, lambda _: None, other)
    measured = norms_of([norms for norms, _ in told])
    pairs = squares_of([pairs for _, pairs in told])
    return Scan(tuple(measured), square_table(len(inputs), pairs) if distances else ())


class _Measuring:
    """Measures chunks of all deltas."""

    def __init__(self, inputs: Sequence[Input], bases: Mapping[int, Base], *, distances: bool) -> None:
        self._inputs, self._bases = inputs, bases
        self._versions = sorted({i.base for i in inputs if i.base is not None})
        self._buffers = Buffers(BLOCK, len(self._versions) + 1)
        self._norms = DeltaNorms(len(inputs))
        self._distances = DeltaDistances(len(inputs)) if distances else None
        self._deltas = np.empty((len(inputs) if distances else 0, BLOCK))

    def work(self, chunk: Chunk) -> None:
        room, (row, *rows) = self._buffers.places(chunk)
        origins = dict(zip(self._versions, rows, strict=True))
        deltas = self._deltas[:, : chunk.count]
        with np.errstate(all="ignore"):
            for version, origin in origins.items():
                _read(self._bases[version].model, chunk, room, origin)
            for place, given in enumerate(self._inputs):
                _read(given.model, chunk, room, row)
                if given.base is not None:
                    np.subtract(row, origins[given.base], row)
                if self._distances is not None:
                    deltas[place] = row
                self._norms.add(place, chunk, row)
            self._norms.end(chunk)
            if self._distances is not None:
                self._distances.add(chunk, deltas, row)

    def told(self) -> tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]:
        """Blocks of the norms, and of the distances."""
        return self._norms.blocks, [] if self._distances is None else self._distances.blocks


def _read(model: OpenModel, chunk: Chunk, room: Room, row: F64) -> None:
    model.read_into(chunk.position, room.raw)
    widen(room.values, chunk.dtype, row)


def non_finite(layout: tuple[Placed, ...], inputs: Sequence[Input], bases: Mapping[int, Base]) -> tuple[Finding, ...]:
    """Read everything and name each float tensor with a value that is not finite, and whose it is.

    Only for the case that the result is not finite: a site's NaN makes it so, and nothing cheaper says whose it was.
    What came in order is gone, and nothing is said of it.
    """
    found: list[Finding] = []
    for given in inputs:
        if not given.model.in_order:
            found += _tensors(layout, given.model, given.where, {"site": given.site})
    for version in sorted(bases):
        if not bases[version].model.in_order:
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
