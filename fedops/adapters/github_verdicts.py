"""What is said of one commit on GitHub: reviews, and commit statuses. Both are bound to the commit, not to the pull request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from fedops.adapters.github_graph import Graph
from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_people import People
from fedops.adapters.github_shapes import account_of, review_of, same_text
from fedops.core.facts import Pull, Review
from fedops.core.ids import CommitId

MAX_DESCRIPTION = 140  # characters of a status
_EVENTS = {"approved": "APPROVE", "changes_requested": "REQUEST_CHANGES"}
_NO_REASON = "Changes are requested."  # GitHub demands a text
_MANY = 2  # of fewer, each is asked for alone
_Key = tuple[CommitId, str]


class Verdicts:
    """Reviews and statuses."""

    def __init__(self, api: GitHubApi, people: People) -> None:
        self._api = api
        self._people = people
        self._graph = Graph(api)
        self._heads: frozenset[CommitId] = frozenset()  # expected, and not read together yet
        self._numbers: frozenset[int] = frozenset()
        # What was read together and nobody asked for yet; and what `status` said last, which is set next if at all.
        self._ahead: dict[_Key, tuple[str, str] | None] = {}
        self._unreviewed: set[int] = set()
        self._said: tuple[_Key, tuple[str, str] | None] | None = None

    def expect(self, pulls: Sequence[Pull]) -> None:
        """Say which pull requests are open: what is asked of one of them is then read of all at once, if that can be."""
        many = pulls if len(pulls) >= _MANY else ()
        self._heads, self._numbers = frozenset(p.head for p in many), frozenset(p.number for p in many)
        self._ahead.clear()
        self._unreviewed.clear()
        self._said = None

    def reviews(self, number: int) -> Sequence[Review]:
        """The latest yes or no of each account; a comment takes nothing back, a dismissal does.

        That there is none may be known of all open ones; what there is, is read at this moment.
        """
        if number in self._numbers:
            reviewed = self._graph.reviewed(self._numbers) or {}
            self._unreviewed.update(n for n, is_reviewed in reviewed.items() if not is_reviewed)
            self._numbers = frozenset()
        if number in self._unreviewed:
            self._unreviewed.remove(number)
            return ()
        return tuple(review for review, _ in self._latest(number).values())

    def review(self, number: int, head: CommitId, state: Literal["approved", "changes_requested"], body: str) -> bool:
        text = body or ("" if state == "approved" else _NO_REASON)
        mine = self._mine(number)
        if mine is not None and _says(mine, head, state, text):
            return False
        wanted = {"commit_id": head, "event": _EVENTS[state], "body": text}

        def find() -> dict[str, Any] | None:
            found = self._mine(number)
            return found if found is not None and _says(found, head, state, text) else None

        self._api.create(f"/pulls/{number}/reviews", wanted, find)
        return True

    def _mine(self, number: int) -> dict[str, Any] | None:
        found = self._latest(number).get(self._people.me().id)
        return found[1] if found is not None else None

    def _latest(self, number: int) -> dict[int, tuple[Review, dict[str, Any]]]:
        last: dict[int, tuple[Review, dict[str, Any]]] = {}
        for data in self._api.pages(f"/pulls/{number}/reviews"):  # oldest first
            review = review_of(data)
            if review is not None:
                last.pop(review.author.id, None)
                last[review.author.id] = review, data
            elif data["user"] is not None and data["state"] in _BINDING:
                last.pop(account_of(data["user"]).id, None)  # bound to a commit that is gone: it says nothing any more
        return last

    def set_status(
        self, commit: CommitId, state: Literal["success", "failure", "pending"], context: str, text: str
    ) -> None:
        """Set a status, unless it says so already: a commit may have 1,000 of them for one context."""
        said = text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + "…"
        key = (commit, context)
        self._ahead.pop(key, None)
        before, self._said = self._said, None
        now = before[1] if before is not None and before[0] == key else self._read(commit, context)
        if now != (state, said):
            self._api.post(f"/statuses/{commit}", {"state": state, "context": context, "description": said})

    def status(self, commit: CommitId, context: str) -> tuple[str, str] | None:
        """(state, text); what was read together is given out once, so that who waits for a change sees it."""
        key = (commit, context)
        if key not in self._ahead and commit in self._heads:
            self._ahead |= self._together(self._heads, context) or {}
            self._heads = frozenset()
        found = self._ahead.pop(key) if key in self._ahead else self._read(commit, context)
        self._said = key, found
        return found

    def statuses(self, commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str]]:
        """Those of several commits, at once; where that cannot be, one request each, for REST has no list of them."""
        read = self._together(commits, context) if len(commits) >= _MANY else None
        if read is None:
            read = {(commit, context): self._read(commit, context) for commit in commits}
        self._ahead |= read
        self._heads -= set(commits)
        return {commit: found for (commit, _), found in read.items() if found is not None}

    def _together(self, commits: Collection[CommitId], context: str) -> dict[_Key, tuple[str, str] | None] | None:
        read = self._graph.statuses(commits, context)
        return None if read is None else {(commit, context): found for commit, found in read.items()}

    def _read(self, commit: CommitId, context: str) -> tuple[str, str] | None:
        path = f"/commits/{quote(commit)}/status"
        # NOTE: 422 and 404 both mean that GitHub knows no such commit.
        found = self._api.find(f"{path}?per_page=100", absent=(404, 422))
        if found is None:
            return None
        statuses: Sequence[dict[str, Any]] = found["statuses"]
        if int(found["total_count"]) > len(statuses):
            statuses = list(self._api.pages(path, "statuses"))
        # Of each context GitHub gives the last one.
        last = next((s for s in statuses if s["context"] == context), None)
        return None if last is None else (str(last["state"]), str(last["description"] or ""))


_BINDING = ("APPROVED", "CHANGES_REQUESTED", "DISMISSED")


def _says(data: dict[str, Any], head: CommitId, state: str, text: str) -> bool:
    review = review_of(data)
    return review is not None and (review.head, review.state) == (head, state) and same_text(data["body"], text)
