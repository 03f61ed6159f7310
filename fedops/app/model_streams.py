"""The models of one aggregation, used while they come from their stores: nothing of them is kept on this machine.

Only where every store can do that, and where each byte is needed once; else they are downloaded first (`propose`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from fedops.app.context import Context
from fedops.app.model_bytes import find_global, global_entry, unlimited
from fedops.app.site_faults import site_fault
from fedops.app.snapshot import Snapshot
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact, Submission
from fedops.core.findings import Finding
from fedops.core.ids import BlobId, repository_of
from fedops.core.strategies import make_strategy
from fedops.ports import BlobReader, OpenModel, Progress, Streaming

MOST = 48  # models at once: each takes a connection, and room for two chunks
_TOLD_BYTES = 16 << 20  # progress goes on in steps of this size


class LostUpdate(Exception):  # noqa: N818 turned into findings, it is no error
    """The bytes of a submission turned out to be gone or wrong while they came.

    Attributes:
        blob: of its record.
        found: what was wrong.
    """

    def __init__(self, blob: BlobId, found: Finding) -> None:
        super().__init__(found.slug)
        self.blob, self.found = blob, found


class NeedsFile(Exception):  # noqa: N818 the caller downloads then
    """A global model is no canonical file, so it cannot be read in step with others."""


def can_stream(ctx: Context, main: Snapshot, use: Sequence[Submission]) -> bool:
    """True if the models of these submissions, and their bases, can be used while they come."""
    bases = {main.version.version, *(s.base_version for s in use)}
    stores = [ctx.global_store(main.federation), *(ctx.site_store(main.federation, main.sites, s.site) for s in use)]
    linear = make_strategy(main.aggregation.strategy).linear
    return linear and len(use) + len(bases) <= MOST and all(isinstance(store, Streaming) for store in stores)


class Tally:
    """Tells how many bytes of all updates have come; several threads add to it.

    Args:
        total: bytes in all.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._lock, self._untold = progress, threading.Lock(), 0
        self._task = progress.start("updates", total, "bytes")

    def add(self, count: int) -> None:
        with self._lock:
            self._untold += count
            if self._untold >= _TOLD_BYTES:
                self._tell()

    def finish(self) -> None:
        if self._untold:
            self._tell()
        self._progress.finish(self._task)

    def _tell(self) -> None:
        self._progress.advance(self._task, self._untold)
        self._untold = 0


@dataclass(frozen=True)
class Streams:
    """Opens models as they come.

    Args:
        main: the pinned commit.
        artifacts: record blob -> what its manifest says, which was held against the record.
        md5s: record blob -> hex md5 that the bytes must have, as the record says.
        tally: of what has come.
    """

    ctx: Context
    main: Snapshot
    artifacts: Mapping[BlobId, Artifact]
    md5s: Mapping[BlobId, str]
    tally: Tally

    def update(self, s: Submission) -> tuple[OpenModel | None, tuple[Finding, ...]]:
        """Begin to read what a site handed in.

        Raises:
            LostUpdate: it is gone, or its site is away; or later, from the model, it was another than the record says.
            StoreError: the federation's store is broken.
        """
        store = self.ctx.site_store(self.main.federation, self.main.sites, s.site)
        where, layer = f"sites/{s.site}", self.artifacts[s.record_blob].layer
        try:
            reader = cast("Streaming", store).open_blob(repository_of(s.site), layer, md5=self.md5s[s.record_blob])
        except StoreError as e:
            raise self._lost(s, e) from e
        source = _Blamed(reader, partial(self._lost, s), self.tally)
        return self.ctx.models.stream(source, layer.size, self.main.submission_policy.limits, where)

    def _lost(self, s: Submission, error: StoreError) -> LostUpdate:
        """What ends the aggregation, to be made again without this submission; raises what no site is to blame for."""
        return LostUpdate(s.record_blob, site_fault(self.ctx, self.main, s.site, error, repository_of(s.site)))

    def base(self, number: int) -> OpenModel:
        """Begin to read a global model.

        Raises:
            StoreError: it is missing or damaged; the store is broken.
            NeedsFile: it is no canonical file.
        """
        entry = global_entry(self.main, number)
        artifact = find_global(self.ctx, self.main, entry)
        store = self.ctx.global_store(self.main.federation)
        source = cast("Streaming", store).open_blob(repository_of(None), artifact.layer, md5=entry.md5)
        limits = unlimited(self.main.submission_policy.limits, entry.size)
        model, _ = self.ctx.models.stream(source, artifact.layer.size, limits, f"v{number}")
        if model is None:
            raise NeedsFile
        return model


class _Blamed:
    """A site's bytes: what is wrong with them says whose they are."""

    def __init__(self, source: BlobReader, lost: Callable[[StoreError], LostUpdate], tally: Tally) -> None:
        self._source, self._lost, self._tally = source, lost, tally

    def readinto(self, buffer: memoryview, /) -> int:
        try:
            count = self._source.readinto(buffer)
        except StoreError as e:
            raise self._lost(e) from e
        self._tally.add(count)
        return count

    def close(self) -> None:
        self._source.close()
