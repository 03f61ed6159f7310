"""From a decision to a proposal: fetch, check, aggregate, upload. No git write; the one job that parses tensors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedops.app.compute import compute, from_files, judge_alone
from fedops.app.context import Context
from fedops.app.deciding import Situation, Skips, situation_of, unavailable_entries, weighing
from fedops.app.deciding import excluded_entry as entry_of
from fedops.app.engine import Aggregated
from fedops.app.merged import MergedState
from fedops.app.model_bytes import fetch_update, find_update
from fedops.app.model_streams import LostUpdate, NeedsFile, Streams, Tally, can_stream
from fedops.app.rules import refuse_unavailable_rules
from fedops.app.site_faults import site_fault
from fedops.app.snapshot import Snapshot
from fedops.core.byte_faults import UNAVAILABLE
from fedops.core.documents import dump_json
from fedops.core.errors import StoreError
from fedops.core.facts import Aggregate, Artifact, Decision, Submission, Wait
from fedops.core.findings import Finding
from fedops.core.ids import BlobId, Digest, SiteId, repository_of
from fedops.core.policy import Weighing, aggregate_metrics, inputs_digest
from fedops.core.records import Proposal, ProposedModel, TensorEntry


@dataclass(frozen=True)
class Plan:
    """What came of it.

    Attributes:
        manifest: of the uploaded proposal; None: no version now, see decision and findings.
        findings: why submissions were left out, or why no version can be made.
        skips: submissions that were left out for their bytes.
    """

    decision: Decision
    manifest: Digest | None
    findings: tuple[Finding, ...]
    skips: Skips


def propose(
    ctx: Context,
    main: Snapshot,
    merged: MergedState,
    decided_at: dt.datetime,
    *,
    unavailable: Mapping[BlobId, str],
    held: Collection[Digest] = (),
) -> Plan:
    """Decide on a pinned commit and, if a version is due, compute and upload it.

    Submissions whose bytes cannot be had or are wrong are left out and the decision is made again, so the quorum
    holds for what is really used. So are those whose site alone is away: its own store, or its repository, refuses.

    Args:
        decided_at: the deciding clock, whole seconds.
        unavailable: record blobs known to be lost.
        held: inputs of versions that leads rejected: such a one is not made again.

    Raises:
        StoreError: the federation's store is broken: no version is made.
    """
    refuse_unavailable_rules(main.aggregation)
    skips = Skips(unavailable=dict(unavailable))
    inputs = _Inputs()
    while True:
        here = situation_of(main, merged, now=decided_at, skips=skips)
        left_out = tuple(skips.rejected.values())
        if not isinstance(here.decision, Aggregate):
            return Plan(_why_wait(here), None, left_out, skips)
        if inputs_digest(here.decision, main.version, main.policy) in held:
            return Plan(Wait("rejected", _missing(main, here.decision)), None, left_out, skips)
        weights = weighing(main, here.decision)
        if isinstance(weights, Finding):
            return Plan(here.decision, None, (*left_out, weights), skips)
        made = _make(ctx, here, here.decision.use, weights, inputs)
        if isinstance(made, Finding):
            return Plan(here.decision, None, (*left_out, made), skips)
        if isinstance(made, Aggregated):
            manifest = _upload(ctx, here, here.decision, weights, made)
            return Plan(here.decision, manifest, (*left_out, *weights.findings), skips)
        skips = skips.joined(made)


def _why_wait(here: Situation) -> Decision:
    """The decision, with lost bytes named as the reason if only they keep the quorum from being reached."""
    decision = here.decision
    if isinstance(decision, Wait) and decision.reason in ("quorum", "nothing_new") and here.skips.unavailable:
        return replace(decision, reason="unavailable")
    return decision


def _missing(main: Snapshot, decision: Aggregate) -> tuple[SiteId, ...]:
    here = {s.site for s in decision.use}
    return tuple(site for site in main.sites.active() if site not in here)


@dataclass(frozen=True)
class _Inputs:
    """What is known of the submissions so far, by record blob.

    Attributes:
        artifacts: what the stores say of them, held against their records.
        paths: those that were downloaded.
    """

    artifacts: dict[BlobId, Artifact] = field(default_factory=dict)
    paths: dict[BlobId, Path] = field(default_factory=dict)


def _make(
    ctx: Context, here: Situation, use: Sequence[Submission], weights: Weighing, inputs: _Inputs
) -> Aggregated | Finding | Skips:
    """Compute the model from what is to be used; or say what must be left out first, or why it cannot be made."""
    # Manifests first: they are small, and if the quorum cannot hold without what is gone, nothing is downloaded.
    made: Aggregated | dict[BlobId, Finding] | Finding | None = _look_up(ctx, here, use, inputs) or None
    if made is None and can_stream(ctx, here.main, use):
        made = _streamed(ctx, here, weights, inputs)
    if made is None:
        made = _from_files(ctx, here, use, weights, inputs)
    if not isinstance(made, dict):
        return made
    lost = {blob: fault.slug for blob, fault in made.items() if fault.slug in UNAVAILABLE}
    return Skips(lost, {blob: fault for blob, fault in made.items() if blob not in lost})


def _streamed(
    ctx: Context, here: Situation, weights: Weighing, inputs: _Inputs
) -> Aggregated | dict[BlobId, Finding] | None:
    """Aggregate while the bytes come; None: something is wrong that only files can tell more of."""
    records = {w.submission.record_blob: here.merged.records[w.submission.site] for w in weights.weighted}
    tally = Tally(ctx.progress, sum(record.size for record in records.values()))
    streams = Streams(ctx, here.main, inputs.artifacts, {blob: r.md5 for blob, r in records.items()}, tally)
    try:
        made = compute(ctx, here.main, weights, streams.update, _target(ctx), opened=streams.base)
    except LostUpdate as e:
        return {e.blob: e.found}
    except NeedsFile:
        return None
    finally:
        tally.finish()
    return made if isinstance(made, Aggregated) else None


def _from_files(
    ctx: Context, here: Situation, use: Sequence[Submission], weights: Weighing, inputs: _Inputs
) -> Aggregated | dict[BlobId, Finding] | Finding:
    """Download everything, then aggregate it."""
    if faults := _fetch(ctx, here, use, inputs):
        return faults
    opener = from_files(ctx, here.main, lambda s: inputs.paths[s.record_blob])
    made = compute(ctx, here.main, weights, opener, _target(ctx))
    return (_to_blame(ctx, here.main, use, inputs.paths) or made) if isinstance(made, Finding) else made


def _to_blame(
    ctx: Context, main: Snapshot, use: Sequence[Submission], paths: Mapping[BlobId, Path]
) -> dict[BlobId, Finding]:
    """Submissions that alone would already give a model that cannot be written: one site must not stop all others."""
    alone = ((s, judge_alone(ctx, main, s, paths[s.record_blob], _target(ctx))) for s in use)
    return {
        s.record_blob: replace(fault, where=f"sites/{s.site}", detail={**(fault.detail or {}), "site": s.site})
        for s, fault in alone
        if fault is not None
    }


def _target(ctx: Context) -> Path:
    """Where the new model is written before it is uploaded."""
    return ctx.scratch / "proposed.safetensors"


def _look_up(ctx: Context, here: Situation, use: Sequence[Submission], inputs: _Inputs) -> dict[BlobId, Finding]:
    """Ask the stores for the manifests; record blob -> first finding for those that cannot be used."""
    faults: dict[BlobId, Finding] = {}
    for s in use:
        if s.record_blob not in inputs.artifacts:
            try:
                artifact, findings = find_update(ctx, here.main, s.site, here.merged.records[s.site])
            except StoreError as e:
                artifact, findings = None, (site_fault(ctx, here.main, s.site, e, repository_of(s.site)),)
            if artifact is None:
                faults[s.record_blob] = findings[0]
            else:
                inputs.artifacts[s.record_blob] = artifact
    return faults


def _fetch(ctx: Context, here: Situation, use: Sequence[Submission], inputs: _Inputs) -> dict[BlobId, Finding]:
    """Download the updates; record blob -> first finding for those that cannot be used."""
    faults: dict[BlobId, Finding] = {}
    wanted = [s for s in use if s.record_blob not in inputs.paths]
    task = ctx.progress.start("updates", len(wanted), "sites")
    for s in wanted:
        record, artifact = here.merged.records[s.site], inputs.artifacts[s.record_blob]
        try:
            path, findings = fetch_update(ctx, here.main, s.site, record, artifact)
        except StoreError as e:
            path, findings = None, (site_fault(ctx, here.main, s.site, e, repository_of(s.site)),)
        if path is not None:
            inputs.paths[s.record_blob] = path
        else:
            faults[s.record_blob] = findings[0]
        ctx.progress.advance(task, 1)
    ctx.progress.finish(task)
    return faults


def _upload(ctx: Context, here: Situation, decision: Aggregate, weights: Weighing, made: Aggregated) -> Digest:
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
        scores=dict(made.scores),
        metrics=aggregate_metrics(weights.weighted),
        excluded=tuple(entry_of(e) for e in decision.excluded if e.judged == "bytes"),
        unavailable=unavailable_entries(here),
    )
    stored = ctx.global_store(main.federation).put(
        repository_of(None), _target(ctx), version_annotations(number), dump_json(proposal)
    )
    _target(ctx).unlink()
    return stored.manifest


def version_annotations(number: int) -> dict[str, str]:
    """Annotations of a global model's manifest: no time, so that its digest recomputes."""
    return {"fl.version": str(number)}
