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
class Silence:
    """A site that has something to do, for longer than the federation puts up with, and has never sent a heartbeat.

    Attributes:
        version: that it was told to train on, by its oldest open signal; without one, the current version.
        since: when that version was made.
    """

    version: int
    since: dt.datetime


@dataclass(frozen=True)
class SiteLine:
    """Where one site is.

    Attributes:
        base_version: of its record on main, None if it has none.
        staleness: of that record, if it went into the next version.
        merged_at: when that record was merged, for one that is not used yet.
        reason: why the record does not count; of a site that is ready: why CI could not get its bytes.
        beat: its last heartbeat, if it has one.
        claimed_at: when the site says that it made that record, used or not.
    """

    site: SiteId
    phase: Phase
    base_version: int | None = None
    staleness: int | None = None
    merged_at: dt.datetime | None = None
    pull: OpenPull | None = None
    reason: Finding | None = None
    beat: Heartbeat | None = None
    claimed_at: dt.datetime | None = None
    silence: Silence | None = None

    @property
    def is_unavailable(self) -> bool:
        """Its merged submission would count, had CI got the bytes."""
        return self.phase == "ready" and self.reason is not None

    @property
    def stalled_since(self) -> dt.datetime | None:
        """Since when nothing was heard of it, if that is too long; None: it is not stalled, or nobody knows."""
        if self.beat is not None:
            return self.beat.at if self.beat.stalled else None
        return self.silence.since if self.silence is not None else None


@dataclass(frozen=True)
class LocalWork:
    """What lies in this clone's work folder.

    Attributes:
        pulled: newest version whose model is here.
        trained: newest version with a finished training.
        sha256: of that training's update, hex: what `fedops submit` would hand in.
        trained_at: when it ended; None: nobody noted it.
    """

    pulled: int | None
    trained: int | None
    sha256: str | None = None
    trained_at: dt.datetime | None = None


@dataclass(frozen=True)
class Blocked:
    """CI makes no version before a person has put this right.

    Tags of versions that nobody published, or a policy that asks for what is not computed.
    """

    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class StatusReport:
    """One look at the federation.

    Attributes:
        made_at: of the current version.
        final: the current version is the last one.
        ready: sites whose submission counts for the next version; without those whose bytes CI could not get.
        sites: this clone's own first, the others by id.
        own: this clone's site, if it has one.
        pulls: number of open pull requests; None: the forge was not asked.
        next_command: for the own site; empty: nothing to do but wait.
        faults: records on main that can never count; tags of versions that are missing, or that nobody published.
        held_by: number of the issue that keeps what is due from being proposed again, since leads rejected it.
        unavailable: sites whose submission would count, had CI got its bytes when it last tried.
    """

    name: str
    version: int
    model: str  # sha256 hex
    made_at: dt.datetime
    final: bool
    ready: tuple[SiteId, ...]
    trigger: Trigger
    decision: Decision | Blocked
    sites: tuple[SiteLine, ...]
    own: SiteId | None
    work: LocalWork
    pulls: int | None
    next_command: str
    faults: tuple[Finding, ...]
    held_by: int | None = None
    unavailable: tuple[SiteId, ...] = ()


def must_act(line: SiteLine) -> bool:
    """True if the site itself has something to do; False if it can only wait."""
    if line.phase == "open":
        return line.pull is None or line.pull.verdict == "failure"
    return line.phase in ("refused", "due", "new") or line.is_unavailable


def next_command(line: SiteLine, work: LocalWork, current: int) -> str:
    """What the site should run now; empty while it can only wait."""
    if not must_act(line):
        return ""
    handed_in = line.base_version if line.base_version is not None else -1
    if work.trained is not None and work.trained > handed_in:
        return "fedops submit"
    if line.is_unavailable and work.trained == handed_in == current:
        return "fedops submit"  # what it handed in is here: its bytes are uploaded again
    return "fedops train" if work.pulled == current else "fedops pull"


STALLED_HOURS = 24.0


def is_stalled(at: dt.datetime, trigger: Trigger, now: dt.datetime) -> bool:
    """True if a sign of life is older than the federation waits for a site: `max_wait_hours`, or a day if that is not set."""
    hours = STALLED_HOURS if trigger.max_wait_hours is None else trigger.max_wait_hours
    return (now - at).total_seconds() > 3600 * hours


def silence_of(line: SiteLine, told: Silence, trigger: Trigger, now: dt.datetime) -> Silence | None:
    """What the site was told last and did not do, if it has never sent a heartbeat and that is too long ago.

    Args:
        told: the version that it was told to train on, and when that was made.
    """
    silent = line.beat is None and must_act(line) and is_stalled(told.since, trigger, now)
    return told if silent else None
