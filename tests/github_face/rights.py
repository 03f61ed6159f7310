"""What a job's token may do: what `permissions:` of its workflow file says, and nothing besides.

Source: GitHub's "Permissions required for GitHub Apps", as of a private repository. Where it offers a choice, for what
issues and pull requests have in common, the face asks for that of the thing itself: a job that passes here passes there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fedops.app.scaffold import template_text
from fedops.core.workflows import FOLDER
from fedops.core.yaml_reader import parse_yaml

Rights = Mapping[str, str]  # such as "contents" -> "write"

LEVELS = ("none", "read", "write")
SCOPES = {"actions", "contents", "issues", "packages", "pull-requests", "statuses"}
# The right may also be that of the item whose number is in the path, or that a comment is on.
ITEM = "item"
FREE = ()  # the repository itself, who it has, and its rules: every token sees them
# No job can have these rights; of what needs them nothing is read here.
ADMINISTRATION = (("administration", "read"),)
SECRETS = (("secrets", "read"),)
ENVIRONMENTS = (("environments", "read"),)

_NEEDED: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("FETCH", "", (("contents", "read"),)),
    ("PUSH", "", (("contents", "write"),)),
    ("GET", "", FREE),
    ("GET", "/forks", FREE),
    ("GET", "/collaborators", FREE),
    ("GET", r"/rules/branches/.+", FREE),
    ("GET", r"/rulesets(/\d+)?", FREE),
    ("GET", r"/branches/[^/]+/protection", ADMINISTRATION),
    ("GET", r"/branches/[^/]+", (("contents", "read"),)),
    ("GET", r"/actions/permissions.*", ADMINISTRATION),
    ("GET", "/actions/secrets", SECRETS),
    ("GET", r"/environments/[^/]+(/deployment-branch-policies)?", (("actions", "read"),)),
    ("GET", r"/environments/[^/]+/secrets", ENVIRONMENTS),
    ("GET", "/keys", ADMINISTRATION),
    ("POST", r"/actions/workflows/[^/]+/dispatches", (("actions", "write"),)),
    ("GET", "/git/ref/.+", (("contents", "read"),)),
    ("GET", r"/releases/tags/.+", (("contents", "read"),)),
    ("POST|PATCH", r"/releases(/\d+)?", (("contents", "write"),)),
    ("GET", "/labels", (("issues", "read"),)),
    ("POST", "/labels", (("issues", "write"),)),
    ("GET", "/issues", (("issues", "read"),)),
    ("POST", "/issues", (("issues", "write"),)),
    ("GET", "/issues/comments", (("issues", "read"), ("pull-requests", "read"))),
    ("PATCH", r"/issues/comments/\d+", ((ITEM, "write"),)),
    ("GET", r"/issues/\d+(/comments)?", ((ITEM, "read"),)),
    ("POST|PATCH", r"/issues/\d+(/comments)?", ((ITEM, "write"),)),
    ("POST", "/statuses/[0-9a-f]{40}", (("statuses", "write"),)),
    ("GET", "/commits/[0-9a-f]{40}/status", (("statuses", "read"),)),
    ("GET", r"/pulls(/\d+(/reviews)?)?", (("pull-requests", "read"),)),
    ("PUT", r"/pulls/\d+/merge", (("contents", "write"),)),
    ("PUT", r"/pulls/\d+/update-branch", (("pull-requests", "write"),)),
    ("POST|PATCH|PUT", r"/pulls(/\d+(/reviews(/\d+/dismissals)?)?)?", (("pull-requests", "write"),)),
)
NEEDED = [(re.compile(verbs), re.compile(path), needs) for verbs, path, needs in _NEEDED]


def needed(method: str, path: str, *, on_pull: bool) -> tuple[tuple[str, str], ...]:
    """What a request needs, all of it.

    Args:
        method: of HTTP; "FETCH" and "PUSH" are git's.
        path: below the repository.
        on_pull: the item that the path leads to is a pull request.

    Raises:
        LookupError: nobody has written down what it needs.
    """
    for verbs, pattern, needs in NEEDED:
        if verbs.fullmatch(method) and pattern.fullmatch(path):
            item = "pull-requests" if on_pull else "issues"
            return tuple((item if scope == ITEM else scope, level) for scope, level in needs)
    raise LookupError(f"{method} {path}: which rights does it need?")


def allows(rights: Rights, needs: tuple[tuple[str, str], ...]) -> bool:
    return all(LEVELS.index(rights.get(scope, "none")) >= LEVELS.index(level) for scope, level in needs)


# ---------------------------------------------------------------- what the workflow files give


def jobs_of(text: str) -> dict[str, Rights]:
    """job -> rights, by a workflow file."""
    document, _ = parse_yaml(text.encode(), "workflow")
    assert document["permissions"] == {}, "a job without `permissions:` would have these"
    found = {job: body["permissions"] for job, body in document["jobs"].items()}
    for job, rights in found.items():
        assert not rights.keys() - SCOPES, (job, rights)
        assert not set(rights.values()) - set(LEVELS), (job, rights)
    return found


def workflow(file: str) -> str:
    """A workflow file as `init` writes it, but for its steps, which say nothing of rights."""
    return "\n".join(_rights_alone(template_text(f"{FOLDER.rpartition('/')[2]}/{file}"))) + "\n"


def _rights_alone(text: str) -> Iterator[str]:
    """Without the lines that are slots, and that YAML could not read."""
    return (line.replace("@@", "") for line in text.splitlines() if not re.fullmatch(r"@@\w+@@", line))


def together(jobs: Mapping[str, Rights]) -> Rights:
    """What a run has that does everything in one process: of each right the highest level."""
    found: dict[str, str] = {}
    for rights in jobs.values():
        for scope, level in rights.items():
            found[scope] = max(level, found.get(scope, "none"), key=LEVELS.index)
    return found
