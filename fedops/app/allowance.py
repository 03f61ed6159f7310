"""What one pass over the open pull requests may cost; the rest is left to the next pass.

A CI service gives a job an hour and a few GB of disk, and a forge takes a few hundred writes an hour. A pass that wants
more than that ends with nothing; one that stops in time keeps what it has.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedops.app.context import Context
from fedops.app.merge import STATUS_CONTEXT, Merged
from fedops.app.snapshot import Snapshot
from fedops.app.verdict_cache import BytesMemory
from fedops.core.errors import ConfigError
from fedops.core.facts import Pull
from fedops.core.turns import in_turn

PULLS = 100  # whose bytes are read
UPDATE_BYTES = 20_000_000_000  # read, of all updates together; one larger update alone is read all the same
SECONDS = 1500.0
WRITES = 150  # to the forge: comments, statuses, merges
WRITES_OF_ONE = 3  # a comment, a status, a merge


@dataclass
class Allowance:
    """What is left of a pass.

    Attributes:
        began: by the run's clock.
    """

    began: dt.datetime
    pulls: int = PULLS
    size: int = UPDATE_BYTES
    seconds: float = SECONDS
    writes: int = WRITES
    _read: int = field(default=0, init=False)

    def take(self, size: int, now: dt.datetime) -> bool:
        """True if the bytes of one more update may be read; then they are counted.

        Args:
            size: in bytes, as its record says.
            now: by the same clock.
        """
        if self._read and (size > self.size or (now - self.began).total_seconds() > self.seconds):
            return False
        if self._read >= self.pulls:
            return False
        self._read += 1
        self.size -= size
        return True

    def may_write(self) -> bool:
        """True if there is room for everything that one pull request can ask for."""
        return self.writes >= WRITES_OF_ONE

    def wrote(self, one: Merged) -> None:
        """Count what was done with a pull request."""
        if one.outcome in ("merged", "lost"):
            self.writes -= WRITES_OF_ONE
        elif one.changed:
            self.writes -= WRITES_OF_ONE - 1


def turns(ctx: Context, main: Snapshot, pulls: Sequence[Pull], memory: BytesMemory) -> tuple[Pull, ...]:
    """The order in which a pass looks at the open pull requests.

    The forge is asked which of them had a look before only if there are more than one pass may read.
    """
    try:
        roster = main.sites.sites.values()
    except ConfigError:
        return tuple(pulls)  # nothing can be judged, which is told of each
    members = {account.id for site in roster for account in site.accounts}
    before = (
        set(ctx.forge.statuses({pull.head for pull in pulls}, STATUS_CONTEXT)) if len(pulls) > PULLS else frozenset()
    )
    return in_turn(pulls, members, again=memory.tried, before=before, salt=f"{ctx.clock.now():%Y-%m-%dT%H:%M}")
