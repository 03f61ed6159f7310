"""`fedops status` as text for people: report data in, lines out."""

from __future__ import annotations

import datetime as dt
from typing import assert_never

from fedops.core.facts import Aggregate, Stop, Wait
from fedops.core.findings import CATALOGUE
from fedops.core.ids import GlobalVersion
from fedops.core.status import Heartbeat, OpenPull, SiteLine, StatusReport
from fedops.render.text import ago, clean, count, short, table

_STATES = {
    "suspended": "suspended",
    "done": "done",
    "ready": "ready",
    "refused": "refused",
    "due": "to train",
    "new": "new",
}
_STOPPED = {
    "max_version": "this was the last version",
    "plateau": "the metrics do not improve any more",
    "budget": "the privacy budget is used up",
}


def status_text(report: StatusReport, now: dt.datetime) -> str:
    """The whole page; the own site is marked with `*`.

    Args:
        now: aware; ages are measured from it.
    """
    current = GlobalVersion(report.version).short
    head = f"{report.name}  {current}  {short(report.model)}  made {ago(report.made_at, now)}"
    offline = "\noffline: main as last fetched, pull requests not looked at" if report.pulls is None else ""
    blocks = [f"{head}\n{_federation(report, now)}{offline}", _sites(report, now)]
    if beats := _beats(report, now):
        blocks.append(beats)
    if own := _own(report):
        blocks.append(own)
    if report.faults:
        blocks.append("\n".join(f"warning: {clean(f.where)}: {CATALOGUE[f.slug].text} [{f.id}]" for f in report.faults))
    return "\n\n".join(blocks)


def _federation(report: StatusReport, now: dt.datetime) -> str:
    """What the next version waits for, in one sentence."""
    have, need = len(report.ready), report.trigger.quorum
    decision = report.decision
    if report.final:
        return "done: this is the last version"
    if isinstance(decision, Stop):
        return f"stopped: {_STOPPED[decision.reason]}"
    if isinstance(decision, Aggregate):
        after = "max_wait_hours are over" if decision.trigger == "max_wait" else f"quorum {need} is reached"
        return f"due: {count(have, 'submission')}, {after}; CI makes v{report.version + 1} on its next run, `fedops ci reconcile`"
    until = f" until {_moment(decision.until, now)}" if decision.until is not None else ""
    if decision.reason == "review":
        return "waits for the review of the version that is proposed"
    if decision.reason == "grace":
        return f"quorum {need} is reached with {count(have, 'submission')}; waits for more{until}"
    return _missing(report, decision, now)


def _missing(report: StatusReport, decision: Wait, now: dt.datetime) -> str:
    have, need, trigger = len(report.ready), report.trigger.quorum, report.trigger
    text = f"waits for {count(need - have, 'more submission')}: {have} of {need}" if have < need else "waits"
    if decision.reason == "unavailable":
        text += "; bytes of a submission cannot be had"
    if decision.until is not None:
        return f"{text}; from {_moment(decision.until, now)} on, {trigger.quorum_after_wait} will do"
    if trigger.max_wait_hours is not None and not have:
        return f"{text}; {trigger.max_wait_hours:g} hours after the first, {trigger.quorum_after_wait} will do"
    return text


def _moment(at: dt.datetime, now: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC ({ago(at, now)})"


def _sites(report: StatusReport, now: dt.datetime) -> str:
    if not report.sites:
        return "no sites yet: `fedops site add`"
    rows = [
        (
            f"{line.site} *" if line.site == report.own else line.site,
            _state(line),
            "" if line.base_version is None else GlobalVersion(line.base_version).short,
            "" if line.staleness is None else str(line.staleness),
            "" if line.merged_at is None else ago(line.merged_at, now),
            _waits_for(line, report.version),
        )
        for line in report.sites
    ]
    return table(("site", "state", "base", "stale", "merged", "waits for"), rows, right=(3,))


def _state(line: SiteLine) -> str:
    return f"PR #{line.pull.number}" if line.phase == "open" and line.pull is not None else _STATES[line.phase]


def _waits_for(line: SiteLine, current: int) -> str:
    """Who has to do what next for this site."""
    match line.phase:
        case "suspended":
            return "the lead, who suspended it"
        case "done":
            return "nothing"
        case "open":
            return _pull(line, line.pull) if line.pull is not None else ""
        case "ready":
            return f"v{current + 1}"
        case "refused":
            reason = f": {line.reason.slug}" if line.reason is not None else ""
            return f"{line.site}, to hand in again{reason}"
        case "due":
            return f"{line.site}, to train on v{current}"
        case "new":
            return f"{line.site}, to hand in its first update"
        case _:
            assert_never(line.phase)


def _pull(line: SiteLine, pull: OpenPull) -> str:
    name = f"PR #{pull.number}"
    if not pull.owned:
        return f"{line.site}: {name} is not by an account or key of the site"
    if pull.verdict == "failure":
        return f"{line.site}, to correct {name}: {pull.text}"
    if pull.verdict == "success":
        return f"CI, to merge {name}"
    return f"{name}: {pull.text}" if pull.text else f"CI, to check {name}"


def _beats(report: StatusReport, now: dt.datetime) -> str:
    """What the sites say of themselves; empty if none does."""
    rows = [(line.site, *_beat(line.beat, now)) for line in report.sites if line.beat is not None]
    return f"heartbeats, as the sites claim them\n{table(('site', 'last heard', 'doing'), rows)}" if rows else ""


def _beat(beat: Heartbeat, now: dt.datetime) -> tuple[str, str]:
    name = GlobalVersion(beat.version).short if beat.version >= 0 else "no version"
    stalled = f"stalled since {beat.at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC: " if beat.stalled else ""
    return ago(beat.at, now), f"{stalled}{beat.state}, {name}"


def _own(report: StatusReport) -> str:
    """This clone's own work and its next command."""
    if report.own is None:
        return ""
    if all(line.site != report.own for line in report.sites):
        return f"this clone is set up as {report.own}, which is not on the roster: ask the lead"
    work = report.work
    facts = [f"this clone: {report.own}"]
    facts.append("nothing pulled yet" if work.pulled is None else f"{GlobalVersion(work.pulled).short} pulled")
    if work.trained is not None:
        facts.append(f"trained on {GlobalVersion(work.trained).short}")
    idle = "nothing, this was the last version" if report.final else "nothing to do but wait"
    return f"{', '.join(facts)}\nnext: {report.next_command or idle}"
