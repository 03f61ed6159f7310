"""Publish a version: archive its inputs, then one commit and one tag by an atomic push, which is the compare-and-swap.

Never opens a tensor: everything but the proposal's results is rebuilt from the pinned commit.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from fedops.app.context import Context
from fedops.app.deciding import Skips, make_witness, situation_of, version_record, weighing
from fedops.app.merged import merged_state
from fedops.app.model_bytes import GONE, WRONG
from fedops.app.snapshot import Snapshot, is_ruled, snapshot
from fedops.core.documents import load_json_document
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.facts import Aggregate, RefUpdate, Submission
from fedops.core.findings import finding, slug_of
from fedops.core.ids import BlobId, CommitId, Digest, GlobalVersion, repository_of
from fedops.core.plan import Publish, plan_version
from fedops.core.policy import Weighing
from fedops.core.records import Proposal, VersionRecord, model_pointer
from fedops.ports import Repository, Store

ARCHIVE = "archive"
PUSH_SECONDS = 60.0


@dataclass(frozen=True)
class Published:
    """This run's push won."""

    record: VersionRecord
    commit: CommitId


@dataclass(frozen=True)
class Lost:
    """Another run published this version first."""


@dataclass(frozen=True)
class Replan:
    """What the version rests on changed: decide again.

    Attributes:
        gone: record blob -> slug of an input that was lost before it could be archived.
    """

    gone: dict[BlobId, str]


Outcome = Published | Lost | Replan


def publish(
    ctx: Context, input_commit: CommitId, decided_at: dt.datetime, manifest: Digest, *, jitter: Callable[[], float]
) -> Outcome:
    """Publish the next version, or say why not; killed anywhere, the next run finds nothing half-visible.

    Contributions, weights, consumed and policy digest are rebuilt here from the pinned commit; of the proposal only
    its results count.

    Args:
        input_commit: the commit of main that was decided on.
        decided_at: the moment of that decision, whole seconds.
        manifest: digest of the proposed model's manifest in the global repository; its config is the proposal.
        jitter: uniform in [0, 1), spreads the retries of several runners.

    Raises:
        StoreError: the store is broken, or the proposal is not what it says.
        GitError: the push lost its race for a minute.
    """
    main = snapshot(ctx.repository, input_commit)
    proposal = read_proposal(ctx, main, manifest)
    here = situation_of(main, merged_state(ctx.repository, main), now=decided_at, skips=skips_of(proposal))
    weights = weighing(main, here.decision) if isinstance(here.decision, Aggregate) else None
    if not isinstance(here.decision, Aggregate) or not isinstance(weights, Weighing):
        return Replan({})
    gone = archive_inputs(ctx, main, here.decision)
    if gone:
        return Replan(gone)
    witness = make_witness(here, here.decision, decided_at, ctx.software, ctx.run_url)
    record = version_record(here, here.decision, weights, proposal, manifest, witness)
    return push_version(ctx, main, record, decided_at, jitter=jitter)


def read_proposal(ctx: Context, main: Snapshot, manifest: Digest) -> Proposal:
    """Read a proposal by the digest of its manifest, and hold it against the artifact and the pinned commit.

    Raises:
        StoreError: it is missing, damaged, or speaks of something else.
    """
    artifact = ctx.global_store(main.federation).manifest(repository_of(None), manifest)
    try:
        proposal = load_json_document(artifact.config, Proposal, f"proposal {manifest[:19]}")
    except ConfigError as e:
        raise StoreError(e.message, slug="foreign_layer_refused") from e
    layer, number = artifact.layer, main.version.version + 1
    said = (proposal.model.sha256, proposal.model.size, proposal.input_commit, proposal.version)
    if said != (layer.sha256, layer.size, main.commit, number):
        raise StoreError(
            f"proposal {manifest[:19]}: {said} -> {(layer.sha256, layer.size, main.commit, number)}",
            slug="annotation_mismatch",
            hint="run `fedops ci reconcile` again",
        )
    return proposal


def skips_of(results: Proposal | VersionRecord) -> Skips:
    """What the bytes said no to, as a proposal or a version record states it."""
    unavailable = results.unavailable if isinstance(results, Proposal) else results.witness.unavailable
    return Skips(
        unavailable={BlobId(u.record_blob): u.slug for u in unavailable},
        rejected={
            BlobId(e.record_blob): finding(slug_of(e.slug), f"sites/{e.site}", detail={"site": e.site})
            for e in results.excluded
            if e.judged == "bytes"
        },
    )


def archive_inputs(ctx: Context, main: Snapshot, decision: Aggregate) -> dict[BlobId, str]:
    """Copy every contribution into the archive by digest; returns those that cannot be had any more.

    Raises:
        StoreError: the store itself is broken.
    """
    archive = ctx.global_store(main.federation)
    gone: dict[BlobId, str] = {}
    for submission in decision.use:
        try:
            _archive(archive, ctx.site_store(main.federation, main.sites, submission.site), submission)
        except StoreError as e:
            if e.slug not in GONE | WRONG:
                raise
            gone[submission.record_blob] = e.slug
    return gone


def _archive(archive: Store, source: Store, submission: Submission) -> None:
    archive.copy(source, repository_of(submission.site), submission.manifest, ARCHIVE)


def push_version(
    ctx: Context, pinned: Snapshot, record: VersionRecord, at: dt.datetime, *, jitter: Callable[[], float]
) -> Outcome:
    """Push commit and tag; re-parent while only paths moved that the version does not depend on."""
    repository = ctx.repository
    started = ctx.clock.now()
    wait = 0.05
    while True:
        tip = _tip(repository)
        state = _standing(repository, pinned, tip, record.version)
        if state is not None:
            return state
        commit = _push_once(repository, pinned, record, tip, at)
        if commit is not None:
            ctx.global_store(pinned.federation).tag(
                repository_of(None), Digest(record.model.manifest), GlobalVersion(record.version).short
            )
            return Published(record, commit)
        if (ctx.clock.now() - started).total_seconds() > PUSH_SECONDS:
            raise GitError(
                f"v{record.version}: the push of main and tag lost its race for {PUSH_SECONDS:.0f} s",
                hint="run `fedops ci reconcile` again; nothing was published",
                cause="temporary",
            )
        ctx.clock.sleep(wait * (0.5 + jitter()))
        wait = min(2 * wait, 5.0)
        repository.fetch()


def _tip(repository: Repository) -> CommitId:
    tip = repository.resolve("main")
    if tip is None:
        raise GitError("main: no such branch on origin")
    return tip


def _standing(repository: Repository, pinned: Snapshot, tip: CommitId, version: int) -> Lost | Replan | None:
    """Whether the version can still be published on top of the present tip."""
    if tip == pinned.commit:
        return None
    now = snapshot(repository, tip)
    if now.version.version >= version:
        return Lost()
    ruled = {p: e.blob for p, e in now.files.items() if is_ruled(p)}
    if ruled != {p: e.blob for p, e in pinned.files.items() if is_ruled(p)}:
        return Replan({})
    return None


def _push_once(
    repository: Repository, pinned: Snapshot, record: VersionRecord, parent: CommitId, at: dt.datetime
) -> CommitId | None:
    extension = pinned.federation.extension
    step: Publish = plan_version(record, model_pointer(record, extension), parent, extension=extension, at=at)
    commit = repository.write_commit([parent], step.files, step.commit_message, at=at)
    tag = repository.write_tag(step.tag, commit, step.tag_message)
    won = repository.push(
        [
            RefUpdate(f"refs/heads/{pinned.federation.branch}", parent, commit),
            RefUpdate(f"refs/tags/{step.tag}", None, tag),
        ]
    )
    return commit if won else None
