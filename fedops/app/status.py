"""Who is where and what the federation waits for, from one look at main and at the open pull requests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedops.app.merged import MergedState, merged_state
from fedops.app.signals import waiting_sites
from fedops.app.snapshot import Snapshot, main_snapshot, parse_time
from fedops.app.work import Work
from fedops.core.facts import Pull, Submission
from fedops.core.findings import Finding
from fedops.core.ids import GlobalVersion, SiteId, submit_branch
from fedops.core.policy import decide, eligible
from fedops.core.status import LocalWork, OpenPull, Phase, SiteLine, StatusReport, next_command
from fedops.ports import Forge, Repository

VERDICT_CONTEXT = "fedops/verdict"


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
        repository.fetch()
    main = main_snapshot(repository)
    merged = merged_state(repository, main)
    counted = _Counted.of(main, merged)
    decision = decide(
        main.aggregation,
        tuple(counted.ready.values()),
        (),
        main.version,
        sites=main.sites,
        open_version_pull=None,
        now=now,
    )
    mine = _open_pulls(forge, main, pulls) if forge is not None else {}
    known = sorted(main.sites.sites, key=lambda s: (s != own, s))
    lines = tuple(_line(main, merged, counted, SiteId(s), mine.get(SiteId(s))) for s in known)
    work = _work(Work(root, main.federation.extension))
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
        work=work,
        pulls=len(pulls) if forge is not None else None,
        next_command=next((next_command(s, work, main.version.version) for s in lines if s.site == own), ""),
        faults=merged.faults,
    )


@dataclass(frozen=True)
class _Counted:
    """Sites by whether what they have on main counts for the next version."""

    ready: Mapping[SiteId, Submission]
    refused: Mapping[SiteId, Finding]
    silent: frozenset[SiteId]  # nothing on main

    @classmethod
    def of(cls, main: Snapshot, merged: MergedState) -> _Counted:
        unsigned = {e.submission.site for e in merged.unsigned}
        signed = [s for s in merged.submissions if s.site not in unsigned]
        use, excluded = eligible(signed, main.version, main.sites, main.aggregation)
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


def _open_pulls(forge: Forge, main: Snapshot, pulls: tuple[Pull, ...]) -> dict[SiteId, OpenPull]:
    """The open pull request of each site of the roster, with CI's last word on its head."""
    by_branch = {submit_branch(SiteId(s)): SiteId(s) for s in main.sites.sites}
    found: dict[SiteId, OpenPull] = {}
    for pull in pulls:
        site = by_branch.get(pull.branch)
        owned = site is not None and main.sites.site_of(pull.author.id) == site
        # Anybody can open a pull request from a branch of that name; the site's own is the one to show.
        if site is None or (site in found and not owned):
            continue
        state, text = forge.status(pull.head, VERDICT_CONTEXT) or (None, "")
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
