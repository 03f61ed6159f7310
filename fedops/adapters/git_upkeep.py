"""Care of a clone: is it whole, and does its work tree show what was fetched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from fedops.adapters.git_objects import ObjectReader, ids_in
from fedops.adapters.git_process import GitProcess, failure
from fedops.core.ids import CommitId

_MALFORMED = 1  # fsck's exit bit for objects that are whole, but not as git would write them

Unfinished = Literal["rebase", "merge", "cherry-pick", "revert"]
CheckoutDone = Literal[
    "no_work_tree",
    "no_main",
    "rebase",
    "merge",
    "cherry-pick",
    "revert",
    "other_branch",
    "dirty",
    "not_written",
    "diverged",
    "up_to_date",
    "fast_forwarded",
]
# The system's own words, in English.
_CANNOT_WRITE = re.compile(
    "No space left on device|Disk quota exceeded|Read-only file system|Permission denied|insufficient permission"
    "|Input/output error"
)
# git's own marks in the git folder of a work tree; `am` has rebase-apply too.
_MARKS: dict[str, Unfinished] = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}


def damaged_objects(git: GitProcess, objects: ObjectReader) -> list[str]:
    """Ids of objects that are missing or whose bytes are not theirs, each once.

    Raises:
        GitError: git found something else broken, such as a ref or a pack.
    """
    output = git.run("fsck", "--full", "--no-dangling", "--no-progress")
    if output.code == 0:
        return []
    told = ids_in(output.out.decode("utf-8", "replace") + output.err)
    damaged = [name for name in told if objects.damaged(name)]
    if not damaged and output.code != _MALFORMED:
        raise failure("git fsck", output, slug="object_corrupt")
    return damaged


def fast_forward(git: GitProcess, objects: ObjectReader, branch: str, target: CommitId | None) -> CheckoutDone:
    """Move a clean work tree that is on `branch` forward to a commit; say what was done."""
    if git.run("rev-parse", "--show-toplevel").code != 0:
        return "no_work_tree"
    if target is None:
        return "no_main"
    begun = unfinished(git)
    if begun is not None:
        return begun
    if git.run("symbolic-ref", "--quiet", "HEAD").out.decode("utf-8", "replace").strip() != f"refs/heads/{branch}":
        return "other_branch"
    here = objects.peel("HEAD")  # None before the first commit
    if here is not None and is_ancestor(git, objects, target, here):
        return "up_to_date"
    if here is not None and not is_ancestor(git, objects, here, target):
        return "diverged"
    if _has_changes(git):
        return "dirty"
    # An untracked file in the way makes git refuse before it changes anything; a full disk may stop it in between.
    merged = git.run("merge", "--ff-only", "--no-verify-signatures", "--quiet", target)
    if merged.code == 0:
        return "fast_forwarded"
    return "not_written" if _has_changes(git) or _CANNOT_WRITE.search(merged.err) else "dirty"


def _has_changes(git: GitProcess) -> bool:
    """True if a file that git knows is not as it was committed."""
    return bool(git.check("status", "--porcelain", "-z", "--untracked-files=no"))


def unfinished(git: GitProcess) -> Unfinished | None:
    """What git began in this work tree and left to a person, as after a conflict; None if there is nothing."""
    folder = git.check("rev-parse", "--absolute-git-dir").decode("utf-8", "surrogateescape").removesuffix("\n")
    return next((name for mark, name in _MARKS.items() if Path(folder, mark).exists()), None)


def is_ancestor(git: GitProcess, objects: ObjectReader, commit: CommitId, of: CommitId) -> bool:
    """True if `commit` is `of` or comes before it."""
    output = git.run("merge-base", "--is-ancestor", commit, of)
    if output.code not in (0, 1):
        raise objects.explain("git merge-base", output, [commit, of])
    return output.code == 0
