"""A forge in memory over any Repository; it passes the same contract suite as the real ones, and is made for races.

Pulls, issues and the rest live in a FakeHub that all accounts share under one lock. Commits are the repository's: a
head is published as refs/pull/N/head, a merge is pushed to main. Identity is the account that the forge is given,
as behind a token.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fedops.core.errors import ForgeError
from fedops.core.facts import Account, Issue, Marker, MergeOutcome, Pull, RefUpdate, Review
from fedops.core.ids import CommitId, RepoPath, SiteId
from fedops.ports import Clock, Repository

MAX_ATTEMPTS = 100


@dataclass
class FakeHub:
    """What a forge's server keeps."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    pulls: dict[int, Pull] = field(default_factory=dict)
    issues: dict[int, tuple[Marker, Issue]] = field(default_factory=dict)
    reviews: dict[int, list[Review]] = field(default_factory=dict)
    statuses: dict[tuple[CommitId, str], tuple[str, str]] = field(default_factory=dict)
    comments: dict[int, dict[Marker, str]] = field(default_factory=dict)
    beats: dict[SiteId, tuple[int, str, dt.datetime]] = field(default_factory=dict)

    def next_number(self) -> int:
        return len(self.pulls) + len(self.issues) + 1


class FakeForge:
    """One account's access to a hub; safe to share between threads.

    Args:
        repository: this account's clone of the origin.
        key: signs reviews, as on the git forge; None: reviews have no proof.
    """

    def __init__(
        self, hub: FakeHub, repository: Repository, account: Account, clock: Clock, *, key: Path | None = None
    ) -> None:
        self.hub = hub
        self._key = key
        self._repository = repository
        self._account = account
        self._clock = clock

    def whoami(self) -> Account:
        return self._account

    def open_pulls(self) -> Sequence[Pull]:
        with self.hub.lock:
            self._notice_merges()
            return self._fetched(*(p for _, p in sorted(self.hub.pulls.items()) if p.state == "open"))

    def pull(self, number: int) -> Pull:
        with self.hub.lock:
            self._notice_merges()
            [pull] = self._fetched(self._pull(number))
            return pull

    def _fetched(self, *pulls: Pull) -> Sequence[Pull]:
        """The pull requests, after a fetch of the heads that the clone lacks."""
        if any(self._repository.resolve(pull.head) is None for pull in pulls):
            self._repository.fetch([pull.number for pull in pulls])
        return pulls

    def submit_pull(self, head: CommitId, branch: str, title: str, body: str) -> Pull:
        with self.hub.lock:
            self._notice_merges()
            same = [p for p in self.hub.pulls.values() if p.branch == branch and p.state == "open"]
            done = [p for p in self.hub.pulls.values() if (p.branch, p.head, p.state) == (branch, head, "merged")]
            if done and not same:
                return done[0]
            if same and same[0].head == head:
                return same[0]
            number = same[0].number if same else self.hub.next_number()
            old = same[0].head if same else None
            opened = same[0].opened_at if same else self._clock.now()
            pull = Pull(number, True, self._account, head, branch, title, "open", opened)
            if not self._repository.push((RefUpdate(f"refs/pull/{number}/head", old, head),)):
                raise ForgeError(f"pull {number}: its ref was moved by hand")
            self.hub.pulls[number] = pull
            return pull

    def reviews(self, number: int) -> Sequence[Review]:
        with self.hub.lock:
            self._pull(number)
            latest: dict[Account, Review] = {}
            for review in self.hub.reviews.get(number, []):
                latest.pop(review.author, None)
                latest[review.author] = review
            if any(r.proof is not None and self._repository.resolve(r.proof) is None for r in latest.values()):
                self._repository.fetch(pulls=())
            return tuple(latest.values())

    def review(self, number: int, head: CommitId, state: Literal["approved", "changes_requested"], body: str) -> bool:
        with self.hub.lock:
            self._pull(number)
            review = Review(self._account, head, state)
            new = review not in self.reviews(number)
            if new:
                proof = self._proof(number, head, state) if self._key is not None else None
                self.hub.reviews.setdefault(number, []).append(replace(review, proof=proof))
            return new

    def _proof(self, number: int, head: CommitId, state: str) -> CommitId:
        """A signed commit that says the same, as the git forge has it; kept reachable by a ref of its own."""
        value = {"schema": "fedops.review/v1", "pull": number, "head": head, "state": state}
        files = {RepoPath("review.json"): json.dumps(value).encode()}
        commit = self._repository.write_commit((), files, "review", at=self._clock.now(), key=self._key)
        self._repository.push((RefUpdate(f"refs/fedops/reviews/{commit}", None, commit),))
        return commit

    def merge(self, number: int, head: CommitId, message: str) -> MergeOutcome:
        with self.hub.lock:
            for _ in range(MAX_ATTEMPTS):
                self._notice_merges()
                pull = self._pull(number)
                if pull.head != head or pull.state == "closed":
                    return "head_moved"
                if pull.state == "merged":
                    return "already_merged"
                main = self._repository.resolve("main")
                assert main is not None
                files = self._merged(main, head)
                if files is None:
                    return "conflict"
                commit = self._repository.write_commit((main, head), files, message, at=self._clock.now())
                if self._repository.push((RefUpdate("refs/heads/main", main, commit),)):
                    self.hub.pulls[number] = replace(pull, state="merged")
                    return "merged"
            raise ForgeError(f"pull {number}: main moved {MAX_ATTEMPTS} times", slug="rate_limited", cause="temporary")

    def close_pull(self, number: int) -> None:
        with self.hub.lock:
            self._notice_merges()
            if self._pull(number).state == "open":
                self.hub.pulls[number] = replace(self._pull(number), state="closed")

    def set_status(
        self, commit: CommitId, state: Literal["success", "failure", "pending"], context: str, text: str
    ) -> None:
        with self.hub.lock:
            self.hub.statuses[commit, context] = (state, text)

    def status(self, commit: CommitId, context: str) -> tuple[str, str] | None:
        with self.hub.lock:
            return self.hub.statuses.get((commit, context))

    def statuses(self, commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str]]:
        return {c: found for c in commits if (found := self.status(c, context)) is not None}

    def upsert_comment(self, number: int, marker: Marker, body: str) -> bool:
        with self.hub.lock:
            self._require(number)
            comments = self.hub.comments.setdefault(number, {})
            changed = comments.get(marker) != marker.stamp(body)
            comments[marker] = marker.stamp(body)
            return changed

    def comments(self, number: int) -> Sequence[str]:
        with self.hub.lock:
            self._require(number)
            return tuple(self.hub.comments.get(number, {}).values())

    def ensure_issue(self, marker: Marker, title: str, body: str, labels: frozenset[str]) -> Issue:
        with self.hub.lock:
            for known, issue in self.hub.issues.values():
                if known == marker:
                    return issue
            issue = Issue(self.hub.next_number(), title, marker.stamp(body), labels, open=True)
            self.hub.issues[issue.number] = (marker, issue)
            return issue

    def issues(
        self,
        labels: frozenset[str],
        *,
        open: bool = True,  # noqa: A002 as in the port
        since: dt.datetime | None = None,
    ) -> Sequence[Issue]:
        with self.hub.lock:
            return tuple(i for _, i in self.hub.issues.values() if labels <= i.labels and i.open == open)

    def close_issue(self, number: int) -> None:
        with self.hub.lock:
            if number not in self.hub.issues:
                raise ForgeError(f"issue {number}: there is none")
            marker, issue = self.hub.issues[number]
            self.hub.issues[number] = (marker, replace(issue, open=False))

    def beat(self, site: SiteId, version: int, state: str, at: dt.datetime) -> None:
        with self.hub.lock:
            self.hub.beats[site] = (version, state, at)

    def beats(self) -> Mapping[SiteId, tuple[int, str, dt.datetime]]:
        with self.hub.lock:
            return dict(self.hub.beats)

    def _pull(self, number: int) -> Pull:
        if number not in self.hub.pulls:
            raise ForgeError(f"pull {number}: there is none")
        return self.hub.pulls[number]

    def _require(self, number: int) -> None:
        if number not in self.hub.pulls and number not in self.hub.issues:
            raise ForgeError(f"{number}: no such pull or issue")

    def _notice_merges(self) -> None:
        """Fetch, and mark open pulls whose head came to main by other hands."""
        self._repository.fetch()
        main = self._repository.resolve("main")
        for number, pull in self.hub.pulls.items():
            if pull.state == "open" and main is not None and self._repository.is_ancestor(pull.head, main):
                self.hub.pulls[number] = replace(pull, state="merged")

    def _merged(self, main: CommitId, head: CommitId) -> dict[RepoPath, bytes | None] | None:
        since = {c.path: c.blob for c in self._repository.changes(head, main)}
        files: dict[RepoPath, bytes | None] = {}
        for change in self._repository.changes(main, head):
            if change.path in since and since[change.path] != change.blob:
                return None
            files[change.path] = None if change.blob is None else self._repository.read(change.blob, max_bytes=2**20)
        return files
