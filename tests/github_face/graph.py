"""The two questions that fedops asks by GraphQL: the status of many commits, and whether many pull requests were reviewed.

Everything else fails. By GitHub's public schema `Repository.object(oid)` is null for what it does not know,
`Commit.status` for a commit without any, `Status.context(name)` without this one; `PullRequest.reviews` counts all kinds.
"""

from __future__ import annotations

import re
from typing import Any

from tests.github_face.hub import Hub, User
from tests.github_face.rest import Refused
from tests.github_face.rights import allows

AT_ONCE = 100
_QUERY = re.compile(
    r"query\(\$owner:String!,\$name:String!(?P<declared>,\$context:String!)?\)"
    r"\{repository\(owner:\$owner,name:\$name\)\{(?P<fields>.*)\}\}"
)
_FIELD = re.compile(
    r'(?P<alias>a\d+):(?:object\(oid:"(?P<oid>[0-9a-f]{40})"\)'
    r"\{\.\.\. on Commit\{status\{context\(name:\$context\)\{state description\}\}\}\}"
    r"|pullRequest\(number:(?P<number>\d+)\)\{reviews\{totalCount\}\}) ?"
)


def answer(hub: Hub, token: str, user: User | None, body: Any) -> Any:
    """The document that is answered; what is refused, GitHub says in one of status 200."""
    if not hub.has_graph:
        raise Refused(404, "Not Found")
    if user is None:
        raise Refused(403, "API rate limit exceeded for 127.0.0.1.")  # what it says to those without a token
    query = _QUERY.fullmatch(body["query"])
    assert query is not None, body["query"]
    given = {"owner", "name"} | ({"context"} if query["declared"] else set())
    assert body["variables"].keys() == given, body["variables"]
    fields = list(_FIELD.finditer(query["fields"]))
    assert "".join(field[0] for field in fields) == query["fields"], query["fields"]
    assert 0 < len({field["alias"] for field in fields}) == len(fields) <= AT_ONCE
    hub.questions.append(len(fields))
    assert f"{body['variables']['owner']}/{body['variables']['name']}".lower() in hub.repos
    if not _may(hub, token, fields):
        error = {"type": "FORBIDDEN", "message": "Resource not accessible by integration"}
        return {"data": {"repository": {field["alias"]: None for field in fields}}, "errors": [error]}
    errors = [
        {"type": "NOT_FOUND", "message": f"Could not resolve to a PullRequest with the number of {field['number']}."}
        for field in fields
        if field["number"] and hub.pull(int(field["number"])) is None
    ]
    context = body["variables"].get("context", "")
    found = {field["alias"]: _value(hub, field, context) for field in fields}
    return {"data": {"repository": found}} | ({"errors": errors} if errors else {})


def _may(hub: Hub, token: str, fields: list[re.Match[str]]) -> bool:
    """As a private repository asks of a job's token."""
    job = hub.jobs.get(token)
    needs: set[tuple[str, str]] = set()
    for field in fields:
        needs |= {("contents", "read"), ("statuses", "read")} if field["oid"] else {("pull-requests", "read")}
    if job is None or allows(job.rights, tuple(needs)):
        return True
    hub.refused.append((token, "POST", "/graphql"))
    return False


def _value(hub: Hub, field: re.Match[str], context: str) -> Any:
    if field["number"]:
        number = int(field["number"])
        if hub.pull(number) is None:
            return None
        return {"reviews": {"totalCount": sum(review.number == number for review in hub.reviews)}}
    if not hub.has_commit(field["oid"]):
        return None
    of_commit = [one for one in hub.statuses if one.sha == field["oid"]]
    last = next((one for one in reversed(of_commit) if one.context == context), None)
    shown = {"state": last.state.upper(), "description": last.description} if last is not None else None
    return {"status": {"context": shown} if of_commit else None}
