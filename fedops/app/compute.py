"""The numbers of one version: open what went in, run the engine, write the canonical model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from fedops.app.context import Context
from fedops.app.engine import Aggregated, Base, Input, Rule, aggregate
from fedops.app.model_bytes import open_global, open_update
from fedops.app.rules import refuse_unavailable_rules
from fedops.app.snapshot import Snapshot
from fedops.core.facts import Specs, Submission, Weighted
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import BlobId
from fedops.core.policy import Weighing
from fedops.core.settings import StrategySettings
from fedops.core.strategies import make_strategy
from fedops.core.validate import validate_specs
from fedops.ports import ModelSink, OpenModel

# Opens the bytes of a submission; None if a finding is an error.
Opener = Callable[[Submission], tuple[OpenModel | None, tuple[Finding, ...]]]


def from_files(ctx: Context, main: Snapshot, located: Callable[[Submission], Path]) -> Opener:
    """Opens submissions where their bytes lie as files."""
    return lambda s: open_update(ctx, located(s), main.submission_policy.limits, f"sites/{s.site}")


def compute(
    ctx: Context,
    main: Snapshot,
    weights: Weighing,
    updates: Opener,
    target: Path | Callable[[Specs], ModelSink],
    *,
    opened: Callable[[int], OpenModel] | None = None,
    hashed: Callable[[int], str | None] | None = None,
    strategy: StrategySettings | None = None,
) -> Aggregated | dict[BlobId, Finding] | Finding:
    """Aggregate the weighed submissions into `target`.

    Args:
        main: the pinned commit: base models, policies.
        updates: opens what was handed in; each is closed here.
        target: the file; or makes what takes the result in place of one.
        opened: opens the model of a global version; None: fetches it.
        hashed: the sha256 of a global version's model, None if it was checked just now; then every file that is read is
            held against its digest. None: all were checked before.
        strategy: in place of the policy's.

    Returns:
        What was written; or record blob -> finding for submissions whose bytes cannot be used; or the finding that
        stops this version. In both latter cases nothing was written.

    Raises:
        StoreError: a global model cannot be had.
    """
    refuse_unavailable_rules(main.aggregation)
    numbers = {main.version.version, *(w.submission.base_version for w in weights.weighted)}
    with ExitStack() as stack:
        globals_: dict[int, OpenModel] = {}
        for number in sorted(numbers):
            globals_[number] = opened(number) if opened is not None else open_global(ctx, main, number)
            stack.callback(globals_[number].close)
        given, bad = _open_updates([w.submission for w in weights.weighted], updates, globals_, stack)
        if bad:
            return bad
        inputs = [_input(w, given, checked=hashed is None) for w in weights.weighted]
        specs = globals_[main.version.version].specs
        bases = {n: Base(model, f"v{n}", hashed(n) if hashed is not None else None) for n, model in globals_.items()}
        sink = target(specs) if callable(target) else stack.enter_context(ctx.models.create(target, specs))
        made = aggregate(main.version.version, bases, inputs, _rule(main, weights, strategy), sink)
    return _judged(main, weights, made)


def _input(weighted: Weighted, updates: Mapping[BlobId, OpenModel], *, checked: bool) -> Input:
    s = weighted.submission
    return Input(weighted, updates[s.record_blob], f"sites/{s.site}", None if checked else s.sha256)


def _rule(main: Snapshot, weights: Weighing, strategy: StrategySettings | None) -> Rule:
    policy = main.aggregation
    return Rule(
        strategy=make_strategy(strategy or policy.strategy),
        denominator=weights.denominator,
        integers=policy.integers,
        want_norms=main.submission_policy.update_norm_max is not None,
    )


def judge_alone(
    ctx: Context,
    main: Snapshot,
    submission: Submission,
    path: Path,
    target: Path,
    *,
    opened: Callable[[int], OpenModel] | None = None,
) -> Finding | None:
    """What is wrong with the bytes of one submission, also as the only one of a version; None: nothing.

    Args:
        path: its bytes.
        target: for the model that this gives; gone afterwards.
    """
    staleness = main.version.version - submission.base_version
    # What is wrong with bytes does not depend on how much they would have counted, nor on the others; the mean of one
    # update is that update.
    weights = Weighing((Weighted(submission, staleness, 1.0, 1.0),), 1.0)
    updates = from_files(ctx, main, lambda _: path)
    made = compute(ctx, main, weights, updates, target, opened=opened, strategy=StrategySettings())
    target.unlink(missing_ok=True)
    if isinstance(made, dict):
        return made[submission.record_blob]
    return made if isinstance(made, Finding) else None


def _open_updates(
    submissions: Sequence[Submission],
    updates: Opener,
    globals_: Mapping[int, OpenModel],
    stack: ExitStack,
) -> tuple[dict[BlobId, OpenModel], dict[BlobId, Finding]]:
    """Open and check every update: container, canonical form, names, shapes, dtypes; values are the engine's."""
    opened: dict[BlobId, OpenModel] = {}
    bad: dict[BlobId, Finding] = {}
    for s in submissions:
        model, findings = updates(s)
        if model is not None:
            stack.callback(model.close)
            opened[s.record_blob] = model
            findings += validate_specs(model.specs, globals_[s.base_version].specs, f"sites/{s.site}", s.payload)
        if faults := errors(findings):
            bad[s.record_blob] = faults[0]
    return opened, bad


def _judged(
    main: Snapshot, weights: Weighing, made: Aggregated | tuple[Finding, ...]
) -> Aggregated | dict[BlobId, Finding] | Finding:
    blobs: dict[str, BlobId] = {w.submission.site: w.submission.record_blob for w in weights.weighted}
    if isinstance(made, tuple):
        named = {blobs[f.detail["site"]]: f for f in reversed(made) if f.detail and f.detail.get("site") in blobs}
        return named or made[0]
    limit = main.submission_policy.update_norm_max
    too_far = {
        blobs[site]: finding("norm_exceeded", f"sites/{site}", got=norm, expected=limit, detail={"site": site})
        for site, norm in made.norms.items()
        if limit is not None and norm > limit
    }
    return too_far or made
