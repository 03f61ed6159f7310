"""From one pinned commit of main to a decision, and from a decision and results to the version record.

Reconcile, publish and verify all come here, so that what is published is what anybody recomputes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedops.app.merged import MergedState
from fedops.app.snapshot import Snapshot, time_text
from fedops.core.facts import Aggregate, Decision, Excluded, Submission, Weighted
from fedops.core.findings import Finding, finding, slug_of
from fedops.core.ids import BlobId, Digest
from fedops.core.policy import Weighing, aggregate_metrics, consumed_after, decide, eligible, weigh
from fedops.core.records import (
    Carried,
    Contribution,
    ExcludedEntry,
    ModelEntry,
    Proposal,
    RuleEntry,
    Unavailable,
    VersionRecord,
    Witness,
)
from fedops.core.settings import Aggregation
from fedops.core.strategies import ENGINE, chosen, describe


@dataclass(frozen=True)
class Skips:
    """What the bytes said no to; tree-judged exclusions are not in here.

    Attributes:
        unavailable: record blob -> slug; eligible, but the bytes cannot be had: not consumed.
        rejected: record blob -> finding; the bytes are there and wrong: excluded and consumed.
    """

    unavailable: Mapping[BlobId, str] = field(default_factory=dict)
    rejected: Mapping[BlobId, Finding] = field(default_factory=dict)

    def joined(self, other: Skips) -> Skips:
        """What either says."""
        return Skips({**self.unavailable, **other.unavailable}, {**self.rejected, **other.rejected})

    def slugs(self) -> dict[BlobId, str]:
        """Why, for each submission that is skipped."""
        return {**self.unavailable, **{blob: f.slug for blob, f in self.rejected.items()}}


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


@dataclass(frozen=True)
class Situation:
    """One commit of main, its unused submissions, and what follows from them at a moment."""

    main: Snapshot
    merged: MergedState
    candidates: tuple[Submission, ...]  # eligible by the tree, bytes not looked at
    decision: Decision
    skips: Skips


def situation_of(
    main: Snapshot,
    merged: MergedState,
    *,
    now: dt.datetime,
    skips: Skips | None = None,
    open_version_pull: int | None = None,
) -> Situation:
    """Decide on what was read; pure apart from reading documents of the snapshot."""
    skips = skips or Skips()
    candidates, by_tree = eligible(merged.fit(), main.version, main.sites, main.aggregation, taken=merged.taken())
    rejected = [
        Excluded(s, skips.rejected[s.record_blob], "bytes") for s in candidates if s.record_blob in skips.rejected
    ]
    use = [s for s in candidates if s.record_blob not in skips.rejected and s.record_blob not in skips.unavailable]
    excluded = sorted([*by_tree, *merged.refused, *rejected], key=lambda e: e.submission.site)
    decision = decide(
        main.aggregation,
        use,
        excluded,
        main.version,
        sites=main.sites,
        open_version_pull=open_version_pull,
        now=now,
    )
    return Situation(main, merged, candidates, decision, skips)


def rule_entry(policy: Aggregation) -> RuleEntry:
    """The part of the policy that fixes the numbers, as the version record keeps it."""
    return RuleEntry(
        engine=ENGINE,
        strategy=describe(policy.strategy),
        staleness=policy.staleness,
        weights=policy.weights,
        integers=policy.integers,
        privacy=policy.privacy,
    )


def weighing(main: Snapshot, decision: Aggregate) -> Weighing | Finding:
    """Weights of the contributions of the version being made."""
    return weigh(main.aggregation, decision.use, main.version.version)


def version_record(
    here: Situation,
    decision: Aggregate,
    weights: Weighing,
    proposal: Proposal,
    manifest: Digest,
    witness: Witness,
) -> VersionRecord:
    """The record of the next version; only model, norms and scores are taken from the proposal."""
    main = here.main
    number = main.version.version + 1
    last = main.aggregation.stop.max_version
    model = proposal.model
    contributions = tuple(_contribution(w, proposal) for w in weights.weighted)
    return VersionRecord(
        version=number,
        base_version=main.version.version,
        kind="aggregate",
        source=None,
        status="final" if last is not None and number >= last else "running",
        model=ModelEntry(
            format=model.format,
            size=model.size,
            sha256=model.sha256,
            md5=model.md5,
            manifest=manifest,
            tensors=model.tensors,
        ),
        rule=rule_entry(main.aggregation),
        policy=main.policy,
        denominator=weights.denominator,
        contributions=contributions,
        chosen=chosen({c.site: c.score for c in contributions if c.score is not None}),
        excluded=tuple(excluded_entry(e) for e in decision.excluded),
        consumed={str(s): n for s, n in consumed_after(main.version, decision.use, decision.excluded).items()},
        carried=Carried(
            optimizer=main.version.carried.optimizer,
            privacy=main.version.carried.privacy,
            counters=main.version.carried.counters,
        ),
        metrics=aggregate_metrics(weights.weighted),
        witness=witness,
    )


def _contribution(w: Weighted, results: Proposal) -> Contribution:
    s = w.submission
    return Contribution(
        site=s.site,
        base_version=s.base_version,
        staleness=w.staleness,
        num_examples=s.num_examples,
        weight=w.weight,
        share=w.share,
        delta_norm=results.norms.get(s.site),
        score=results.scores.get(s.site),
        record_blob=s.record_blob,
        pointer_blob=s.pointer_blob,
        manifest=s.manifest,
        sha256=s.sha256,
    )


def excluded_entry(e: Excluded) -> ExcludedEntry:
    return ExcludedEntry(
        site=e.submission.site,
        record_blob=e.submission.record_blob,
        id=e.finding.id,
        slug=e.finding.slug,
        judged=e.judged,
    )


def unavailable_entries(here: Situation) -> tuple[Unavailable, ...]:
    """The witness's list of what could not be had, ascending site."""
    return tuple(
        Unavailable(site=s.site, record_blob=s.record_blob, slug=here.skips.unavailable[s.record_blob])
        for s in here.candidates
        if s.record_blob in here.skips.unavailable
    )


def make_witness(
    here: Situation, decision: Aggregate, decided_at: dt.datetime, software: Mapping[str, str], run_url: str | None
) -> Witness:
    """What a verifier takes as given."""
    return Witness(
        input_commit=here.main.commit,
        decided_at=time_text(decided_at),
        trigger=decision.trigger,
        unavailable=unavailable_entries(here),
        software=dict(software),
        run_url=run_url,
    )
