"""What was recomputed, against what a version record says."""

from __future__ import annotations

from collections.abc import Iterator

from fedops.app.engine import Aggregated
from fedops.app.rederive import mismatch
from fedops.core.facts import Specs
from fedops.core.findings import Finding, finding
from fedops.core.records import VersionRecord


def differences(record: VersionRecord, made: Aggregated) -> tuple[Finding, ...]:
    """Name each difference; the md5 only if it was taken."""
    return tuple(_differences(record, made))


def _differences(record: VersionRecord, made: Aggregated) -> Iterator[Finding]:
    where, model = f"v{record.version}", record.model
    for name, got, expected in (
        ("sha256", model.sha256, made.sha256),
        ("md5", model.md5, made.md5 or model.md5),
        ("size", model.size, made.size),
    ):
        if got != expected:
            yield finding("model_mismatch", where, got=got, expected=expected, detail={"field": name})
    if _said(record) != _read(made.specs):
        yield tensors_differ(record, made.specs)
    norms = {c.site: c.delta_norm for c in record.contributions if c.delta_norm is not None}
    if norms != dict(made.norms):
        yield mismatch(where, "delta_norm", norms, dict(made.norms))
    scores = {c.site: c.score for c in record.contributions if c.score is not None}
    if scores != dict(made.scores):
        yield mismatch(where, "score", scores, dict(made.scores))


def tensors_differ(record: VersionRecord, specs: Specs) -> Finding:
    """The record's tensors are not those of the model.

    Args:
        specs: of the model.
    """
    got, expected = _said(record), _read(specs)
    return finding("model_mismatch", f"v{record.version}", got=got, expected=expected, detail={"field": "tensors"})


def _said(record: VersionRecord) -> dict[str, list[object]]:
    return {n: [t.dtype, list(t.shape)] for n, t in record.model.tensors.items()}


def _read(specs: Specs) -> dict[str, list[object]]:
    return {n: [s.dtype, list(s.shape)] for n, s in specs.items()}
