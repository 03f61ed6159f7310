"""The pass that makes the new version: reads every file once, chunk by chunk, and writes the result in order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.app.feeds import Base, Buffers, Feed, Input
from fedops.app.lanes import Line, Turns, run_lanes
from fedops.core.casts import narrow, widen
from fedops.core.chunks import Chunk, plan_chunks
from fedops.core.facts import F64
from fedops.core.integers import combine_integers
from fedops.core.mean import Mean
from fedops.core.norms import BLOCK
from fedops.core.settings import IntegerRule
from fedops.core.strategies.contract import Combine
from fedops.core.tensors import DTYPES, Placed
from fedops.ports import ModelSink

_LANE_BYTES = 32 << 20  # of float64 rows that a lane may hold when a strategy wants all deltas at once
_INTEGER_BYTES = 4 << 20  # of whole numbers, all sites together


class ResultNotFinite(Exception):  # noqa: N818 turned into findings, it is no error
    """A value of the new version does not fit its dtype.

    Attributes:
        tensor: its name.
    """

    def __init__(self, tensor: str) -> None:
        super().__init__(tensor)
        self.tensor = tensor


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
        rows: float64 chunk buffers that the strategy needs.
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
    rows: int

    def base_weights(self) -> Mapping[int, float]:
        """W_b of each distinct base in ascending order: exact sum of the weights of the sites on it, rounded once."""
        versions = sorted({i.base for i in self.inputs if i.base is not None})
        pairs = list(zip(self.inputs, self.factors, strict=True))
        return {b: math.fsum(w for i, w in pairs if i.base == b) for b in versions}


class WritePass:
    """One run over all chunks.

    Args:
        work: what to compute.
        sink: gets the new version's data in order.
        threads: lanes.
        elements: of the largest chunk; None: as memory allows. It does not change the result.
    """

    def __init__(self, work: Work, sink: ModelSink, threads: int, elements: int | None) -> None:
        self._work, self._sink, self._threads = work, sink, threads
        self._weights = work.base_weights()
        self.site_feeds = [Feed(i.model, i.sha256) for i in work.inputs]
        self.base_feeds = {b: Feed(base.model, base.sha256) for b, base in sorted(work.bases.items())}
        # acc, term and current; or current, delta, out and each base
        self._rows = 3 if work.linear else 3 + len(self._weights)
        self._elements = elements or self._float_elements()
        self._integer_elements = min(self._elements, max(1, _INTEGER_BYTES // (16 * (len(work.inputs) + 1))))
        self._turns = Turns()

    def _float_elements(self) -> int:
        rows = 0 if self._work.linear else self._rows + self._work.rows
        return BLOCK if not rows else max(1, min(BLOCK, _LANE_BYTES // (8 * rows)))

    def run(self) -> None:
        """Write all chunks.

        Raises:
            ResultNotFinite: a value is NaN, infinite or outside an integer dtype.
            StoreError: a file cannot be read or written.
        """
        chunks = plan_chunks(self._work.layout, self._work.rules, self._elements, self._integer_elements)
        line = Line(chunks)
        places = [self._turns, *(feed.turns for feed in (*self.site_feeds, *self.base_feeds.values()))]

        def lane() -> None:
            buffers = Buffers(self._elements, self._rows)
            mean = Mean(buffers.rows[0], buffers.rows[1])
            with np.errstate(all="ignore"):  # what is not finite is looked for in the result
                for chunk in line:
                    raw = self._float(chunk, buffers, mean) if chunk.is_float else self._integer(chunk, buffers)
                    self._turns.wait(chunk.index)
                    self._sink.append(raw)
                    self._turns.done(chunk.index)

        run_lanes([lane] * self._threads, line, places)

    def _float(self, chunk: Chunk, buffers: Buffers, mean: Mean) -> memoryview:
        out, raw = buffers.result(chunk)
        current = buffers.rows[2][: out.size]
        delta = self._mean(chunk, buffers, mean) if self._work.linear else self._combined(chunk, buffers)
        np.add(current, delta, current)
        if not narrow(current, chunk.dtype, out):
            raise ResultNotFinite(_tensor_at(chunk, out))
        return raw

    def _mean(self, chunk: Chunk, buffers: Buffers, mean: Mean) -> F64:
        """The new delta of a linear strategy; the current version is left in row 2."""
        work = self._work
        stored, raw = buffers.stored(chunk)
        current = buffers.rows[2][: stored.size]
        mean.begin(stored.size)
        for feed, weight in zip(self.site_feeds, work.factors, strict=True):
            feed.read(chunk, raw)
            mean.add(stored, chunk.dtype, weight)
        for version, feed in self.base_feeds.items():
            if version in self._weights:
                feed.read(chunk, raw)
                keep = current if version == work.current else None
                mean.subtract(stored, chunk.dtype, self._weights[version], keep)
            elif version == work.current:
                feed.read(chunk, raw)
                widen(stored, chunk.dtype, current)
            elif feed.every_chunk:
                feed.read(chunk, raw)
        delta = mean.delta(work.denominator)
        work.combine(iter((delta,)), delta, {})
        return delta

    def _combined(self, chunk: Chunk, buffers: Buffers) -> F64:
        """The new delta of a strategy that wants all deltas; the current version is left in row 2."""
        work, count = self._work, chunk.count
        stored, raw = buffers.stored(chunk)
        out, row, current, *rows = (r[:count] for r in buffers.rows)
        origins = dict(zip(self._weights, rows, strict=True))
        for version, feed in self.base_feeds.items():
            if version in origins or version == work.current or feed.every_chunk:
                feed.read(chunk, raw)
            if version == work.current:
                widen(stored, chunk.dtype, current)
            if version in origins:
                widen(stored, chunk.dtype, origins[version])

        def deltas() -> Iterator[F64]:
            for given, feed in zip(work.inputs, self.site_feeds, strict=True):
                feed.read(chunk, raw)
                widen(stored, chunk.dtype, row)
                if given.base is not None:
                    np.subtract(row, origins[given.base], row)
                yield row

        source = deltas()
        work.combine(source, out, {})
        if any(feed.every_chunk for feed in self.site_feeds):
            for _ in source:  # a strategy may leave some out; the next chunk waits for their digests all the same
                pass
        return out

    def _integer(self, chunk: Chunk, buffers: Buffers) -> memoryview:
        work, rule = self._work, chunk.rule
        assert rule is not None
        need_bases = rule == "sum_of_deltas"
        bases = {
            version: _whole(feed, chunk)
            for version, feed in self.base_feeds.items()
            if need_bases or version == work.current or feed.every_chunk
        }
        updates = [_whole(feed, chunk) for feed in self.site_feeds if rule != "keep" or feed.every_chunk]
        origins = [bases[i.weighted.submission.base_version] for i in work.inputs] if need_bases else []
        out, raw = buffers.result(chunk)
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
        return raw


def _whole(feed: Feed, chunk: Chunk) -> NDArray[Any]:
    """A chunk of whole numbers; any byte but 0 is true."""
    raw = np.empty(chunk.count * DTYPES[chunk.dtype].itemsize, np.uint8)
    feed.read(chunk, raw.data)
    return np.not_equal(raw, 0) if chunk.dtype == "BOOL" else raw.view(DTYPES[chunk.dtype].storage)


def _tensor_at(chunk: Chunk, out: NDArray[Any]) -> str:
    """The tensor in which the first value that is not finite lies."""
    values = np.empty(out.size)
    widen(out, chunk.dtype, values)
    index = int(np.argmin(np.isfinite(values)))
    ends = accumulate(piece.count for piece in chunk.pieces)
    return next(piece.name for piece, end in zip(chunk.pieces, ends, strict=True) if index < end)
