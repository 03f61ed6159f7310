"""Stores in a registry of the test, with a clock that does not wait and a progress that is remembered."""

from __future__ import annotations

import datetime as dt

from fedops.adapters.registry_credentials import Credentials, Lookup
from fedops.adapters.store_registry import RegistryStore
from fedops.core.registry_address import RegistryAddress

NOW = dt.datetime(2026, 3, 2, 10, 0, tzinfo=dt.UTC)


class StillClock:
    """Time passes by `sleep` alone; `slept` are the waits in order, in seconds."""

    def __init__(self) -> None:
        self.time, self.slept = NOW, list[float]()

    def now(self) -> dt.datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += dt.timedelta(seconds=seconds)


class NotedProgress:
    """What was told, in order: ("start", what, total), ("finish", bytes that were advanced by)."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self._done: list[int] = []

    def start(self, what: str, total: int | None, unit: str) -> int:
        self.told.append(("start", what, total, unit))
        self._done.append(0)
        return len(self._done) - 1

    def advance(self, task: int, amount: int) -> None:
        assert amount > 0
        self._done[task] += amount

    def finish(self, task: int, note: str = "") -> None:
        self.told.append(("finish", self._done[task]))


def nobody(host: str) -> Credentials | None:
    """A lookup that has no credentials."""
    return None


def registry_store(
    host: str,
    lookup: Lookup = nobody,
    *,
    clock: StillClock | None = None,
    path: str = "acme/fed",
    progress: NotedProgress | None = None,
    token_hosts: frozenset[str] = frozenset(),
    seconds: tuple[float, float] = (10.0, 60.0),
) -> RegistryStore:
    """A store in the registry at `host`."""
    return RegistryStore(
        RegistryAddress(host, path),
        clock=clock or StillClock(),
        lookup=lookup,
        progress=progress,
        token_hosts=token_hosts,
        seconds=seconds,
    )
