"""What a site's loop does next, decided from one look at main, at the forge and at the clone's own work; all pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

from fedops.core.findings import Finding
from fedops.core.status import OpenPull, SiteLine

# suspended: by a lead · open: CI has the pull request · quorum: merged, counts for the next version · rejected: CI said
# no · refused: `submit` said no, nothing was sent · unusable: merged, but it does not count · closed: handed in, and
# the pull request was closed without being merged.
PauseReason = Literal["suspended", "open", "quorum", "rejected", "refused", "unusable", "closed"]
EndReason = Literal["final", "enough", "unknown"]
BeatState = Literal["pulling", "training", "submitting", "waiting"]


@dataclass(frozen=True)
class SiteView:
    """What one look shows of this clone's site.

    Attributes:
        current: number of the current version of fetched main.
        final: it is the last one.
        line: where the site is; its pull request is one of its own. None: the roster of main does not have the site.
        consumed: base version of its last submission that a version used or excluded; -1: none.
        staleness_max: the policy's; None: no limit.
        pull_base: base version that the open pull request's record says; None: no pull request, or no readable record.
        pulled: the current version's model is in the work folder.
        trained: versions with a finished training here -> True if that very training was handed in.
        refused: versions whose update `submit` refuses by main as it is, and why.
        again: one more training is wanted where the update on the current version was turned down.
        left: how many updates this run may still hand in; None: any number.
    """

    current: int
    final: bool
    line: SiteLine | None
    consumed: int
    staleness_max: int | None
    pulled: bool
    pull_base: int | None = None
    trained: Mapping[int, bool] = field(default_factory=dict)
    refused: Mapping[int, tuple[Finding, ...]] = field(default_factory=dict)
    again: bool = False
    left: int | None = None


@dataclass(frozen=True)
class PullModel:
    version: int


@dataclass(frozen=True)
class TrainOn:
    """Train on a version; `again`: although there is a result."""

    version: int
    again: bool = False


@dataclass(frozen=True)
class HandIn:
    """Submit the finished training on a version."""

    version: int


@dataclass(frozen=True)
class Pause:
    """Nothing to do until something changes on main or on the forge.

    Attributes:
        version: the current one.
        pull: the open pull request that is waited for, or that was rejected.
        findings: why the update was refused or does not count.
    """

    reason: PauseReason
    version: int
    pull: OpenPull | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class End:
    reason: EndReason
    version: int


Step = PullModel | TrainOn | HandIn | Pause | End


# ---------------------------------------------------------------- what is told on the way, besides Pause


@dataclass(frozen=True)
class PulledModel:
    version: int
    sha256: str  # hex
    size: int  # bytes


@dataclass(frozen=True)
class Trained:
    version: int
    num_examples: int
    metrics: Mapping[str, float]
    newest: int  # above the version: a newer one came out meanwhile


@dataclass(frozen=True)
class HandedIn:
    """Outcome as `submit` says it: "opened", "moved", or found "open", "merged", "used"."""

    version: int
    outcome: str
    pull: int | None


@dataclass(frozen=True)
class Refusal:
    """Why a training or an update of this site is not taken; nothing was sent."""

    version: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Replaced:
    """Another clone of the site handed in too: main has that update on the version, and not the one of this clone."""

    version: int


@dataclass(frozen=True)
class Offline:
    """Origin, forge or store cannot be reached; it is tried again."""

    message: str


@dataclass(frozen=True)
class Online:
    """They answer again."""


@dataclass(frozen=True)
class Unusable:
    """A file of main cannot be used; a lead has to correct it, and it is looked at again."""

    message: str
    hint: str


@dataclass(frozen=True)
class Usable:
    """All files of main can be used again."""


Told = PulledModel | Trained | HandedIn | Refusal | Replaced | Offline | Online | Unusable | Usable | Pause


def next_step(view: SiteView) -> Step:
    """Say what the site does now: in short, hand in what is finished, else wait for what is handed in, else train.

    A finished training is never repeated and not lost: it is handed in as long as it counts, on an older version too.
    A new training is always on the current version, however many there were in between. What was turned down (by CI,
    by `submit`, or since it does not count) is not handed in again and not trained again on the same version, unless
    the caller asks for it once.
    """
    line, current = view.line, view.current
    if view.final:
        return End("final", current)
    if line is None:
        return End("unknown", current)
    if line.phase == "suspended":
        return Pause("suspended", current)
    if view.left == 0:
        return End("enough", current)
    if line.phase == "open" and not _is_rejected(line):
        return Pause("open", current, line.pull)
    # With a reason it is one whose bytes the current version could not have: the site trains anew.
    if line.phase == "ready" and line.reason is None:
        return Pause("quorum", current)
    unsent = _unsent(view, line)
    if unsent is not None:
        return HandIn(unsent)
    turned_down = _turned_down(view, line)
    if turned_down is not None:
        return TrainOn(current, again=True) if view.again else turned_down
    return TrainOn(current) if view.pulled else PullModel(current)


def _is_rejected(line: SiteLine) -> bool:
    return line.pull is not None and line.pull.verdict == "failure"


def _unsent(view: SiteView, line: SiteLine) -> int | None:
    """The newest version with a training that still has to be handed in and would count.

    It may not be older than what the site handed in last, nor too stale.
    """
    lowest = max(view.consumed + 1, min(line.base_version or 0, view.current), min(view.pull_base or 0, view.current))
    if view.staleness_max is not None:
        lowest = max(lowest, view.current - view.staleness_max)
    wanted = [version for version, sent in view.trained.items() if not sent and version not in view.refused]
    return max((version for version in wanted if lowest <= version <= view.current), default=None)


def _turned_down(view: SiteView, line: SiteLine) -> Pause | None:
    """Why the update on the current version is not taken; None if there is none yet."""
    current = view.current
    if current in view.refused:
        return Pause("refused", current, findings=view.refused[current])
    if line.phase == "open" and (view.pull_base == current or current in view.trained):
        return Pause("rejected", current, line.pull)
    if line.phase == "refused" and line.base_version == current:
        return Pause("unusable", current, findings=(line.reason,) if line.reason is not None else ())
    return Pause("closed", current) if current in view.trained else None


def beat_state(step: PullModel | TrainOn | HandIn | Pause) -> BeatState:
    """What a site's heartbeat says while it takes a step."""
    match step:
        case PullModel():
            return "pulling"
        case TrainOn():
            return "training"
        case HandIn():
            return "submitting"
        case Pause():
            return "waiting"
        case _:
            assert_never(step)
