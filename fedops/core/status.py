"""What `fedops status` says, as data: the federation, each site, and the next step of this clone's own site."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

from fedops.core.facts import Decision
from fedops.core.findings import Finding
from fedops.core.ids import SiteId
from fedops.core.settings import Trigger

# suspended · done: the federation is final · open: a pull request is open · ready: merged, counts for the next version ·
# refused: what is on main does not count, see the reason · due: its last submission was used · new: never handed in.
Phase = Literal["suspended", "done", "open", "ready", "refused", "due", "new"]


@dataclass(frozen=True)
class OpenPull:
    """A site's open pull request.

    Attributes:
        verdict: "success" | "failure" | "pending", or None: no run has looked at this head yet.
        text: what the verdict says in words; of CI, but shown as text of others.
        owned: its author is an account of the site; False: somebody only claims to be.
    """

    number: int
    verdict: str | None
    text: str
    opened_at: dt.datetime
    owned: bool


@dataclass(frozen=True)
class Heartbeat:
    """What a site last said of itself; only claimed, and advisory.

    Attributes:
        version: that it works on, or has handed in an update on.
        state: "pulling", "training", "submitting" or "waiting", but shown as text of others.
        at: when, by the site's own clock.
        stalled: nothing was heard since, for longer than the federation puts up with.
    """

    version: int
    state: str
    at: dt.datetime
    stalled: bool


@dataclass(frozen=True)
class SiteLine:
    """Where one site is.

    Attributes:
        base_version: of its record on main, None if it has none.
        staleness: of that record, if it went into the next version.
        merged_at: when that record was merged, for one that is not used yet.
        reason: why the record does not count.
        beat: its last heartbeat, if it has one.
    """

    site: SiteId
    phase: Phase
    base_version: int | None = None
    staleness: int | None = None
    merged_at: dt.datetime | None = None
    pull: OpenPull | None = None
    reason: Finding | None = None
    beat: Heartbeat | None = None


@dataclass(frozen=True)
class LocalWork:
    """What lies in this clone's work folder.

    Attributes:
        pulled: newest version whose model is here.
        trained: newest version with a finished training.
    """

    pulled: int | None
    trained: int | None


@dataclass(frozen=True)
class StatusReport:
    """One look at the federation.

    Attributes:
        made_at: of the current version.
        final: the current version is the last one.
        ready: sites whose submission counts for the next version.
        sites: this clone's own first, the others by id.
        own: this clone's site, if it has one.
        pulls: number of open pull requests; None: the forge was not asked.
        next_command: for the own site; empty: nothing to do but wait.
        faults: records on main that can never count; a current version that has lost its tag.
    """

    name: str
    version: int
    model: str  # sha256 hex
    made_at: dt.datetime
    final: bool
    ready: tuple[SiteId, ...]
    trigger: Trigger
    decision: Decision
    sites: tuple[SiteLine, ...]
    own: SiteId | None
    work: LocalWork
    pulls: int | None
    next_command: str
    faults: tuple[Finding, ...]


def next_command(line: SiteLine, work: LocalWork, current: int) -> str:
    """What the site should run now; empty while it can only wait."""
    if line.phase in ("suspended", "done", "ready"):
        return ""
    if line.phase == "open" and line.pull is not None and line.pull.verdict != "failure":
        return ""
    handed_in = line.base_version if line.base_version is not None else -1
    if work.trained is not None and work.trained > handed_in:
        return "fedops submit"
    return "fedops train" if work.pulled == current else "fedops pull"


STALLED_HOURS = 24.0


def is_stalled(at: dt.datetime, trigger: Trigger, now: dt.datetime) -> bool:
    """True if a heartbeat is older than the federation waits for a site: `max_wait_hours`, or a day if that is not set."""
    hours = STALLED_HOURS if trigger.max_wait_hours is None else trigger.max_wait_hours
    return (now - at).total_seconds() > 3600 * hours
