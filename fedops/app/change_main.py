"""One small commit of a lead on top of origin's main: made again on the new tip as long as others are faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.inspect import refreshed
from fedops.app.snapshot import Snapshot
from fedops.core.errors import GitError
from fedops.core.facts import RefUpdate
from fedops.core.ids import CommitId, RepoPath

PUSH_SECONDS = 60.0


@dataclass(frozen=True)
class Edit:
    """Whole new bytes of files, and the commit's message."""

    files: Mapping[RepoPath, bytes]
    message: str


@dataclass(frozen=True)
class Writing:
    """How a commit of a person is made.

    Args:
        key: SSH private key that signs it; None: unsigned.
        jitter: uniform in [0, 1), spreads the retries of several people.
    """

    jitter: Callable[[], float]
    key: Path | None = None
    dry_run: bool = False


def change_main(
    ctx: Context, writing: Writing, plan: Callable[[Snapshot], Edit | None]
) -> tuple[Edit | None, CommitId | None]:
    """Put what `plan` says on top of main.

    Args:
        plan: called with main as it is now, again after each lost race; None: nothing is to be done.

    Returns:
        The edit, None if there was nothing to do; and its commit, None in a dry run.

    Raises:
        GitError: temporary, when the race was lost for a minute.
    """
    started = ctx.clock.now()
    wait = 0.05
    while True:
        main = refreshed(ctx)
        edit = plan(main)
        if edit is None or writing.dry_run:
            return edit, None
        at = ctx.clock.now().replace(microsecond=0)
        commit = ctx.repository.write_commit([main.commit], edit.files, edit.message, at=at, key=writing.key)
        if ctx.repository.push([RefUpdate(f"refs/heads/{main.federation.branch}", main.commit, commit)]):
            return edit, commit
        if (ctx.clock.now() - started).total_seconds() > PUSH_SECONDS:
            raise GitError(
                f"main: {edit.message.splitlines()[0]!r} lost its race for {PUSH_SECONDS:.0f} s",
                hint="run the command again; nothing was changed",
                cause="temporary",
            )
        ctx.clock.sleep(wait * (0.5 + writing.jitter()))
        wait = min(2 * wait, 5.0)
