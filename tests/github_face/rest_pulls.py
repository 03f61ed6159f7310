"""Pull requests, reviews and merges, with the refusals of the real one."""

from __future__ import annotations

import os
import re

from tests.github_face import shapes
from tests.github_face.hub import PullItem, Repo, ReviewItem
from tests.github_face.rest import Call, Handler, Refused, Result, invalid


def pull_of(call: Call) -> PullItem:
    found = call.hub.pull(int(call.part[0]))
    if found is None:
        raise Refused(404, "Not Found")
    return found


def shown(call: Call, pull: PullItem, status: int = 200) -> Result:
    return status, shapes.pull(call.hub, pull, call.url, whole=True)


def list_pulls(call: Call) -> Result:
    call.hub.notice()
    state = call.query.get("state", "open")
    found = [p for p in call.hub.pulls() if state in ("all", p.state)]
    if "head" in call.query:
        owner, _, ref = call.query["head"].partition(":")
        found = [p for p in found if p.source and p.source.owner.login.lower() == owner.lower() and p.ref == ref]
    if call.query.get("base", "main") != "main":
        found = []
    # GitHub's default: newest first.
    found.sort(key=lambda p: p.number, reverse=call.query.get("direction", "desc") == "desc")
    return 200, [shapes.pull(call.hub, p, call.url, whole=False) for p in found]


def create_pull(call: Call) -> Result:
    hub, body, now = call.hub, call.body, call.hub.now()
    owner, _, ref = body["head"].rpartition(":")
    source = source_of(call, owner or hub.upstream.owner.login)
    head = hub.ref(source, f"refs/heads/{ref}") if source is not None else None
    if source is None or head is None:
        raise invalid("PullRequest", "invalid", field="head")
    assert not (call.who.kind == "User" and source is hub.upstream and not hub.may_write(call.who, source))
    if any(p.state == "open" and p.source is source and p.ref == ref for p in hub.pulls()):
        raise invalid("PullRequest", "custom", message=f"A pull request already exists for {owner}:{ref}.")
    pull = PullItem(hub.next_number(), call.who, body["title"], body.get("body") or "", now, now)
    pull.source, pull.ref, pull.draft = source, ref, bool(body.get("draft"))
    hub.take_head(pull, head)
    main = hub.ref(hub.upstream, "refs/heads/main")
    assert main is not None
    if hub.is_ancestor(head, main):
        raise invalid("PullRequest", "custom", message=f"No commits between main and {owner}:{ref}")
    hub.items[pull.number] = pull
    return shown(call, pull, 201)


def source_of(call: Call, owner: str) -> Repo | None:
    network = [r for r in call.hub.repos.values() if r is call.hub.upstream or r.parent is call.hub.upstream]
    return next((r for r in network if r.owner.login.lower() == owner.lower()), None)


def get_pull(call: Call) -> Result:
    call.hub.notice()
    return shown(call, pull_of(call))


def update_pull(call: Call) -> Result:
    pull = pull_of(call)
    if call.who != pull.author and not call.hub.may_write(call.user, call.hub.upstream):
        raise Refused(403, "Must have admin rights to Repository.")
    pull.title, pull.body = call.body.get("title", pull.title), call.body.get("body", pull.body)
    pull.state = call.body.get("state", pull.state)
    return shown(call, pull)


# ---------------------------------------------------------------- merging


def merge_pull(call: Call) -> Result:
    hub = call.hub
    pull, user = pull_of(call), call.writer()
    if hub.before_merge:
        hub.before_merge.pop(0)()
        raise Refused(405, "Base branch was modified. Review and try the merge again.")
    hub.notice()
    if pull.state != "open" or pull.draft:
        raise Refused(405, "Pull Request is not mergeable")
    if call.body.get("sha", pull.head) != pull.head:
        raise Refused(409, "Head branch was modified. Review and try the merge again.")
    main = hub.ref(hub.upstream, "refs/heads/main")
    assert main is not None
    tree = hub.merged_tree(main, pull.head)
    if tree is None:
        raise Refused(405, "Pull Request is not mergeable")
    method = call.body.get("merge_method", "merge")
    title = call.body.get("commit_title") or f"Merge pull request #{pull.number} from {pull.ref}"
    text = call.body.get("commit_message", pull.title if method == "merge" else "")
    message = f"{title}\n\n{text}" if text else title
    if method == "rebase":
        message = hub.git(hub.upstream, "log", "-1", "--format=%B", pull.head)
    parents = [main, pull.head] if method == "merge" else [main]
    commit = hub.commit(tree, parents, message, user, os.environ)
    hub.git(hub.upstream, "update-ref", "refs/heads/main", commit, main)
    pull.state, pull.merged_at, pull.merge_commit = "closed", hub.now(), commit
    return 200, {"sha": commit, "merged": True, "message": "Pull Request successfully merged"}


def update_branch(call: Call) -> Result:
    """The button "Update branch": main is merged into the head."""
    hub, pull = call.hub, pull_of(call)
    source, main = pull.source, hub.ref(hub.upstream, "refs/heads/main")
    assert source is not None
    assert main is not None
    if not hub.may_write(call.who, source):
        raise Refused(403, "Resource not accessible by personal access token")
    tree = hub.merged_tree(pull.head, main)
    if tree is None:
        raise Refused(422, "merge conflict between base and head")
    commit = hub.commit(tree, [pull.head, main], f"Merge branch 'main' into {pull.ref}", call.who, os.environ)
    hub.git(hub.upstream, "update-ref", f"refs/pull/{pull.number}/head", commit)
    hub.git(source, "update-ref", f"refs/heads/{pull.ref}", commit)  # the objects are the network's
    pull.head = commit
    return 202, {"message": "Updating pull request branch.", "url": ""}


# ---------------------------------------------------------------- reviews


def list_reviews(call: Call) -> Result:
    number = pull_of(call).number
    return 200, [shapes.review(r) for r in call.hub.reviews if r.number == number]


def create_review(call: Call) -> Result:
    pull, event = pull_of(call), call.body["event"]
    if call.who == pull.author and event != "COMMENT":
        verb = "approve" if event == "APPROVE" else "request changes on"
        raise Refused(422, "Unprocessable Entity", f"Can not {verb} your own pull request")
    if event != "APPROVE" and not call.body.get("body"):
        raise Refused(422, "Unprocessable Entity", "body is required")
    state = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}[event]
    commit = call.body.get("commit_id", pull.head)
    one = ReviewItem(call.hub.next_id(), pull.number, call.who, call.body.get("body", ""), state, commit)
    call.hub.reviews.append(one)
    return 200, shapes.review(one)


def dismiss_review(call: Call) -> Result:
    one = next(r for r in call.hub.reviews if r.id == int(call.part[1]))
    call.writer()
    one.state = "DISMISSED"
    return 200, shapes.review(one)


ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    (method, re.compile(pattern + r"\Z"), handler)
    for method, pattern, handler in (
        ("GET", "/pulls", list_pulls),
        ("POST", "/pulls", create_pull),
        ("GET", r"/pulls/(\d+)", get_pull),
        ("PATCH", r"/pulls/(\d+)", update_pull),
        ("PUT", r"/pulls/(\d+)/merge", merge_pull),
        ("PUT", r"/pulls/(\d+)/update-branch", update_branch),
        ("GET", r"/pulls/(\d+)/reviews", list_reviews),
        ("POST", r"/pulls/(\d+)/reviews", create_review),
        ("PUT", r"/pulls/(\d+)/reviews/(\d+)/dismissals", dismiss_review),
    )
]
