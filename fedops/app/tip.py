"""The newest commit of main to begin a verification with, also of a damaged clone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.core.errors import ConfigError, GitError
from fedops.core.ids import CommitId
from fedops.ports import Repository


def tip_of(repository: Repository) -> Snapshot:
    """The newest commit of main; of a damaged clone, the newest to begin with.

    Without files if the commit's tree is damaged, and the newest version's if the commit itself is.

    Raises:
        ConfigError: there is no main branch to read.
        GitError: nothing can be read of it.
    """
    try:
        return main_snapshot(repository)
    except GitError as e:
        if e.slug != "object_corrupt":
            raise
        fault = e
    with suppress(GitError):
        tip = repository.resolve("main")
        assert tip is not None  # else there was no tree to be damaged
        return Snapshot(repository, tip, {})
    for tag in reversed(repository.versions()):
        with suppress(GitError):
            return Snapshot(repository, repository.commit(tag.commit).id, {})
    raise fault


def newest_readable(
    commits: Iterable[CommitId], tree: Callable[[CommitId], Snapshot]
) -> tuple[Snapshot | None, GitError | None]:
    """The newest commit whose federation.yaml and roster can be read, or None if git can give back no tree at all; and why not.

    Args:
        commits: newest first.
        tree: reads a commit's tree.

    Raises:
        ConfigError: a tree can be read, but no such document.
    """
    fault: ConfigError | None = None
    unread: GitError | None = None
    for commit in commits:
        try:
            here = tree(commit)
            _ = here.federation, here.sites
        except ConfigError as e:
            fault = fault or e
        except GitError as e:
            unread = unread or e
        else:
            return here, unread
    if fault is not None:
        raise fault
    return None, unread
