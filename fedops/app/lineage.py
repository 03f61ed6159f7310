"""Does a version stand where it must in main's history: after the one before, on a commit that it may rest on."""

from __future__ import annotations

from collections.abc import Iterator

from fedops.app.main_line import MainLine
from fedops.core.findings import Finding, finding
from fedops.core.ids import CommitId
from fedops.core.records import VersionRecord


def is_cut(line: MainLine, index: int) -> bool:
    """True if a commit since the version before cannot be read: then nobody knows what the version followed."""
    after = line.steps[index - 1].place if index else -1
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
    before = line.steps[index - 1]
    if before.fault is not None or is_cut(line, index):
        got, expected = "a version that cannot be read", "the one before"
        return finding("lineage_broken", step.where, got=got, expected=expected, detail=detail)
    if (record.version, record.base_version) != (before.number + 1, before.number):
        numbers = {"version": record.version, "base_version": record.base_version}
        due = {"version": before.number + 1, "base_version": before.number}
        return finding("lineage_broken", step.where, got=numbers, expected=due, detail=detail)
    return None


def stray_findings(line: MainLine, index: int) -> Iterator[Finding]:
    """Commits after a version, and before the next, that change what the version brought."""
    steps = line.steps
    end = steps[index + 1].place if index + 1 < len(steps) else len(line.commits)
    for place, paths in line.strays.items():
        if steps[index].place < place < end:
            detail = {"commit": line.commits[place]}
            got, expected = list(paths[:5]), "changes of global/ by versions alone"
            yield finding("lineage_broken", steps[index].where, got=got, expected=expected, detail=detail)


def input_commit(line: MainLine, index: int, record: VersionRecord) -> tuple[CommitId, Finding | None]:
    """The commit that a version was decided on; if it is not where it must be, the version's parent, to say more by it."""
    step, previous = line.steps[index], line.steps[index - 1].place
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
