"""Publish a version: archive its inputs, then one commit and one tag by an atomic push, which is the compare-and-swap.

Never opens a tensor: everything but the proposal's results is rebuilt from the pinned commit.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import cast

from fedops.app.context import Context
from fedops.app.deciding import make_witness, situation_of, skips_of, version_record, weighing
from fedops.app.merged import merged_state
from fedops.app.site_faults import Heard, heard, site_fault
from fedops.app.snapshot import Snapshot, snapshot
from fedops.app.version_push import PUSH_SECONDS, Lost, Opened, Outcome, Published, Replan, push_version
from fedops.app.version_review import open_version
from fedops.core.artifacts import ARCHIVE, MAX_CONFIG_BYTES
from fedops.core.byte_faults import GONE, UNAVAILABLE, WRONG
from fedops.core.documents import load_json_document
from fedops.core.errors import ConfigError, StoreError
from fedops.core.facts import Aggregate
from fedops.core.ids import BlobId, CommitId, Digest, SiteId, repository_of
from fedops.core.policy import Weighing
from fedops.core.records import Proposal
from fedops.ports import Store

__all__ = ["PUSH_SECONDS", "Lost", "Opened", "Outcome", "Published", "Replan", "publish", "push_version", "skips_of"]


def publish(
    ctx: Context, input_commit: CommitId, decided_at: dt.datetime, manifest: Digest, *, jitter: Callable[[], float]
) -> Outcome:
    """Publish the next version, or open its pull request if leads review versions; or say why not.

    Killed anywhere, the next run finds nothing half-visible.

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
    if main.aggregation.publish.mode == "review":
        return open_version(ctx, main, record, decided_at, weights.findings)
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
    lost = sorted(e.slug for e in proposal.excluded if e.slug in UNAVAILABLE)
    if (proposal.model.tensors, proposal.model.format) != (model.tensors, model.format) or lost:
        raise StoreError(
            f"proposal {manifest[:19]}: other tensors than v{main.version.version}, or bytes that cannot be had "
            f"said to be refused {lost}",
            slug="annotation_mismatch",
            hint="run `fedops ci reconcile` again",
        )
    return proposal


def archive_inputs(ctx: Context, main: Snapshot, decision: Aggregate) -> dict[BlobId, str]:
    """Copy every contribution into the archive by digest; returns those that cannot be had any more, and why.

    Raises:
        StoreError: the federation's store is broken.
    """
    archive = ctx.global_store(main.federation)
    gone: dict[BlobId, str] = {}
    for submission in decision.use:
        source = heard(ctx.site_store(main.federation, main.sites, submission.site))
        try:
            archive.copy(cast("Store", source), repository_of(submission.site), submission.manifest, ARCHIVE)
        except StoreError as e:
            gone[submission.record_blob] = _why_gone(ctx, main, submission.site, source, e)
    return gone


def _why_gone(ctx: Context, main: Snapshot, site: SiteId, source: Heard, error: StoreError) -> str:
    """Why a contribution could not be copied, if its site is to blame; else the error is raised again."""
    if error.slug in GONE | WRONG:
        return error.slug
    if not source.is_blamed(error):
        raise error
    found = site_fault(ctx, main, site, error, repository_of(site))
    if found.slug not in UNAVAILABLE:
        raise error
    return found.slug
