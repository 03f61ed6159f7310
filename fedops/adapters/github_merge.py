"""Merging on GitHub: exactly the judged head, as a merge commit, and what it means if GitHub does not."""

from __future__ import annotations

from fedops.adapters.github_errors import error_of
from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_retry import Answer
from fedops.adapters.github_shapes import pull_of
from fedops.core.errors import ForgeError
from fedops.core.facts import MergeOutcome
from fedops.core.ids import CommitId

_PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds; GitHub works out in the background whether a merge is possible
_NOT_ALLOWED, _CONFLICT = 405, 409


def merge(api: GitHubApi, number: int, head: CommitId, message: str) -> MergeOutcome:
    """Ask for a merge of this head, and for no other.

    Raises:
        ForgeError: a rule of the repository forbids it; or main moved too often.
    """
    title, _, text = message.partition("\n")
    wanted = {"sha": head, "merge_method": "merge", "commit_title": title, "commit_message": text.strip("\n")}
    for pause in (*_PAUSES, None):
        answer = api.put(f"/pulls/{number}/merge", wanted, accept=(_NOT_ALLOWED, _CONFLICT))
        if answer.ok:
            return "merged"
        outcome = _why_not(api, number, head, answer)
        if outcome is not None:
            return outcome
        if pause is not None:
            api.clock.sleep(pause)
    raise ForgeError(
        f"GitHub: pull request #{number}: main moved at each of {len(_PAUSES) + 1} tries: {answer.said}",
        hint="run `fedops ci reconcile` again",
        cause="temporary",
    )


def _why_not(api: GitHubApi, number: int, head: CommitId, answer: Answer) -> MergeOutcome | None:
    """The outcome after a refusal; None: ask again."""
    data = api.get(f"/pulls/{number}")
    pull = pull_of(data)
    if pull.head != head or pull.state == "closed":
        return "head_moved"
    if pull.state == "merged":
        return "already_merged"
    if data["mergeable"] is False:
        return "conflict"
    is_moving = "base branch was modified" in answer.said.lower() or answer.status == _CONFLICT
    if is_moving or data["mergeable"] is None or data["mergeable_state"] == "unknown":
        return None
    raise error_of("PUT", f"/repos/{api.name}/pulls/{number}/merge", answer)
