"""One chunk of the new version, from the same chunk of every file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.app.delta_norms import DeltaNorms
from fedops.app.feeds import Base, Buffers, Feed, Input, Room
from fedops.core.casts import narrow, widen
from fedops.core.chunks import Chunk
from fedops.core.facts import F64
from fedops.core.integers import combine_integers
from fedops.core.mean import Mean
from fedops.core.settings import IntegerRule
from fedops.core.strategies.contract import Combine
from fedops.core.tensors import DTYPES, Placed


class ResultNotFinite(Exception):  # noqa: N818 turned into findings, it is no error
    """A value of the new version does not fit its dtype.

    Attributes:
        tensor: its name.
        site: whose change alone has no float64 value; "": it is not known.
    """

    def __init__(self, tensor: str, site: str = "") -> None:
        super().__init__(tensor, site)
        self.tensor, self.site = tensor, site


@dataclass(frozen=True)
class Work:
    """What one pass is given.

    Attributes:
        layout: the canonical layout of all files.
        rules: of the integer and bool tensors.
        inputs: in ascending site id.
        factors: weight of each input in the sum, in the same order.
        counts: weight of each input in `rounded_mean`, in the same order.
        bases: the current version and every version that an update was trained on.
        current: number of the current version.
        denominator: of the mean.
        combine: the strategy.
        linear: the strategy gets the weighted mean alone.
        scratch: float64 chunk buffers that the strategy needs.
        measure: sum up the squares of the deltas on the way; of a linear strategy alone.
    """

    layout: tuple[Placed, ...]
    rules: Mapping[str, IntegerRule]
    inputs: Sequence[Input]
    factors: Sequence[float]
    counts: Sequence[float]
    bases: Mapping[int, Base]
    current: int
    denominator: float
    combine: Combine
    linear: bool
    scratch: int
    measure: bool

    def base_weights(self) -> Mapping[int, float]:
        """W_b of each distinct base in ascending order: exact sum of the weights of the sites on it, rounded once."""
        versions = sorted({i.base for i in self.inputs if i.base is not None})
        pairs = list(zip(self.inputs, self.factors, strict=True))
        return {b: math.fsum(w for i, w in pairs if i.base == b) for b in versions}

    def others(self) -> Sequence[int]:
        """The versions that updates were trained on, without the current one, ascending."""
        return [version for version in self.base_weights() if version != self.current]

    def rows(self) -> int:
        """How many float64 arrays of a chunk `Arithmetic` holds."""
        if self.linear and not self.measure:
            return 3  # sum, term, current
        return 3 + len(self.others()) + self.measure


class Arithmetic:
    """Makes chunks; holds a few of them, whatever the models' size.

    Attributes:
        norms: of the deltas so far; nothing is added without `measure`.

    Args:
        work: what to compute.
        sites: the inputs' files, in the same order.
        bases: version -> its file, ascending.
        elements: of the largest chunk.
    """

    def __init__(self, work: Work, sites: Sequence[Feed], bases: Mapping[int, Feed], elements: int) -> None:
        self._work, self._sites, self._bases = work, sites, bases
        self._given = list(zip(work.inputs, sites, map(np.array, work.factors), strict=True))
        self._weights = {version: np.array(weight) for version, weight in work.base_weights().items()}
        self._denominator = np.array(work.denominator)
        self._buffers = Buffers(elements, work.rows())
        self._versions = [work.current, *work.others()]
        self.norms = DeltaNorms(len(sites))

    def make(self, chunk: Chunk, memory: NDArray[np.uint8]) -> None:
        """Write the new version's chunk into the beginning of some memory, as stored.

        Raises:
            ResultNotFinite: a value is NaN, infinite or outside an integer dtype.
            StoreError: a file cannot be read.
        """
        out = Room.of(memory, chunk).values
        if not chunk.is_float:
            self._integer(chunk, out)
            return
        with np.errstate(all="ignore"):  # what is not finite is looked for in the result
            current, delta = self._linear(chunk) if self._work.linear else self._combined(chunk)
            np.add(current, delta, current)
            if not narrow(current, chunk.dtype, out):
                widen(out, chunk.dtype, current)
                raise ResultNotFinite(_tensor_at(chunk, np.isfinite(current)))

    def _linear(self, chunk: Chunk) -> tuple[F64, F64]:
        """The current version, and the new delta of a linear strategy."""
        work = self._work
        room, (acc, term, current, *rows) = self._buffers.places(chunk)
        mean = Mean(acc, term)
        origins: dict[int, F64] = {}
        if work.measure:
            scratch = rows.pop()
            origins = {
                v: self._base(chunk, v, room, row) for v, row in zip(self._versions, (current, *rows), strict=True)
            }
        for place, (given, feed, weight) in enumerate(self._given):
            values = mean.load(feed.read(chunk, room), chunk.dtype)
            if work.measure:
                origin = 0.0 if given.base is None else origins[given.base]
                self.norms.add(place, chunk, np.subtract(values, origin, scratch))
            mean.add(weight)
        if work.measure:
            self.norms.end(chunk)
        for version, feed in self._bases.items():
            if version in self._versions:
                row = current if version == work.current else term
                values = origins[version] if work.measure else self._base(chunk, version, room, row)
                if version in self._weights:
                    mean.subtract(values, self._weights[version])
            elif feed.every_chunk:
                feed.read(chunk, room)
        delta = mean.delta(self._denominator)
        work.combine(iter((delta,)), delta, {})
        return current, delta

    def _combined(self, chunk: Chunk) -> tuple[F64, F64]:
        """The current version, and the new delta of a strategy that wants all deltas."""
        work = self._work
        room, (out, row, *rows) = self._buffers.places(chunk)
        origins = {v: self._base(chunk, v, room, into) for v, into in zip(self._versions, rows, strict=True)}
        for version, feed in self._bases.items():
            if version not in origins and feed.every_chunk:
                feed.read(chunk, room)

        sites = iter(self._given)

        def deltas() -> Iterator[F64]:
            for given, feed, _ in sites:
                widen(feed.read(chunk, room), chunk.dtype, row)
                if given.base is not None:
                    np.subtract(row, origins[given.base], row)
                # The mean of what is not finite is not either, but a rule that leaves values out may hide it.
                finite = np.isfinite(row)
                if not finite.all():
                    raise ResultNotFinite(_tensor_at(chunk, finite), given.site)
                yield row

        work.combine(deltas(), out, {})
        for _, feed, _ in sites:  # a strategy may leave some out, but every byte of a file is hashed
            if feed.every_chunk:
                feed.read(chunk, room)
        return rows[0], out

    def _base(self, chunk: Chunk, version: int, room: Room, row: F64) -> F64:
        """A global version's chunk, in a row."""
        widen(self._bases[version].read(chunk, room), chunk.dtype, row)
        return row

    def _integer(self, chunk: Chunk, out: NDArray[Any]) -> None:
        work, rule = self._work, chunk.rule
        assert rule is not None
        need_bases = rule == "sum_of_deltas"
        bases = {
            version: _whole(feed, chunk)
            for version, feed in self._bases.items()
            if need_bases or version == work.current or feed.every_chunk
        }
        updates = [_whole(feed, chunk) for feed in self._sites if rule != "keep" or feed.every_chunk]
        origins = [bases[i.weighted.submission.base_version] for i in work.inputs] if need_bases else []
        start = 0
        for piece in chunk.pieces:
            here = slice(start, start + piece.count)
            new = combine_integers(
                rule, bases[work.current][here], [u[here] for u in updates], [b[here] for b in origins], work.counts
            )
            if new is None:
                raise ResultNotFinite(piece.name)
            out[here] = new
            start += piece.count


def _whole(feed: Feed, chunk: Chunk) -> NDArray[Any]:
    """A chunk of whole numbers; any byte but 0 is true."""
    memory = np.empty(chunk.count * DTYPES[chunk.dtype].itemsize, np.uint8)
    stored = feed.read(chunk, Room.of(memory, chunk))
    return np.not_equal(stored.view(np.uint8), 0) if chunk.dtype == "BOOL" else stored


def _tensor_at(chunk: Chunk, finite: NDArray[np.bool_]) -> str:
    """The tensor in which the first value that is not finite lies."""
    index = int(np.argmin(finite))
    ends = accumulate(piece.count for piece in chunk.pieces)
    return next(piece.name for piece, end in zip(chunk.pieces, ends, strict=True) if index < end)
