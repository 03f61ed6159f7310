"""Runs that stop at every port call: which one goes on, and how far, is for the test to say, so a seed says it all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

# Calls that look at nothing which others can change: objects never change, and a clone's refs only by its own fetch.
# NOTE: besides, Python 3.11 locks a cached_property while it is worked out, so a run must not be stopped in there.
PRIVATE = frozenset(
    f"repository.{name}"
    for name in (
        "read", "entries", "changes", "commit", "commits", "is_ancestor", "signer", "resolve", "versions",
        "write_commit", "write_tag",
    )
)  # fmt: skip


class Killed(BaseException):
    """What a run sees when its machine goes away; no code may catch it."""


class Actor:
    """One run in a thread of its own, of which at most one moves at a time.

    Args:
        run: given a function to call before every port call; it stops at those that others could make a difference to.
    """

    def __init__(self, name: str, run: Callable[[Callable[[str], None]], Any]) -> None:
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.last = ""
        self._run = run
        self._budget = 0
        self._killed = False
        self._stop_at = ""
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def advance(self, calls: int | None = None) -> None:
        """Let it make so many port calls (None: all) and stop before the next one, or end."""
        if not self.done:
            self._budget = calls if calls is not None else 1_000_000
            self._go.release()
            self._back.acquire()

    def advance_to(self, call: str) -> None:
        """Let it go on to just before the next such port call, or to its end."""
        self._stop_at = call
        self.advance()
        self._stop_at = ""

    def kill(self) -> None:
        """End it where it stands."""
        self._killed = True
        self.advance()
        self._thread.join()

    def _main(self) -> None:
        self._go.acquire()
        try:
            if not self._killed:
                self.result = self._run(self._point)
        except Killed:
            pass
        except BaseException as e:  # noqa: BLE001 handed to the test
            self.error = e
        self.done = True
        self._back.release()

    def _point(self, call: str) -> None:
        if call in PRIVATE:
            return
        if self._budget == 0 or call == self._stop_at:
            self.last = call
            self._back.release()
            self._go.acquire()
        if self._killed:
            raise Killed
        self._budget -= 1
