"""Pull requests, reviews, issues and what some forges can tell besides."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

from fedops.core.facts import (
    Account,
    Issue,
    Marker,
    MergeOutcome,
    Pull,
    Review,
)
from fedops.core.forge_settings import ForgeSettings
from fedops.core.ids import CommitId, SiteId


class Forge(Protocol):
    """PRs, issues, statuses. Lists are complete. Every call may be repeated: the second time changes nothing."""

    def whoami(self) -> Account: ...

    def open_pulls(self) -> Sequence[Pull]:
        """Oldest first; the heads are in the clone."""
        ...

    def pull(self, number: int) -> Pull: ...

    def submit_pull(self, head: CommitId, branch: str, title: str, body: str) -> Pull:
        """Publish head as a PR; an open PR of the same branch is moved to it."""
        ...

    def reviews(self, number: int) -> Sequence[Review]:
        """Latest review of each account."""
        ...

    def review(self, number: int, head: CommitId, state: Literal["approved", "changes_requested"], body: str) -> bool:
        """Review this head as whoami; True: something changed."""
        ...

    def merge(self, number: int, head: CommitId, message: str) -> MergeOutcome:
        """Make a real merge commit, if and only if the PR's head is still `head`."""
        ...

    def close_pull(self, number: int) -> None: ...

    def set_status(
        self, commit: CommitId, state: Literal["success", "failure", "pending"], context: str, text: str
    ) -> None: ...

    def status(self, commit: CommitId, context: str) -> tuple[str, str] | None:
        """(state, text) last set, or None."""
        ...

    def statuses(self, commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str]]:
        """The same of several commits; those without one are left out."""
        ...

    def upsert_comment(self, number: int, marker: Marker, body: str) -> bool:
        """Write or edit the one comment with this marker on a PR or issue; True: something changed."""
        ...

    def comments(self, number: int) -> Sequence[str]:
        """Bodies, oldest first."""
        ...

    def ensure_issue(self, marker: Marker, title: str, body: str, labels: frozenset[str]) -> Issue:
        """The issue with this marker, opened if there is none (open or closed)."""
        ...

    def issues(
        self,
        labels: frozenset[str],
        *,
        open: bool = True,  # noqa: A002 the forge's own word
        since: dt.datetime | None = None,
    ) -> Sequence[Issue]:
        """Issues that carry all labels and are (not) open; PRs are left out.

        Args:
            since: those that nobody touched since then may be left out.
        """
        ...

    def close_issue(self, number: int) -> None: ...

    def beat(self, site: SiteId, version: int, state: str, at: dt.datetime) -> None:
        """Overwrite a site's heartbeat; advisory only."""
        ...

    def beats(self) -> Mapping[SiteId, tuple[int, str, dt.datetime]]: ...


@runtime_checkable
class ForgeProbe(Protocol):
    """A forge whose repositories have settings that can keep the loop from working."""

    def settings(
        self, branch: str, tag: str, packages: Sequence[tuple[str, str]], *, for_lead: bool = True
    ) -> ForgeSettings:
        """Read them; what the token may not read is in them as Unread.

        Args:
            branch: short name of the main branch.
            tag: name of a version's tag, there or not, whose rules are wanted.
            packages: (owner, name) of packages in the forge's own registry.
            for_lead: False: only what every site must know, so that little is asked.
        """
        ...


@runtime_checkable
class Releases(Protocol):
    """A forge that has pages for people beside version tags."""

    def ensure_release(self, tag: str, title: str, body: str) -> bool:
        """Have the page of a tag that is there; True: something changed."""
        ...
