"""Publish a version: archive its inputs, then one commit and one tag by an atomic push, which is the compare-and-swap.

Never opens a tensor: everything but the proposal's results is rebuilt from the pinned commit.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fedops.app.context import Context
from fedops.app.deciding import Skips, make_witness, situation_of, version_record, weighing
from fedops.app.merged import merged_state
from fedops.app.model_bytes import GONE, WRONG
from fedops.app.snapshot import Snapshot, is_ruled, main_snapshot, snapshot
from fedops.core.artifacts import ARCHIVE, MAX_CONFIG_BYTES
from fedops.core.documents import load_json_document
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.facts import Aggregate, RefUpdate
from fedops.core.findings import finding, slug_of
from fedops.core.ids import BlobId, CommitId, Digest, GlobalVersion, repository_of
from fedops.core.plan import Publish, plan_version
from fedops.core.policy import Weighing
from fedops.core.records import Proposal, VersionRecord, model_pointer
from fedops.ports import Repository

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
        proposal = load_json_document(
            artifact.config, Proposal, f"proposal {manifest[:19]}", max_bytes=MAX_CONFIG_BYTES
        )
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
    model = main.version.model
    lost = sorted(e.slug for e in proposal.excluded if e.slug in GONE | WRONG)
    if (proposal.model.tensors, proposal.model.format) != (model.tensors, model.format) or lost:
        raise StoreError(
            f"proposal {manifest[:19]}: other tensors than v{main.version.version}, or bytes that cannot be had "
            f"said to be refused {lost}",
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
        source = ctx.site_store(main.federation, main.sites, submission.site)
        try:
            archive.copy(source, repository_of(submission.site), submission.manifest, ARCHIVE)
        except StoreError as e:
            if e.slug not in GONE | WRONG:
                raise
            gone[submission.record_blob] = e.slug
    return gone


def push_version(
    ctx: Context, pinned: Snapshot, record: VersionRecord, at: dt.datetime, *, jitter: Callable[[], float]
) -> Outcome:
    """Push commit and tag; re-parent while only paths moved that the version does not depend on."""
    repository = ctx.repository
    started = ctx.clock.now()
    wait = 0.05
    while True:
        now = main_snapshot(repository)
        state = _standing(pinned, now, record.version)
        if state is not None:
            return state
        commit = _push_once(repository, pinned, record, now.commit, at)
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


def _standing(pinned: Snapshot, now: Snapshot, version: int) -> Lost | Replan | None:
    """Whether the version can still be published on top of the present main."""
    if now.version.version >= version:
        return Lost()
    is_tagged = any(t.version >= version for t in now.repository.versions())
    if is_tagged or _ruled(now) != _ruled(pinned) or not _on_line(now.repository, pinned.commit, now.commit):
        return Replan({})
    return None


def _ruled(here: Snapshot) -> dict[str, BlobId]:
    return {p: e.blob for p, e in here.files.items() if is_ruled(p)}


def _on_line(repository: Repository, commit: CommitId, tip: CommitId) -> bool:
    """True if the commit is on the tip's first-parent line: not if main was rewound, or merged into something else."""
    try:
        deque(repository.commits(commit, tip), maxlen=0)
    except GitError as e:
        if e.slug != "lineage_broken":
            raise
        return False
    return True


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
