"""One small commit of a lead on top of origin's main: made again on the new tip as long as others are faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.inspect import refreshed
from fedops.app.lead_pull import Edit, LeadPull, propose_edit
from fedops.app.snapshot import Snapshot
from fedops.core.errors import GitError
from fedops.core.facts import RefUpdate
from fedops.core.ids import CommitId

PUSH_SECONDS = 60.0


@dataclass(frozen=True)
class Writing:
    """How a commit of a person is made.

    Args:
        key: SSH private key that signs it; None: unsigned.
        jitter: uniform in [0, 1), spreads the retries of several people.
        pull_request: it goes into a pull request, and not to main.
        instead: the command line that makes it one, for who may not push to main.
    """

    jitter: Callable[[], float]
    key: Path | None = None
    dry_run: bool = False
    pull_request: bool = False
    instead: str = ""


@dataclass(frozen=True)
class Changed:
    """What became of a change.

    Attributes:
        edit: None if there was nothing to do.
        commit: None then, and in a dry run.
        pull: the pull request that it stands in, if it was to be one.
    """

    edit: Edit | None
    commit: CommitId | None = None
    pull: LeadPull | None = None

    @property
    def changed(self) -> bool:
        """Something was, or would be, done."""
        return self.edit is not None and (self.pull is None or self.pull.changed)


def change_main(ctx: Context, writing: Writing, plan: Callable[[Snapshot], Edit | None]) -> Changed:
    """Put what `plan` says on top of main, or into a pull request.

    Args:
        plan: called with main as it is now, again after each lost race; None: nothing is to be done.

    Raises:
        GitError: temporary, when the race was lost for a minute; permanent, when main takes no pushes.
        ConfigError: who is no lead asked for a pull request.
    """
    started = ctx.clock.now()
    wait = 0.05
    while True:
        main = refreshed(ctx)
        edit = plan(main)
        if edit is None or writing.dry_run:
            return Changed(edit)
        if writing.pull_request:
            pull = propose_edit(ctx, main, edit, writing.key)
            return Changed(edit, pull.head, pull)
        at = ctx.clock.now().replace(microsecond=0)
        commit = ctx.repository.write_commit([main.commit], edit.files, edit.message, at=at, key=writing.key)
        if _pushed(ctx, main, commit, writing.instead):
            return Changed(edit, commit)
        if (ctx.clock.now() - started).total_seconds() > PUSH_SECONDS:
            raise GitError(
                f"main: {edit.message.splitlines()[0]!r} lost its race for {PUSH_SECONDS:.0f} s",
                hint="run the command again; nothing was changed",
                cause="temporary",
            )
        ctx.clock.sleep(wait * (0.5 + writing.jitter()))
        wait = min(2 * wait, 5.0)


def _pushed(ctx: Context, main: Snapshot, commit: CommitId, instead: str) -> bool:
    """Push a commit to main; False if somebody else was faster.

    Raises:
        GitError: a rule keeps main from being pushed to: then said with what to do instead.
    """
    branch = main.federation.branch
    try:
        return ctx.repository.push([RefUpdate(f"refs/heads/{branch}", main.commit, commit)])
    except GitError as e:
        if e.slug != "push_refused" or not instead:
            raise
        raise GitError(f"{branch}: is protected against pushes; {e.message}", hint=instead, slug=e.slug) from e
