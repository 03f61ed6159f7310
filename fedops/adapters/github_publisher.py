"""What the job that publishes has to push with on GitHub: its environment, the secret there, and the deploy keys that may write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedops.adapters.github_asking import NO_ACCESS, asked, unread
from fedops.adapters.github_http import GitHubApi
from fedops.core.deploy_key import KEY
from fedops.core.forge_settings import ENVIRONMENT, NOT_ASKED, Publisher, Unread
from fedops.render.text import printable

_PAGE = 100
_AT = f"/environments/{ENVIRONMENT}"
_ABSENT = 404


def read_publisher(api: GitHubApi) -> Publisher:
    """All that the token may read of it: at most five requests. Of secrets GitHub tells the names alone."""
    keys = asked(api, "/keys", _writing, per_page=_PAGE)
    answer = api.call("GET", _AT, accept=NO_ACCESS)
    if answer.status == _ABSENT:  # NOTE: whoever may read the repository may read its environments (GitHub's reference)
        in_repository = asked(api, "/actions/secrets", _has_key, per_page=_PAGE)
        return Publisher(environment=False, secret=False, repository_secret=in_repository, keys=keys)
    secret = asked(api, f"{_AT}/secrets", _has_key, per_page=_PAGE)
    return Publisher(
        environment=True if answer.ok else unread(answer),
        refs=_refs(api, answer.data) if answer.ok else unread(answer),
        secret=secret,
        repository_secret=asked(api, "/actions/secrets", _has_key, per_page=_PAGE) if secret is False else NOT_ASKED,
        keys=keys,
    )


def _refs(api: GitHubApi, environment: Mapping[str, Any]) -> tuple[str, ...] | Unread | None:
    policy = environment.get("deployment_branch_policy")
    # NOTE: "protected branches" are those of classic protection, and all where none is protected in that way.
    if not policy or not policy["custom_branch_policies"]:
        return None
    return asked(api, f"{_AT}/deployment-branch-policies", _patterns, per_page=_PAGE)


def _patterns(data: Mapping[str, Any]) -> tuple[str, ...]:
    kinds = {"tag": "refs/tags"}
    return tuple(f"{kinds.get(one.get('type', ''), 'refs/heads')}/{one['name']}" for one in data["branch_policies"])


def _has_key(data: Mapping[str, Any]) -> bool:
    return any(one["name"] == KEY for one in data["secrets"])


def _writing(found: list[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(printable(str(one["title"])) for one in found if not one["read_only"] and one.get("enabled", True))
