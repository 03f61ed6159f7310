"""Commits of main that change global/ and are no version: told by themselves, since no version changes by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedops.app.main_line import MainLine, Step
from fedops.core.findings import Finding, finding
from fedops.core.ids import METRICS_PATH, VERSION_PATH, CommitId, RepoPath, model_pointer_path
from fedops.ports import Repository

_OF_VERSIONS = {VERSION_PATH, METRICS_PATH, *(model_pointer_path(extension) for extension in ("safetensors", "bin"))}


def stray_findings(repository: Repository, line: MainLine, wants: Callable[[int], bool]) -> Iterator[Finding]:
    """An error for each such commit as long as main has what it did to global/; a warning from then on.

    Args:
        wants: tells of a version whether what came to main between it and the next one is to be told.

    Raises:
        GitError: a tree cannot be read.
    """
    told = {place: step for place in line.strays if wants((step := _before(line, place)).number)}
    if not told:
        return
    right, now = (_below_global(repository, one) for one in (line.steps[line.due].commit, line.commits[-1]))

    def lasts(path: RepoPath) -> bool:
        return now.get(path) != (right.get(path) if path in _OF_VERSIONS else None)

    for place, step in told.items():
        commit, paths, detail = line.commits[place], line.strays[place], {"after": step.where}
        if left := [path for path in paths if lasts(path)]:
            expected = "changes of global/ by versions alone"
            yield finding("lineage_broken", commit, got=left[:5], expected=expected, detail=detail)
        else:
            yield finding("global_restored", commit, got=list(paths[:5]), detail=detail)


def _before(line: MainLine, place: int) -> Step:
    return next(step for step in reversed(line.steps) if step.place < place)


def _below_global(repository: Repository, commit: CommitId) -> dict[RepoPath, tuple[str, str]]:
    """Path -> mode and blob."""
    return {e.path: (e.mode, e.blob) for e in repository.entries(commit, "global")}
