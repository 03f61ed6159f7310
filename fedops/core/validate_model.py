"""Fourth stage of validation: tensors by name, shape and dtype, then one pass over their values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np

from fedops.core.facts import F64, Specs, TensorSource
from fedops.core.findings import Finding, errors, finding
from fedops.core.norms import BLOCK, BlockNorm
from fedops.core.settings import SubmissionPolicy
from fedops.core.tensors import element_count, is_float
from fedops.core.validate_change import MAX_FINDINGS

# Payloads whose tensors are those of the model; this version has no decoder for others.
PLAIN_PAYLOADS = ("full", "delta")
CHUNK = 4 * BLOCK  # elements; 2 MiB of float64 at a time


def validate_metadata(has_metadata: bool, where: str, *, draft: bool) -> tuple[Finding, ...]:
    """Free metadata in a model file: refused in a repository, dropped with a warning from a draft."""
    if not has_metadata:
        return ()
    if draft:
        return (finding("metadata_dropped", where, got="__metadata__"),)
    return (finding("unexpected_keys", where, got="__metadata__", detail={"keys": ["__metadata__"]}),)


def validate_specs(update: Specs, base: Specs, where: str, payload: str = "full") -> tuple[Finding, ...]:
    """Compare the tensors of an update with those of its base: names, shapes, dtypes must be equal.

    A delta has them too: floats are differences in the base's dtype, integers are carried in full.
    """
    if payload not in PLAIN_PAYLOADS:
        return (finding("payload_refused", where, got=payload, expected=list(PLAIN_PAYLOADS)),)
    return tuple(_spec_faults(update, base, where))[:MAX_FINDINGS]


def _spec_faults(update: Specs, base: Specs, where: str) -> Iterator[Finding]:
    if base and not update:
        yield finding("empty_update", where)
        return
    if missing := sorted(base.keys() - update.keys()):
        yield finding("missing_keys", where, detail={"keys": missing[:MAX_FINDINGS]})
    if extra := sorted(update.keys() - base.keys()):
        yield finding("unexpected_keys", where, detail={"keys": extra[:MAX_FINDINGS]})
    for name in sorted(base.keys() & update.keys()):
        got, expected = update[name], base[name]
        if got.shape != expected.shape:
            yield finding(
                "shape_mismatch", where, got=list(got.shape), expected=list(expected.shape), detail={"tensor": name}
            )
        if got.dtype != expected.dtype:
            yield finding("dtype_mismatch", where, got=got.dtype, expected=expected.dtype, detail={"tensor": name})


def validate_model(
    update: TensorSource,
    base: TensorSource | None,
    policy: SubmissionPolicy,
    *,
    where: str,
    payload: str = "full",
    want_norm: bool = False,
) -> tuple[tuple[Finding, ...], float | None]:
    """Check a model against its base, and every value of it; tensors are read once, in chunks.

    Args:
        update: a file that passed its preflight.
        base: the version that the update was trained on; None: container and values only.
        policy: `update_norm_max` is the limit of the L2 norm of the whole delta over all float tensors.
        where: for the findings.
        payload: "full": tensors are the trained model; "delta": floats are differences to the base.
        want_norm: measure the norm although no limit asks for it.

    Returns:
        All findings; and the norm (inf if it has no float64 value), None if it was not measured.
    """
    if base is not None and (found := validate_specs(update.specs, base.specs, where, payload)):
        return found, None
    limit = policy.update_norm_max
    measured = limit is not None or want_norm
    norm = BlockNorm() if measured and (base is not None or payload == "delta") else None
    faults: list[Finding] = []
    for name in sorted(update.specs):
        origin = base if payload == "full" else None
        fault = _read_through(update, origin, name, norm, where)
        if fault is not None:
            faults.append(fault)
    if norm is None or errors(faults):
        return tuple(faults[:MAX_FINDINGS]), None
    length = norm.value()
    return norm_faults(length, policy, where), length


def not_finite(update: TensorSource, where: str) -> tuple[Finding, ...]:
    """All that is not finite in a file, tensor by tensor, with how much of each it is; tensors are read once, in chunks."""
    faults = (_count(update, name, where) for name in sorted(update.specs) if is_float(update.specs[name]))
    return tuple(islice((fault for fault in faults if fault is not None), MAX_FINDINGS))


def _count(update: TensorSource, name: str, where: str) -> Finding | None:
    total = element_count(update.specs[name])
    count, first, got = 0, 0, ""
    for start in range(0, total, CHUNK):
        values: F64 = update.read(name, start, min(CHUNK, total - start))
        bad = ~np.isfinite(values)
        if bad.any() and not count:
            at = int(np.argmax(bad))
            first, got = start + at, str(float(values[at]))
        count += int(np.count_nonzero(bad))
    detail = {"tensor": name, "index": first, "values": count, "of": total}
    return finding("non_finite", where, got=got, detail=detail) if count else None


def norm_faults(norm: float, policy: SubmissionPolicy, where: str) -> tuple[Finding, ...]:
    """The L2 norm of a whole delta against the policy's limit; inf if it has no float64 value."""
    limit = policy.update_norm_max
    if limit is None or norm <= limit:
        return ()
    return (finding("norm_exceeded", where, got=norm if math.isfinite(norm) else "inf", expected=limit),)


def _read_through(
    update: TensorSource, base: TensorSource | None, name: str, norm: BlockNorm | None, where: str
) -> Finding | None:
    """Read one tensor to its end: the first value that is not finite, and the tensor's part of the norm."""
    spec = update.specs[name]
    total = element_count(spec)
    for start in range(0, total, CHUNK):
        count = min(CHUNK, total - start)
        values: F64 = update.read(name, start, count)
        if not is_float(spec):
            continue  # read all the same: a checksum in the container is judged at the end
        finite = np.isfinite(values)
        if not finite.all():
            first = int(np.argmin(finite))
            detail = {"tensor": name, "index": start + first}
            return finding("non_finite", where, got=str(float(values[first])), detail=detail)
        if norm is not None:
            with np.errstate(over="ignore"):
                norm.add(values if base is None else values - base.read(name, start, count))
    return None
