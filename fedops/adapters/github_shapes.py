"""GitHub's documents as plain facts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

from fedops.core.facts import Account, Issue, Pull, Review
from fedops.core.ids import CommitId

# GitHub shows deleted accounts as this one; no roster has it.
NOBODY = Account("ghost", -1)
_STATES: Mapping[str, Literal["approved", "changes_requested", "dismissed"]] = {
    "APPROVED": "approved",
    "CHANGES_REQUESTED": "changes_requested",
    "DISMISSED": "dismissed",
}


def account_of(user: Mapping[str, Any] | None) -> Account:
    """The account, by its number: a login can be given up and taken by somebody else."""
    return NOBODY if user is None else Account(str(user["login"]), int(user["id"]))


def pull_of(data: Mapping[str, Any]) -> Pull:
    """A pull request, as listed or read alone."""
    head, base = data["head"], data["base"]
    source = head["repo"]  # None once the fork is deleted; refs/pull/N/head stays
    return Pull(
        number=int(data["number"]),
        same_repository=source is not None and source["id"] == base["repo"]["id"],
        author=account_of(data["user"]),
        head=CommitId(head["sha"]),
        branch=str(head["ref"]),
        title=str(data["title"]),
        state="merged" if data["merged_at"] else "open" if data["state"] == "open" else "closed",
        opened_at=time_of(data["created_at"]),
    )


def issue_of(data: Mapping[str, Any]) -> Issue:
    return Issue(
        int(data["number"]), str(data["title"]), str(data["body"] or ""), labels_of(data), data["state"] == "open"
    )


def labels_of(data: Mapping[str, Any]) -> frozenset[str]:
    """Names of an issue's labels; GitHub gives them as objects, or as plain names."""
    return frozenset(label if isinstance(label, str) else str(label["name"]) for label in data["labels"])


def review_of(data: Mapping[str, Any]) -> Review | None:
    """A review that says yes or no to one commit; None for comments, drafts, and what is bound to no commit."""
    state = _STATES.get(data["state"])
    if state is None or data["user"] is None or not data["commit_id"]:
        return None
    return Review(account_of(data["user"]), CommitId(data["commit_id"]), state)


def time_of(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).astimezone(dt.UTC)


def same_text(one: str | None, other: str | None) -> bool:
    """Equal but for line ends and outer white space, which web forms change."""
    return _plain(one) == _plain(other)


def _plain(text: str | None) -> str:
    return (text or "").replace("\r\n", "\n").strip()
