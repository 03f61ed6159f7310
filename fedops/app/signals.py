"""Tell each site that must train: one open issue per addressed site for the current version."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedops.app.allowance import KEPT, Allowance
from fedops.app.context import Context
from fedops.app.counted_forge import counted
from fedops.app.merged import MergedState
from fedops.app.snapshot import Snapshot, parse_time
from fedops.core.facts import Issue
from fedops.core.findings import Finding, finding, slug_of
from fedops.core.ids import BlobId, SiteId, record_path
from fedops.core.plan import CloseSignal, Signal, Step, marker_in
from fedops.core.policy import NEVER, eligible, overtaken
from fedops.core.records import VersionRecord
from fedops.core.signals import SIGNAL_LABELS, plan_signals, signal_of
from fedops.render.markdown import signal_body

_CLOCKS_DIFFER = dt.timedelta(days=1)
# What a site can do where the catalogue's words are CI's.
_WANTED = {"auth_failed": "a repository that CI may read", "registry_unavailable": "a store that answers CI"}


@dataclass(frozen=True)
class OnMain:
    """A site's record on main, as far as it matters whether it was overtaken."""

    site: SiteId
    base_version: int
    record_blob: BlobId


@dataclass(frozen=True)
class Signalled:
    """Attributes:
    texts: what was done, in words.
    left: something is left to the next run.
    """

    texts: tuple[str, ...]
    left: bool


def signal(
    ctx: Context,
    main: Snapshot,
    merged: MergedState,
    skipped: Mapping[BlobId, str],
    allowance: Allowance | None = None,
) -> Signalled:
    """Open and close signal issues as the current version asks for, as far as the allowance goes.

    Args:
        skipped: record blobs whose bytes this run could not use, with the slug that says why.
        allowance: what is left of the run; None: a job of its own, which has what pull requests leave.
    """
    allowance = allowance or Allowance(ctx.clock.now(), writes=KEPT)
    issues: tuple[Issue, ...] = (
        *ctx.forge.issues(SIGNAL_LABELS, open=True),
        *ctx.forge.issues(SIGNAL_LABELS, open=False, since=_told_since(main, ctx.clock.now())),
    )
    waiting = waiting_sites(main, merged, skipped)
    steps = plan_signals(main.version, waiting, main.sites, issues, main.aggregation, body=signal_body)
    forge, done = counted(ctx, allowance).forge, list[str]()
    for step in in_order(steps, issues):
        if not allowance.may_write():
            return Signalled(tuple(done), left=True)
        if isinstance(step, Signal):
            issue = forge.ensure_issue(step.marker, step.title, step.body, step.labels)
            done.append(f"#{issue.number}: {step.title}")
        else:
            forge.close_issue(step.number)
            done.append(f"#{step.number}: closed")
    return Signalled(tuple(done), left=False)


def in_order(steps: Iterable[Step], issues: Sequence[Issue]) -> list[Signal | CloseSignal]:
    """Site by site, its signal before its closings; who was told the oldest version first.

    So a run that may not write all starves nobody, even if each run has a newer version to tell of.
    """
    told = {issue.number: signal_of(marker_in(issue.body)) for issue in issues}
    last: dict[SiteId, int] = {}
    for site, version in filter(None, told.values()):
        last[site] = max(version, last.get(site, NEVER))

    def key(step: Signal | CloseSignal) -> tuple[int, SiteId, bool]:
        of = told.get(step.number) if isinstance(step, CloseSignal) else None
        site = step.site if isinstance(step, Signal) else of[0] if of is not None else SiteId("")
        return last.get(site, NEVER), site, isinstance(step, CloseSignal)

    return sorted((step for step in steps if isinstance(step, Signal | CloseSignal)), key=key)


def _told_since(main: Snapshot, now: dt.datetime) -> dt.datetime | None:
    """Before then nobody can have told of the current version; None if older signals matter too.

    A federation of many sites closes thousands of issues over the years, and a forge may allow a thousand requests an hour.
    """
    if main.aggregation.signals.to == "stale":
        return None
    try:
        decided_at = parse_time(main.version.witness.decided_at)
        # Decided by a clock that was far ahead: nobody knows when.
        return decided_at - _CLOCKS_DIFFER if decided_at <= now else None
    except (ValueError, OverflowError):  # a witness is what somebody wrote; `fedops verify` says what is wrong with it
        return None


def waiting_sites(main: Snapshot, merged: MergedState, skipped: Mapping[BlobId, str]) -> dict[SiteId, Finding | None]:
    """Active sites of which nothing usable is on main, with the reason: None for one that has handed in nothing yet.

    Args:
        skipped: as in `signal`.
    """
    _, excluded = eligible(merged.fit(), main.version, main.sites, main.aggregation, taken=merged.taken())
    reasons = {SiteId(f.detail["site"]): f for f in merged.faults if f.detail is not None}
    reasons |= {e.submission.site: e.finding for e in (*excluded, *merged.refused)}
    unused = dict(skipped) | _unused(main.version)
    out: dict[SiteId, Finding | None] = {}
    for site in main.sites.active():
        blobs = main.site_blobs(site)
        record = merged.records.get(site)
        if site in reasons:
            out[site] = reasons[site]
        elif record is None or blobs is None:
            out[site] = None
        elif blobs[0] in unused:
            slug = slug_of(unused[blobs[0]])
            out[site] = finding(slug, record_path(site), expected=_WANTED.get(slug), detail={"site": site})
        elif overtaken(OnMain(site, record.base_version, blobs[0]), main.version):
            out[site] = finding("overtaken", record_path(site), detail={"site": site})
    return out


def _unused(version: VersionRecord) -> dict[BlobId, str]:
    """Record blobs that the version read and did not use, with the slug that says why."""
    out = {BlobId(e.record_blob): e.slug for e in version.excluded}
    return out | {BlobId(u.record_blob): u.slug for u in version.witness.unavailable}
