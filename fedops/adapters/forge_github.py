"""The forge on github.com or a GitHub Enterprise Server, by PyGithub: real pull requests, reviews, issues and releases."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from fedops.adapters.forge_git_people import People as Rosters
from fedops.adapters.github_comments import Beats, Comments
from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_issues import Issues
from fedops.adapters.github_merge import merge
from fedops.adapters.github_people import JOB_TOKEN, People
from fedops.adapters.github_pulls import Pulls, Sender
from fedops.adapters.github_releases import ensure_release
from fedops.adapters.github_settings import SettingsReader
from fedops.adapters.github_verdicts import Verdicts
from fedops.core.errors import ConfigError
from fedops.core.facts import Account, Issue, Marker, MergeOutcome, Pull, Review
from fedops.core.forge_settings import ForgeSettings
from fedops.core.github_hosts import Host, is_name
from fedops.core.ids import CommitId, SiteId
from fedops.ports import Clock, Repository

_log = logging.getLogger(__name__)


class Clone(Repository, Sender, Protocol):
    """A clone that can also publish a branch on a fork."""


class GitHubForge:
    """Implements the Forge, Releases and ForgeProbe ports on GitHub's REST API. One thread at a time.

    Identity is the account behind the token. A heartbeat or a comment counts by the account that wrote it, never by its
    text. GitHub has no compare-and-swap for issues: who opens one looks again, and closes the own one if another came
    first.

    Args:
        repository: where heads to hand in are, and main's roster.
        name: "owner/name".
        token: sent to `host` alone, never logged; None reads what is public.
        main: short name of the main branch.
        bot: login of the account behind a token without a user, such as that of a workflow's job.
        pace: seconds between two requests, and between two that write; default: what GitHub asks for.

    Raises:
        ConfigError: the name is none.
    """

    def __init__(
        self,
        repository: Clone,
        *,
        host: Host,
        name: str,
        token: str | None,
        clock: Clock,
        main: str = "main",
        bot: str = JOB_TOKEN,
        pace: tuple[float, float] | None = None,
    ) -> None:
        if not is_name(name):
            raise ConfigError(f"federation.yaml: forge.repository: got {name!r} -> owner/name")
        self._repository = repository
        self._api = GitHubApi(host, name, token, clock, pace=pace)
        self._people = People(self._api, bot)
        self._pulls = Pulls(self._api, self._people, repository, main)
        self._verdicts = Verdicts(self._api, self._people)
        self._issues = Issues(self._api)
        self._comments = Comments(self._api, self._people)
        self._beats = Beats(self._issues, self._comments)
        self._rosters = Rosters(repository, f"refs/heads/{main}")

    def close(self) -> None:
        """Close the connections; harmless when repeated."""
        self._api.close()

    def whoami(self) -> Account:
        return self._people.me()

    # ------------------------------------------------------------ pulls

    def open_pulls(self) -> Sequence[Pull]:
        pulls = self._pulls.open()
        self._comments.expect({pull.number for pull in pulls})
        pulls = self._with_heads(pulls)
        self._verdicts.expect(pulls)
        return pulls

    def pull(self, number: int) -> Pull:
        pull = self._pulls.read(number)
        return next(iter(self._with_heads([pull])), pull)

    def _with_heads(self, pulls: Sequence[Pull]) -> Sequence[Pull]:
        """The pull requests with their heads in the clone; one whose head cannot be had is left out until it can.

        git and the REST API see a push at different moments: of an open one, what can be fetched is its head.
        """
        late = {p.number for p in pulls if self._repository.resolve(p.head) is None}
        if not late:
            return pulls
        self._repository.fetch(late)
        return tuple(filter(None, (self._with_head(p) if p.number in late else p for p in pulls)))

    def _with_head(self, pull: Pull) -> Pull | None:
        if self._repository.resolve(pull.head) is not None:
            return pull
        head = self._repository.resolve(f"refs/pull/{pull.number}/head") if pull.state == "open" else None
        if head is None:
            _log.warning("left out: pull %d: %s cannot be fetched yet", pull.number, pull.head)
            return None
        return replace(pull, head=head)

    def submit_pull(self, head: CommitId, branch: str, title: str, body: str) -> Pull:
        return self._pulls.submit(head, branch, title, body)

    def merge(self, number: int, head: CommitId, message: str) -> MergeOutcome:
        return merge(self._api, number, head, message)

    def close_pull(self, number: int) -> None:
        self._pulls.close(number)

    # ------------------------------------------------------------ reviews, statuses, comments

    def reviews(self, number: int) -> Sequence[Review]:
        return self._verdicts.reviews(number)

    def review(self, number: int, head: CommitId, state: Literal["approved", "changes_requested"], body: str) -> bool:
        return self._verdicts.review(number, head, state, body)

    def set_status(
        self, commit: CommitId, state: Literal["success", "failure", "pending"], context: str, text: str
    ) -> None:
        self._verdicts.set_status(commit, state, context, text)

    def status(self, commit: CommitId, context: str) -> tuple[str, str] | None:
        return self._verdicts.status(commit, context)

    def statuses(self, commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str]]:
        return self._verdicts.statuses(commits, context)

    def upsert_comment(self, number: int, marker: Marker, body: str) -> bool:
        return self._comments.upsert(number, marker, body)

    def comments(self, number: int) -> Sequence[str]:
        return self._comments.bodies(number)

    # ------------------------------------------------------------ issues, releases

    def ensure_issue(self, marker: Marker, title: str, body: str, labels: frozenset[str]) -> Issue:
        return self._issues.ensure(marker, title, body, labels)

    def issues(
        self,
        labels: frozenset[str],
        *,
        open: bool = True,  # noqa: A002 as in the port
        since: dt.datetime | None = None,
    ) -> Sequence[Issue]:
        return self._issues.all(labels, "open" if open else "closed", since)

    def close_issue(self, number: int) -> None:
        self._issues.close(number)

    def ensure_release(self, tag: str, title: str, body: str) -> bool:
        return ensure_release(self._api, tag, title, body)

    def settings(
        self, branch: str, tag: str, packages: Sequence[tuple[str, str]], *, for_lead: bool = True
    ) -> ForgeSettings:
        reader = SettingsReader(self._api, self._people)
        return reader.read(branch, tag, packages) if for_lead else reader.overview()

    # ------------------------------------------------------------ heartbeats

    def beat(self, site: SiteId, version: int, state: str, at: dt.datetime) -> None:
        self._beats.beat(site, version, state, at)

    def beats(self) -> Mapping[SiteId, tuple[int, str, dt.datetime]]:
        self._repository.fetch()
        return self._beats.beats(self._rosters.roster().sites)
