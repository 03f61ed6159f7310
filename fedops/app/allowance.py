"""What one run may cost, whatever comes; the rest is left to the next run.

A CI service gives a job an hour and a few GB of disk, and a forge takes a few hundred writes an hour. A run that wants
more than that ends with nothing; one that stops in time keeps what it has, and says that something is left.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

PULLS = 100  # whose bytes are read
UPDATE_BYTES = 20_000_000_000  # read, of all updates together; one larger update alone is read all the same
SECONDS = 1500.0
WRITES = 150  # to the forge: comments, statuses, merges, issues, releases
KEPT = 50  # of these, for the version and the signals: pull requests, however many, leave so many
WRITES_OF_ONE = 3  # a comment, a status, a merge


@dataclass
class Allowance:
    """What is left of a run, or of the one job of it that asks.

    Attributes:
        began: by the run's clock.
        writes: below 0 where what belongs together was done to its end.
        kept: of the writes, those that are not for pull requests.
    """

    began: dt.datetime
    pulls: int = PULLS
    size: int = UPDATE_BYTES
    seconds: float = SECONDS
    writes: int = WRITES
    kept: int = KEPT
    _read: int = field(default=0, init=False)

    def take(self, size: int, now: dt.datetime) -> bool:
        """True if the bytes of one more update may be read; then they are counted.

        Args:
            size: in bytes, as its record says.
            now: by the same clock.
        """
        if self._read and (size > self.size or self._is_late(now)):
            return False
        if self._read >= self.pulls:
            return False
        self._read += 1
        self.size -= size
        return True

    def may_merge(self) -> bool:
        """True if there is room for everything that one pull request can ask for."""
        return self.writes - self.kept >= WRITES_OF_ONE

    def may_write(self) -> bool:
        """True if there is room for one write that is no pull request's."""
        return self.writes > 0

    def wrote(self) -> None:
        """Count one write."""
        self.writes -= 1

    def is_spent(self, now: dt.datetime) -> bool:
        """True if no further pass should begin."""
        return not self.may_write() or self._is_late(now)

    def _is_late(self, now: dt.datetime) -> bool:
        return (now - self.began).total_seconds() > self.seconds
