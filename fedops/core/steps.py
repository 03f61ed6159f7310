"""Effects that are wanted, as data: `app` does a step only if its effect is missing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from fedops.core.facts import Marker
from fedops.core.ids import CommitId, RepoPath, SiteId


@dataclass(frozen=True)
class Publish:
    """One commit of `global/` and one annotated tag, to be pushed together; this push is the compare-and-swap.

    Attributes:
        parent: the tip of main that the commit is put on.
        files: whole bytes of the files below `global/`.
        at: date of commit and tag.
    """

    version: int
    parent: CommitId
    files: Mapping[RepoPath, bytes]
    commit_message: str
    tag: str
    tag_message: str
    at: dt.datetime


@dataclass(frozen=True)
class Signal:
    """The issue that tells one site to train on a version; `body` carries the marker."""

    site: SiteId
    version: int
    marker: Marker
    title: str
    body: str
    labels: frozenset[str]


@dataclass(frozen=True)
class CloseSignal:
    """Close a signal issue that is out of date."""

    number: int


Step = Publish | Signal | CloseSignal
