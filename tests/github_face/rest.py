"""The REST operations that fedops uses, with the refusals of the real one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tests.github_face import shapes
from tests.github_face.hub import Comment, Hub, Item, Release, Repo, StatusItem, User

Result = tuple[int, Any]


@dataclass(frozen=True)
class Call:
    """One request.

    Args:
        user: behind the token; None: anonymous.
        url: address of the repository.
        part: what the path's pattern found.
    """

    hub: Hub
    user: User | None
    repo: Repo
    url: str
    query: Mapping[str, str]
    body: Any
    part: tuple[str, ...] = ()

    @property
    def who(self) -> User:
        if self.user is None:
            raise Refused(401, "Requires authentication")
        return self.user

    def writer(self) -> User:
        """Who asks, if that account may write."""
        if not self.hub.may_write(self.who, self.hub.upstream):
            raise Refused(403, "Resource not accessible by personal access token")
        return self.who

    def item(self) -> Item:
        found = self.hub.items.get(int(self.part[0]))
        if found is None:
            raise Refused(404, "Not Found")
        return found


class Refused(Exception):  # noqa: N818 what the server says, no error of the test
    def __init__(self, status: int, message: str, *errors: Any) -> None:
        super().__init__(message)
        self.status = status
        self.document: dict[str, Any] = {"message": message, "documentation_url": "https://docs.invalid"}
        if errors:
            self.document["errors"] = list(errors)


def invalid(resource: str, code: str, **more: str) -> Refused:
    return Refused(422, "Validation Failed", {"resource": resource, "code": code, **more})


# ---------------------------------------------------------------- repository


def get_repo(call: Call) -> Result:
    return 200, shapes.repo(call.hub, call.repo, call.user)


def list_forks(call: Call) -> Result:
    forks = [r for r in call.hub.repos.values() if r.parent is call.repo]
    return 200, [shapes.repo(call.hub, r, call.user, "minimal-repository") for r in forks]


def get_ref(call: Call) -> Result:
    name = f"refs/{unquote(call.part[0])}"
    sha = call.hub.ref(call.repo, name)
    if sha is None:
        raise Refused(404, "Not Found")
    return 200, {"ref": name, "node_id": "", "url": "", "object": {"type": "tag", "sha": sha, "url": ""}}


# ---------------------------------------------------------------- issues


def list_issues(call: Call) -> Result:
    wanted = {n.lower() for n in call.query.get("labels", "").split(",") if n}
    state = call.query.get("state", "open")
    since = call.query.get("since", "")
    found = [
        i
        for i in call.hub.items.values()
        if state in ("all", i.state)
        and wanted <= {n.lower() for n in i.labels}
        and (shapes.time(i.touched) or "") >= since
    ]
    newest_first = call.query.get("direction", "desc") == "desc"
    ordered = sorted(found, key=lambda i: i.number, reverse=newest_first)
    return 200, [shapes.issue(i, call.url) for i in ordered]


def create_issue(call: Call) -> Result:
    hub, now = call.hub, call.hub.now()
    issue = Item(hub.next_number(), call.who, call.body["title"], call.body.get("body") or "", now, now)
    if hub.may_write(call.user, hub.upstream):  # silently dropped for all others
        issue.labels = list(call.body.get("labels", []))
    hub.items[issue.number] = issue
    return 201, shapes.issue(issue, call.url)


def get_issue(call: Call) -> Result:
    return 200, shapes.issue(call.item(), call.url)


def update_issue(call: Call) -> Result:
    issue = call.item()
    if call.who != issue.author and not call.hub.may_write(call.user, call.hub.upstream):
        raise Refused(403, "Must have admin rights to Repository.")
    issue.state = call.body.get("state", issue.state)
    issue.reason = call.body.get("state_reason", issue.reason)
    issue.title, issue.body = call.body.get("title", issue.title), call.body.get("body", issue.body)
    return 200, shapes.issue(issue, call.url)


def list_comments(call: Call) -> Result:
    number = call.item().number
    return 200, [shapes.comment(c, call.url) for c in call.hub.comments.values() if c.number == number]


def list_all_comments(call: Call) -> Result:
    found = list(call.hub.comments.values())
    if "sort" in call.query:
        key = "touched" if call.query["sort"] == "updated" else "at"
        found.sort(key=lambda c: getattr(c, key), reverse=call.query.get("direction", "desc") == "desc")
    return 200, [shapes.comment(c, call.url) for c in found]


def create_comment(call: Call) -> Result:
    item = call.item()
    comment = Comment(call.hub.next_id(), item.number, call.who, call.body["body"], call.hub.now())
    call.hub.comments[comment.id] = comment
    item.touched = call.hub.now()
    return 201, shapes.comment(comment, call.url)


def update_comment(call: Call) -> Result:
    comment = call.hub.comments[int(call.part[0])]
    if call.who != comment.author and not call.hub.may_write(call.user, call.hub.upstream):
        raise Refused(403, "Must have admin rights to Repository.")
    comment.body, comment.edited = call.body["body"], call.hub.now()
    return 200, shapes.comment(comment, call.url)


def list_labels(call: Call) -> Result:
    return 200, shapes.labels(list(call.hub.labels))


def create_label(call: Call) -> Result:
    if not call.hub.may_write(call.who, call.hub.upstream):
        raise Refused(404, "Not Found")
    name = call.body["name"]
    if name.lower() in {known.lower() for known in call.hub.labels}:
        raise invalid("Label", "already_exists", field="name")
    call.hub.labels[name] = call.body.get("color", "")
    return 201, shapes.labels([name])[0]


# ---------------------------------------------------------------- statuses, releases


def create_status(call: Call) -> Result:
    sha = call.part[0]
    if not call.hub.has_commit(sha):
        raise Refused(422, f"No commit found for SHA: {sha}")
    if len(call.body.get("description") or "") > 140:
        raise invalid("Status", "custom", message="description is too long (maximum is 140 characters)")
    body = call.body
    one = StatusItem(
        call.hub.next_id(), sha, body["context"], body["state"], body.get("description", ""), call.writer()
    )
    call.hub.statuses.append(one)
    return 201, shapes.status(one)


def combined_status(call: Call) -> Result:
    sha = call.part[0]
    if not call.hub.has_commit(sha):
        raise Refused(404, "Not Found")
    last = {s.context: s for s in call.hub.statuses if s.sha == sha}
    return 200, {
        "state": "pending",
        "sha": sha,
        "total_count": len(last),
        "statuses": [shapes.status(s, "simple-commit-status") for s in last.values()],
        "repository": shapes.repo(call.hub, call.repo, None, "minimal-repository"),
        "commit_url": "",
        "url": "",
    }


def get_release(call: Call) -> Result:
    tag = unquote(call.part[0])
    found = next((r for r in call.hub.releases if r.tag == tag), None)
    if found is None:
        raise Refused(404, "Not Found")
    return 200, shapes.release(found)


def create_release(call: Call) -> Result:
    tag = call.body["tag_name"]
    if any(r.tag == tag for r in call.hub.releases):
        raise invalid("Release", "already_exists", field="tag_name")
    assert call.hub.ref(call.hub.upstream, f"refs/tags/{tag}"), "GitHub would make a tag of its own here"
    call.writer()
    one = Release(call.hub.next_id(), tag, call.body.get("name", ""), call.body.get("body", ""))
    call.hub.releases.append(one)
    return 201, shapes.release(one)


def update_release(call: Call) -> Result:
    one = next(r for r in call.hub.releases if r.id == int(call.part[0]))
    call.writer()
    one.name, one.body = call.body.get("name", one.name), call.body.get("body", one.body)
    return 200, shapes.release(one)


# ---------------------------------------------------------------- workflows


def dispatch(call: Call) -> Result:
    file, inputs = call.part[0], call.body.get("inputs", {})
    if call.hub.ref(call.repo, f"{call.body['ref']}:.github/workflows/{file}") is None:
        raise Refused(404, "Not Found")
    call.hub.dispatches.append((file, inputs))
    return 204, None


Handler = Callable[[Call], Result]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    (method, re.compile(pattern + r"\Z"), handler)
    for method, pattern, handler in (
        ("GET", "", get_repo),
        ("GET", "/forks", list_forks),
        ("GET", "/git/ref/(.+)", get_ref),
        ("GET", "/issues", list_issues),
        ("POST", "/issues", create_issue),
        ("GET", r"/issues/(\d+)", get_issue),
        ("PATCH", r"/issues/(\d+)", update_issue),
        ("GET", r"/issues/(\d+)/comments", list_comments),
        ("POST", r"/issues/(\d+)/comments", create_comment),
        ("GET", "/issues/comments", list_all_comments),
        ("PATCH", r"/issues/comments/(\d+)", update_comment),
        ("GET", "/labels", list_labels),
        ("POST", "/labels", create_label),
        ("POST", "/statuses/([0-9a-f]{40})", create_status),
        ("GET", "/commits/([0-9a-f]{40})/status", combined_status),
        ("GET", "/releases/tags/(.+)", get_release),
        ("POST", "/releases", create_release),
        ("PATCH", r"/releases/(\d+)", update_release),
        ("POST", "/actions/workflows/([^/]+)/dispatches", dispatch),
    )
]
