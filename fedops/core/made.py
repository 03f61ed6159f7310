"""One version with the commit that made it, as `fedops log` and `fedops show` tell of it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from fedops.core.ids import CommitId
from fedops.core.records import VersionRecord


@dataclass(frozen=True)
class Made:
    """A version on main.

    Attributes:
        commit: the one that brought the record.
        at: its committer date.
        tagged: the version's tag names exactly this commit.
        current: number of the current version.
    """

    record: VersionRecord
    commit: CommitId
    at: dt.datetime
    tagged: bool
    current: int
