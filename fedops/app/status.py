"""Who is where and what the federation waits for, from one look at main and at the open pull requests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedops.app.merged import MergedState, merge_warnings, merged_state
from fedops.app.signals import waiting_sites
from fedops.app.snapshot import Snapshot, main_snapshot, parse_time
from fedops.app.told import Told, ask, open_pulls
from fedops.app.why_waits import Tags, bytes_faults, outlook, tags_of, unavailable_rules
from fedops.app.work import Trained, Work
from fedops.core.byte_faults import UNAVAILABLE
from fedops.core.facts import Pull, Submission
from fedops.core.findings import Finding, finding
from fedops.core.ids import GlobalVersion, SiteId
from fedops.core.policy import eligible, trigger_of
from fedops.core.status import (
    LocalWork,
    OpenPull,
    Phase,
    Silence,
    SiteLine,
    StatusReport,
    must_act,
    next_command,
    silence_of,
)
from fedops.ports import Forge, Repository


def status(
    repository: Repository,
    forge: Forge | None,
    root: Path,
    *,
    own: SiteId | None,
    now: dt.datetime,
) -> StatusReport:
    """Read main, the open pull requests and the open signals, and say where everybody is.

    Costs one listing of main's tree and a walk back to the oldest merge that is not used yet, whatever the history. No
    byte of a model is asked for: what CI could not get it has told the site.

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
    tags = tags_of(main)
    if tags.strays and forge is not None:
        # NOTE: looked at twice, since a fetch may see the tag of a push that is under way before it sees its main.
        repository.fetch(pulls=())
        main = main_snapshot(repository)
        tags = tags_of(main)
    told = ask(forge, main, pulls, now) if forge is not None else Told()
    return _report(main, tags, Work(root, main.federation.extension), told, own, now)


def _report(main: Snapshot, tags: Tags, work: Work, told: Told, own: SiteId | None, now: dt.datetime) -> StatusReport:
    """Put together what was read."""
    merged = merged_state(main.repository, main)
    counted = _Counted.of(main, merged)
    faults = {s: f for s, f in counted.refused.items() if s in counted.ready} | bytes_faults(main, counted.ready, told)
    counted = counted.without(faults)
    rules = unavailable_rules(main)
    seen = outlook(main, merged, faults, told, (*tags.strays, *rules), now)
    known = sorted(main.sites.sites, key=lambda s: (s != own, s))
    lines = [
        replace(_line(main, merged, counted, site, told.mine.get(site)), beat=(told.beats or {}).get(site))
        for site in map(SiteId, known)
    ]
    made_at = _made_at(main, tags)
    if told.beats is not None:
        lines = _with_silence(main, lines, told, made_at, now)
    local = _work(work)
    return StatusReport(
        name=main.federation.name,
        version=main.version.version,
        model=main.version.model.sha256,
        made_at=made_at,
        final=main.version.status == "final",
        ready=tuple(site for site in counted.ready if site not in counted.refused),
        trigger=trigger_of(main.aggregation),
        decision=seen.decision,
        sites=tuple(lines),
        own=own,
        work=local,
        pulls=told.pulls,
        next_command=next((next_command(s, local, main.version.version) for s in lines if s.site == own), ""),
        faults=(*_untagged(main, tags), *tags.strays, *rules, *merged.faults, *merge_warnings(merged, now)),
        held_by=seen.held_by,
        unavailable=tuple(site for site in counted.ready if site in counted.refused),
    )


def _untagged(main: Snapshot, tags: Tags) -> tuple[Finding, ...]:
    return (finding("tag_missing", GlobalVersion(main.version.version).tag),) if tags.made is None else ()


def own_line(forge: Forge, main: Snapshot, pulls: Sequence[Pull], site: SiteId) -> SiteLine | None:
    """Where one site is, None if it is not on the roster; a pull request that only claims to be its own is left out.

    Args:
        main: fetched after the open pull requests `pulls` were listed, so that one merged in between is in either.
    """
    if site not in main.sites.sites:
        return None
    pull = open_pulls(forge, main, pulls, [site]).get(site)
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

    def without(self, faults: Mapping[SiteId, Finding]) -> _Counted:
        """The same, with what is wrong with bytes: such a site stays ready, with a reason, if they may come back."""
        ready = {s: one for s, one in self.ready.items() if s not in faults or faults[s].slug in UNAVAILABLE}
        return _Counted(ready, {**self.refused, **faults}, self.silent)


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
        claimed_at=_claimed(record.created_at) if record is not None else None,
    )


def _claimed(created_at: str) -> dt.datetime | None:
    """A record's own time; None for the leap second, which is legal and which Python cannot say."""
    try:
        return dt.datetime.fromisoformat(created_at)
    except ValueError:
        return None


def _with_silence(
    main: Snapshot, lines: Iterable[SiteLine], told: Told, made_at: dt.datetime, now: dt.datetime
) -> list[SiteLine]:
    """The lines, with who was told long ago and has never sent a heartbeat.

    Args:
        made_at: of the current version.
    """
    current, trigger = Silence(main.version.version, made_at), main.aggregation.trigger
    oldest: dict[SiteId, int] = {}
    for signal in told.signals:
        oldest[signal.site] = min(signal.version, oldest.get(signal.site, signal.version))
    mute = [line for line in lines if line.beat is None and must_act(line)]
    dates = _dates(
        main, {oldest[line.site] for line in mute if oldest.get(line.site, current.version) < current.version}
    )
    since = {line.site: dates.get(oldest.get(line.site, current.version), current) for line in mute}
    return [replace(line, silence=silence_of(line, since.get(line.site, current), trigger, now)) for line in lines]


def _dates(main: Snapshot, numbers: Collection[int]) -> dict[int, Silence]:
    """When earlier versions were made, by one listing of all tags."""
    repository = main.repository
    refs = repository.refs_below("refs/tags") if numbers else {}
    named = {number: refs.get(f"refs/tags/{GlobalVersion(number).tag}") for number in numbers}
    commits = {number: repository.resolve(name) for number, name in named.items() if name is not None}
    return {
        n: Silence(n, repository.commit(commit).committed_at) for n, commit in commits.items() if commit is not None
    }


def _made_at(main: Snapshot, tags: Tags) -> dt.datetime:
    """When the current version was made: the date of the commit that its tag names, or what its record says."""
    if tags.made is None:
        return parse_time(main.version.witness.decided_at)
    return main.repository.commit(tags.made).committed_at


def _work(work: Work) -> LocalWork:
    pulled = max(work.pulled(), default=None)
    results = [done for n in work.versions() if (done := work.trained(n)) is not None]
    if not results:
        return LocalWork(pulled, None)
    newest = max(results, key=lambda done: done.base_version)
    return LocalWork(pulled, newest.base_version, newest.sha256, _ended(work, newest))


def _ended(work: Work, done: Trained) -> dt.datetime | None:
    """When a training ended, as the journal says."""
    lines = work.noted_of(done.site, done.base_version)
    said = (line.get("at") for line in lines if (line.get("step"), line.get("sha256")) == ("trained", done.sha256))
    return next((_claimed(at) for at in said if isinstance(at, str)), None)
