"""Timing on a machine that others use too: wait until it is quiet, and say how much others used meanwhile."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from types import TracebackType
from typing import Self

POLL_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")


def _busy() -> float:
    """CPU seconds that the whole machine has used, time stolen by the host included; 0 where that is not told."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _own() -> float:
    """CPU seconds of this process and of its children that were waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(r.ru_utime + r.ru_stime for r in used)


class Meter:
    """Measures a block: `wall` in seconds; `noise`, the CPU that anything else used meanwhile, in cores."""

    wall = noise = 0.0

    def __enter__(self) -> Self:
        self._start = _busy(), _own(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        busy, own, begin = self._start
        self.wall = time.perf_counter() - begin
        self.noise = max(0.0, ((_busy() - busy) - (_own() - own)) / max(self.wall, 1e-9))


class Waiter:
    """Waits for quiet, for a bounded time in all, so that a busy machine delays a run but does not stop it.

    Args:
        patience: seconds that all waits together may take.
        cores: others' use below which the machine counts as quiet.
    """

    def __init__(self, patience: float, cores: float = 0.15) -> None:
        self.left, self._cores = patience, cores

    @staticmethod
    def now() -> float:
        """Cores that others use at this moment."""
        with Meter() as meter:
            time.sleep(POLL_SECONDS)
        return meter.noise

    def wait(self, most: float = 30.0) -> bool:
        """True if the machine is quiet now; False after `most` seconds, or once the patience is used up."""
        begin = time.monotonic()
        while True:
            quiet = self.now() < self._cores
            waited = time.monotonic() - begin
            if quiet or waited > most or waited > self.left:
                self.left = max(0.0, self.left - waited)
                return quiet
