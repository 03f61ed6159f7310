"""Why a remote did not move refs, as `git push --porcelain` tells it: the remote's own words, and what to do then."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedops.adapters.git_process import Output, failure, printable
from fedops.core.errors import GitError

_REFUSED = re.compile(rb"!\t[^\t]*:([^\t]*)\t\[remote rejected\] \((.*)\)")
# receive-pack's fixed words for "another push holds or just moved this ref"; never translated.
_CONTENTION = re.compile(rb"atomic transaction failed|atomic push failure|cannot lock ref|failed to (lock|update ref)")
# The repository could not keep what was sent, which is no rule of it; where it looks into objects it names their faults.
_NOT_KEPT = re.compile(rb"unpacker error|unable to migrate objects")
_FAULTY = re.compile(r"fsck|exceeds maximum allowed size")
_NO_RIGHT = re.compile(r"insufficient permission|Permission denied")
_CHECKED_OUT = b"branch is currently checked out"
# What no rule of the repository says: a push of another branch, or by another account, would fare no better.
_NO_RULE = re.compile(
    rb"branch is currently checked out|unpacker error|unable to migrate objects|shallow update|refusing to allow"
)
# GitHub, of a token that may not change workflow files; it counts what the repository itself does not have yet.
_WORKFLOWS = re.compile(rb"refusing to allow .* workflow ")


def refusals(output: Output) -> list[tuple[bytes, bytes]]:
    """(ref, reason) of each ref that the remote refused; of a race that another push won there is none."""
    return [(ref, why) for ref, why in _REFUSED.findall(output.out) if not _CONTENTION.search(why)]


def refusal(
    where: str, refused: Sequence[tuple[bytes, bytes]], output: Output, *, hint: str, of_workflows: str
) -> GitError:
    """The error for a push that the remote refused, with its reasons.

    Args:
        where: the remote, as a person knows it.
        refused: as `refusals` gives them.
        hint: what to do about a rule of the repository.
        of_workflows: what to do where the token may not change workflow files.
    """
    said = printable(b"; ".join(ref + b": " + why for ref, why in refused).decode("utf-8", "replace"))
    if any(why == _CHECKED_OUT for _, why in refused):
        hint = "use a bare repository as origin, or there: git config receive.denyCurrentBranch updateInstead"
    elif any(_WORKFLOWS.search(why) for _, why in refused):
        hint = of_workflows
    elif any(_NOT_KEPT.match(why) for _, why in refused) and not _FAULTY.search(output.err):
        return _not_kept(where, said, output)
    slug = None if any(_NO_RULE.search(why) for _, why in refused) else "push_refused"
    return failure(f"{where}: push refused, {said}", output, hint=hint, slug=slug)


def _not_kept(where: str, said: str, output: Output) -> GitError:
    """The error for a repository that could not write down what was sent."""
    right = _NO_RIGHT.search(output.err) is None
    error = failure(f"{where}: push not kept, {said}", output, cause="temporary" if right else "auth")
    # NOTE: of a folder, its git's words are in ours, so that they do not tell whose disk it is.
    error.hint = (
        "origin's disk may be full, or fail: ask whoever keeps it, then run the same command again; nothing was lost"
        if right
        else "this account may not write all files of origin's repository: whoever keeps it gives that right "
        "(`core.sharedRepository` in git's documentation)"
    )
    return error
