"""Questions to GitHub that a token may or may not ask: what it says, or why it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_retry import Answer
from fedops.core.forge_settings import Unread
from fedops.render.text import printable

T = TypeVar("T")

NO_ACCESS = (401, 403, 404)
_SHOWN = 120  # characters of GitHub's own words


def asked(api: GitHubApi, path: str, read: Callable[[Any], T], **parameters: str | int) -> T | Unread:
    """What is read from an answer about the repository, or why there is none."""
    answer = api.call("GET", path, parameters=parameters, accept=NO_ACCESS)
    return read(answer.data) if answer.ok else unread(answer)


def unread(answer: Answer) -> Unread:
    """The reason of a refusal, in GitHub's words."""
    said = printable(answer.said)[:_SHOWN]
    return Unread(f"{answer.status}, {said}" if said else str(answer.status))
