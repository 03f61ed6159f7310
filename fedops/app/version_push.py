"""The push of a version's commit and tag, and what can come of it."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedops.app.announce import announce
from fedops.app.context import Context
from fedops.app.snapshot import Snapshot, is_ruled, main_snapshot
from fedops.core.errors import GitError
from fedops.core.facts import Pull, RefUpdate
from fedops.core.ids import BlobId, CommitId, Digest, GlobalVersion, repository_of
from fedops.core.plan import Publish, plan_version
from fedops.core.records import VersionRecord, model_pointer
from fedops.ports import Repository

PUSH_SECONDS = 60.0


@dataclass(frozen=True)
class Published:
    """This run's push won."""

    record: VersionRecord
    commit: CommitId


@dataclass(frozen=True)
class Lost:
    """Another run published this version first."""


@dataclass(frozen=True)
class Replan:
    """What the version rests on changed: decide again.

    Attributes:
        gone: record blob -> slug of an input that was lost before it could be archived.
    """

    gone: dict[BlobId, str]


@dataclass(frozen=True)
class Opened:
    """The version waits in a pull request for the leads' review."""

    record: VersionRecord
    pull: Pull


Outcome = Published | Opened | Lost | Replan


def push_version(
    ctx: Context, pinned: Snapshot, record: VersionRecord, at: dt.datetime, *, jitter: Callable[[], float]
) -> Outcome:
    """Push commit and tag; re-parent while only paths moved that the version does not depend on."""

    def attempt() -> Outcome | None:
        now = main_snapshot(ctx.repository)
        state = standing(pinned, now, record.version)
        return state or push_once(ctx, pinned, record, [now.commit], at)

    return raced(ctx, record.version, attempt, jitter=jitter)


def raced(ctx: Context, version: int, attempt: Callable[[], Outcome | None], *, jitter: Callable[[], float]) -> Outcome:
    """Try a push again, on fetched main, as long as others are faster.

    Args:
        attempt: None: main moved under it.

    Raises:
        GitError: temporary, it lost for a minute.
    """
    started = ctx.clock.now()
    wait = 0.05
    while True:
        outcome = attempt()
        if outcome is not None:
            return outcome
        if (ctx.clock.now() - started).total_seconds() > PUSH_SECONDS:
            raise GitError(
                f"v{version}: the push of main and tag lost its race for {PUSH_SECONDS:.0f} s",
                hint="run `fedops ci reconcile` again; nothing was published",
                cause="temporary",
            )
        ctx.clock.sleep(wait * (0.5 + jitter()))
        wait = min(2 * wait, 2.0)
        ctx.repository.fetch(pulls=())


def standing(pinned: Snapshot, now: Snapshot, version: int) -> Lost | Replan | None:
    """Whether the version can still be published on top of the present main."""
    if now.version.version >= version:
        return Lost()
    if (
        now.repository.versions(above=version - 1)
        or _ruled(now) != _ruled(pinned)
        or not on_line(now.repository, pinned.commit, now.commit)
    ):
        return Replan({})
    return None


def _ruled(here: Snapshot) -> dict[str, BlobId]:
    return {p: e.blob for p, e in here.files.items() if is_ruled(p)}


def on_line(repository: Repository, commit: CommitId, tip: CommitId) -> bool:
    """True if the commit is on the tip's first-parent line: not if main was rewound, or merged into something else."""
    try:
        deque(repository.commits(commit, tip), maxlen=0)
    except GitError as e:
        if e.slug != "lineage_broken":
            raise
        return False
    return True


def push_once(
    ctx: Context,
    pinned: Snapshot,
    record: VersionRecord,
    parents: Sequence[CommitId],
    at: dt.datetime,
    *,
    reason: str = "",
    trailers: Mapping[str, object] | None = None,
) -> Published | None:
    """Push a version's commit and tag at once, then set the registry's display tag; None: main moved.

    Args:
        parents: the tip of main, then what else the commit merges.
        reason, trailers: as in `plan_version`.
    """
    repository, extension = ctx.repository, pinned.federation.extension
    pointer = model_pointer(record, extension)
    step: Publish = plan_version(
        record, pointer, parents[0], extension=extension, at=at, reason=reason, trailers=trailers
    )
    commit = repository.write_commit(parents, step.files, step.commit_message, at=at)
    tag = repository.write_tag(step.tag, commit, step.tag_message)
    won = repository.push(
        [
            RefUpdate(f"refs/heads/{pinned.federation.branch}", parents[0], commit),
            RefUpdate(f"refs/tags/{step.tag}", None, tag),
        ]
    )
    if not won:
        return None
    ctx.global_store(pinned.federation).tag(
        repository_of(None), Digest(record.model.manifest), GlobalVersion(record.version).short
    )
    announce(ctx, pinned.federation, record)
    return Published(record, commit)


def display_tag(ctx: Context, main: Snapshot, record: VersionRecord) -> bool:
    """Have the registry's display tag of a version name what git says; True if it did not."""
    store, digest = ctx.global_store(main.federation), Digest(record.model.manifest)
    short = GlobalVersion(record.version).short
    if store.resolve(f"{repository_of(None)}:{short}") == digest:
        return False
    store.tag(repository_of(None), digest, short)
    return True
