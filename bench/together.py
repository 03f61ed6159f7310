"""Memory of a process and all that it started, together: pages that they share count once."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

POLL_SECONDS = 0.005


def tree(pid: int) -> list[int]:
    """A process and its descendants, as far as they still run."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += tree(int(child))
    return found


def together_mb(pid: int) -> float:
    """Sum of the proportional set sizes of a tree of processes, in 10**6 bytes; 0 where the system does not tell."""
    total = 0
    for one in tree(pid):
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total * 1024 / 1e6


class Sampler:
    """Looks at a tree of processes all the time; `peak_mb` is the most that was seen. It costs the tree some speed."""

    peak_mb = 0.0

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            try:
                self.peak_mb = max(self.peak_mb, together_mb(self._pid))
            except OSError:  # a process ended meanwhile, or the system has no such files
                continue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
