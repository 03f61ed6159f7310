"""What is said of one commit on GitHub: reviews, and commit statuses. Both are bound to the commit, not to the pull request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_people import People
from fedops.adapters.github_shapes import account_of, review_of, same_text
from fedops.core.facts import Review
from fedops.core.ids import CommitId

MAX_DESCRIPTION = 140  # characters of a status
_EVENTS = {"approved": "APPROVE", "changes_requested": "REQUEST_CHANGES"}
_NO_REASON = "Changes are requested."  # GitHub demands a text


class Verdicts:
    """Reviews and statuses."""

    def __init__(self, api: GitHubApi, people: People) -> None:
        self._api = api
        self._people = people
        # What `statuses` read and `status` was not asked for yet.
        self._ahead: dict[tuple[CommitId, str], tuple[str, str] | None] = {}

    def reviews(self, number: int) -> Sequence[Review]:
        """The latest yes or no of each account; a comment takes nothing back, a dismissal does."""
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
        self._ahead.pop((commit, context), None)
        if self._read(commit, context) != (state, said):
            self._api.post(f"/statuses/{commit}", {"state": state, "context": context, "description": said})

    def status(self, commit: CommitId, context: str) -> tuple[str, str] | None:
        """(state, text); what `statuses` has just read is given out once, so that who waits for a change sees it."""
        key = (commit, context)
        return self._ahead.pop(key) if key in self._ahead else self._read(commit, context)

    def statuses(self, commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str]]:
        """Those of several commits, one request each: GitHub has no list of them."""
        read = {commit: self._read(commit, context) for commit in commits}
        self._ahead |= {(commit, context): found for commit, found in read.items()}
        return {commit: found for commit, found in read.items() if found is not None}

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
