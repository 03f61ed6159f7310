"""The forge that needs no server: pull requests and issues inside the origin itself, any git remote will do.

Pull N is refs/pull/N/head and a file in the chain refs/fedops/forge; everything else is a file there. A change is
fetch, decide, one commit, one atomic push with leases. What cannot be read (anybody who may push can edit the files)
is an error for who asks for it, and is left out of lists with a warning in the log.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from fedops.adapters import forge_git_edits as edits
from fedops.adapters.forge_git_beats import beat, beats
from fedops.adapters.forge_git_chain import Chain
from fedops.adapters.forge_git_documents import IssueFile, PullFile, parse_time
from fedops.adapters.forge_git_merge import merged_files
from fedops.adapters.forge_git_people import People
from fedops.adapters.forge_git_reviews import Reviews
from fedops.adapters.forge_git_state import Edit, View, pull_ref
from fedops.core.errors import FedopsError, ForgeError
from fedops.core.facts import Account, Issue, Marker, MergeOutcome, Pull, RefUpdate, Review
from fedops.core.ids import CommitId, SiteId
from fedops.ports import Clock, Repository

MANY = 50  # statuses, from which on one listing of all is less than a listing for each
_log = logging.getLogger(__name__)


class GitForge:
    """Implements the Forge port on refs of the origin. One thread at a time; every call fetches first.

    Identity is a signature by a key of policies/sites.yaml on main. Whoever did not sign has the login
    "claimed:<committer's name>" and the id -1, which no roster has.

    Args:
        key: SSH private key file that signs reviews and proves who I am.
        account: which of the key's accounts I am, if it has several.
        main: short name of the main branch.
        jitter: a number in [0, 1); spreads the retries of those who lost the same race.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        clock: Clock,
        key: Path | None = None,
        account: Account | None = None,
        main: str = "main",
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._repository = repository
        self._clock = clock
        self._key = key
        self._account = account
        self._main_ref = f"refs/heads/{main}"
        self._chain = Chain(repository, clock, jitter)
        self._people = People(repository, self._main_ref)
        self._reviews = Reviews(repository, self._people)

    def whoami(self) -> Account:
        self._repository.fetch(pulls=())
        login = self._account.login if self._account is not None else None
        return self._people.author(self._people.proof(self._key), login)

    # ------------------------------------------------------------ pulls

    def open_pulls(self) -> Sequence[Pull]:
        files = list(self._chain.view(None).items("pulls", PullFile, is_open=True))
        main = self._repository.resolve(self._main_ref)
        self._people.roster()  # one that cannot be used stops here, and is not taken for a fault of each pull
        refs = self._repository.refs_below("refs/pull") if files else {}
        pulls = []
        for file in files:
            try:
                pulls.append(self._pull(file, refs.get(pull_ref(file.number))))
            except FedopsError as e:
                _log.warning("left out: pull %d: %s", file.number, e.message)
        # By whatever means it was merged, `git merge` by a person too.
        merged = self._repository.merged_into(main, {p.head for p in pulls}) if main is not None else ()
        return tuple(pull for pull in pulls if pull.head not in merged)

    def pull(self, number: int) -> Pull:
        pull = self._pull(self._chain.view((number,)).item("pulls", number, PullFile))
        return dataclasses.replace(pull, state="merged") if pull.state == "open" and self._on_main(pull.head) else pull

    def submit_pull(self, head: CommitId, branch: str, title: str, body: str) -> Pull:
        def decide(view: View) -> tuple[Edit | None, PullFile | None]:
            file = next((f for f in view.items("pulls", PullFile, is_open=True) if f.branch == branch), None)
            if file is None:
                file = self._merged_as(view, head, branch)
                return (None, file) if file is not None else self._new_pull(view, head, branch, title, body)
            ref = self._repository.resolve(pull_ref(file.number))
            if ref == head == file.head:
                return None, file
            if ref is not None and self._on_main(ref):
                return edits.settle_pull(file, "merged", ref, f"found on main as {ref[:12]}"), None
            return edits.move_pull(file, head, title, body, ref)

        file = None
        while file is None:  # at most twice: the second time, a pull that was merged by hand is out of the way
            file = self._chain.change(f"pull of {branch}", decide, pulls=None)
        return self._pull(file)

    def merge(self, number: int, head: CommitId, message: str) -> MergeOutcome:
        def decide(view: View) -> tuple[Edit | None, MergeOutcome]:
            file = view.item("pulls", number, PullFile)
            if file.state != "open":
                return None, "already_merged" if (file.state, file.head) == ("merged", head) else "head_moved"
            if self._head(file) != head:
                return None, "head_moved"
            main = self._repository.resolve(self._main_ref)
            if main is None:
                raise ForgeError(f"{self._main_ref}: no such branch on origin", hint="push the main branch first")
            if self._repository.is_ancestor(head, main):
                return edits.settle_pull(file, "merged", head, f"found on main as {head[:12]}"), "already_merged"
            files = merged_files(self._repository, main, head)
            if files is None:
                return None, "conflict"
            commit = self._repository.write_commit((main, head), files, message, at=self._clock.now())
            # The second lease covers a head that somebody moved without the forge.
            refs = (RefUpdate(self._main_ref, main, commit), RefUpdate(pull_ref(number), head, head))
            return edits.settle_pull(file, "merged", head, f"merged as {commit[:12]}", refs), "merged"

        return self._chain.change(f"pull {number}", decide, pulls=(number,))

    def close_pull(self, number: int) -> None:
        def decide(view: View) -> tuple[Edit | None, None]:
            file = view.item("pulls", number, PullFile)
            if file.state != "open":
                return None, None
            ref = self._repository.resolve(pull_ref(number))
            if ref is not None and self._on_main(ref):
                return edits.settle_pull(file, "merged", ref, f"found on main as {ref[:12]}"), None
            return edits.settle_pull(file, "closed", ref or CommitId(file.head), "closed"), None

        self._chain.change(f"pull {number}", decide, pulls=(number,))

    def _pull(self, file: PullFile, named: str | None = None) -> Pull:
        """Args: named: the object that the pull's ref names, if somebody has looked already."""
        peeled = self._repository.resolve(named) if named is not None else None
        head = peeled if peeled is not None and file.state == "open" else self._head(file)
        author = self._people.author(head)
        opened = parse_time(file.opened_at)
        # Everybody who takes part may push to the origin, so each pull is one of the same repository.
        return Pull(file.number, True, author, head, file.branch, file.title, file.state, opened)

    def _head(self, file: PullFile) -> CommitId:
        """The bytes that are there decide: an open pull's head is its ref, whatever its file says."""
        if file.state != "open":
            return CommitId(file.head)
        ref = self._repository.resolve(pull_ref(file.number))
        if ref is None:  # a push was won that this clone could not note, on a full disk
            self._repository.fetch(pulls=(file.number,))
            ref = self._repository.resolve(pull_ref(file.number))
        if ref is None:
            raise ForgeError(
                f"{pull_ref(file.number)}: is not there -> the head of an open pull",
                hint="hand in again: `fedops submit`",
                slug="object_corrupt",
            )
        return ref

    def _on_main(self, commit: CommitId) -> bool:
        main = self._repository.resolve(self._main_ref)
        return main is not None and self._repository.is_ancestor(commit, main)

    def _merged_as(self, view: View, head: CommitId, branch: str) -> PullFile | None:
        """The merged pull that already brought this head from this branch."""
        if not self._on_main(head):
            return None
        done = view.items("pulls", PullFile, is_open=False)
        return next((f for f in done if (f.head, f.branch, f.state) == (head, branch, "merged")), None)

    def _new_pull(self, view: View, head: CommitId, branch: str, title: str, body: str) -> tuple[Edit, PullFile]:
        number = view.next_number()
        self._repository.fetch((number,))
        while self._repository.resolve(pull_ref(number)) is not None:
            number += 1  # somebody pushed there by hand; it is not ours to overwrite
            self._repository.fetch((number,))
        return edits.new_pull(number, head, branch, title, body, self._clock.now())

    # ------------------------------------------------------------ reviews, statuses, comments

    def reviews(self, number: int) -> Sequence[Review]:
        """Latest review of each lead with its signed commit; what no lead's key of main's roster signed does not count."""
        view = self._chain.view()
        view.item("pulls", number, PullFile)
        latest = self._reviews.latest(view, number)
        return tuple(Review(s.lead, CommitId(s.review.head), s.review.state, s.commit) for s in latest)

    def review(self, number: int, head: CommitId, state: Literal["approved", "changes_requested"], body: str) -> bool:
        key = self._key
        if key is None:
            raise ForgeError(
                f"pull {number}: a review needs a signature, got no key -> a lead's SSH key",
                hint="give the lead's key: `fedops review --key PATH`",
                slug="auth_failed",
                cause="auth",
            )

        def decide(view: View) -> tuple[Edit | None, bool]:
            view.item("pulls", number, PullFile)
            signed = self._reviews.sign(view, number, head, state, body, at=self._clock.now(), key=key)
            return (edits.add_review(number, *signed) if signed is not None else None), signed is not None

        return self._chain.change(f"review of pull {number}", decide)

    def set_status(
        self, commit: CommitId, state: Literal["success", "failure", "pending"], context: str, text: str
    ) -> None:
        def decide(view: View) -> tuple[Edit | None, None]:
            return edits.set_status(view, commit, state, context, text), None

        self._chain.change(f"status of {commit[:12]}", decide)

    def status(self, commit: CommitId, context: str) -> tuple[str, str] | None:
        return edits.status(self._chain.view(), commit, context)

    def statuses(self, commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str]]:
        view = self._chain.view()
        if len(commits) > MANY:
            view.list_at_once("statuses")
        return {c: found for c in commits if (found := edits.status(view, c, context)) is not None}

    def upsert_comment(self, number: int, marker: Marker, body: str) -> bool:
        def decide(view: View) -> tuple[Edit | None, bool]:
            edit = edits.upsert_comment(view, number, marker, body, self._clock.now())
            return edit, edit is not None

        return self._chain.change(f"comment on {number}", decide)

    def comments(self, number: int) -> Sequence[str]:
        return tuple(edits.comments(self._chain.view(), number))

    # ------------------------------------------------------------ issues

    def ensure_issue(self, marker: Marker, title: str, body: str, labels: frozenset[str]) -> Issue:
        def decide(view: View) -> tuple[Edit | None, IssueFile]:
            return edits.ensure_issue(view, view.next_number(), marker, title, body, labels, self._clock.now())

        return _issue(self._chain.change(f"issue {marker.key}", decide))

    def issues(
        self,
        labels: frozenset[str],
        *,
        open: bool = True,  # noqa: A002 as in the port
        since: dt.datetime | None = None,
    ) -> Sequence[Issue]:
        view = self._chain.view()
        files = view.items("issues", IssueFile, is_open=True) if open else view.closed_issues(since)
        found = sorted((f for f in files if labels <= set(f.labels)), key=lambda f: f.number)
        return tuple(_issue(f) for f in found)

    def close_issue(self, number: int) -> None:
        self._chain.change(f"issue {number}", lambda view: (edits.close_issue(view, number), None))

    # ------------------------------------------------------------ heartbeats

    def beat(self, site: SiteId, version: int, state: str, at: dt.datetime) -> None:
        self._chain.race(f"heartbeat of {site}", lambda: (beat(self._repository, site, version, state, at), None))

    def beats(self) -> Mapping[SiteId, tuple[int, str, dt.datetime]]:
        """Heartbeats of the roster's sites; what is not one is logged and left out."""
        self._repository.fetch(pulls=())
        return beats(self._repository, self._people.roster().sites.sites)


def _issue(file: IssueFile) -> Issue:
    return Issue(file.number, file.title, file.body, frozenset(file.labels), file.state == "open")
