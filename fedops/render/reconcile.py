"""What one reconcile run did, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from fedops.core.facts import Aggregate, Decision, Stop, Wait
from fedops.core.records import VersionRecord
from fedops.render.text import listed, printable

_WAITS = {
    "nothing_new": "no usable submission yet",
    "quorum": "the quorum is not reached",
    "grace": "the grace period runs",
    "review": "a version is under review",
    "rejected": "leads rejected this version; other submissions or policies make another",
    "unavailable": "bytes cannot be had",
}
_STOPS = {
    "max_version": "this was the last version",
    "plateau": "the metrics do not improve any more",
    "budget": "the privacy budget is used up",
}


def decision_facts(decision: Decision | None) -> dict[str, Any] | None:
    """A decision as JSON values."""
    match decision:
        case None:
            return None
        case Wait():
            until = decision.until.isoformat().replace("+00:00", "Z") if decision.until is not None else None
            pull = {} if decision.pull is None else {"pull": decision.pull}
            return {"wait": decision.reason, "missing": list(decision.missing), "until": until, **pull}
        case Stop():
            return {"stop": decision.reason}
        case Aggregate():
            return {"aggregate": [s.site for s in decision.use], "trigger": decision.trigger}
        case never:
            assert_never(never)


def decision_text(decision: Decision | None) -> str:
    """Why the federation waits, in words; empty where nothing was decided."""
    match decision:
        case None:
            return ""
        case Wait():
            missing = f"; missing: {listed(decision.missing)}" if decision.missing else ""
            until = f"; until {decision.until:%Y-%m-%d %H:%M} UTC" if decision.until is not None else ""
            pull = f", #{decision.pull}" if decision.pull is not None else ""
            return f"waits: {_WAITS[decision.reason]}{pull}{missing}{until}"
        case Stop():
            return f"done: {_STOPS[decision.reason]}"
        case Aggregate():
            return f"due: {listed([s.site for s in decision.use])}"
        case never:
            assert_never(never)


def reconcile_document(
    merged: Sequence[Mapping[str, Any]],
    published: Sequence[VersionRecord],
    signals: Sequence[str],
    decision: Decision | None,
    *,
    again: bool,
    mended: Sequence[str] = (),
    reviews: Sequence[str] = (),
) -> dict[str, Any]:
    """The result's own part of the JSON document."""
    return {
        "pulls": list(merged),
        "published": [
            {
                "version": r.version,
                "kind": r.kind,
                "source": r.source.version if r.source is not None else None,
                "status": r.status,
                "model": r.model.sha256,
                "contributions": [
                    {"site": c.site, "staleness": c.staleness, "share": c.share} for c in r.contributions
                ],
                "excluded": [{"site": e.site, "slug": e.slug} for e in r.excluded],
            }
            for r in published
        ],
        "signals": list(signals),
        "reviews": list(reviews),
        "mended": list(mended),
        "decision": decision_facts(decision),
        "decision_text": decision_text(decision),
        "again": again,
    }


def reconcile_text(facts: Mapping[str, Any]) -> str:
    """One line for each thing done, then why it waits.

    Args:
        facts: of `reconcile_document`.
    """
    lines = [
        f"pull request #{p['pull']}: {p['outcome']}" + (f" ({p['reason']})" if p["reason"] else "")
        for p in facts["pulls"]
    ]
    lines.extend(f"version {text}" for text in facts["reviews"])
    lines.extend(_published(version) for version in facts["published"])
    lines.extend(f"signal {text}" for text in facts["signals"])
    lines.extend(facts["mended"])
    lines.append(facts["decision_text"] or "nothing was decided")
    if facts["again"]:
        lines.append("something is left: run it again")
    return "\n".join(printable(line) for line in lines)


def _published(version: Mapping[str, Any]) -> str:
    """`published v3: hospital-a 94%, clinic-d 6% (stale 2); excluded: lab-e (too_stale)`, or `v4: the model of v2 again`."""
    used = ", ".join(
        f"{c['site']} {c['share']:.0%}" + (f" (stale {c['staleness']})" if c["staleness"] else "")
        for c in version["contributions"]
    )
    excluded = ", ".join(f"{e['site']} ({e['slug']})" for e in version["excluded"])
    last = ", the last version" if version["status"] == "final" else ""
    if version["kind"] == "rollback":
        used = f"the model of v{version['source']} again"
    return f"published v{version['version']}{last}: {used}" + (f"; excluded: {excluded}" if excluded else "")
