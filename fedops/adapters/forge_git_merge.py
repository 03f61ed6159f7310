"""What a merge on the git forge puts on main."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedops.core.errors import ForgeError
from fedops.core.ids import CommitId, RepoPath
from fedops.ports import Repository

MAX_MERGED_FILE_BYTES = 1_048_576


def merged_files(repository: Repository, main: CommitId, head: CommitId) -> Mapping[RepoPath, bytes | None] | None:
    """The files that change on main when head is merged.

    Returns:
        New bytes by path, None for a deletion; or None as a whole if main changed one of those paths to something else.

    Raises:
        ForgeError: a change that is not one of plain files, which is merged by hand or not at all.
    """
    theirs = repository.changes(main, head)
    ours = {c.path: c for c in repository.changes(head, main)}
    both = [(c, ours[c.path]) for c in theirs if c.path in ours]
    if any((c.mode, c.blob) != (o.mode, o.blob) for c, o in both):
        return None
    there = {c.path for c in theirs if c.blob is not None}
    here = {c.path for c in ours.values() if c.blob is not None}
    if there & _folders(here) or here & _folders(there):
        return None  # a file on one side is a folder on the other
    odd = next((c for c in theirs if c.blob is not None and c.mode != "100644"), None)
    if odd is not None:
        raise ForgeError(
            f"{head[:12]}: {odd.path}: mode {odd.mode} -> 100644, only plain files are merged here",
            hint="a lead merges it by hand: git merge, git push",
        )
    return {
        c.path: None if c.blob is None else repository.read(c.blob, max_bytes=MAX_MERGED_FILE_BYTES) for c in theirs
    }


def _folders(paths: Iterable[str]) -> set[str]:
    return {path[:i] for path in paths for i, c in enumerate(path) if c == "/"}
