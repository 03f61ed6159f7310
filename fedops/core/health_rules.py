"""What `fedops doctor` judges of the rules that GitHub applies to main and to versions' tags; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedops.core.forge_settings import DEPLOY_KEY, NO_PUSH, ForgeSettings, Rule, Unread
from fedops.core.health import Check, State
from fedops.core.health_level_2 import can_push, unread

# GitHub's word for a rule -> the words of its switch. The first stop what jobs push and merge, whoever they are; the
# second may, by what stands in them. NO_PUSH has those that stop a push alone, by who may not bypass them.
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
PUSHERS = (DEPLOY_KEY, "Integration")  # that a job can push as; its own token is never among them
_WORST: Sequence[State] = ("broken", "warning", "ok")
_TAGS = "tags global@*"


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
        judged = [_obstacle(f"{branch}: {kind}", rule, seen, branch) for rule in rules if rule.kind == kind]
        obstacles = [check for check in judged if check is not None]
        if obstacles:
            yield min(obstacles, key=lambda check: _WORST.index(check.state))
    if isinstance(seen.rules, Unread):
        return  # nobody can say what is forbidden
    where = f"in a ruleset on {branch}: {seen.page}/rules/new?target=branch"
    yield _kept(f"{branch}: force pushes", "non_fast_forward" in kinds, f"Block force pushes {where}")
    yield _kept(f"{branch}: deletion", "deletion" in kinds, f"Restrict deletions {where}")


def _obstacle(name: str, rule: Rule, seen: ForgeSettings, branch: str) -> Check | None:
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
        return _no_push(name, rule, seen, branch)
    return None


def _no_push(name: str, rule: Rule, seen: ForgeSettings, branch: str) -> Check:
    got = f"{rule.source}: {NO_PUSH[rule.kind]}: refuses the push of a version by the job's token"
    expected = "level 1: no such rule; level 2: a deploy key or an App that may bypass it"
    if isinstance(rule.bypass, Unread):
        return Check(
            name, "warning", f"{got}; who may bypass cannot be checked: {rule.bypass.reason}", expected, rule.page
        )
    if not rule.lets_through(*PUSHERS):
        return Check(name, "broken", f"{got}, which can never bypass it", expected, rule.page)
    if not rule.lets_through(DEPLOY_KEY):
        got, then = f"{got}; Integration may bypass it", "let a deploy key bypass it too, which the workflows push with"
        return Check(name, "warning", got, "level 2: versions are pushed by that one", f"{then}: {rule.page}")
    return can_push(name, rule, seen, branch)


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
    stops = [r for r in seen.tag_rules if r.kind == "creation" and not r.lets_through(*PUSHERS)]
    if stops:
        got = f"{stops[0].source}: Restrict creations: no version can be published by the job's token"
        yield Check(f"{_TAGS}: creation", "broken", got, "no such rule, or a bypass", stops[0].page)
    where = f"in a ruleset on global@*: {seen.page}/rules/new?target=tag"
    yield _kept(f"{_TAGS}: update", "update" in kinds, f"Restrict updates {where}")
    yield _kept(f"{_TAGS}: deletion", "deletion" in kinds, f"Restrict deletions {where}")
