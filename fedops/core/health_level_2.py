"""What `fedops doctor` judges of level 2 on GitHub: what a pull request needs there, and what versions are pushed with; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedops.core.deploy_key import KEY
from fedops.core.forge_settings import (
    ENVIRONMENT,
    LEVEL_2,
    NO_PUSH,
    VERDICT,
    ForgeSettings,
    Publisher,
    Rule,
    Unread,
    applies,
    wants_deploy_key,
)
from fedops.core.health import Check
from fedops.core.ids import AGGREGATION_PATH
from fedops.core.settings import Aggregation, MergePolicy, Sites


@dataclass(frozen=True)
class _Demand:
    """What level 2 demands of every pull request.

    Attributes:
        stands: what is so, in words; empty: no rule that is known demands it.
        kind: of the rule in which it has a switch.
        got: what is the case without it.
    """

    stands: str
    kind: str
    switch: str
    got: str
    expected: str


_ENVIRONMENT, _SECRET, _KEYS, _LEADS = (f"level 2: {what}" for what in ("environment", "secret", "deploy key", "leads"))


def unread(name: str, what: Unread | str, page: str) -> Check:
    """A question that the token may not ask."""
    reason = what.reason if isinstance(what, Unread) else what
    return Check(name, "warning", f"cannot be checked: {reason}", next=f"look there: {page}")


def check_level_2(seen: ForgeSettings, branch: str, sites: Sites, policy: Aggregation) -> Iterator[Check]:
    """What level 2 demands, each a line; nothing where no rule on main says that it is wanted."""
    parts = (seen.rules, seen.protection)
    rules = [rule for part in parts if not isinstance(part, Unread) for rule in part]
    demanding = [rule for rule in rules if rule.kind in LEVEL_2]
    if demanding:
        hidden = next((part for part in parts if isinstance(part, Unread)), None)
        yield from _pull_requests(demanding, hidden, policy)
        yield _merges(demanding, policy.merge)
        yield _leads(seen, demanding, sites)
    if wants_deploy_key(rules):
        yield _environment(seen, branch)
        yield _secret(seen)
        yield _keys(seen)


# ---------------------------------------------------------------- pull requests


def _pull_requests(rules: list[Rule], hidden: Unread | None, policy: Aggregation) -> Iterator[Check]:
    for what, demand in _demands(rules, policy).items():
        page = next((rule for rule in rules if rule.kind == demand.kind), rules[0]).page
        name, step = f"level 2: {what}", f"{NO_PUSH[demand.kind]}, {demand.switch}: {page}"
        if demand.stands:
            yield Check(name, "ok", demand.stands)
        elif hidden is not None:
            yield unread(name, hidden, step)
        else:
            yield Check(name, "warning", demand.got, demand.expected, step)


def _demands(rules: list[Rule], policy: Aggregation) -> Mapping[str, _Demand]:
    """NOTE: what one rule does not demand another may: GitHub adds them up."""
    return {
        "status": _Demand(
            f"{VERDICT} is required" if any(VERDICT in rule.statuses for rule in rules) else "",
            "required_status_checks",
            VERDICT,
            f"{VERDICT} is not required: what CI rejects can be merged by hand",
            "required",
        ),
        "approvals": _approvals(_required(rules), policy),
        "stale approvals": _Demand(
            "dismissed by a push" if any(rule.dismisses for rule in rules) else "",
            "pull_request",
            "Dismiss stale pull request approvals when new commits are pushed",
            "those of an older commit still count",
            "dismissed by a push",
        ),
        "last push": _Demand(
            "approved by somebody else than who pushed" if any(rule.last_push for rule in rules) else "",
            "pull_request",
            "Require approval of the most recent reviewable push",
            "who pushed last can be the one who approves",
            "approved by somebody else",
        ),
    }


def _required(rules: list[Rule]) -> int:
    return max(rule.approvals for rule in rules)


def _approvals(required: int, policy: Aggregation) -> _Demand:
    """As many as the policy demands of CI must people need too, who merge by hand: of submissions, versions, rollbacks."""
    wanted = {"publish.approvals": policy.publish.approvals}
    if policy.merge.mode == "review":
        wanted["merge.approvals"] = policy.merge.approvals
    most = max(wanted.values())
    fields = " and ".join(f"{field} {n}" for field, n in sorted(wanted.items()) if n > required)
    return _Demand(
        f"{required} required" if required >= most else "",
        "pull_request",
        f"Required approvals: {most}",
        f"{required} required, by {AGGREGATION_PATH} {fields}: people can merge with fewer"
        if required
        else "none is required: whoever may write can merge unseen",
        f"at least {most}",
    )


def _merges(rules: list[Rule], policy: MergePolicy) -> Check:
    """GitHub refuses the job a merge that lacks the approvals of the rules, whatever the policy says."""
    name, required = "level 2: merges", _required(rules)
    if policy.mode == "auto" and required:
        got = "merge.mode auto: GitHub refuses the job's merges, which nobody has approved"
    elif policy.mode == "review" and policy.approvals < required:
        got = f"merge.approvals {policy.approvals}, {required} required: GitHub refuses the job's merges until all are there"
    else:
        return Check(name, "ok", "with as many approvals as merge.mode and merge.approvals demand")
    step = f"{AGGREGATION_PATH}: merge: {{mode: review, approvals: {required}}}"
    return Check(name, "warning", got, f"review, approvals {required}", step)


def _leads(seen: ForgeSettings, rules: list[Rule], sites: Sites) -> Check:
    """A lead's pull request needs as many other leads as approvals are required; GitHub counts those who may write."""
    roster = {lead.id for lead in sites.leads}
    able = roster if isinstance(seen.writers, Unread) else roster & {account.id for account in seen.writers}
    known, needed = len(able), 1 + max(1, _required(rules))
    if known >= needed:
        return Check(_LEADS, "ok", f"{known}: each one's pull request can be approved by others")
    who = "on the roster" if able == roster else "of the roster may write"
    got = f"{known} {who}: GitHub lets nobody approve a pull request of one's own, so a lead's cannot be merged"
    step = "policies/sites.yaml: leads: add one, pushed while the ruleset is off"
    return Check(_LEADS, "warning", got, f"at least {needed}", f"{step}; write access: {seen.page}/access")


# ---------------------------------------------------------------- what versions are pushed with


def can_push(name: str, rule: Rule, seen: ForgeSettings, branch: str) -> Check:
    """Whether the job that publishes gets past a rule that deploy keys may bypass.

    Args:
        name: of the check.
    """
    what = f"{rule.source}: {NO_PUSH[rule.kind]}"
    missing = _missing(seen.publisher, branch)
    if missing:
        got = f"{what}: refuses the push of a version; a deploy key may bypass it, but {', '.join(missing.values())}"
        return Check(name, "broken", got, "level 2: versions are pushed with a deploy key", f"see {', '.join(missing)}")
    hidden = _hidden(seen.publisher)
    if hidden is not None:
        got = f"{what}: a deploy key may bypass it; whether the job has one cannot be checked: {hidden.reason}"
        return Check(name, "warning", got, next=f"look there: {seen.page}/environments, {seen.page}/keys")
    return Check(name, "ok", f"{what}: versions are pushed with a deploy key, which may bypass it")


def _missing(publisher: Publisher, branch: str) -> Mapping[str, str]:
    """What is known to keep the job from pushing: check that says more -> words."""
    found: dict[str, str] = {}
    if isinstance(publisher.refs, tuple) and not _lets_in(publisher.refs, branch):
        found[_ENVIRONMENT] = f"{ENVIRONMENT} keeps the job of {branch} out"
    if publisher.secret is False and publisher.repository_secret is False:
        found[_SECRET] = f"there is no secret {KEY}"
    if publisher.keys == ():
        found[_KEYS] = "there is none that may write"
    return found


def _hidden(publisher: Publisher) -> Unread | None:
    """Why it is not known that the job can push; None: it is."""
    secret = publisher.repository_secret if publisher.secret is False else publisher.secret
    parts = (publisher.environment, publisher.refs, secret, publisher.keys)
    return next((part for part in parts if isinstance(part, Unread)), None)


# NOTE: that no version can be pushed makes the rule's line broken, where there is such a rule; these say what to do.


def _environment(seen: ForgeSettings, branch: str) -> Check:
    """It keeps the key from the jobs of other branches, whose workflows whoever may write can edit."""
    found, refs, page = seen.publisher.environment, seen.publisher.refs, f"{seen.page}/environments"
    step = f"{ENVIRONMENT}, Deployment branches and tags, Selected branches and tags: {branch} alone: {page}"
    if isinstance(found, Unread):
        return unread(_ENVIRONMENT, found, page)
    if not found:
        got = f"no {ENVIRONMENT}" + (
            "; a private repository needs a plan that has environments" if seen.private else ""
        )
        return Check(_ENVIRONMENT, "warning", got, f"one for {branch} alone", f"New environment: {page}")
    if isinstance(refs, Unread):
        return unread(_ENVIRONMENT, refs, page)
    if refs is None:
        got = f"{ENVIRONMENT} gives its secret to jobs of other branches too"
        return Check(_ENVIRONMENT, "warning", got, f"{branch} alone", step)
    if not _lets_in(refs, branch):
        got = f"{ENVIRONMENT} takes {_shown(refs) or 'nothing'}: the job that publishes may not start"
        return Check(_ENVIRONMENT, "warning", got, f"{branch} alone", step)
    others = tuple(ref for ref in refs if ref != f"refs/heads/{branch}")
    if others:
        got = f"{ENVIRONMENT} gives its secret to jobs of {_shown(others)} too"
        return Check(_ENVIRONMENT, "warning", got, f"{branch} alone", step)
    return Check(_ENVIRONMENT, "ok", f"{ENVIRONMENT}, for {branch} alone")


def _lets_in(refs: tuple[str, ...], branch: str) -> bool:
    return applies(f"refs/heads/{branch}", refs, ())


def _shown(refs: tuple[str, ...]) -> str:
    return ", ".join(ref.removeprefix("refs/heads/") for ref in refs)


def _secret(seen: ForgeSettings) -> Check:
    publisher, page = seen.publisher, f"{seen.page}/environments"
    if isinstance(publisher.secret, Unread):
        return unread(_SECRET, publisher.secret, page)
    if publisher.secret:
        return Check(_SECRET, "ok", f"{KEY}, in {ENVIRONMENT}")
    in_repository, expected = publisher.repository_secret, f"a secret of {ENVIRONMENT}"
    step = f"Add environment secret, the whole private key: {page}"
    if isinstance(in_repository, Unread):
        got = f"none in {ENVIRONMENT}; whether the repository has one cannot be checked: {in_repository.reason}"
        return Check(_SECRET, "warning", got, expected, step)
    if in_repository:
        got = f"{KEY} is the repository's: whoever may write to any branch can use it"
        return Check(_SECRET, "warning", got, expected, f"{step}; then delete the other: {seen.page}/secrets/actions")
    return Check(_SECRET, "warning", f"no {KEY}", expected, step)


def _keys(seen: ForgeSettings) -> Check:
    """The bypass is for all deploy keys that may write."""
    found, page = seen.publisher.keys, f"{seen.page}/keys"
    if isinstance(found, Unread):
        return unread(_KEYS, found, page)
    if not found:
        step = f"Add deploy key, Allow write access: {page}"
        return Check(_KEYS, "warning", "none may write", "one that may write", step)
    shown = ", ".join(map(repr, found))
    if len(found) > 1:
        got = f"{len(found)} may write, and so push to main unseen: {shown}"
        return Check(_KEYS, "warning", got, f"the one of {ENVIRONMENT} alone", f"delete the others: {page}")
    return Check(_KEYS, "ok", f"{shown} may write, and no other")
