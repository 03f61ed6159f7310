"""Questions to GitHub that a token may or may not ask: what it says, or why it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_retry import Answer
from fedops.core.forge_settings import Unread
from fedops.render.text import printable

T = TypeVar("T")

NO_ACCESS = (401, 403, 404)
PAGE, MAX_PAGES = 100, 10  # items, pages: a repository that has more is none that people can oversee
_SHOWN = 120  # characters of GitHub's own words


def asked(api: GitHubApi, path: str, read: Callable[[Any], T], **parameters: str | int) -> T | Unread:
    """What is read from an answer about the repository, or why there is none."""
    answer = api.call("GET", path, parameters=parameters, accept=NO_ACCESS)
    return read(answer.data) if answer.ok else unread(answer)


def listed(api: GitHubApi, path: str, key: str | None = None, **parameters: str) -> list[Mapping[str, Any]] | Unread:
    """All items of a list, or why not all of them are known.

    Args:
        key: where the list is in each page's document; None: the document is the list.
    """
    found: list[Mapping[str, Any]] = []
    answer = api.call("GET", path, parameters={**parameters, "per_page": PAGE}, accept=NO_ACCESS)
    for pages_left in range(MAX_PAGES - 1, -1, -1):
        if not answer.ok:
            break
        found += answer.data if key is None else answer.data[key]
        following = api.following(answer)
        if following is None:
            return found
        if not pages_left:
            return Unread(f"there are more than {len(found)}, and no more were read")
        answer = api.anywhere(following, accept=NO_ACCESS)
    return unread(answer)


def unread(answer: Answer) -> Unread:
    """The reason of a refusal, in GitHub's words."""
    said = printable(answer.said)[:_SHOWN]
    return Unread(f"{answer.status}, {said}" if said else str(answer.status))
