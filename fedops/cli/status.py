"""`fedops status`: one look at the federation; imports neither numpy nor the store's or forge's libraries."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from fedops.cli.console import Format, document, emit, format_option
from fedops.cli.params import no_fetch_option, own_site
from fedops.core.facts import Aggregate, Decision, Wait
from fedops.core.findings import as_json
from fedops.core.status import Blocked, LocalWork, SiteLine, StatusReport


@click.command("status")
@no_fetch_option
@click.option("--all", "every", is_flag=True, help="A row for every site, also of a large federation.")
@format_option
def status_command(no_fetch: bool, every: bool, fmt: Format) -> None:
    """Who is where, and what the federation waits for.

    What a site says of itself is marked as claimed: when it made its last submission, and its heartbeat. A site that has
    something to do and was not heard of for max_wait_hours (24, if that is not set) is stalled. No bytes of models are
    read: what CI could not get is known from the signals that it opened.
    """
    from fedops.app.status import status
    from fedops.cli.wire import SystemClock, open_reader
    from fedops.render.status import status_text

    now = SystemClock().now()
    with open_reader() as (root, repository, forge):
        report = status(repository, None if no_fetch else forge, root, own=own_site(root), now=now)
    emit(fmt, status_document(report), status_text(report, now, every=every))


def status_document(report: StatusReport) -> dict[str, Any]:
    """The report as `--format json` gives it."""
    from fedops.app.snapshot import time_text

    return document(
        "status",
        ok=True,
        changed=False,
        findings=report.faults,
        name=report.name,
        version=report.version,
        sha256=report.model,
        made_at=time_text(report.made_at),
        status="final" if report.final else "running",
        quorum={"ready": list(report.ready), "have": len(report.ready), "need": report.trigger.quorum},
        unavailable=list(report.unavailable),
        decision=_decision(report.decision),
        held_by=report.held_by,
        site=report.own,
        next=report.next_command or None,
        work=_work(report.work),
        pulls=report.pulls,
        sites=[_site(line) for line in report.sites],
    )


def _decision(decision: Decision | Blocked) -> dict[str, Any]:
    from fedops.app.snapshot import time_text

    if isinstance(decision, Aggregate):
        return {"kind": "aggregate", "trigger": decision.trigger}
    if isinstance(decision, Wait):
        until = time_text(decision.until) if decision.until is not None else None
        return {"kind": "wait", "reason": decision.reason, "missing": list(decision.missing), "until": until}
    if isinstance(decision, Blocked):
        return {"kind": "stop", "reason": "policy" if decision.findings[0].slug == "policy_invalid" else "tags"}
    return {"kind": "stop", "reason": decision.reason}


def _work(work: LocalWork) -> dict[str, Any]:
    from fedops.app.snapshot import time_text

    trained_at = time_text(work.trained_at) if work.trained_at is not None else None
    return dataclasses.asdict(work) | {"trained_at": trained_at}


def _site(line: SiteLine) -> dict[str, Any]:
    from fedops.app.snapshot import time_text

    pull = line.pull
    return {
        "site": line.site,
        "phase": line.phase,
        "base_version": line.base_version,
        "staleness": line.staleness,
        "merged_at": time_text(line.merged_at) if line.merged_at is not None else None,
        "claimed_at": time_text(line.claimed_at) if line.claimed_at is not None else None,
        "stalled_since": time_text(line.stalled_since) if line.stalled_since is not None else None,
        "pull": None
        if pull is None
        else {
            "number": pull.number,
            "verdict": pull.verdict,
            "text": pull.text,
            "opened_at": time_text(pull.opened_at),
            "owned": pull.owned,
        },
        "reason": as_json(line.reason) if line.reason is not None else None,
        "heartbeat": None
        if line.beat is None
        else {
            "version": line.beat.version,
            "state": line.beat.state,
            "at": time_text(line.beat.at),
            "stalled": line.beat.stalled,
        },
    }
