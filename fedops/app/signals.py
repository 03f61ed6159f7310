"""Tell each site that must train: one open issue per addressed site for the current version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedops.app.context import Context
from fedops.app.merged import MergedState
from fedops.app.snapshot import Snapshot
from fedops.core.facts import Issue
from fedops.core.findings import Finding, finding, slug_of
from fedops.core.ids import BlobId, SiteId, record_path
from fedops.core.plan import CloseSignal, Signal
from fedops.core.policy import eligible, overtaken
from fedops.core.signals import SIGNAL_LABELS, plan_signals
from fedops.render.markdown import signal_body


@dataclass(frozen=True)
class OnMain:
    """A site's record on main, as far as it matters whether it was overtaken."""

    site: SiteId
    base_version: int
    record_blob: BlobId


def signal(ctx: Context, main: Snapshot, merged: MergedState, gone: Mapping[BlobId, str]) -> list[str]:
    """Open and close signal issues as the current version asks for; returns what was done, in words.

    Args:
        gone: record blobs whose bytes this run could not get, with the slug that says why.
    """
    issues: tuple[Issue, ...] = (
        *ctx.forge.issues(SIGNAL_LABELS, open=True),
        *ctx.forge.issues(SIGNAL_LABELS, open=False),
    )
    steps = plan_signals(
        main.version, waiting_sites(main, merged, gone), main.sites, issues, main.aggregation, body=signal_body
    )
    done: list[str] = []
    for step in steps:
        if isinstance(step, Signal):
            issue = ctx.forge.ensure_issue(step.marker, step.title, step.body, step.labels)
            done.append(f"#{issue.number}: {step.title}")
        elif isinstance(step, CloseSignal):
            ctx.forge.close_issue(step.number)
            done.append(f"#{step.number}: closed")
    return done


def waiting_sites(main: Snapshot, merged: MergedState, gone: Mapping[BlobId, str]) -> dict[SiteId, Finding | None]:
    """Active sites of which nothing usable is on main, with the reason: None for one that has handed in nothing yet."""
    faults = {f.detail["site"]: f for f in merged.faults if f.detail is not None}
    unavailable = {s.site: gone[s.record_blob] for s in merged.submissions if s.record_blob in gone}
    unsigned = {e.submission.site: e.finding for e in merged.unsigned}
    _, by_rule = eligible(merged.submissions, main.version, main.sites, main.aggregation)
    left_out = {e.submission.site: e.finding for e in by_rule} | unsigned
    out: dict[SiteId, Finding | None] = {}
    for site in main.sites.active():
        if site in faults:
            out[site] = faults[site]
        elif site not in merged.records:
            out[site] = None
        elif site in unavailable:
            out[site] = _reason(site, unavailable[site])
        elif site in left_out:
            out[site] = left_out[site]
        elif (reason := _used_up(main, merged, site)) is not None:
            out[site] = reason
    return out


def _used_up(main: Snapshot, merged: MergedState, site: SiteId) -> Finding | None:
    """Why a site's record on main will not be used, if the current version says so."""
    record = main.version
    blobs = main.site_blobs(site)
    assert blobs is not None, "a site with a readable record has both files"
    for entry in record.excluded:
        if entry.site == site and entry.record_blob == blobs[0]:
            return _reason(site, entry.slug)
    if overtaken(OnMain(site, merged.records[site].base_version, blobs[0]), record):
        return finding("overtaken", record_path(site), detail={"site": site})
    return None


def _reason(site: SiteId, slug: str) -> Finding:
    return finding(slug_of(slug), record_path(site), detail={"site": site})
