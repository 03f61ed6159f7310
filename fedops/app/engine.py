"""Aggregation of model files: engine 1. `fedops aggregate`, `ci aggregate` and `verify` all come here.

The bytes of the result depend on the bytes of the inputs, the weights and the rules alone: not on the order in which
the inputs are given, on chunks, threads, or the processor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from fedops.app.arithmetic import ResultNotFinite, Work
from fedops.app.feeds import Base, Input
from fedops.app.lanes import can_fork
from fedops.app.scan_pass import non_finite, scan
from fedops.app.write_pass import WritePass
from fedops.core.chunks import integer_rules
from fedops.core.facts import Scan, Specs
from fedops.core.findings import Finding, finding
from fedops.core.norms import BLOCK, clip_factor
from fedops.core.settings import Integers
from fedops.core.strategies import Combine, Strategy
from fedops.core.tensors import Placed, canonical_layout, data_bytes
from fedops.ports import ModelSink

__all__ = ["Aggregated", "Base", "Input", "Rule", "aggregate"]

_LARGE_BYTES = 64 << 20  # of all files together, from which on a second process takes less time than it costs


@dataclass(frozen=True)
class Rule:
    """How the numbers are made.

    Attributes:
        strategy: with its parameters.
        denominator: of the mean.
        integers: rules of the integer and bool tensors.
        clip_norm: each delta is shortened to this L2 norm and counts once, whatever its weight; of a linear strategy
            alone. None: no clipping.
        want_norms: measure the deltas' norms although neither strategy nor clipping asks for it.
    """

    strategy: Strategy
    denominator: float
    integers: Integers
    clip_norm: float | None = None
    want_norms: bool = False


@dataclass(frozen=True)
class Aggregated:
    """A new model that was written.

    Attributes:
        sha256, md5: hex; md5 is "" if the sink does not take it.
        size: bytes.
        specs: its tensors.
        norms: site -> L2 norm of its delta before clipping; empty if they were not measured.
        clip_factors: site -> what its delta was multiplied by; empty without clipping.
        scores: site -> what the strategy ranked it by; empty if it ranks nobody.
    """

    sha256: str
    md5: str
    size: int
    specs: Specs
    norms: Mapping[str, float]
    clip_factors: Mapping[str, float]
    scores: Mapping[str, float]


def aggregate(
    current: int,
    bases: Mapping[int, Base],
    inputs: Sequence[Input],
    rule: Rule,
    sink: ModelSink,
    *,
    two_processes: bool | None = None,
    chunk: int | None = None,
) -> Aggregated | tuple[Finding, ...]:
    """Make the next version's model.

    Args:
        current: the version to which the mean delta is added.
        bases: that version, and each one that an update was trained on; all files have the same tensors.
        inputs: at least one, in any order, one per site. Models that come over the network (`in_order`) are read in
            step, and only by a linear strategy without clipping; a value that is not finite is then not found again.
        rule: how.
        sink: an open canonical file of the same tensors; committed only if all is well.
        two_processes: True: a second process helps; None: if it is worth it and safe. Each holds a few MB, whatever the
            models' size.
        chunk: elements read at a time; None: what is fastest.

    Returns:
        The model; or findings, and then nothing was written: `non_finite` (detail: site and tensor),
        `hash_mismatch` (detail: site), `non_finite_result`, or why the strategy refuses. Those that name a site can
        be cured by leaving it out.

    Raises:
        StoreError: a file cannot be read or written, or was changed meanwhile.
        FedopsError: the second process was killed.
    """
    ordered = sorted(inputs, key=lambda i: i.site)
    specs = bases[current].model.specs
    _assert_checked(specs, bases, ordered, rule)
    if (refused := rule.strategy.refuses(len(ordered))) is not None:
        return (refused,)
    layout = canonical_layout(specs)
    if two_processes is None:
        two_processes = data_bytes(specs) * (len(inputs) + len(bases)) >= _LARGE_BYTES and can_fork()
    strategy = rule.strategy
    on_the_way = strategy.linear and (chunk is None or chunk >= BLOCK)  # a norm is made of whole blocks
    norms = rule.clip_norm is not None or strategy.scan == "norms" or (rule.want_norms and not on_the_way)
    distances = strategy.scan == "distances"
    scanned = [*(i.model for i in ordered), *(b.model for b in bases.values())] if norms or distances else []
    assert not any(m.in_order for m in scanned), "what comes in order is read once"
    seen = scan(layout, ordered, bases, distances=distances, two_processes=two_processes) if scanned else None
    if found := _unusable(layout, ordered, bases, seen, norms=norms):
        return found
    combine = strategy.prepare([i.weighted for i in ordered], rule.denominator, seen)
    if isinstance(combine, Finding):
        return (combine,)
    measured = list(seen.norms) if seen is not None and norms else []
    clips = [] if rule.clip_norm is None else [clip_factor(norm, rule.clip_norm) for norm in measured]
    work = _work(layout, ordered, bases, current, rule, combine, clips, measure=rule.want_norms and not norms)
    written = _write(work, WritePass(work, sink, two_processes=two_processes, elements=chunk))
    if isinstance(written, tuple):
        return written
    for model in scanned:  # a digest is of what was read last, and these were read twice
        model.check_unchanged()

    def by_site(values: Sequence[float]) -> Mapping[str, float]:
        return dict(zip([i.site for i in ordered], values, strict=True)) if values else {}

    told = (by_site(measured or written), by_site(clips), by_site(strategy.scores(seen)))
    return Aggregated(*sink.commit(), specs, *told)


def _work(
    layout: tuple[Placed, ...],
    inputs: Sequence[Input],
    bases: Mapping[int, Base],
    current: int,
    rule: Rule,
    combine: Combine,
    clips: Sequence[float],
    *,
    measure: bool,
) -> Work:
    """What the writing pass computes. A clipped delta counts once, whatever its weight; clips: empty without clipping."""
    weights = [i.weighted.weight for i in inputs]
    return Work(
        layout=layout,
        rules=integer_rules(rule.integers, bases[current].model.specs),
        inputs=inputs,
        factors=clips or weights,
        counts=[1.0] * len(inputs) if clips else weights,
        bases=bases,
        current=current,
        denominator=rule.denominator,
        combine=combine,
        linear=rule.strategy.linear,
        scratch=rule.strategy.buffers(len(inputs)),
        measure=measure,
    )


def _assert_checked(specs: Specs, bases: Mapping[int, Base], inputs: Sequence[Input], rule: Rule) -> None:
    """What the stages before have seen to: a broken promise is a bug here, never a finding."""
    assert inputs, "nothing to aggregate"
    assert len({i.site for i in inputs}) == len(inputs), "two inputs of one site"
    assert {i.weighted.submission.base_version for i in inputs} <= bases.keys(), "a base version is not given"
    assert all(i.weighted.submission.payload in ("full", "delta") for i in inputs), "a payload was not decoded"
    assert all(dict(m.specs) == dict(specs) for m in (*(b.model for b in bases.values()), *(i.model for i in inputs)))
    assert rule.clip_norm is None or rule.strategy.linear, "a rule for all deltas gets them as they are"
    assert not rule.strategy.state, "no strategy of this engine keeps optimiser tensors"


def _unusable(
    layout: tuple[Placed, ...], inputs: Sequence[Input], bases: Mapping[int, Base], seen: Scan | None, *, norms: bool
) -> tuple[Finding, ...]:
    """What the first pass found wrong with values.

    A distance between two finite updates that has no float64 value is no fault: it is further than all others.

    Args:
        norms: of the deltas are needed.
    """
    if seen is None:
        return ()
    if norms and (found := _not_measured(layout, inputs, bases, seen.norms)):
        return found
    return () if all(map(math.isfinite, chain(seen.norms, *seen.distances))) else non_finite(layout, inputs, bases)


def _not_measured(
    layout: tuple[Placed, ...], inputs: Sequence[Input], bases: Mapping[int, Base], measured: Sequence[float]
) -> tuple[Finding, ...]:
    """Why a norm is not finite: a value is not, or all are, but the square of the norm has no float64 value."""
    if all(map(math.isfinite, measured)):
        return ()
    return non_finite(layout, inputs, bases) or tuple(
        finding("non_finite_result", i.where, got="inf", detail={"site": i.site, "what": "norm of the delta"})
        for i, norm in zip(inputs, measured, strict=True)
        if not math.isfinite(norm)
    )


def _write(work: Work, run: WritePass) -> list[float] | tuple[Finding, ...]:
    """Run the pass; findings mean that what was written must not be used.

    Returns:
        The norms that it measured.
    """
    try:
        measured = run.run()
    except ResultNotFinite as e:
        where, detail = work.bases[work.current].where, {"tensor": e.tensor}
        for given in work.inputs:
            if given.site == e.site:
                where, detail = given.where, {"site": e.site, **detail}
        overflow = finding("non_finite_result", where, detail=detail)
        return non_finite(work.layout, work.inputs, work.bases) or (overflow,)
    sites = [feed.check(i.where, {"site": i.site}) for i, feed in zip(work.inputs, run.site_feeds, strict=True)]
    versions = [feed.check(work.bases[b].where, {"version": b}) for b, feed in run.base_feeds.items()]
    found = tuple(f for f in (*sites, *versions) if f is not None)
    return found or _not_measured(work.layout, work.inputs, work.bases, measured) or measured
