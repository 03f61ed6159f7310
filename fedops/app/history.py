"""What the versions were made of, read from main's history: the log of all, and everything about one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fedops.app.pull import made_version
from fedops.app.snapshot import Snapshot, main_snapshot, version_record
from fedops.core.errors import GitError
from fedops.core.ids import CommitId, GlobalVersion
from fedops.core.made import Made
from fedops.core.records import VersionRecord
from fedops.ports import Repository


def log(repository: Repository, *, limit: int | None) -> tuple[Made, ...]:
    """The versions on main, newest first.

    Args:
        limit: at most so many; None: all.

    Raises:
        GitError: lineage_broken, if the commit of a version is not on main.
    """
    return tuple(islice(_versions(main_snapshot(repository)), limit))


def show(repository: Repository, *, number: int | None) -> Made:
    """One version; None: the current one.

    Raises:
        ConfigError: there is no such version.
    """
    main = main_snapshot(repository)
    return _made(main, *made_version(main, number))


def _versions(main: Snapshot) -> Iterator[Made]:
    for number in range(main.version.version, -1, -1):
        made = version_record(main.repository, main, number)
        if made is None:
            raise GitError(
                f"v{number}: its commit is not on main's first-parent line",
                hint="fedops verify; in a shallow clone: git fetch --unshallow",
                slug="lineage_broken",
            )
        yield _made(main, *made)


def _made(main: Snapshot, commit: CommitId, record: VersionRecord) -> Made:
    tagged = main.repository.resolve(f"refs/tags/{GlobalVersion(record.version).tag}") == commit
    at = main.repository.commit(commit).committed_at
    return Made(record, commit, at, tagged, main.version.version)
