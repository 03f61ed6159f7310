"""Questions about many commits or pull requests at once, by GraphQL: of what REST tells of one alone, request by request.

A job's token may ask REST 1,000 times an hour, and has as many points for GraphQL besides; one of these questions is one
point. Nothing depends on it: where it does not answer, or not in full, there is no answer, and who asked goes by REST.

Source: GitHub's "Rate limits and query limits for the GraphQL API".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from fedops.adapters.github_http import GitHubApi
from fedops.core.ids import CommitId, is_hex

K = TypeVar("K")

AT_ONCE = 100  # things in one question
_log = logging.getLogger(__name__)


class Graph:
    """Asks until it was refused once."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api
        self._answers = True

    def statuses(self, commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str] | None] | None:
        """(state, text) last set on each commit, as REST words them; None: no answer."""
        if not all(is_hex(commit, 40) for commit in commits):
            return None
        fields = "... on Commit{status{context(name:$context){state description}}}"
        asked = {commit: f'object(oid:"{commit}"){{{fields}}}' for commit in commits}
        found = self._ask(asked, "$context:String!", {"context": context})
        return None if found is None else {commit: _status(data) for commit, data in found.items()}

    def reviewed(self, numbers: Collection[int]) -> Mapping[int, bool] | None:
        """Whether anybody has reviewed each pull request, in whatever way; None: no answer."""
        asked = {number: f"pullRequest(number:{number}){{reviews{{totalCount}}}}" for number in numbers}
        found = self._ask(asked)
        return None if found is None else {number: _may_have_some(data) for number, data in found.items()}

    def _ask(
        self, asked: Mapping[K, str], declared: str = "", variables: Mapping[str, str] | None = None
    ) -> Mapping[K, Any] | None:
        """What GitHub says of each field of the repository."""
        fields = list(asked.items())
        found: dict[K, Any] = {}
        for start in range(0, len(fields), AT_ONCE):
            part = fields[start : start + AT_ONCE]
            named = " ".join(f"a{place}:{field}" for place, (_, field) in enumerate(part))
            answer = self._api.graph(named, declared, variables or {}) if self._answers else None
            if answer is None or not answer.keys() >= {f"a{place}" for place in range(len(part))}:
                _log.debug("GraphQL does not answer: asking REST for each")
                self._answers = False
                return None
            found |= {key: answer[f"a{place}"] for place, (key, _) in enumerate(part)}
        return found


def _may_have_some(data: Mapping[str, Any] | None) -> bool:
    """False only where GitHub says that there are none."""
    return ((data or {}).get("reviews") or {}).get("totalCount") != 0


def _status(data: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """NOTE: null stands for a commit that GitHub does not know, for one without a status, and for one without this one."""
    found = ((data or {}).get("status") or {}).get("context")
    return None if found is None else (str(found["state"]).lower(), str(found["description"] or ""))
