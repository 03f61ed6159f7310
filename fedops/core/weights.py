"""Weights, shares and the denominator of the mean, exact up to one rounding each; part of `engine: 1`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from fedops.core.facts import Submission, Weighted
from fedops.core.findings import Finding, finding
from fedops.core.ids import AGGREGATION_PATH
from fedops.core.settings import Aggregation, Weights
from fedops.core.staleness import as_written, staleness_factor


@dataclass(frozen=True)
class Weighing:
    """What each submission counts.

    Attributes:
        weighted: ascending site; `weight` w_i, and `share` = w_i / sum of w.
        denominator: what the weighted sum is divided by; differs from the sum of w with `normalize: count` or privacy.
        findings: warnings only (share_capped).
    """

    weighted: tuple[Weighted, ...]
    denominator: float
    findings: tuple[Finding, ...] = ()


def effective_examples(policy: Weights, num_examples: int) -> int:
    """The n_i of the mean: min(num_examples, max_num_examples), or 1 with `by: uniform`."""
    if policy.by == "uniform":
        return 1
    return num_examples if policy.max_num_examples is None else min(num_examples, policy.max_num_examples)


def cap_shares(weights: Sequence[float], max_share: float) -> tuple[tuple[float, ...], bool]:
    """Lower the largest weights until none has more than `max_share` of the sum.

    All that are too large get one common value c with c = max_share * (sum after capping), computed in fractions and
    rounded once; the others keep theirs. With K weights no share can be below 1/K: if max_share is, all get the
    smallest weight, which is where the rule tends to as max_share falls to 1/K. So no weight is ever raised.

    Args:
        weights: finite, >= 0, any order. Zeros stay zero and are not counted in K.
        max_share: 0 < max_share <= 1, taken as the decimal number written.

    Returns:
        The weights in the same order, and whether the cap could be held.
    """
    s = as_written(max_share)
    exact = [Fraction(w) for w in weights]
    left = {i for i, w in enumerate(exact) if w > 0}
    if s * len(left) < 1:
        lowest = min((w for w in weights if w > 0), default=0.0)
        return tuple(lowest if w > 0 else 0.0 for w in weights), False
    cap = s * sum(exact)
    # NOTE: an earlier capped weight stays capped, since the cap falls as the sum does. 1 - k * s stays positive:
    # k weights above s of the sum leave less than 1 - k * s for the others.
    while over := {i for i in left if exact[i] > cap}:
        left -= over
        k = sum(w > 0 for w in exact) - len(left)
        cap = s * sum(exact[i] for i in left) / (1 - k * s)
    return tuple(w if i in left or w == 0 else float(cap) for i, w in enumerate(weights)), True


def weigh(policy: Aggregation, use: Sequence[Submission], current: int) -> Weighing | Finding:
    """Weights of the submissions of the next version: w_i = n_i * s(staleness_i), then the cap on the share.

    With `privacy` every w_i is 1 (the clipped sum's sensitivity must not depend on what a site claims) and the
    denominator is the policy's.

    Args:
        use: at most one submission of each site, base_version <= current; any order.
        current: number of the current version; staleness_i = current - base_version_i.

    Returns:
        The weighing in ascending site, or no_weight: there is no submission, or all discounts round to zero.
    """
    ordered = sorted(use, key=lambda s: s.site)
    staleness = [current - s.base_version for s in ordered]
    counts = [1 if policy.privacy else effective_examples(policy.weights, s.num_examples) for s in ordered]
    weights = tuple(
        float(n) if policy.privacy else n * staleness_factor(policy.staleness, tau)
        for n, tau in zip(counts, staleness, strict=True)
    )
    total = sum(map(Fraction, weights))
    if total == 0:
        return finding("no_weight", AGGREGATION_PATH, got=0.0, detail={"submissions": len(ordered)})
    findings: tuple[Finding, ...] = ()
    share = policy.weights.max_share
    if share is not None:
        weights, held = cap_shares(weights, share)
        total = sum(map(Fraction, weights))
        if not held:
            detail = {"sites": len(ordered)}
            findings = (finding("share_capped", AGGREGATION_PATH, got=1 / len(ordered), expected=share, detail=detail),)
    weighted = tuple(
        Weighted(s, tau, w, float(Fraction(w) / total)) for s, tau, w in zip(ordered, staleness, weights, strict=True)
    )
    return Weighing(weighted, _denominator(policy, weights, counts), findings)


def _denominator(policy: Aggregation, weights: Sequence[float], counts: Sequence[int]) -> float:
    if policy.privacy is not None:
        fixed = policy.privacy.denominator
        return float(len(weights) if fixed == "participants" else fixed)
    # NOTE: `count` takes the undiscounted n_i, so that stale updates shorten the step. Dividing discounted weights by
    # their own sum would cancel a discount that all share; dividing n_i * s_i by K would scale the step by n.
    return float(sum(counts)) if policy.weights.normalize == "count" else math.fsum(weights)


def aggregate_metrics(weighted: Sequence[Weighted]) -> dict[str, float]:
    """Mean of each metric over the sites that report it, weighted by their num_examples; names sorted.

    Exact in fractions, rounded once: in float64 the product num_examples * metric could overflow, and one site's
    absurd value would then stop every version.
    """
    names = sorted({name for w in weighted for name in w.submission.metrics})
    means = {}
    for name in names:
        having = [w.submission for w in weighted if name in w.submission.metrics]
        total = sum(s.num_examples * Fraction(s.metrics[name]) for s in having)
        means[name] = float(total / sum(s.num_examples for s in having))
    return means
