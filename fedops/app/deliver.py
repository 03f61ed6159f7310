"""Bring a submission's bytes into the site's store, and say how far a submission is when something stops it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.snapshot import Snapshot
from fedops.app.work import Work
from fedops.core.artifacts import update_annotations
from fedops.core.errors import ForgeError, GitError, StoreError
from fedops.core.facts import Json
from fedops.core.ids import Digest, SiteId, repository_of
from fedops.core.records import Record
from fedops.ports import Store

# What a run has reached, by its own knowledge: an answer that was lost may have been a yes.
NOTHING_SENT = "this run sent nothing yet"
UPLOADING = "the upload is not confirmed, there is no pull request for it"
STORED = "its bytes are in the store, the pull request is not confirmed"
HANDED_IN = "it was handed in before, its bytes in the store are not confirmed"


@dataclass
class SoFar:
    """How far a submission is; an error that stops it says so, and which command goes on from there.

    Attributes:
        file: the update as messages name it; whatever happens, it stays as it is.
        command: what to run again.
        reached: what is done, in words.
    """

    file: str
    command: str
    reached: str = NOTHING_SENT

    @contextmanager
    def told(self) -> Iterator[SoFar]:
        """Add both to the hint of what a broken machine raises."""
        try:
            yield self
        except (StoreError, ForgeError, GitError) as e:
            first = f"{e.hint}; " if e.hint else ""
            e.hint = f"{first}so far: {self.file} is safe, {self.reached}; go on with: {self.command}"
            raise


def deliver(ctx: Context, work: Work, main: Snapshot, record: Record, file: Path) -> bool:
    """Have a submission's bytes in the site's store, and note that; True if the artifact was not there before.

    Args:
        file: the canonical bytes.

    Raises:
        StoreError: the store is broken, or changes what it is given; slug digest_mismatch.
    """
    site, manifest = SiteId(record.site), Digest(record.manifest)
    store = ctx.site_store(main.federation, main.sites, site)
    before = _is_stored(store, repository_of(site), manifest)
    annotations = update_annotations(
        site=site, base_version=record.base_version, num_examples=record.num_examples, created_at=record.created_at
    )
    artifact = store.put(repository_of(site), file, annotations)
    if artifact.manifest != manifest:
        raise StoreError(
            f"{artifact.ref}: manifest {artifact.manifest[:19]} -> {manifest[:19]}, as computed from the record",
            slug="digest_mismatch",
            hint="the store changes what it is given; tell its operator",
        )
    if not any(line.get("step") == "stored" and line.get("manifest") == manifest for line in work.noted()):
        work.note("stored", ctx.clock.now(), {**journal_facts(record), "manifest": manifest})
    return not before


def journal_facts(record: Record) -> dict[str, Json]:
    """What the journal says of a submission."""
    return {"site": record.site, "version": record.base_version, "sha256": record.sha256}


def _is_stored(store: Store, repository: str, manifest: Digest) -> bool:
    try:
        store.manifest(repository, manifest)
    except StoreError as e:
        if e.cause == "permanent":  # absent or damaged; what is really broken will show when it is uploaded
            return False
        raise
    return True
