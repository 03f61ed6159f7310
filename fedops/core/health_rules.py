"""What `fedops doctor` judges of the rules that GitHub applies to main and to versions' tags; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedops.core.forge_settings import VERDICT, ForgeSettings, Rule, Unread
from fedops.core.health import Check, State

# GitHub's word for a rule -> the words of its switch. The first stop a push of main by who may not bypass them, the
# second what jobs push and merge, whoever they are; the third may, by what stands in them.
NO_PUSH = {
    "pull_request": "Require a pull request before merging",
    "required_status_checks": "Require status checks to pass",
    "required_deployments": "Require deployments to succeed",
    "workflows": "Require workflows to pass before merging",
    "code_scanning": "Require code scanning results",
    "code_quality": "Require code quality results",
    "update": "Restrict updates",
}
NO_MERGE = {
    "required_linear_history": "Require linear history",
    "required_signatures": "Require signed commits",
    "merge_queue": "Require merge queue",
}
BY_CONTENT = {
    "commit_message_pattern": "Restrict commit metadata",
    "commit_author_email_pattern": "Restrict commit metadata",
    "committer_email_pattern": "Restrict commit metadata",
    "file_path_restriction": "Restrict file paths",
    "max_file_path_length": "Restrict file path length",
    "file_extension_restriction": "Restrict file extensions",
    "max_file_size": "Restrict file size",
}
PUSHERS = ("DeployKey", "Integration")  # that a job can push as; its own token is never among them
_LEVEL_2 = ("pull_request", "required_status_checks")
# What level 2 demands -> the rule that it stands in, the switch there, what is the case without it, what should be.
_DEMANDS = {
    "status": (
        "required_status_checks",
        VERDICT,
        f"{VERDICT} is not required: what CI rejects can be merged by hand",
        "required",
    ),
    "approvals": (
        "pull_request",
        "Required approvals: 1",
        "none is required: whoever may write can merge unseen",
        "at least 1",
    ),
    "stale approvals": (
        "pull_request",
        "Dismiss stale pull request approvals when new commits are pushed",
        "those of an older commit still count",
        "dismissed by a push",
    ),
}
_WORST: Sequence[State] = ("broken", "warning", "ok")
_TAGS = "tags global@*"


def unread(name: str, what: Unread | str, page: str) -> Check:
    """A question that the token may not ask."""
    reason = what.reason if isinstance(what, Unread) else what
    return Check(name, "warning", f"cannot be checked: {reason}", next=f"look there: {page}")


def check_main(seen: ForgeSettings, branch: str) -> Iterator[Check]:
    """Rules that would stop the jobs, one line for each kind; and those that keep main from being rewritten."""
    rules: list[Rule] = []
    for name, found, page in (("rules", seen.rules, "rules"), ("protection", seen.protection, "branches")):
        if isinstance(found, Unread):
            yield unread(f"{branch}: {name}", found, f"{seen.page}/{page}")
        else:
            rules += found
    kinds = sorted({rule.kind for rule in rules})
    for kind in kinds:
        judged = [_obstacle(f"{branch}: {kind}", rule) for rule in rules if rule.kind == kind]
        obstacles = [check for check in judged if check is not None]
        if obstacles:
            yield min(obstacles, key=lambda check: _WORST.index(check.state))
    if isinstance(seen.rules, Unread):
        return  # nobody can say what is forbidden
    where = f"in a ruleset on {branch}: {seen.page}/rules/new?target=branch"
    yield _kept(f"{branch}: force pushes", "non_fast_forward" in kinds, f"Block force pushes {where}")
    yield _kept(f"{branch}: deletion", "deletion" in kinds, f"Restrict deletions {where}")


def _obstacle(name: str, rule: Rule) -> Check | None:
    """What a rule does to the jobs; None: nothing."""
    if "merge" not in rule.methods:
        got = f"{rule.source}: merge commits are not allowed: nothing can be merged"
        return Check(name, "broken", got, "merge among the allowed methods", rule.page)
    if rule.kind in NO_MERGE:
        got = f"{rule.source}: {NO_MERGE[rule.kind]}: a job can neither merge nor push"
        return Check(name, "broken", got, "no such rule", rule.page)
    if rule.kind in BY_CONTENT:
        got = f"{rule.source}: {BY_CONTENT[rule.kind]}: may refuse what sites and jobs push"
        return Check(name, "warning", got, "no such rule, or one that lets it through", rule.page)
    if rule.kind in NO_PUSH:
        return _no_push(name, rule)
    return None


def _no_push(name: str, rule: Rule) -> Check:
    got = f"{rule.source}: {NO_PUSH[rule.kind]}: refuses the push of a version by the job's token"
    expected = "level 1: no such rule; level 2: a deploy key or an App that may bypass it"
    if isinstance(rule.bypass, Unread):
        return Check(
            name, "warning", f"{got}; who may bypass cannot be checked: {rule.bypass.reason}", expected, rule.page
        )
    if not set(PUSHERS) & set(rule.bypass):
        return Check(name, "broken", f"{got}, which can never bypass it", expected, rule.page)
    who = ", ".join(kind for kind in PUSHERS if kind in rule.bypass)
    then = "give the environment fedops-publish the secret FEDOPS_DEPLOY_KEY"
    if "DeployKey" not in rule.bypass:
        then = f"let a deploy key bypass it too, which the workflows push with; {then}"
    return Check(name, "warning", f"{got}; {who} may bypass it", "level 2: versions are pushed by that one", then)


def check_level_2(seen: ForgeSettings) -> Iterator[Check]:
    """What level 2 demands of a pull request, each a line; nothing where no rule on main says that it is wanted."""
    parts = (seen.rules, seen.protection)
    rules = [rule for part in parts if not isinstance(part, Unread) for rule in part if rule.kind in _LEVEL_2]
    if not rules:
        return
    approvals = max(rule.approvals for rule in rules)
    # What one rule does not demand another may: GitHub adds them up.
    stands = {
        "status": f"{VERDICT} is required" if any(VERDICT in rule.statuses for rule in rules) else "",
        "approvals": f"{approvals} required" if approvals else "",
        "stale approvals": "dismissed by a push" if any(rule.dismisses for rule in rules) else "",
    }
    hidden = next((part for part in parts if isinstance(part, Unread)), None)
    for what, (kind, switch, got, expected) in _DEMANDS.items():
        page = next((rule for rule in rules if rule.kind == kind), rules[0]).page
        name, step = f"level 2: {what}", f"{NO_PUSH[kind]}, {switch}: {page}"
        if stands[what]:
            yield Check(name, "ok", stands[what])
        elif hidden is not None:
            yield unread(name, hidden, step)
        else:
            yield Check(name, "warning", got, expected, step)


def _kept(name: str, is_kept: bool, command: str) -> Check:
    if is_kept:
        return Check(name, "ok", "forbidden")
    return Check(name, "warning", "not forbidden by any rule", "forbidden", command)


def check_version_tags(seen: ForgeSettings) -> Iterator[Check]:
    """A version's tag never moves, and a job must be able to make the next."""
    if isinstance(seen.tag_rules, Unread):
        yield unread(_TAGS, seen.tag_rules, f"{seen.page}/rules")
        return
    kinds = {rule.kind for rule in seen.tag_rules}
    stops = [r for r in seen.tag_rules if r.kind == "creation" and not _may_push(r)]
    if stops:
        got = f"{stops[0].source}: Restrict creations: no version can be published by the job's token"
        yield Check(f"{_TAGS}: creation", "broken", got, "no such rule, or a bypass", stops[0].page)
    where = f"in a ruleset on global@*: {seen.page}/rules/new?target=tag"
    yield _kept(f"{_TAGS}: update", "update" in kinds, f"Restrict updates {where}")
    yield _kept(f"{_TAGS}: deletion", "deletion" in kinds, f"Restrict deletions {where}")


def _may_push(rule: Rule) -> bool:
    return not isinstance(rule.bypass, Unread) and bool(set(PUSHERS) & set(rule.bypass))
