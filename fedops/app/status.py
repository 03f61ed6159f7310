"""Who is where and what the federation waits for, from one look at main and at the open pull requests."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedops.app.merged import MergedState, future_merges, merged_state
from fedops.app.signals import waiting_sites
from fedops.app.snapshot import Snapshot, main_snapshot, parse_time
from fedops.app.work import Work
from fedops.core.errors import FedopsError
from fedops.core.facts import Pull, Submission
from fedops.core.findings import Finding, finding
from fedops.core.ids import GlobalVersion, SiteId, is_version_branch, submit_branch
from fedops.core.policy import decide, eligible
from fedops.core.status import (
    Heartbeat,
    LocalWork,
    OpenPull,
    Phase,
    SiteLine,
    StatusReport,
    is_stalled,
    next_command,
)
from fedops.ports import Forge, Repository

VERDICT_CONTEXT = "fedops/verdict"
_log = logging.getLogger(__name__)


def status(
    repository: Repository,
    forge: Forge | None,
    root: Path,
    *,
    own: SiteId | None,
    now: dt.datetime,
) -> StatusReport:
    """Read main and the open pull requests, and say where everybody is.

    Costs one listing of main's tree and a walk back to the oldest merge that is not used yet, whatever the history.

    Args:
        forge: None: stay offline; main is taken as last fetched, and pull requests are not looked at.
        root: of the clone, for its work folder.
        own: the site of this clone.
        now: aware; the policy's windows are measured against it.
    """
    pulls: tuple[Pull, ...] = ()
    if forge is not None:
        pulls = tuple(forge.open_pulls())
        repository.fetch(pulls=())
    main = main_snapshot(repository)
    told = _Told()
    if forge is not None:
        told = _Told(
            len(pulls),
            _open_pulls(forge, main, pulls, main.sites.sites),
            _beats(forge, main, now),
            _version_pull(forge, main, pulls),
        )
    return _report(main, Work(root, main.federation.extension), told, own, now)


@dataclass(frozen=True)
class _Told:
    """What the forge says.

    Attributes:
        pulls: number of all open pull requests; None: it was not asked.
        mine: the sites' open pull requests.
        version: number of the pull request that brings the next version, on which the federation waits.
    """

    pulls: int | None = None
    mine: Mapping[SiteId, OpenPull] = field(default_factory=dict)
    beats: Mapping[SiteId, Heartbeat] = field(default_factory=dict)
    version: int | None = None


def _version_pull(forge: Forge, main: Snapshot, pulls: Sequence[Pull]) -> int | None:
    """The pull request that brings the next version; None: there is none that counts."""
    if not any(is_version_branch(pull.branch) for pull in pulls):
        return None
    # NOTE: here, since it imports numpy, for which a command that reads no model does not wait.
    from fedops.app.version_pulls import look

    counting = look(main.repository, forge, main, pulls).counting
    return counting.pull.number if counting is not None else None


def _report(main: Snapshot, work: Work, told: _Told, own: SiteId | None, now: dt.datetime) -> StatusReport:
    """Put together what was read."""
    merged = merged_state(main.repository, main)
    counted = _Counted.of(main, merged)
    decision = decide(
        main.aggregation,
        tuple(counted.ready.values()),
        (),
        main.version,
        sites=main.sites,
        open_version_pull=told.version,
        now=now,
    )
    known = sorted(main.sites.sites, key=lambda s: (s != own, s))
    lines = tuple(
        replace(_line(main, merged, counted, site, told.mine.get(site)), beat=told.beats.get(site))
        for site in map(SiteId, known)
    )
    local = _work(work)
    return StatusReport(
        name=main.federation.name,
        version=main.version.version,
        model=main.version.model.sha256,
        made_at=_made_at(main),
        final=main.version.status == "final",
        ready=tuple(counted.ready),
        trigger=main.aggregation.trigger,
        decision=decision,
        sites=lines,
        own=own,
        work=local,
        pulls=told.pulls,
        next_command=next((next_command(s, local, main.version.version) for s in lines if s.site == own), ""),
        faults=(*_untagged(main), *merged.faults, *future_merges(merged, now)),
    )


def _untagged(main: Snapshot) -> tuple[Finding, ...]:
    """What is wrong with the current version's tag: only that there is none can be said in a moment."""
    tag = GlobalVersion(main.version.version).tag
    missing = main.repository.resolve(f"refs/tags/{tag}") is None
    return (finding("tag_missing", tag),) if missing else ()


def own_line(forge: Forge, main: Snapshot, pulls: Sequence[Pull], site: SiteId) -> SiteLine | None:
    """Where one site is, None if it is not on the roster; a pull request that only claims to be its own is left out.

    Args:
        main: fetched after the open pull requests `pulls` were listed, so that one merged in between is in either.
    """
    if site not in main.sites.sites:
        return None
    pull = _open_pulls(forge, main, pulls, [site]).get(site)
    merged = merged_state(main.repository, main)
    return _line(main, merged, _Counted.of(main, merged), site, pull if pull is not None and pull.owned else None)


@dataclass(frozen=True)
class _Counted:
    """Sites by whether what they have on main counts for the next version."""

    ready: Mapping[SiteId, Submission]
    refused: Mapping[SiteId, Finding]
    silent: frozenset[SiteId]  # nothing on main

    @classmethod
    def of(cls, main: Snapshot, merged: MergedState) -> _Counted:
        use, excluded = eligible(merged.fit(), main.version, main.sites, main.aggregation, taken=merged.taken())
        waiting = waiting_sites(main, merged, {})
        refused = {site: reason for site, reason in waiting.items() if reason is not None}
        refused |= {e.submission.site: e.finding for e in excluded}
        silent = frozenset(site for site, reason in waiting.items() if reason is None)
        return cls({s.site: s for s in use}, refused, silent)


def _line(main: Snapshot, merged: MergedState, counted: _Counted, site: SiteId, pull: OpenPull | None) -> SiteLine:
    record = merged.records.get(site)
    ready = counted.ready.get(site)
    reason = counted.refused.get(site)
    base = record.base_version if record is not None else None
    fresh = base is not None and base > main.version.consumed.get(site, -1)
    phase: Phase
    if main.sites.sites[site].state != "active":
        phase, reason = "suspended", None
    elif main.version.status == "final":
        phase, reason = "done", None
    elif pull is not None:
        phase = "open"
    elif ready is not None:
        phase = "ready"
    elif reason is not None:
        phase = "refused"
    else:
        phase = "new" if site in counted.silent else "due"
    return SiteLine(
        site=site,
        phase=phase,
        base_version=base,
        staleness=main.version.version - base if base is not None and fresh else None,
        merged_at=ready.merged_at if ready is not None else None,
        pull=pull,
        reason=reason,
    )


def _beats(forge: Forge, main: Snapshot, now: dt.datetime) -> dict[SiteId, Heartbeat]:
    """The sites' heartbeats; none if they cannot be read, since nothing depends on them."""
    try:
        beats = forge.beats()
    except FedopsError as e:
        _log.warning("heartbeats left out: %s", e.message)
        return {}
    over = main.version.status == "final"
    sites = main.sites.sites
    return {
        site: Heartbeat(
            version,
            state,
            at,
            not over and sites[site].state == "active" and is_stalled(at, main.aggregation.trigger, now),
        )
        for site, (version, state, at) in beats.items()
        if site in sites
    }


def _open_pulls(forge: Forge, main: Snapshot, pulls: Sequence[Pull], sites: Iterable[str]) -> dict[SiteId, OpenPull]:
    """The open pull request of each of these sites, with CI's last word on its head."""
    by_branch = {submit_branch(SiteId(s)): SiteId(s) for s in sites}
    found: dict[SiteId, OpenPull] = {}
    verdicts = forge.statuses({pull.head for pull in pulls if pull.branch in by_branch}, VERDICT_CONTEXT)
    for pull in pulls:
        site = by_branch.get(pull.branch)
        owned = site is not None and main.sites.site_of(pull.author.id) == site
        # Anybody can open a pull request from a branch of that name; the site's own is the one to show.
        if site is None or (site in found and not owned):
            continue
        state, text = verdicts.get(pull.head, (None, ""))
        found[site] = OpenPull(pull.number, state, text, pull.opened_at, owned)
    return found


def _made_at(main: Snapshot) -> dt.datetime:
    """When the current version was made: the date of the commit that its tag names, or what its record says."""
    commit = main.repository.resolve(f"refs/tags/{GlobalVersion(main.version.version).tag}")
    if commit is None:
        return parse_time(main.version.witness.decided_at)
    return main.repository.commit(commit).committed_at


def _work(work: Work) -> LocalWork:
    trained = [n for n in work.versions() if work.trained(n) is not None]
    return LocalWork(max(work.pulled(), default=None), max(trained, default=None))
