"""Short ways to write down submissions, version records and rosters for tests."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fedops.core.facts import Submission, Verdict
from fedops.core.findings import Finding
from fedops.core.ids import BlobId, CommitId, Digest, SiteId
from fedops.core.records import (
    Carried,
    Contribution,
    ExcludedEntry,
    ModelEntry,
    Record,
    RuleEntry,
    Source,
    StrategyEntry,
    TensorEntry,
    VersionRecord,
    Witness,
)
from fedops.core.settings import Aggregation, Integers, Person, Site, Sites, Staleness, Weights

T0 = dt.datetime(2026, 3, 2, 9, 0, tzinfo=dt.UTC)


def hex64(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def blob(text: str) -> BlobId:
    return BlobId(hex64(text)[:40])


def minutes(number: float) -> dt.datetime:
    """So many minutes after T0."""
    return T0 + dt.timedelta(minutes=number)


def submission(
    site: str,
    base_version: int = 8,
    num_examples: int = 100,
    *,
    at: float = 0,
    content: str | None = None,
    metrics: Mapping[str, float] | None = None,
) -> Submission:
    """One merged submission; its bytes are named by `content`, by default one of its own.

    Args:
        at: minutes after T0 at which it was merged.
    """
    content = content or f"{site} on v{base_version}"
    return Submission(
        site=SiteId(site),
        base_version=base_version,
        num_examples=num_examples,
        payload="full",
        sha256=hex64(content),
        md5=hex64(content)[:32],
        size=160,
        manifest=Digest("sha256:" + hex64("manifest " + content)),
        record_blob=blob(f"record {site} {content}"),
        pointer_blob=blob(f"pointer {site} {content}"),
        commit=CommitId(blob(f"merge {site} {content}")),
        merged_at=minutes(at),
        metrics=dict(metrics or {}),
    )


State = Literal["accepted", "rejected", "pending", "not_a_submission"]


def verdict(state: State, *findings: Finding) -> Verdict:
    """A verdict on the head 1a2b3c4d5e6f…."""
    head = CommitId("1a2b3c4d5e6f" + "0" * 28)
    return Verdict(head, Digest("sha256:" + hex64("policy")), CommitId("0" * 40), state, findings)


def record(**fields: Any) -> Record:
    """hospital-a's record on v8, with other fields where given."""
    values: dict[str, Any] = {
        "site": "hospital-a",
        "base_version": 8,
        "num_examples": 150,
        "format": "safetensors",
        "payload": "full",
        "sha256": hex64("model"),
        "md5": hex64("model")[:32],
        "size": 160,
        "manifest": "sha256:" + hex64("manifest"),
        "metrics": {"loss": 0.31},
        "created_at": "2026-03-02T09:30:00Z",
    }
    return Record(**values | fields)


def contribution(s: Submission, *, staleness: int = 0, weight: float = 100.0, share: float = 1.0) -> Contribution:
    return Contribution(
        site=s.site,
        base_version=s.base_version,
        staleness=staleness,
        num_examples=s.num_examples,
        weight=weight,
        share=share,
        delta_norm=None,
        record_blob=s.record_blob,
        pointer_blob=s.pointer_blob,
        manifest=s.manifest,
        sha256=s.sha256,
    )


def excluded_entry(s: Submission, slug: str = "too_stale", fo: str = "FO-226") -> ExcludedEntry:
    return ExcludedEntry(site=s.site, record_blob=s.record_blob, id=fo, slug=slug, judged="tree")


def version(
    number: int = 8,
    *,
    kind: Literal["init", "aggregate", "rollback", "revert"] = "aggregate",
    source: int | None = None,
    consumed: Mapping[Any, int] | None = None,  # keys: str or SiteId
    contributions: Sequence[Contribution] = (),
    excluded: Sequence[ExcludedEntry] = (),
    status: Literal["running", "final"] = "running",
    metrics: Mapping[str, float] | None = None,
) -> VersionRecord:
    """A version record; only what is given matters to the test."""
    rule = RuleEntry(
        engine=1,
        strategy=StrategyEntry(name="fedavg", provider="fedops", code="sha256:" + hex64("code")),
        staleness=Staleness(),
        weights=Weights(),
        integers=Integers(),
        privacy=None,
    )
    return VersionRecord(
        version=number,
        base_version=None if kind == "init" else number - 1,
        kind=kind,
        source=None if source is None else Source(version=source),
        status=status,
        model=ModelEntry(
            format="safetensors",
            size=260,
            sha256=hex64(f"model v{number}"),
            md5=hex64(f"md5 v{number}")[:32],
            manifest="sha256:" + hex64(f"manifest v{number}"),
            tensors={"coef": TensorEntry(dtype="F32", shape=(1, 30))},
        ),
        rule=rule if kind == "aggregate" else None,
        policy="sha256:" + hex64("policy"),
        denominator=150.0 if kind == "aggregate" else None,
        contributions=tuple(contributions),
        excluded=tuple(excluded),
        consumed=dict(consumed or {}),
        carried=Carried(),
        metrics=dict(metrics or {}),
        witness=Witness(input_commit=None, decided_at="2026-03-02T10:00:00Z", trigger="quorum", software={}),
    )


def roster(*active: str, suspended: Sequence[str] = ()) -> Sites:
    """A roster; accounts are named after the sites."""
    sites = {
        site: Site(accounts=(Person(login=f"{site}-user", id=1000 + i),), state=state)  # type: ignore[arg-type]
        for i, (site, state) in enumerate([(s, "active") for s in active] + [(s, "suspended") for s in suspended])
    }
    return Sites(schema="fedops.sites/v1", sites=sites)  # type: ignore[call-arg]  # the plugin knows the alias only


def policy(**parts: Any) -> Aggregation:
    """An aggregation policy; parts as in the YAML document, quorum 1 unless given."""
    return Aggregation.model_validate_json(_json({"trigger": {"quorum": 1}} | parts))


def _json(value: object) -> str:
    import json

    return json.dumps(value)
