"""The numbers of one version: open what went in, run the engine, write the canonical model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from fedops.app.context import Context
from fedops.app.engine import Aggregated, Base, Input, Rule, aggregate
from fedops.app.model_bytes import open_global, open_update
from fedops.app.snapshot import Snapshot
from fedops.core.errors import ConfigError
from fedops.core.facts import Submission
from fedops.core.findings import Finding, finding
from fedops.core.ids import BlobId
from fedops.core.policy import Weighing
from fedops.core.settings import Aggregation
from fedops.core.strategies import make_strategy
from fedops.core.validate import validate_specs
from fedops.ports import OpenModel

# Says where the bytes of a submission lie.
Located = Callable[[Submission], Path]


def refuse_unavailable_rules(policy: Aggregation) -> None:
    """Stop where the policy asks for something that this version of fedops does not compute.

    Raises:
        ConfigError: differential privacy, or a version by review.
    """
    if policy.privacy is not None:
        raise ConfigError("policies/aggregation.yaml: privacy: not available in this version -> null")
    if policy.publish.mode == "review":
        raise ConfigError("policies/aggregation.yaml: publish.mode: review is not available in this version -> push")


def compute(
    ctx: Context, main: Snapshot, weights: Weighing, located: Located, target: Path
) -> Aggregated | dict[BlobId, Finding] | Finding:
    """Aggregate the weighed submissions into `target`.

    Args:
        main: the pinned commit: base models, policies.

    Returns:
        What was written; or record blob -> finding for submissions whose bytes cannot be used; or the finding that
        stops this version. In both latter cases nothing was written.

    Raises:
        StoreError: a global model cannot be had.
    """
    policy = main.aggregation
    refuse_unavailable_rules(policy)
    numbers = {main.version.version, *(w.submission.base_version for w in weights.weighted)}
    with ExitStack() as stack:
        globals_: dict[int, OpenModel] = {}
        for number in sorted(numbers):
            globals_[number] = open_global(ctx, main, number)
            stack.callback(globals_[number].close)
        opened, bad = _open_updates(ctx, main, [w.submission for w in weights.weighted], located, globals_, stack)
        if bad:
            return bad
        inputs = [Input(w, opened[w.submission.record_blob], f"sites/{w.submission.site}") for w in weights.weighted]
        rule = Rule(
            strategy=make_strategy(policy.strategy),
            denominator=weights.denominator,
            integers=policy.integers,
            want_norms=main.submission_policy.update_norm_max is not None,
        )
        specs = globals_[main.version.version].specs
        bases = {number: Base(model, f"v{number}") for number, model in globals_.items()}
        sink = stack.enter_context(ctx.models.create(target, specs))
        made = aggregate(main.version.version, bases, inputs, rule, sink)
    return _judged(main, weights, made)


def _open_updates(
    ctx: Context,
    main: Snapshot,
    submissions: Sequence[Submission],
    located: Located,
    globals_: Mapping[int, OpenModel],
    stack: ExitStack,
) -> tuple[dict[BlobId, OpenModel], dict[BlobId, Finding]]:
    """Open and check every update: container, canonical form, names, shapes, dtypes; values are the engine's."""
    opened: dict[BlobId, OpenModel] = {}
    bad: dict[BlobId, Finding] = {}
    for s in submissions:
        where = f"sites/{s.site}"
        model, findings = open_update(ctx, located(s), main.submission_policy.limits, where)
        if model is not None:
            stack.callback(model.close)
            opened[s.record_blob] = model
            findings += validate_specs(model.specs, globals_[s.base_version].specs, where, s.payload)
        if findings:
            bad[s.record_blob] = findings[0]
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
