"""Recompute the bytes of one version and compare them with what its record and the store say."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedops.app.compute import compute
from fedops.app.deciding import Situation
from fedops.app.engine import Aggregated
from fedops.app.first_model import FIRST_ANNOTATIONS, rewrite_first
from fedops.app.input_bytes import Tools, contribution, store_fault
from fedops.app.left_out import left_out_findings
from fedops.app.propose import version_annotations
from fedops.app.rederive import mismatch, proposal_of
from fedops.core.artifacts import build_manifest, layer_title, manifest_digest
from fedops.core.documents import dump_json
from fedops.core.errors import ConfigError, StoreError
from fedops.core.facts import Layer, TensorSpec
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import BlobId, repository_of
from fedops.core.policy import Weighing
from fedops.core.records import VersionRecord
from fedops.core.safetensors_header import encode_header
from fedops.core.tensors import data_bytes

# How far a version's bytes were recomputed: "inputs": bit for bit from its inputs (v0: from its generator);
# "lineage": everything else holds, but inputs are no longer kept (v0: it came from a file); "none": it does not hold.
Level = Literal["inputs", "lineage", "none"]


@dataclass(frozen=True)
class Recomputed:
    level: Level
    findings: tuple[Finding, ...]


def recompute_first(tools: Tools, record: VersionRecord) -> Recomputed:
    """Check v0: its stored bytes, and its generator if it has one."""
    findings = list(_stored(tools, record, FIRST_ANNOTATIONS, b"{}"))
    generated = record.source is not None and record.source.generator is not None
    if generated:
        findings += _generated(tools, record)
    if errors(findings):
        return Recomputed("none", tuple(findings))
    return Recomputed("inputs" if generated else "lineage", tuple(findings))


def _generated(tools: Tools, record: VersionRecord) -> Iterator[Finding]:
    where = f"v{record.version}"
    specs = {name: TensorSpec(t.dtype, t.shape) for name, t in record.model.tensors.items()}
    # NOTE: asked before anything is written: a record may claim tensors that no disk holds.
    size = len(encode_header(specs)) + data_bytes(specs)
    if size != record.model.size:
        yield finding("model_mismatch", where, got=record.model.size, expected=size, detail={"field": "size"})
        return
    with tempfile.TemporaryDirectory(dir=tools.ctx.scratch) as folder:
        try:
            rewrite_first(tools.ctx.models, record, Path(folder) / "again.safetensors")
        except ConfigError as e:
            yield finding("model_mismatch", where, got=e.message, detail={"field": "source"})


def recompute_aggregate(
    tools: Tools,
    here: Situation,
    weights: Weighing,
    record: VersionRecord,
    passed_over: Iterator[tuple[str, BlobId]],
) -> Recomputed:
    """Aggregate the contributions again and compare every byte.

    Args:
        here: the situation at the version's input_commit.
        weights: as they follow from it.
        passed_over: path and blob of every record that came to main since the version before.
    """
    findings = list(stored_aggregate(tools, record))
    with tempfile.TemporaryDirectory(dir=tools.ctx.scratch) as name:
        folder = Path(name)
        paths: dict[BlobId, Path] = {}
        for w in weights.weighted:
            path, bad = contribution(tools, here, w.submission, folder, record)
            findings += bad
            if path is not None:
                paths[w.submission.record_blob] = path
        findings += left_out_findings(tools, here, record, passed_over, folder)
        complete = len(paths) == len(weights.weighted)
        if complete:
            findings += _compared(tools, here, weights, paths, record, folder)
    if errors(findings):
        return Recomputed("none", tuple(findings))
    return Recomputed("inputs" if complete else "lineage", tuple(findings))


def stored_aggregate(tools: Tools, record: VersionRecord) -> Iterator[Finding]:
    """The stored bytes of an aggregated version itself, and its manifest digest, which must follow from the record."""
    return _stored(tools, record, version_annotations(record.version), dump_json(proposal_of(record)))


def _stored(tools: Tools, record: VersionRecord, annotations: Mapping[str, str], config: bytes) -> Iterator[Finding]:
    where, model, federation = f"v{record.version}", record.model, tools.main.federation
    if model.format != federation.model.format:
        yield mismatch(where, "model", model.format, federation.model.format)
        return
    layer = Layer(model.sha256, model.size, layer_title(repository_of(None), federation.extension))
    expected = manifest_digest(build_manifest(layer, annotations, config, format=model.format))
    if expected != model.manifest:
        detail = {"field": "manifest"}
        yield finding("model_mismatch", where, got=model.manifest, expected=expected, detail=detail)
    try:
        tools.models.fetch(model)
    except StoreError as e:
        yield store_fault(e, f"{where}: {repository_of(None)}")


def _compared(
    tools: Tools,
    here: Situation,
    weights: Weighing,
    paths: Mapping[BlobId, Path],
    record: VersionRecord,
    folder: Path,
) -> Iterator[Finding]:
    """Run the engine on the inputs, and name every difference to the record."""
    where = f"v{record.version}"
    limits = here.main.submission_policy.limits
    try:
        made = compute(
            tools.ctx,
            here.main,
            weights,
            lambda s: paths[s.record_blob],
            folder / "again.safetensors",
            opened=lambda number: tools.models.open(number, limits),
        )
    except StoreError as e:
        yield store_fault(e, where, what="a model that it rests on")
        return
    if isinstance(made, Aggregated):
        yield from _differences(record, made)
    else:
        refused = [made] if isinstance(made, Finding) else made.values()
        yield from (replace(f, where=where) for f in refused)


def _differences(record: VersionRecord, made: Aggregated) -> Iterator[Finding]:
    where, model = f"v{record.version}", record.model
    tensors = {n: [t.dtype, list(t.shape)] for n, t in model.tensors.items()}
    again = {n: [s.dtype, list(s.shape)] for n, s in made.specs.items()}
    for name, got, expected in (
        ("sha256", model.sha256, made.sha256),
        ("md5", model.md5, made.md5),
        ("size", model.size, made.size),
        ("tensors", tensors, again),
    ):
        if got != expected:
            yield finding("model_mismatch", where, got=got, expected=expected, detail={"field": name})
    norms = {c.site: c.delta_norm for c in record.contributions if c.delta_norm is not None}
    if norms != dict(made.norms):
        yield mismatch(where, "delta_norm", norms, dict(made.norms))
