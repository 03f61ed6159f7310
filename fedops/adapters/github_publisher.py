"""What the job that publishes has to push with on GitHub: its environment, the secret there, and the deploy keys that may write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedops.adapters.github_asking import NO_ACCESS, listed, unread
from fedops.adapters.github_http import GitHubApi
from fedops.core.deploy_key import KEY
from fedops.core.forge_settings import ENVIRONMENT, NOT_ASKED, Publisher, Unread
from fedops.render.text import printable

_AT = f"/environments/{ENVIRONMENT}"
_ABSENT = 404


def read_publisher(api: GitHubApi) -> Publisher:
    """All that the token may read of it: at most five requests, if no list has a second page.

    Of secrets GitHub tells the names alone.
    """
    keys = _writing(api)
    answer = api.call("GET", _AT, accept=NO_ACCESS)
    if answer.status == _ABSENT:  # NOTE: whoever may read the repository may read its environments (GitHub's reference)
        in_repository = _has_key(api, "/actions/secrets")
        return Publisher(environment=False, secret=False, repository_secret=in_repository, keys=keys)
    secret = _has_key(api, f"{_AT}/secrets")
    return Publisher(
        environment=True if answer.ok else unread(answer),
        refs=_refs(api, answer.data) if answer.ok else unread(answer),
        secret=secret,
        repository_secret=_has_key(api, "/actions/secrets") if secret is False else NOT_ASKED,
        keys=keys,
    )


def _refs(api: GitHubApi, environment: Mapping[str, Any]) -> tuple[str, ...] | Unread | None:
    policy = environment.get("deployment_branch_policy")
    # NOTE: "protected branches" are those of classic protection, and all where none is protected in that way.
    if not policy or not policy["custom_branch_policies"]:
        return None
    found = listed(api, f"{_AT}/deployment-branch-policies", "branch_policies")
    kinds = {"tag": "refs/tags"}
    if isinstance(found, Unread):
        return found
    return tuple(f"{kinds.get(one.get('type', ''), 'refs/heads')}/{one['name']}" for one in found)


def _has_key(api: GitHubApi, path: str) -> bool | Unread:
    found = listed(api, path, "secrets")
    return found if isinstance(found, Unread) else any(one["name"] == KEY for one in found)


def _writing(api: GitHubApi) -> tuple[str, ...] | Unread:
    found = listed(api, "/keys")
    if isinstance(found, Unread):
        return found
    return tuple(printable(str(one["title"])) for one in found if not one["read_only"] and one.get("enabled", True))
