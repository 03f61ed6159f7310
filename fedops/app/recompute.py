"""Recompute the bytes of one version and compare them with what its record and the store say."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedops.app.compute import compute
from fedops.app.context import Context
from fedops.app.deciding import Situation
from fedops.app.engine import Aggregated
from fedops.app.first_model import FIRST_ANNOTATIONS, rewrite_first
from fedops.app.inspect import judge_update
from fedops.app.model_bytes import fetch, fetch_global, store_finding
from fedops.app.propose import version_annotations
from fedops.app.publish import ARCHIVE
from fedops.app.snapshot import Snapshot
from fedops.core.artifacts import build_manifest, layer_title, manifest_digest
from fedops.core.documents import dump_json
from fedops.core.errors import StoreError
from fedops.core.facts import Layer, Submission
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import BlobId, SiteId, repository_of
from fedops.core.policy import Weighing
from fedops.core.records import Proposal, VersionRecord
from fedops.ports import Store

Level = Literal["inputs", "lineage", "opaque", "none"]


@dataclass(frozen=True)
class Recomputed:
    """How far a version's bytes could be checked.

    Attributes:
        level: "inputs": bit for bit from its inputs; "lineage": some inputs are gone; "none": it is not what it says.
    """

    level: Level
    findings: tuple[Finding, ...]


def recompute_first(ctx: Context, main: Snapshot, record: VersionRecord) -> Recomputed:
    """Check v0: its stored bytes, and its generator if it has one."""
    where = f"v{record.version}"
    findings = _stored(ctx, main, record, FIRST_ANNOTATIONS, b"{}")
    with tempfile.TemporaryDirectory(dir=ctx.scratch) as folder:
        again = rewrite_first(ctx.models, record, Path(folder) / "again.safetensors")
    if not findings and not again:
        return Recomputed("lineage", ())
    return Recomputed("none" if findings else "inputs", tuple(replace(f, where=where) for f in findings))


def recompute_aggregate(
    ctx: Context, main: Snapshot, here: Situation, weights: Weighing, record: VersionRecord, proposal: Proposal
) -> Recomputed:
    """Aggregate the contributions again and compare every byte.

    Args:
        main: the tip, for the stores of today.
        here: the situation at the version's input_commit.
        weights: as they follow from it.
        proposal: that the record must have come from.
    """
    findings = _stored(ctx, main, record, version_annotations(record.version), dump_json(proposal))
    with tempfile.TemporaryDirectory(dir=ctx.scratch) as name:
        folder = Path(name)
        paths: dict[BlobId, Path] = {}
        for w in weights.weighted:
            path, bad = _contribution(ctx, main, here, w.submission, folder, record)
            findings += bad
            if path is not None:
                paths[w.submission.record_blob] = path
        findings += _exclusions_again(ctx, here, record)
        if len(paths) < len(weights.weighted):
            return Recomputed("none" if errors(findings) else "lineage", findings)
        target = folder / "again.safetensors"
        made = compute(ctx, here.main, weights, lambda s: paths[s.record_blob], target)
        findings += _compared(record, made)
    return Recomputed("none" if errors(findings) else "inputs", findings)


def _compared(record: VersionRecord, made: Aggregated | dict[BlobId, Finding] | Finding) -> tuple[Finding, ...]:
    where = f"v{record.version}"
    if isinstance(made, Finding):
        return (replace(made, where=where),)
    if not isinstance(made, Aggregated):
        return tuple(replace(f, where=where) for f in made.values())
    out: list[Finding] = []
    tensors = {n: (t.dtype, t.shape) for n, t in record.model.tensors.items()}
    again = {n: (s.dtype, s.shape) for n, s in made.specs.items()}
    for name, got, expected in (
        ("sha256", record.model.sha256, made.sha256),
        ("md5", record.model.md5, made.md5),
        ("size", record.model.size, made.size),
        ("tensors", tensors, again),
        (
            "delta_norm",
            {c.site: c.delta_norm for c in record.contributions if c.delta_norm is not None},
            dict(made.norms),
        ),
    ):
        if got != expected:
            out.append(finding("model_mismatch", where, got=got, expected=expected, detail={"field": name}))
    return tuple(out)


def _stored(
    ctx: Context, main: Snapshot, record: VersionRecord, annotations: Mapping[str, str], config: bytes
) -> tuple[Finding, ...]:
    """The stored bytes of the version itself, and its manifest digest, which must follow from the record."""
    where, model = f"v{record.version}", record.model
    layer = Layer(model.sha256, model.size, layer_title(repository_of(None), main.federation.extension))
    expected = manifest_digest(build_manifest(layer, annotations, config, format=model.format))
    if expected != model.manifest:
        wrong = finding("model_mismatch", where, got=model.manifest, expected=expected, detail={"field": "manifest"})
        return (wrong,)
    try:
        fetch_global(ctx, main, model)
    except StoreError as e:
        return (store_finding(e, where),)
    return ()


def _contribution(
    ctx: Context, main: Snapshot, here: Situation, submission: Submission, folder: Path, record: VersionRecord
) -> tuple[Path | None, tuple[Finding, ...]]:
    """Fetch a contribution: every copy that is there is checked, one good copy is enough to go on."""
    site = submission.site
    roster = here.main.sites if site in here.main.sites.sites else main.sites
    copies: list[tuple[Store, str]] = [
        (ctx.global_store(main.federation), ARCHIVE),
        (ctx.site_store(main.federation, roster, site), repository_of(site)),
    ]
    found: Path | None = None
    findings: list[Finding] = []
    for number, (store, repository) in enumerate(copies):
        where = f"v{record.version}: {repository}"
        place = folder / str(number)
        place.mkdir(exist_ok=True)
        try:
            artifact = store.manifest(repository, submission.manifest)
            path = fetch(store, repository, artifact, place, md5=submission.md5)
        except StoreError as e:
            fault = store_finding(e, where)
            if fault.slug != "object_missing":
                findings.append(replace(fault, detail={"site": site}))
            continue
        if artifact.layer.sha256 != submission.sha256:
            got, expected = artifact.layer.sha256, submission.sha256
            findings.append(finding("hash_mismatch", where, got=got, expected=expected, detail={"site": site}))
            continue
        if found is None:
            found = path
        else:
            path.unlink()
    if found is None and not findings and not _retired(here, main, record):
        findings.append(finding("update_missing", f"v{record.version}", got=submission.sha256, detail={"site": site}))
    return found, tuple(findings)


def _retired(here: Situation, main: Snapshot, record: VersionRecord) -> bool:
    """True if the policy says that inputs of this age are no longer kept."""
    kept = main.federation.store.retain_updates or here.main.federation.store.retain_updates
    return kept is not None and main.version.version - record.version >= kept


def _exclusions_again(ctx: Context, here: Situation, record: VersionRecord) -> tuple[Finding, ...]:
    """Submissions that were left out for their bytes: if the bytes are there, they must be wrong again."""
    out: list[Finding] = []
    for entry in record.excluded:
        if entry.judged != "bytes":
            continue
        site = SiteId(entry.site)
        again = judge_update(ctx, here.main, site, here.merged.records[site])
        if not errors(again):
            detail = {"site": site, "field": "excluded"}
            out.append(finding("record_mismatch", f"v{record.version}", got=entry.slug, expected="used", detail=detail))
    return tuple(out)
