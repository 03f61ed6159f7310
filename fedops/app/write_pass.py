"""The pass that makes the new version: reads every file once, chunk by chunk, and writes the result in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.app.arithmetic import Arithmetic, Work
from fedops.app.delta_norms import norms_of
from fedops.app.feeds import Feed, Room
from fedops.app.in_step import InStep
from fedops.app.lanes import ROOMS, Ring, beside, share
from fedops.core.chunks import Chunk, plan_chunks
from fedops.core.norms import BLOCK
from fedops.core.tensors import DTYPES
from fedops.ports import ModelSink

_ROW_BYTES = 32 << 20  # of float64 rows that a process may hold when a strategy wants all deltas at once
_INTEGER_BYTES = 4 << 20  # of whole numbers, all sites together
_AHEAD = 4  # chunks that the other process may have read before this one needs them
_AHEAD_BYTES = 24 << 20  # what they may take

# What a processor does for a chunk, in units of reading and hashing it: adding it to the sum, and all of the result.
_ADD_COST, _MEASURE_COST, _RESULT_COST = 0.3, 0.3, 1.6


class WritePass:
    """One run over all chunks.

    Args:
        work: what to compute.
        sink: gets the new version's data in order.
        two_processes: True: a second process helps.
        elements: of the largest chunk; None: as memory allows. It does not change the result.
    """

    def __init__(self, work: Work, sink: ModelSink, *, two_processes: bool, elements: int | None) -> None:
        self._work, self._sink, self._two_processes = work, sink, two_processes
        self.site_feeds = [Feed(i.model, i.sha256) for i in work.inputs]
        self.base_feeds = {b: Feed(base.model, base.sha256) for b, base in sorted(work.bases.items())}
        self._elements = elements or self._float_elements()
        self._integer_elements = min(self._elements, max(1, _INTEGER_BYTES // (16 * (len(work.inputs) + 1))))
        self._room = self._elements * max((DTYPES[p.spec.dtype].itemsize for p in work.layout), default=1)

    def _float_elements(self) -> int:
        work = self._work
        if not work.linear:
            return max(1, min(BLOCK, _ROW_BYTES // (8 * (work.rows() + work.scratch))))
        # Two blocks take a fifth less time than one. A norm is measured block by block, and what comes over the network
        # has several rooms for each model.
        return BLOCK if work.measure or any(f.in_order for f in self.site_feeds) else 2 * BLOCK

    def _plan(self) -> Iterator[Chunk]:
        return plan_chunks(self._work.layout, self._work.rules, self._elements, self._integer_elements)

    def run(self) -> list[float]:
        """Write all chunks.

        Returns:
            The norm of each input's delta, if they were to be measured.

        Raises:
            ResultNotFinite: a value is NaN, infinite or outside an integer dtype.
            StoreError: a file cannot be read or written.
            FedopsError: the second process was killed.
        """
        feeds = [*self.site_feeds, *self.base_feeds.values()]
        hashed, coming = [f for f in feeds if f.every_chunk], [f for f in feeds if f.in_order]
        if coming:
            told = self._run_in_step(coming)
        elif self._two_processes and hashed:
            told = self._run_hashing(hashed)
        else:
            told = self._run_shared(two_processes=self._two_processes)
        return norms_of(told) if self._work.measure else []

    # ------------------------------------------------------------------ both processes make chunks

    def _run_shared(self, *, two_processes: bool) -> list[Any]:
        ring = Ring(ROOMS if two_processes else 1, self._room)

        def part() -> _Making:
            return self._making(ring)

        with beside(self._plan, part, wanted=two_processes) as other:
            return share(self._plan, part, partial(self._deliver, ring), other)

    def _making(self, ring: Ring) -> _Making:
        return _Making(Arithmetic(self._work, self.site_feeds, self.base_feeds, self._elements), ring)

    def _deliver(self, ring: Ring, chunk: Chunk) -> None:
        self._sink.append(Room.of(ring.room(chunk), chunk).raw)

    # ------------------------------------------------------------------ the other one reads and hashes

    def _run_hashing(self, hashed: Sequence[Feed]) -> list[Any]:
        """A file can be hashed by one process alone, so the other one takes some files and this one does all the rest."""
        theirs = hashed[: self._share_of(len(hashed))]
        rooms = max(2, min(_AHEAD, _AHEAD_BYTES // (len(theirs) * self._room)))
        read, ring = Ring(rooms, len(theirs) * self._room), Ring(1, self._room)

        def place(number: int, chunk: Chunk) -> NDArray[np.uint8]:
            return read.room(chunk)[number * self._room : (number + 1) * self._room]

        places = [partial(place, number) for number in range(len(theirs))]
        with beside(self._plan, lambda: Reading(theirs, places), wanted=True) as other:
            if other is None:
                return self._run_shared(two_processes=False)
            for feed, found in zip(theirs, places, strict=True):
                feed.read_elsewhere(found)
            mine, ahead, given = self._making(ring), self._plan(), 0
            for chunk in self._plan():
                for coming in islice(ahead, chunk.index + rooms - given):
                    other.give(coming)
                    given += 1
                other.has_done(chunk, wait=True)
                mine.work(chunk)
                self._deliver(ring, chunk)
            for feed, digest in zip(theirs, other.told(), strict=True):
                feed.was_read_elsewhere(digest)
            return [mine.told()]

    def _share_of(self, hashed: int) -> int:
        """How many files keep the other process as busy as this one, within its memory."""
        files = len(self.site_feeds) + len(self.base_feeds)
        rest = files * (_ADD_COST + _MEASURE_COST * self._work.measure) + _RESULT_COST
        return max(1, min(round((hashed + rest) / 2), hashed, _AHEAD_BYTES // (2 * self._room)))

    # ------------------------------------------------------------------ threads read what comes over the network

    def _run_in_step(self, coming: Sequence[Feed]) -> list[Any]:
        rooms = max(2, min(_AHEAD, _AHEAD_BYTES // (len(coming) * self._room)))
        with InStep(coming, rooms, self._room) as streams:
            for number, feed in enumerate(coming):
                feed.read_elsewhere(partial(streams.place, number))
            ring, ahead = Ring(1, self._room), self._plan()
            mine = self._making(ring)
            for chunk in islice(ahead, rooms):
                streams.begin(chunk)
            for chunk in self._plan():
                streams.wait()
                mine.work(chunk)
                self._deliver(ring, chunk)
                for following in islice(ahead, 1):
                    streams.begin(following)
            return [mine.told()]


class _Making:
    """Makes chunks into the rooms of a ring."""

    def __init__(self, arithmetic: Arithmetic, ring: Ring) -> None:
        self._arithmetic, self._ring = arithmetic, ring

    def work(self, chunk: Chunk) -> None:
        self._arithmetic.make(chunk, self._ring.room(chunk))

    def told(self) -> Sequence[Sequence[float]]:
        return self._arithmetic.norms.blocks


class Reading:
    """Reads and hashes chunks of some files into shared memory."""

    def __init__(self, feeds: Sequence[Feed], places: Sequence[Callable[[Chunk], NDArray[np.uint8]]]) -> None:
        self._feeds, self._places = feeds, places

    def work(self, chunk: Chunk) -> None:
        for feed, place in zip(self._feeds, self._places, strict=True):
            feed.read(chunk, Room.of(place(chunk), chunk))

    def told(self) -> Sequence[str | None]:
        return [feed.digest for feed in self._feeds]
