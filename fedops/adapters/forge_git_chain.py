"""The commit chain refs/fedops/forge: one commit per change, made by compare-and-swap against whoever else writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from fedops.adapters.forge_git_state import FORGE_REF, Edit, View
from fedops.core.documents import Document
from fedops.core.errors import ForgeError
from fedops.core.facts import RefUpdate
from fedops.core.ids import BlobId, RepoPath
from fedops.ports import Clock, Repository

_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_KNOWN_DOCUMENTS = 20_000

T = TypeVar("T")


class Chain:
    """Reads and extends the chain.

    Args:
        jitter: a number in [0, 1); spreads the retries of those who lost the same race.
    """

    def __init__(self, repository: Repository, clock: Clock, jitter: Callable[[], float]) -> None:
        self._repository = repository
        self._clock = clock
        self._jitter = jitter
        self._known: dict[tuple[BlobId, RepoPath], Document] = {}
        self._view = View(repository, None, self._known)
        self._open: frozenset[int] = frozenset()

    def view(self, pulls: Collection[int] | None = ()) -> View:
        """Fetch, and give the forge's files as they are now; kept while the chain does not move.

        Args:
            pulls: whose heads are brought too; None: of all that are open.
        """
        while True:
            self._repository.fetch(self._open if pulls is None else pulls)
            tip = self._repository.resolve(FORGE_REF)
            if tip != self._view.tip:
                if len(self._known) > _KNOWN_DOCUMENTS:
                    self._known.clear()
                self._view = View(self._repository, tip, self._known)
            before = self._open
            if pulls is None:
                self._open = frozenset(self._view.numbers("pulls/open/"))
            if self._open <= before:
                return self._view

    def change(
        self, what: str, decide: Callable[[View], tuple[Edit | None, T]], *, pulls: Collection[int] | None = ()
    ) -> T:
        """Bring about one change; nothing is written if its effect is there already.

        Args:
            what: for the message when it cannot be done: "pull 12".
            decide: what is missing in these files, and the answer; asked again after each lost race.
            pulls: as for `view`.

        Raises:
            ForgeError: temporary, others were faster for a minute.
        """

        def attempt() -> tuple[bool, T]:
            view = self.view(pulls)
            edit, answer = decide(view)
            return (edit is None or self._push(view, edit)), answer

        return self.race(what, attempt)

    def race(self, what: str, attempt: Callable[[], tuple[bool, T]]) -> T:
        """Repeat an attempt until it says that it won.

        Raises:
            ForgeError: temporary, it lost for a minute.
        """
        start, slept, pause = self._clock.now(), 0.0, _FIRST_PAUSE_SECONDS
        while True:
            won, answer = attempt()
            if won:
                return answer
            # NOTE: both are counted: a clock of a test may stand still, and one of a machine may be set back.
            if max(slept, (self._clock.now() - start).total_seconds()) >= _PATIENCE_SECONDS:
                raise ForgeError(
                    f"{what}: other writers were faster for {_PATIENCE_SECONDS:.0f} s, nothing changed -> one push",
                    hint="run the command again; if it stays so, look for a writer that loops",
                    slug="rate_limited",
                    cause="temporary",
                )
            _log.debug("%s: lost the race, trying again", what)
            seconds = pause * (0.5 + self._jitter())
            self._clock.sleep(seconds)
            slept += seconds
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _push(self, view: View, edit: Edit) -> bool:
        parents = ((view.tip,) if view.tip is not None else ()) + edit.parents
        commit = self._repository.write_commit(parents, edit.files, edit.message, at=self._clock.now())
        return self._repository.push((RefUpdate(FORGE_REF, view.tip, commit), *edit.refs))
