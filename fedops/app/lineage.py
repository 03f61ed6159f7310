"""Does a version stand where it must in main's history: after the one before, on a commit that it may rest on.

"Before" is the version whose record main had then: what somebody took back with git alone is followed by nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from fedops.app.main_line import MainLine
from fedops.core.errors import GitError
from fedops.core.findings import Finding, finding
from fedops.core.ids import CommitId
from fedops.core.records import VersionRecord
from fedops.ports import Repository


def cut_history(repository: Repository, line: MainLine) -> Iterator[Finding]:
    """A shallow clone has no beginning."""
    for root in line.commits[:1]:
        with suppress(GitError):
            if repository.commit(root).parents and not line.breaks:
                expected = "the history from its beginning; in a shallow clone: git fetch --unshallow"
                yield finding("lineage_broken", "main", got=root, expected=expected)


def lost_commits(repository: Repository, line: MainLine, seen: Iterable[CommitId]) -> Iterator[Finding]:
    """What main once was must still be in its history; the first that is not is told.

    Args:
        seen: newest first.
    """
    beside = (commit for commit in seen if commit not in line.places) if not line.breaks else ()
    if (lost := next((commit for commit in beside if not _has(repository, line, commit)), None)) is not None:
        yield finding("main_rewritten", "main", got=lost, expected="in main's history")


def _has(repository: Repository, line: MainLine, commit: CommitId) -> bool:
    """False also where git has thrown the commit away: it would have kept what belongs to main."""
    try:
        return repository.is_ancestor(commit, line.commits[-1])
    except GitError:
        return False


def is_cut(line: MainLine, index: int) -> bool:
    """True if a commit since the version before cannot be read: then nobody knows what the version followed."""
    after = line.steps[line.steps[index].follows].place if index else -1
    return any(after < place <= line.steps[index].place for place in line.breaks)


def order_fault(line: MainLine, index: int, record: VersionRecord) -> Finding | None:
    """Each version follows the one before; None: it does.

    Args:
        index: of the version among the line's steps.
        record: the version's.
    """
    step, detail = line.steps[index], {"commit": line.steps[index].commit}
    if index == 0:
        if (record.kind, record.version) == ("init", 0):
            return None
        expected = "v0 of kind init as main's first version"
        return finding("lineage_broken", step.where, got=record.kind, expected=expected, detail=detail)
    before = line.steps[step.follows]
    if before.fault is not None or is_cut(line, index):
        got, expected = "a version that cannot be read", "the one before"
        return finding("lineage_broken", step.where, got=got, expected=expected, detail=detail)
    if (record.version, record.base_version) != (before.number + 1, before.number):
        numbers = {"version": record.version, "base_version": record.base_version}
        due = {"version": before.number + 1, "base_version": before.number}
        return finding("lineage_broken", step.where, got=numbers, expected=due, detail=detail)
    return None


def input_commit(line: MainLine, index: int, record: VersionRecord) -> tuple[CommitId, Finding | None]:
    """The commit that a version was decided on; if it is not where it must be, the version's parent, to say more by it."""
    step = line.steps[index]
    previous = line.steps[step.follows].place
    named = record.witness.input_commit
    stands = line.place(named)
    # A commit cannot name one that comes after it, so that nothing but the other end has to be asked.
    if stands is not None and stands >= previous:
        return line.commits[stands], None
    detail = {"field": "witness.input_commit", "why": "not on main" if stands is None else "before the version before"}
    expected = f"a commit of main before {step.where}"
    return line.commits[step.place - 1], finding(
        "lineage_broken", step.where, got=named, expected=expected, detail=detail
    )


def read_until(line: MainLine, index: int) -> int:
    """Place of the newest commit that a version read; records that came later are the next one's."""
    step = line.steps[index]
    place = line.place(step.input_commit)
    return place if place is not None and place < step.place else step.place
