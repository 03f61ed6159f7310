"""What one reconcile run did, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedops.core.facts import Aggregate, Decision, Stop, Wait
from fedops.core.records import VersionRecord


def decision_facts(decision: Decision | None) -> dict[str, Any] | None:
    """A decision as JSON values."""
    if decision is None:
        return None
    if isinstance(decision, Wait):
        until = decision.until.isoformat().replace("+00:00", "Z") if decision.until is not None else None
        return {"wait": decision.reason, "missing": list(decision.missing), "until": until}
    if isinstance(decision, Stop):
        return {"stop": decision.reason}
    return {"aggregate": [s.site for s in decision.use], "trigger": decision.trigger}


def decision_text(decision: Decision | None) -> str:
    """Why the federation waits, in words."""
    if isinstance(decision, Wait):
        reasons = {
            "nothing_new": "no usable submission yet",
            "quorum": "the quorum is not reached",
            "grace": "the grace period runs",
            "review": "a version is under review",
            "unavailable": "bytes cannot be had",
        }
        missing = f"; missing: {', '.join(decision.missing)}" if decision.missing else ""
        until = f"; until {decision.until:%Y-%m-%d %H:%M} UTC" if decision.until is not None else ""
        return f"waits: {reasons[decision.reason]}{missing}{until}"
    if isinstance(decision, Stop):
        return f"done: {decision.reason}"
    if isinstance(decision, Aggregate):
        return f"due: {', '.join(s.site for s in decision.use)}"
    return ""


def reconcile_document(
    merged: Sequence[Mapping[str, Any]],
    published: Sequence[VersionRecord],
    signals: Sequence[str],
    decision: Decision | None,
    *,
    again: bool,
) -> dict[str, Any]:
    """The result's own part of the JSON document."""
    return {
        "pulls": list(merged),
        "published": [
            {
                "version": r.version,
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
        "decision": decision_facts(decision),
        "decision_text": decision_text(decision),
        "again": again,
    }


def reconcile_text(facts: Mapping[str, Any]) -> str:
    """One line for each thing done, then why it waits."""
    lines = [
        f"pull request #{p['pull']}: {p['outcome']}" + (f" ({p['reason']})" if p["reason"] else "")
        for p in facts["pulls"]
    ]
    for version in facts["published"]:
        sites = ", ".join(f"{c['site']} {c['share']:.0%}" for c in version["contributions"])
        lines.append(f"published v{version['version']}: {sites}")
    lines.extend(f"signal {text}" for text in facts["signals"])
    lines.append(facts["decision_text"] or "nothing to decide")
    if facts["again"]:
        lines.append("something is left: run it again")
    return "\n".join(lines)
