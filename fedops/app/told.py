"""What the forge says of a federation, as `status` shows it: open pull requests, heartbeats, signals, holds."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedops.app.snapshot import Snapshot
from fedops.core.approvals import HOLD_LABELS, held_by
from fedops.core.errors import FedopsError
from fedops.core.facts import Issue, Pull
from fedops.core.forge_settings import VERDICT
from fedops.core.ids import Digest, SiteId, is_version_branch, submit_branch
from fedops.core.signals import SIGNAL_LABELS, marker_in, markers_in, signal_of
from fedops.core.status import Heartbeat, OpenPull, is_stalled
from fedops.ports import Forge

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenSignal:
    """An open issue that tells a site to train.

    Attributes:
        version: to train on.
        reasons: slugs, why what it handed in before is not used; empty for a first signal.
    """

    site: SiteId
    version: int
    number: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Told:
    """What the forge says.

    Attributes:
        pulls: number of all open pull requests; None: it was not asked.
        mine: the sites' open pull requests.
        beats: None: nobody knows who was heard.
        version: number of the pull request that brings the next version, on which the federation waits.
        signals: by number.
        holds: inputs of a version that leads rejected -> number of the issue that keeps it from being proposed again.
    """

    pulls: int | None = None
    mine: Mapping[SiteId, OpenPull] = field(default_factory=dict)
    beats: Mapping[SiteId, Heartbeat] | None = None
    version: int | None = None
    signals: tuple[OpenSignal, ...] = ()
    holds: Mapping[Digest, int] = field(default_factory=dict)


def ask(forge: Forge, main: Snapshot, pulls: Sequence[Pull], now: dt.datetime) -> Told:
    """Ask for everything but the open pull requests.

    Args:
        pulls: the open ones, listed before main was fetched.
        now: aware; heartbeats are measured against it.
    """
    issues = _issues(forge)
    return Told(
        len(pulls),
        open_pulls(forge, main, pulls, main.sites.sites),
        _beats(forge, main, now),
        _version_pull(forge, main, pulls),
        _signals(issues),
        _holds(issues),
    )


def open_pulls(forge: Forge, main: Snapshot, pulls: Sequence[Pull], sites: Iterable[str]) -> dict[SiteId, OpenPull]:
    """The open pull request of each of these sites, with CI's last word on its head."""
    by_branch = {submit_branch(SiteId(s)): SiteId(s) for s in sites}
    found: dict[SiteId, OpenPull] = {}
    heads = {pull.head for pull in pulls if pull.branch in by_branch}
    verdicts = forge.statuses(heads, VERDICT) if heads else {}
    for pull in pulls:
        site = by_branch.get(pull.branch)
        owned = site is not None and main.sites.site_of(pull.author.id) == site
        # Anybody can open a pull request from a branch of that name; the site's own is the one to show.
        if site is None or (site in found and not owned):
            continue
        state, text = verdicts.get(pull.head, (None, ""))
        found[site] = OpenPull(pull.number, state, text, pull.opened_at, owned)
    return found


def _version_pull(forge: Forge, main: Snapshot, pulls: Sequence[Pull]) -> int | None:
    """The pull request that brings the next version; None: there is none that counts."""
    if not any(is_version_branch(pull.branch) for pull in pulls):
        return None
    # NOTE: here, since it imports numpy, for which a command that reads no model does not wait.
    from fedops.app.version_pulls import look

    counting = look(main.repository, forge, main, pulls).counting
    return counting.pull.number if counting is not None else None


def _beats(forge: Forge, main: Snapshot, now: dt.datetime) -> dict[SiteId, Heartbeat] | None:
    """The sites' heartbeats; None if they cannot be read, since nothing depends on them."""
    try:
        beats = forge.beats()
    except FedopsError as e:
        _log.warning("heartbeats left out: %s", e.message)
        return None
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


def _issues(forge: Forge) -> Sequence[Issue]:
    """The open issues of fedops, by one question; none if they cannot be read: a token may see pull requests alone."""
    try:
        return forge.issues(SIGNAL_LABELS & HOLD_LABELS)
    except FedopsError as e:
        _log.warning("signals left out: %s", e.message)
        return ()


def _signals(issues: Sequence[Issue]) -> tuple[OpenSignal, ...]:
    """The train signals; as for CI, an issue without the labels is none."""
    found = []
    for issue in issues:
        told = signal_of(marker_in(issue.body)) if issue.labels >= SIGNAL_LABELS else None
        if told is not None:
            reasons = tuple(m.key for m in markers_in(issue.body) if m.kind == "reason")
            found.append(OpenSignal(*told, issue.number, reasons))
    return tuple(sorted(found, key=lambda one: one.number))


def _holds(issues: Sequence[Issue]) -> dict[Digest, int]:
    marks = [(held_by(marker_in(issue.body)), issue.number) for issue in issues if issue.labels >= HOLD_LABELS]
    return {mark[1]: number for mark, number in marks if mark is not None}
