"""GitHub's documents: what the client reads is set here, all else that GitHub gives is neutral."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.github_face.hub import Comment, Hub, Item, PullItem, Release, Repo, ReviewItem, StatusItem, User
from tests.github_face.openapi import github


def time(at: dt.datetime | None) -> str | None:
    return None if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")


def user(who: User, schema: str = "simple-user") -> dict[str, Any]:
    return github().filled(schema, {"login": who.login, "id": who.id, "type": who.kind})


def account(who: User) -> dict[str, Any]:
    values = {"login": who.login, "id": who.id, "type": who.kind, "user_view_type": "public"}
    return github().filled("public-user", values)


def repo(hub: Hub, one: Repo, who: User | None, schema: str = "full-repository") -> dict[str, Any]:
    write = hub.may_write(who, one)
    values: dict[str, Any] = {
        "id": one.id,
        "name": one.name,
        "full_name": one.full_name,
        "owner": user(one.owner),
        "fork": one.parent is not None,
        "default_branch": hub.settings.default_branch,
        "archived": hub.settings.archived,
        "has_issues": hub.settings.has_issues,
        "private": hub.settings.private,
    }
    if hub.settings.allow_forking is not None and schema == "full-repository":
        values["allow_forking"] = hub.settings.allow_forking
    if write and schema == "full-repository":
        values |= hub.settings.merges
    if who is not None and who.kind == "User":
        values["permissions"] = {"admin": False, "push": write, "pull": True}
    if one.parent is not None and schema == "full-repository":
        values["parent"] = values["source"] = repo(hub, one.parent, None, "repository")
    return github().filled(schema, values)


def labels(names: list[str]) -> list[dict[str, Any]]:
    return [github().filled("label", {"id": 1, "name": name, "color": "0e8a16"}) for name in names]


def pull(hub: Hub, one: PullItem, url: str, *, whole: bool) -> dict[str, Any]:
    def side(of: Repo | None, ref: str, sha: str) -> dict[str, Any]:
        shown = repo(hub, of, None, "repository") if of is not None else None
        owner = of.owner if of is not None else one.author
        return {"label": f"{owner.login}:{ref}", "ref": ref, "sha": sha, "repo": shown, "user": user(owner)}

    main = hub.ref(hub.upstream, "refs/heads/main") or ""
    values: dict[str, Any] = {
        "number": one.number,
        "id": 7000 + one.number,
        "url": f"{url}/pulls/{one.number}",
        "state": one.state,
        "title": one.title,
        "body": one.body or None,
        "user": user(one.author),
        "created_at": time(one.at),
        "updated_at": time(one.touched),
        "merged_at": time(one.merged_at),
        "merge_commit_sha": one.merge_commit,
        "head": side(one.source, one.ref, one.head),
        "base": side(hub.upstream, "main", main),
        "draft": one.draft,
    }
    if whole:
        fits = one.state == "open" and hub.merged_tree(main, one.head) is not None
        values |= {
            "merged": one.merged_at is not None,
            "mergeable": fits if one.state == "open" else None,
            "mergeable_state": "clean" if fits else "dirty" if one.state == "open" else "unknown",
        }
    return github().filled("pull-request" if whole else "pull-request-simple", values)


def issue(one: Item, url: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        "number": one.number,
        "id": 7000 + one.number,
        "url": f"{url}/issues/{one.number}",
        "state": one.state,
        "state_reason": one.reason,
        "title": one.title,
        "body": one.body or None,
        "user": user(one.author),
        "labels": labels(one.labels),
        "created_at": time(one.at),
        "updated_at": time(one.touched),
    }
    if isinstance(one, PullItem):
        at = f"{url}/pulls/{one.number}"
        values["pull_request"] = {"url": at, "html_url": at, "diff_url": at, "patch_url": at}
    return github().filled("issue", values)


def comment(one: Comment, url: str) -> dict[str, Any]:
    values = {
        "id": one.id,
        "user": user(one.author),
        "body": one.body,
        "created_at": time(one.at),
        "updated_at": time(one.touched),
        "issue_url": f"{url}/issues/{one.number}",
    }
    return github().filled("issue-comment", values)


def review(one: ReviewItem) -> dict[str, Any]:
    values = {
        "id": one.id,
        "user": user(one.author),
        "body": one.body,
        "state": one.state,
        "commit_id": one.commit,
        "_links": {"html": {"href": ""}, "pull_request": {"href": ""}},
    }
    return github().filled("pull-request-review", values)


def status(one: StatusItem, schema: str = "status") -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": one.id,
        "state": one.state,
        "context": one.context,
        "description": one.description,
        "target_url": None,
    }
    if schema == "status":
        values["creator"] = user(one.creator)
    return github().filled(schema, values)


def release(one: Release) -> dict[str, Any]:
    values = {"id": one.id, "tag_name": one.tag, "name": one.name, "body": one.body, "target_commitish": "main"}
    return github().filled("release", values)
