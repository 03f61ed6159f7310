"""From a decision to a proposal: fetch, check, aggregate, upload. No git write; the one job that parses tensors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedops.app.compute import compute, refuse_unavailable_rules
from fedops.app.context import Context
from fedops.app.deciding import Situation, Skips, situation_of, unavailable_entries, weighing
from fedops.app.deciding import excluded_entry as entry_of
from fedops.app.engine import Aggregated
from fedops.app.merged import MergedState
from fedops.app.model_bytes import GONE, WRONG, fetch_update
from fedops.app.snapshot import Snapshot
from fedops.core.documents import dump_json
from fedops.core.errors import StoreError
from fedops.core.facts import Aggregate, Decision, Submission, Wait
from fedops.core.findings import Finding
from fedops.core.ids import BlobId, Digest, repository_of
from fedops.core.policy import Weighing, aggregate_metrics
from fedops.core.records import Proposal, ProposedModel, TensorEntry


@dataclass(frozen=True)
class Plan:
    """What came of it.

    Attributes:
        manifest: of the uploaded proposal; None: no version now, see decision and findings.
        findings: why submissions were left out, or why no version can be made.
        unavailable: record blob -> slug.
    """

    decision: Decision
    manifest: Digest | None
    findings: tuple[Finding, ...]
    unavailable: Mapping[BlobId, str]


def propose(
    ctx: Context, main: Snapshot, merged: MergedState, decided_at: dt.datetime, *, unavailable: Mapping[BlobId, str]
) -> Plan:
    """Decide on a pinned commit and, if a version is due, compute and upload it.

    Submissions whose bytes cannot be had or are wrong are left out and the decision is made again, so the quorum
    holds for what is really used.

    Args:
        decided_at: the deciding clock, whole seconds.
        unavailable: record blobs known to be lost.

    Raises:
        StoreError: the store itself is broken: no version is made.
    """
    refuse_unavailable_rules(main.aggregation)
    skips = Skips(unavailable=dict(unavailable))
    paths: dict[BlobId, Path] = {}
    while True:
        here = situation_of(main, merged, now=decided_at, skips=skips)
        left_out = tuple(skips.rejected.values())
        if not isinstance(here.decision, Aggregate):
            return Plan(_why_wait(here), None, left_out, skips.unavailable)
        weights = weighing(main, here.decision)
        if isinstance(weights, Finding):
            return Plan(here.decision, None, (*left_out, weights), skips.unavailable)
        use = here.decision.use
        more = _look_up(ctx, main, use, paths) or _fetch(ctx, main, merged, use, paths)
        if more is None:
            target = ctx.scratch / "proposed.safetensors"
            made = compute(ctx, main, weights, lambda s: paths[s.record_blob], target)
            if isinstance(made, Aggregated):
                manifest = _upload(ctx, here, here.decision, weights, made, target)
                return Plan(here.decision, manifest, (*left_out, *weights.findings), skips.unavailable)
            if isinstance(made, Finding):
                return Plan(here.decision, None, (*left_out, made), skips.unavailable)
            more = Skips(rejected=made)
        skips = Skips({**skips.unavailable, **more.unavailable}, {**skips.rejected, **more.rejected})


def _why_wait(here: Situation) -> Decision:
    """The decision, with lost bytes named as the reason if only they keep the quorum from being reached."""
    decision = here.decision
    if isinstance(decision, Wait) and decision.reason in ("quorum", "nothing_new") and here.skips.unavailable:
        return replace(decision, reason="unavailable")
    return decision


def _look_up(ctx: Context, main: Snapshot, use: Sequence[Submission], paths: Mapping[BlobId, Path]) -> Skips | None:
    """Ask for all manifests first: cheap, and if the quorum cannot hold, nothing is downloaded."""
    gone: dict[BlobId, str] = {}
    for s in use:
        if s.record_blob in paths:
            continue
        try:
            ctx.site_store(main.federation, main.sites, s.site).manifest(repository_of(s.site), s.manifest)
        except StoreError as e:
            if e.slug not in GONE | WRONG:
                raise
            gone[s.record_blob] = e.slug
    return Skips(unavailable=gone) if gone else None


def _fetch(
    ctx: Context, main: Snapshot, merged: MergedState, use: Sequence[Submission], paths: dict[BlobId, Path]
) -> Skips | None:
    """Download what is not there yet; a record that its artifact contradicts is rejected, lost bytes are unavailable."""
    gone: dict[BlobId, str] = {}
    rejected: dict[BlobId, Finding] = {}
    task = ctx.progress.start("updates", len(use), "sites")
    for s in use:
        if s.record_blob not in paths:
            path, findings = fetch_update(ctx, main, s.site, merged.records[s.site])
            if path is not None:
                paths[s.record_blob] = path
            elif findings[0].slug in GONE | WRONG:
                gone[s.record_blob] = findings[0].slug
            else:
                rejected[s.record_blob] = findings[0]
        ctx.progress.advance(task, 1)
    ctx.progress.finish(task)
    return Skips(gone, rejected) if gone or rejected else None


def _upload(
    ctx: Context, here: Situation, decision: Aggregate, weights: Weighing, made: Aggregated, target: Path
) -> Digest:
    """Put the model into the store with the proposal as its config; nothing of it depends on the wall clock."""
    main = here.main
    number = main.version.version + 1
    proposal = Proposal(
        version=number,
        input_commit=main.commit,
        model=ProposedModel(
            format="safetensors",
            size=made.size,
            sha256=made.sha256,
            md5=made.md5,
            tensors={n: TensorEntry(dtype=s.dtype, shape=s.shape) for n, s in made.specs.items()},
        ),
        norms=dict(made.norms),
        scores={},
        metrics=aggregate_metrics(weights.weighted),
        excluded=tuple(entry_of(e) for e in decision.excluded if e.judged == "bytes"),
        unavailable=unavailable_entries(here),
    )
    stored = ctx.global_store(main.federation).put(
        repository_of(None), target, version_annotations(number), dump_json(proposal)
    )
    target.unlink()
    return stored.manifest


def version_annotations(number: int) -> dict[str, str]:
    """Annotations of a global model's manifest: no time, so that its digest recomputes."""
    return {"fl.version": str(number)}
