"""`fedops status` as text for people: report data in, lines out."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import assert_never

from fedops.core.catalogue import CATALOGUE
from fedops.core.facts import Aggregate, Stop, Wait
from fedops.core.findings import Finding
from fedops.core.ids import GlobalVersion
from fedops.core.status import Blocked, Heartbeat, OpenPull, Silence, SiteLine, StatusReport
from fedops.render.text import ago, clean, count, listed, short, table

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


MOST_ROWS = 40
MOST_SILENCES = 5
_REASON = 200  # columns of what is wrong with a policy
# Who is shown first where not all are: those that somebody must do something about.
_FIRST = ("refused", "open", "ready", "new", "due", "suspended", "done")


def status_text(report: StatusReport, now: dt.datetime, *, every: bool = False) -> str:
    """The whole page; the own site is marked with `*`.

    Of more than MOST_ROWS sites there is a count by state, and then those that somebody must do something about.

    Args:
        now: aware; ages are measured from it.
        every: a row for each site, however many there are.
    """
    current = GlobalVersion(report.version).short
    head = f"{report.name}  {current}  {short(report.model)}  made {ago(report.made_at, now)}"
    offline = "\noffline: main as last fetched, pull requests and signals not looked at" if report.pulls is None else ""
    whole = every or len(report.sites) <= MOST_ROWS
    shown = report.sites if whole else sorted(report.sites, key=lambda line: _urgency(report, line))[:MOST_ROWS]
    counts = [] if len(report.sites) <= MOST_ROWS else [_counts(report)]
    blocks = [f"{head}\n{_federation(report, now)}{offline}", *counts, _sites(report, shown, now)]
    if not whole:
        blocks[-1] += f"\n… and {len(report.sites) - len(shown):,} more: fedops status --all"
    if heard := "\n".join(
        filter(None, [_beats(report, now, None if whole else MOST_ROWS), _silent(report, every=every)])
    ):
        blocks.append(heard)
    if own := _own(report, now):
        blocks.append(own)
    warnings = [_warning(f) for f in report.faults]
    if not every and len(warnings) > MOST_ROWS:
        warnings[MOST_ROWS:] = [f"… and {len(warnings) - MOST_ROWS:,} more: fedops status --all"]
    if warnings:
        blocks.append("\n".join(warnings))
    return "\n\n".join(blocks)


def _warning(fault: Finding) -> str:
    """One line; with what is to be done, where that is not the site's own to do."""
    rule = CATALOGUE[fault.slug]
    hint = f"; {rule.hint}" if fault.severity == "error" else ""
    return f"warning: {clean(fault.where)}: {rule.text} [{fault.id}]{hint}"


def _urgency(report: StatusReport, line: SiteLine) -> tuple[bool, bool, int, str]:
    """Sorts sites: the own one, those to be corrected or not heard of, then by state and id."""
    failed = line.is_unavailable or (line.pull is not None and line.pull.verdict == "failure")
    stalled = line.stalled_since is not None
    return line.site != report.own, not (failed or stalled), _FIRST.index(line.phase), line.site


def _counts(report: StatusReport) -> str:
    """How many sites there are in each state."""
    by_state = Counter("PR open" if line.phase == "open" else _state(line) for line in report.sites)
    stalled = sum(line.stalled_since is not None for line in report.sites)
    parts = [f"{number:,} {state}" for state, number in by_state.most_common()]
    parts += [f"{stalled:,} stalled"] if stalled else []
    return f"{count(len(report.sites), 'site')}: {', '.join(parts)}"


def _federation(report: StatusReport, now: dt.datetime) -> str:
    """What the next version waits for, in one sentence."""
    have, need = len(report.ready), report.trigger.quorum
    decision = report.decision
    if report.final:
        return "done: this is the last version"
    if isinstance(decision, Blocked):
        return _blocked(report, decision)
    if isinstance(decision, Stop):
        return f"stopped: {_STOPPED[decision.reason]}"
    if isinstance(decision, Aggregate):
        after = "max_wait_hours are over" if decision.trigger == "max_wait" else f"quorum {need} is reached"
        return f"due: {count(have, 'submission')}, {after}; {_next_run(report)}"
    until = f" until {_moment(decision.until, now)}" if decision.until is not None else ""
    if decision.reason == "review":
        name = f", pull request #{decision.pull}" if decision.pull is not None else ""
        return f"waits for the review of the version that is proposed{name}"
    if decision.reason == "rejected":
        return _rejected(report)
    if decision.reason == "grace":
        return f"quorum {need} is reached with {count(have, 'submission')}; waits for more{until}"
    return _missing(report, decision, now)


def _next_run(report: StatusReport) -> str:
    """What CI does when a version is due."""
    if any(fault.slug == "tag_missing" for fault in report.faults):
        return (
            f"CI first verifies v{report.version} and tags it, then makes v{report.version + 1}: `fedops ci reconcile`"
        )
    return f"CI makes v{report.version + 1} on its next run, `fedops ci reconcile`"


def _rejected(report: StatusReport) -> str:
    have = len(report.ready)
    what = f"v{report.version + 1} of {'this' if have == 1 else f'these {have:,}'} submission{'s' * (have != 1)}"
    again = "" if report.held_by is None else f"; to have this one proposed again, close issue #{report.held_by}"
    return f"waits: leads rejected {what}; another submission or policy makes another version{again}"


def _blocked(report: StatusReport, blocked: Blocked) -> str:
    """Which tags, or which policy, stop everything."""
    if blocked.findings[0].slug == "policy_invalid":
        return f"stopped: {clean(str(blocked.findings[0].got), _REASON)}; CI makes no version until a lead has put that right"
    tags = [fault for fault in blocked.findings if fault.slug != "policy_invalid"]
    current = GlobalVersion(report.version)
    above = [fault.where for fault in tags if fault.where != current.tag]
    said = []
    if above:
        stand = "stands" if len(above) == 1 else "stand"
        said.append(f"{listed(above, 3)} {stand} above {current.short}, the current version on main")
    if len(above) < len(tags):
        said.append(f"{current.tag} does not name the commit that made {current.short}")
    return f"stopped: {'; '.join(said)}; CI makes no version until a lead has put that right"


def _missing(report: StatusReport, decision: Wait, now: dt.datetime) -> str:
    have, need, trigger = len(report.ready), report.trigger.quorum, report.trigger
    text = f"waits for {count(need - have, 'more submission')}: {have} of {need}" if have < need else "waits"
    if report.unavailable:
        text += f"; CI could not get the bytes of {listed(report.unavailable, 3)}"
    if decision.until is not None:
        return f"{text}; from {_moment(decision.until, now)} on, {trigger.quorum_after_wait} will do"
    if trigger.max_wait_hours is not None and not have:
        return f"{text}; {trigger.max_wait_hours:g} hours after the first, {trigger.quorum_after_wait} will do"
    return text


def _moment(at: dt.datetime, now: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC ({ago(at, now)})"


def _sites(report: StatusReport, shown: Sequence[SiteLine], now: dt.datetime) -> str:
    if not report.sites:
        return "no sites yet: `fedops site add`"
    rows = [
        (
            f"{line.site} *" if line.site == report.own else line.site,
            _state(line),
            "" if line.base_version is None else GlobalVersion(line.base_version).short,
            "" if line.staleness is None else str(line.staleness),
            _handed_in(line, now),
            _waits_for(line, report.version),
        )
        for line in shown
    ]
    return table(("site", "state", "base", "stale", "last handed in", "waits for"), rows, right=(3,))


def _state(line: SiteLine) -> str:
    if line.is_unavailable:
        return "unavailable"
    return f"PR #{line.pull.number}" if line.phase == "open" and line.pull is not None else _STATES[line.phase]


def _handed_in(line: SiteLine, now: dt.datetime) -> str:
    """When its last submission was merged, while it is not used; afterwards what its record claims."""
    if line.merged_at is not None:
        return f"merged {ago(line.merged_at, now)}"
    return f"claimed {ago(line.claimed_at, now)}" if line.claimed_at is not None else ""


def _waits_for(line: SiteLine, current: int) -> str:
    """Who has to do what next for this site."""
    match line.phase:
        case "suspended":
            return "the lead, who suspended it"
        case "done":
            return "nothing"
        case "open":
            return _pull(line, line.pull) if line.pull is not None else ""
        case "ready" if line.reason is None:
            return f"v{current + 1}"
        case "ready" | "refused":
            todo = "hand in again" if line.phase == "refused" else "bring its bytes back"
            reason = f": {line.reason.slug}" if line.reason is not None else ""
            return f"{line.site}, to {todo}{reason}"
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


def _beats(report: StatusReport, now: dt.datetime, most: int | None) -> str:
    """What the sites say of themselves; empty if none does.

    Args:
        most: rows, of those that were heard longest ago; None: all.
    """
    heard = [(line.beat.at, line.site, line.beat) for line in report.sites if line.beat is not None]
    kept = heard if most is None else sorted(heard, key=lambda one: one[:2])[:most]
    rows = [(site, *_beat(beat, now)) for _, site, beat in kept]
    more = f"\n… and {len(heard) - len(kept):,} more: fedops status --all" if len(heard) > len(kept) else ""
    return f"heartbeats, as the sites claim them\n{table(('site', 'last heard', 'doing'), rows)}{more}" if rows else ""


def _silent(report: StatusReport, *, every: bool) -> str:
    """Who has something to do and never sent a heartbeat: a line for each version that they were told to train on."""
    groups: dict[Silence, list[str]] = {}
    for line in report.sites:
        if line.silence is not None:
            groups.setdefault(line.silence, []).append(line.site)
    ordered = sorted(groups, key=lambda silence: silence.version)
    kept = ordered if every else ordered[:MOST_SILENCES]
    lines = [
        f"no heartbeat, stalled since {silence.since.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC, when"
        f" {GlobalVersion(silence.version).short} was made: {listed(groups[silence], len(report.sites) if every else 10)}"
        for silence in kept
    ]
    left = sum(len(groups[silence]) for silence in ordered[len(kept) :])
    return "\n".join([*lines, *([f"… and {count(left, 'site')} more: fedops status --all"] if left else [])])


def _beat(beat: Heartbeat, now: dt.datetime) -> tuple[str, str]:
    name = GlobalVersion(beat.version).short if beat.version >= 0 else "no version"
    stalled = f"stalled since {beat.at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC: " if beat.stalled else ""
    return ago(beat.at, now), f"{stalled}{beat.state}, {name}"


def _own(report: StatusReport, now: dt.datetime) -> str:
    """This clone's own work and its next command."""
    if report.own is None:
        return ""
    if all(line.site != report.own for line in report.sites):
        return f"this clone is set up as {report.own}, which is not on the roster: ask the lead"
    work = report.work
    facts = [f"this clone: {report.own}"]
    facts.append("nothing pulled yet" if work.pulled is None else f"{GlobalVersion(work.pulled).short} pulled")
    if work.trained is not None:
        # Which result it is: a training that was broken off since leaves none.
        ended = [] if work.trained_at is None else [ago(work.trained_at, now)]
        which = ", ".join([*ended, *([short(work.sha256)] if work.sha256 else [])])
        facts.append(f"trained on {GlobalVersion(work.trained).short}" + (f" ({which})" if which else ""))
    idle = "nothing, this was the last version" if report.final else "nothing to do but wait"
    return f"{', '.join(facts)}\nnext: {report.next_command or idle}"
