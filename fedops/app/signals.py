"""Tell each site that must train: one open issue per addressed site for the current version."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from fedops.app.context import Context
from fedops.app.merged import MergedState
from fedops.app.snapshot import Snapshot, parse_time
from fedops.core.facts import Issue
from fedops.core.findings import Finding, finding, slug_of
from fedops.core.ids import BlobId, SiteId, record_path
from fedops.core.plan import CloseSignal, Signal
from fedops.core.policy import eligible, overtaken
from fedops.core.records import VersionRecord
from fedops.core.signals import SIGNAL_LABELS, plan_signals
from fedops.render.markdown import signal_body

_CLOCKS_DIFFER = dt.timedelta(days=1)


@dataclass(frozen=True)
class OnMain:
    """A site's record on main, as far as it matters whether it was overtaken."""

    site: SiteId
    base_version: int
    record_blob: BlobId


def signal(ctx: Context, main: Snapshot, merged: MergedState, skipped: Mapping[BlobId, str]) -> list[str]:
    """Open and close signal issues as the current version asks for; returns what was done, in words.

    Args:
        skipped: record blobs whose bytes this run could not use, with the slug that says why.
    """
    issues: tuple[Issue, ...] = (
        *ctx.forge.issues(SIGNAL_LABELS, open=True),
        *ctx.forge.issues(SIGNAL_LABELS, open=False, since=_told_since(main, ctx.clock.now())),
    )
    waiting = waiting_sites(main, merged, skipped)
    done: list[str] = []
    for step in plan_signals(main.version, waiting, main.sites, issues, main.aggregation, body=signal_body):
        if isinstance(step, Signal):
            issue = ctx.forge.ensure_issue(step.marker, step.title, step.body, step.labels)
            done.append(f"#{issue.number}: {step.title}")
        elif isinstance(step, CloseSignal):
            ctx.forge.close_issue(step.number)
            done.append(f"#{step.number}: closed")
    return done


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
            out[site] = finding(slug_of(unused[blobs[0]]), record_path(site), detail={"site": site})
        elif overtaken(OnMain(site, record.base_version, blobs[0]), main.version):
            out[site] = finding("overtaken", record_path(site), detail={"site": site})
    return out


def _unused(version: VersionRecord) -> dict[BlobId, str]:
    """Record blobs that the version read and did not use, with the slug that says why."""
    out = {BlobId(e.record_blob): e.slug for e in version.excluded}
    return out | {BlobId(u.record_blob): u.slug for u in version.witness.unavailable}
