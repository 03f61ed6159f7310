"""Recompute the bytes of one version and compare them with what its record and the store say."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedops.app.compute import compute, from_files
from fedops.app.deciding import Situation
from fedops.app.differences import differences, tensors_differ
from fedops.app.engine import Aggregated
from fedops.app.first_model import rewrite_first
from fedops.app.in_place import is_whole_in_place
from fedops.app.input_bytes import Tools, contribution, store_fault, whole_global
from fedops.app.left_out import left_out_findings
from fedops.app.model_bytes import open_checked, unlimited
from fedops.app.propose import version_annotations
from fedops.app.rederive import mismatch, proposal_of
from fedops.core.artifacts import FIRST_ANNOTATIONS, build_manifest, layer_title, manifest_digest
from fedops.core.documents import dump_json
from fedops.core.errors import ConfigError, StoreError
from fedops.core.facts import Layer, TensorSpec
from fedops.core.findings import Finding, finding
from fedops.core.ids import BlobId, repository_of
from fedops.core.policy import Weighing
from fedops.core.records import VersionRecord
from fedops.core.safetensors_header import encode_header
from fedops.core.settings import Limits
from fedops.core.tensors import data_bytes

# How far a version's bytes were recomputed: "inputs": bit for bit from its inputs (v0: from its generator);
# "lineage": everything else holds, but inputs are no longer kept (v0: it came from a file); "none": it does not hold.
Level = Literal["inputs", "lineage", "none"]


@dataclass(frozen=True)
class Recomputed:
    """Attributes:
    level: how far the bytes were recomputed, whatever the findings say of them.
    """

    level: Level
    findings: tuple[Finding, ...]


def recompute_first(tools: Tools, record: VersionRecord) -> Recomputed:
    """Check v0: its stored bytes, and its generator if it has one."""
    if not tools.stored:
        return Recomputed("lineage", ())
    findings = list(_stored(tools, record, FIRST_ANNOTATIONS, b"{}"))
    generated = record.source is not None and record.source.generator is not None
    findings += _generated(tools, record) if generated else opened_as_said(tools, record)
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
    if not tools.stored:
        return Recomputed("lineage", ())
    findings = list(_described(tools, record, version_annotations(record.version), dump_json(proposal_of(record))))
    whole = not findings and is_whole_in_place(tools, here, weights, record)
    with tempfile.TemporaryDirectory(dir=tools.ctx.scratch) as name:
        folder = Path(name)
        paths: dict[BlobId, Path] = {}
        if not whole:
            findings = list(stored_aggregate(tools, record))
            for w in weights.weighted:
                path, bad = contribution(tools, here, w.submission, folder, record)
                findings += bad
                if path is not None:
                    paths[w.submission.record_blob] = path
        findings += left_out_findings(tools, here, record, passed_over, folder)
        complete = whole or len(paths) == len(weights.weighted)
        if not whole and complete:
            findings += _compared(tools, here, weights, paths, record, folder)
        elif not complete:
            findings += opened_as_said(tools, record)
    return Recomputed("inputs" if complete else "lineage", tuple(findings))


def recompute_rollback(tools: Tools, record: VersionRecord) -> Recomputed:
    """Check the bytes of a rollback: its record names those of an earlier version, which must be there, whole."""
    if not tools.stored:
        return Recomputed("lineage", ())
    return Recomputed("inputs", tuple(_bytes(tools, record)))


def stored_version(tools: Tools, record: VersionRecord) -> Iterator[Finding]:
    """What can be said of the bytes of a version of any kind by its record alone."""
    return _bytes(tools, record) if record.kind == "rollback" else stored_aggregate(tools, record)


def stored_aggregate(tools: Tools, record: VersionRecord) -> Iterator[Finding]:
    """The stored bytes of an aggregated version itself, and its manifest digest, which must follow from the record."""
    return _stored(tools, record, version_annotations(record.version), dump_json(proposal_of(record)))


def _stored(tools: Tools, record: VersionRecord, annotations: Mapping[str, str], config: bytes) -> Iterator[Finding]:
    yield from _described(tools, record, annotations, config)
    if record.model.format == tools.main.federation.model.format:
        yield from _bytes(tools, record)


def _described(tools: Tools, record: VersionRecord, annotations: Mapping[str, str], config: bytes) -> Iterator[Finding]:
    """The manifest that the record names must be the one that follows from it."""
    where, model, federation = f"v{record.version}", record.model, tools.main.federation
    if model.format != federation.model.format:
        yield mismatch(where, "model", model.format, federation.model.format)
        return
    layer = Layer(model.sha256, model.size, layer_title(repository_of(None), federation.extension))
    expected = manifest_digest(build_manifest(layer, annotations, config, format=model.format))
    if expected != model.manifest:
        detail = {"field": "manifest"}
        yield finding("model_mismatch", where, got=model.manifest, expected=expected, detail=detail)


def _bytes(tools: Tools, record: VersionRecord) -> Iterator[Finding]:
    if not tools.stored:
        return
    try:
        whole_global(tools, record.model)
    except StoreError as e:
        yield store_fault(e, f"v{record.version}: {repository_of(None)}")


def opened_as_said(tools: Tools, record: VersionRecord) -> Iterator[Finding]:
    """The stored model of a version that is not recomputed must have the tensors that its record says.

    Where its bytes cannot be had nothing is said: that is told elsewhere.
    """
    if record.model.format == "opaque":
        return
    where, model = f"v{record.version}", record.model
    try:
        path = whole_global(tools, model)
    except StoreError:
        return
    opened, found = open_checked(tools.ctx, path, unlimited(Limits(), model.size), where)
    if opened is None:
        yield from found
        return
    with closing(opened):
        got = {n: TensorSpec(t.dtype, t.shape) for n, t in model.tensors.items()}
        if got != dict(opened.specs):
            yield tensors_differ(record, opened.specs)


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
            from_files(tools.ctx, here.main, lambda s: paths[s.record_blob]),
            folder / "again.safetensors",
            opened=lambda number: tools.models.open(number, limits),
        )
    except StoreError as e:
        yield store_fault(e, where, what="a model that it rests on")
        return
    if isinstance(made, Aggregated):
        yield from differences(record, made)
    else:
        refused = [made] if isinstance(made, Finding) else made.values()
        yield from (replace(f, where=where) for f in refused)
