"""Git objects that cannot be read, each told with the first version that needs it."""

from __future__ import annotations

from collections.abc import Sequence

from fedops.app.main_line import MainLine, git_finding
from fedops.core.errors import GitError
from fedops.core.findings import Finding, finding
from fedops.core.ids import CommitId


class Damage:
    """What is known to be damaged and was not told yet.

    Args:
        line: main's first-parent line.
        damaged: ids of objects.
    """

    def __init__(self, line: MainLine, damaged: Sequence[str]) -> None:
        self._line = line
        self._left = set(damaged)

    def told(self, text: str) -> None:
        """A message named some of them."""
        self._left = {name for name in self._left if name not in text}

    def of_step(self, index: int, tag_object: str | None) -> tuple[Finding, ...]:
        """What is damaged of a version: its tag, and whatever came to main since the version before."""
        step, line = self._line.steps[index], self._line
        after = line.steps[index - 1].place if index else -1
        places = range(after + 1, step.place + 1)
        found = [git_finding(e, step.where) for place, e in line.breaks.items() if place in places]
        if self._left:
            names = {tag_object} if tag_object is not None else set()
            for place in places:
                names |= self._names(line.commits[place])
            found += (finding("object_corrupt", step.where, got=name) for name in sorted(self._left & names))
            self._left -= names
        if not found:
            odd = [line.commits[place] for place in line.unreadable if place in places]
            found += (finding("object_corrupt", step.where, got=f"the changes of {commit}") for commit in odd)
        for one in found:
            self.told(str(one.got))
        return tuple(found)

    def _names(self, commit: CommitId) -> set[str]:
        """The objects of a commit of main, and of those that it merged, as far as they can be listed."""
        repository, names = self._line.repository, {str(commit)}
        try:
            merged = repository.commit(commit).parents[1:]
        except GitError:
            return names
        for one in (commit, *merged):
            names.add(one)
            try:
                names |= {entry.blob for entry in repository.entries(one)}
            except GitError as e:  # which tree cannot be read is known by its words alone
                names |= {name for name in self._left if name in e.message}
        return names

    def left(self) -> tuple[Finding, ...]:
        """Those that no version needs, or none that was looked at."""
        beyond = [git_finding(e, "main") for place, e in self._line.breaks.items() if place >= len(self._line.commits)]
        for one in beyond:
            self.told(str(one.got))
        return (*beyond, *(finding("object_corrupt", "git", got=name) for name in sorted(self._left)))
