"""What `fedops doctor` says of level 2 on GitHub: the pull requests that it demands, and what versions are pushed with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from fedops.core.facts import Account
from fedops.core.forge_settings import NO_PUSH, VERDICT, ForgeSettings, Publisher, Rule, wants_deploy_key
from fedops.core.health import Check
from fedops.core.health_forge import check_forge
from fedops.core.settings import Aggregation, Lead, MergePolicy, PublishPolicy, Sites
from tests.core.forge_samples import (
    GREEN,
    KEPT,
    LENA,
    NO,
    PAGE,
    PUBLISHER,
    PULLS,
    REVIEW,
    SITES,
    STRICT,
    TWO_LEADS,
    WELL_2,
)
from tests.doctor_report import bad as not_well
from tests.doctor_report import by_name

DEMANDS = [f"level 2: {what}" for what in ("status", "approvals", "stale approvals", "last push", "merges")]
PUSHING = ["level 2: environment", "level 2: secret", "level 2: deploy key"]
BLOCKED = {"main: pull_request": "broken", "main: required_status_checks": "broken"}
LINES = {  # what a rule's line says is missing -> the line that says what to do
    "fedops-publish keeps the job of main out": "level 2: environment",
    "there is no secret FEDOPS_DEPLOY_KEY": "level 2: secret",
    "there is none that may write": "level 2: deploy key",
}
UNSURE = {"main: pull_request": "warning", "main: required_status_checks": "warning"}


def judged(
    seen: ForgeSettings = WELL_2, sites: Sites = TWO_LEADS, policy: Aggregation = REVIEW, **changes: Any
) -> dict[str, Check]:
    """All leads may write, unless the test says otherwise."""
    changes = {"writers": tuple(Account(lead.login, lead.id) for lead in sites.leads)} | changes
    return by_name(check_forge(replace(seen, **changes), "main", sites, None, policy))


def bad(checks: dict[str, Check]) -> dict[str, str]:
    return not_well(checks.values())


def pushing(**changes: Any) -> dict[str, Check]:
    """With something else of what the job has to push with."""
    return judged(publisher=replace(PUBLISHER, **changes))


def policy(mode: Literal["auto", "review"], merges: int, versions: int) -> Aggregation:
    changes = {"merge": MergePolicy(mode=mode, approvals=merges), "publish": PublishPolicy(approvals=versions)}
    return REVIEW.model_copy(update=changes)


def roster(leads: int) -> Sites:
    return SITES.model_copy(update={"leads": tuple(Lead(login=f"lead-{n}", id=n) for n in range(1, leads + 1))})


def level_2(*rules: Rule, **changes: Any) -> dict[str, Check]:
    checks = judged(**{"rules": (*KEPT, *rules)} | changes)
    return {name: check for name, check in checks.items() if name.startswith("level 2")}


def test_level_2_as_the_guide_has_it_stands() -> None:
    checks = judged()
    assert bad(checks) == {}
    lines = [name for name in checks if name.startswith("level 2")]
    assert lines == [*DEMANDS, "level 2: leads", *PUSHING]
    assert [checks[name].got for name in lines] == [
        "fedops/verdict is required",
        "1 required",
        "dismissed by a push",
        "approved by somebody else than who pushed",
        "with as many approvals as merge.mode and merge.approvals demand",
        "2: each one's pull request can be approved by others",
        "fedops-publish, for main alone",
        "FEDOPS_DEPLOY_KEY, in fedops-publish",
        "'fedops publish' may write, and no other",
    ]
    for kind in ("pull_request", "required_status_checks"):
        assert checks[f"main: {kind}"].got.endswith(
            f"{NO_PUSH[kind]}: versions are pushed with a deploy key, which may bypass it"
        )


def test_where_no_rule_asks_for_pull_requests_or_checks_level_2_is_not_spoken_of() -> None:
    assert level_2() == level_2(Rule("update", STRICT, f"{PAGE}/rules/3")) == {}


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ((PULLS, replace(GREEN, statuses=("build",))), "status"),
        ((PULLS, replace(GREEN, statuses=("fedops/verdict-2",))), "status"),
        ((PULLS,), "status"),
        ((replace(PULLS, approvals=0), GREEN), "approvals"),
        ((replace(PULLS, dismisses=False), GREEN), "stale approvals"),
        ((replace(PULLS, last_push=False), GREEN), "last push"),
    ],
)
def test_each_demand_of_level_2_that_no_rule_makes_is_a_warning_with_its_switch(
    rules: tuple[Rule, ...], missing: str
) -> None:
    switches = {
        "status": "Require status checks to pass, fedops/verdict",
        "approvals": "Require a pull request before merging, Required approvals: 1",
        "stale approvals": "Require a pull request before merging, "
        "Dismiss stale pull request approvals when new commits are pushed",
        "last push": "Require a pull request before merging, Require approval of the most recent reviewable push",
    }
    checks = level_2(*rules)
    assert bad(checks) == {f"level 2: {missing}": "warning"}
    assert checks[f"level 2: {missing}"].next == f"{switches[missing]}: {PAGE}/rules/3"
    hidden = level_2(*rules, protection=NO)
    assert hidden[f"level 2: {missing}"].got == "cannot be checked: 403, no rights", "it may stand in what is hidden"
    assert hidden[f"level 2: {missing}"].next == f"look there: {switches[missing]}: {PAGE}/rules/3"
    assert bad(hidden) == bad(checks)


def test_required_checks_alone_lack_what_a_pull_request_needs() -> None:
    assert bad(level_2(GREEN)) == dict.fromkeys(DEMANDS[1:4], "warning")


def test_rules_add_up_to_level_2_wherever_they_stand() -> None:
    some = (
        replace(PULLS, dismisses=False, approvals=2),
        Rule("pull_request", STRICT, PAGE, dismisses=True),
        Rule("pull_request", STRICT, PAGE, last_push=True),
    )
    old = Rule("required_status_checks", "branch protection", f"{PAGE}/branches", statuses=(VERDICT,))
    checks = level_2(*some, protection=(old,), sites=roster(3), policy=policy("review", 2, 1))
    assert (bad(checks), checks["level 2: approvals"].got) == ({}, "2 required")
    assert bad(level_2(rules=NO, protection=(PULLS, GREEN))) == {}


# ---------------------------------------------------------------- as many as the policy


@pytest.mark.parametrize("required", [0, 1, 2, 3])
@pytest.mark.parametrize("versions", [1, 3])
@pytest.mark.parametrize("merges", [1, 2])
@pytest.mark.parametrize("mode", ["auto", "review"])
def test_people_need_as_many_approvals_as_ci_and_ci_as_many_as_github_demands_of_its_merges(
    mode: Literal["auto", "review"], merges: int, versions: int, required: int
) -> None:
    rules = (*KEPT, replace(PULLS, approvals=required), GREEN)
    checks = judged(rules=rules, sites=roster(9), policy=policy(mode, merges, versions))
    of_merges = merges if mode == "review" else 0
    most = max(of_merges, versions)
    approvals, merging = checks["level 2: approvals"], checks["level 2: merges"]
    assert (approvals.state == "ok") == (required >= most)
    if required < most:
        assert approvals.expected == f"at least {most}"
        assert approvals.next == f"Require a pull request before merging, Required approvals: {most}: {PAGE}/rules/3"
        if required:
            assert (f"merge.approvals {of_merges}" in approvals.got) == (required < of_merges)
            assert (f"publish.approvals {versions}" in approvals.got) == (required < versions)
    assert (merging.state == "ok") == (required <= of_merges)
    if required > of_merges:
        assert merging.expected == f"review, approvals {required}"
        assert merging.next == f"policies/aggregation.yaml: merge: {{mode: review, approvals: {required}}}"
        assert ("nobody has approved" in merging.got) == (mode == "auto")


def test_fewer_than_the_policy_demands_may_be_more_by_what_is_hidden() -> None:
    check = judged(policy=policy("review", 2, 1), protection=NO)["level 2: approvals"]
    assert (check.state, check.got) == ("warning", "cannot be checked: 403, no rights")


# ---------------------------------------------------------------- who approves


@pytest.mark.parametrize(("leads", "approvals", "needed"), [(1, 1, 2), (2, 1, 2), (2, 2, 3), (3, 2, 3), (1, 0, 2)])
def test_a_lead_needs_as_many_others_as_approvals_are_required(leads: int, approvals: int, needed: int) -> None:
    """GitHub lets nobody approve a pull request of one's own."""
    check = judged(sites=roster(leads), rules=(*KEPT, replace(PULLS, approvals=approvals), GREEN))["level 2: leads"]
    enough = leads >= needed
    assert (check.state, check.expected) == (("ok", "") if enough else ("warning", f"at least {needed}"))
    assert enough or check.got.startswith(
        f"{leads} on the roster: GitHub lets nobody approve a pull request of one's own"
    )
    assert enough or check.next.startswith("policies/sites.yaml: leads")


def test_a_lead_who_may_not_write_approves_nothing_that_counts() -> None:
    check = judged(writers=(LENA,))["level 2: leads"]
    assert (check.state, check.got.partition(":")[0]) == ("warning", "1 of the roster may write")
    assert judged(writers=NO)["level 2: leads"].state == "ok", "who may write is hidden: the roster counts"


def test_a_lead_alone_is_no_matter_at_level_1() -> None:
    assert bad(judged(sites=SITES, rules=KEPT)) == {}


# ---------------------------------------------------------------- what versions are pushed with


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        ({"keys": ()}, {**BLOCKED, "level 2: deploy key": "warning"}, "there is none that may write"),
        (
            {"secret": False, "repository_secret": False},
            {**BLOCKED, "level 2: secret": "warning"},
            "there is no secret FEDOPS_DEPLOY_KEY",
        ),
        (
            {"refs": ("refs/heads/release", "refs/tags/main")},
            {**BLOCKED, "level 2: environment": "warning"},
            "fedops-publish keeps the job of main out",
        ),
        ({"refs": ()}, {**BLOCKED, "level 2: environment": "warning"}, "fedops-publish keeps the job of main out"),
        (
            {"environment": False, "refs": None, "secret": False, "repository_secret": False, "keys": ()},
            {
                **BLOCKED,
                "level 2: environment": "warning",
                "level 2: secret": "warning",
                "level 2: deploy key": "warning",
            },
            "there is no secret FEDOPS_DEPLOY_KEY, there is none that may write",
        ),
    ],
)
def test_what_the_job_lacks_to_push_is_named_and_broken(
    changes: dict[str, Any], expected: dict[str, str], words: str
) -> None:
    checks = pushing(**changes)
    assert bad(checks) == expected
    lines = [LINES[word] for word in words.split(", ")]
    for name in BLOCKED:
        assert checks[name].got.endswith(f"refuses the push of a version; a deploy key may bypass it, but {words}")
        assert checks[name].next == f"see {', '.join(lines)}"


@pytest.mark.parametrize(
    ("changes", "line", "words"),
    [
        ({"refs": None}, "level 2: environment", "to jobs of other branches too"),
        ({"refs": ("refs/heads/main", "refs/heads/dev", "refs/tags/v*")}, "level 2: environment", "dev, refs/tags/v*"),
        ({"refs": ("refs/heads/*",)}, "level 2: environment", "gives its secret to jobs of * too"),
        (
            {"secret": False, "repository_secret": True},
            "level 2: secret",
            "whoever may write to any branch can use it",
        ),
        (
            {"keys": ("publish", "old")},
            "level 2: deploy key",
            "2 may write, and so push to main unseen: 'publish', 'old'",
        ),
    ],
)
def test_what_lets_others_push_is_a_warning_of_its_own_and_stops_no_version(
    changes: dict[str, Any], line: str, words: str
) -> None:
    checks = pushing(**changes)
    assert bad(checks) == {line: "warning"}
    assert words in checks[line].got


def test_a_private_repository_without_an_environment_is_told_of_its_plan() -> None:
    without = Publisher(environment=False, secret=False, repository_secret=True, keys=("k",))
    for private in (False, True):
        checks = judged(publisher=without, private=private)
        assert (checks["level 2: environment"].state, checks["level 2: secret"].state) == ("warning", "warning")
        assert ("needs a plan" in checks["level 2: environment"].got) == private
        assert checks["main: pull_request"].state == "ok", "the repository's secret works"


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"environment": NO, "refs": NO}, ["level 2: environment"]),
        ({"refs": NO}, ["level 2: environment"]),
        ({"secret": NO}, ["level 2: secret"]),
        ({"secret": False, "repository_secret": NO}, ["level 2: secret"]),
        ({"keys": NO}, ["level 2: deploy key"]),
        ({"environment": NO, "refs": NO, "secret": NO, "keys": NO}, PUSHING),
    ],
)
def test_what_the_token_may_not_read_is_not_asked_for_again(changes: dict[str, Any], lines: list[str]) -> None:
    checks = pushing(**changes)
    assert bad(checks) == UNSURE | dict.fromkeys(lines, "warning")
    for name in (*UNSURE, *lines):
        assert "cannot be checked: 403, no rights" in checks[name].got
    for name in UNSURE:
        assert checks[name].next == f"look there: {PAGE}/environments, {PAGE}/keys"


def test_what_is_known_to_be_missing_counts_more_than_what_is_hidden() -> None:
    assert bad(pushing(secret=NO, keys=())) == {
        **BLOCKED,
        "level 2: secret": "warning",
        "level 2: deploy key": "warning",
    }


def test_a_key_without_a_bypass_does_not_help() -> None:
    checks = judged(rules=(*KEPT, replace(PULLS, bypass=("User",)), GREEN))
    assert bad(checks) == {"main: pull_request": "broken"}


def test_a_branch_that_is_not_called_main_is_looked_for_by_its_name() -> None:
    seen = replace(WELL_2, default_branch="trunk", publisher=replace(PUBLISHER, refs=("refs/heads/trunk",)))
    checks = by_name(check_forge(seen, "trunk", TWO_LEADS, None, REVIEW))
    assert bad(checks) == {}
    assert checks["level 2: environment"].got == "fedops-publish, for trunk alone"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((), False),
        (KEPT, False),
        ((replace(KEPT[0], bypass=("DeployKey",)),), False),
        ((Rule("update", STRICT, PAGE),), False),
        ((Rule("update", STRICT, PAGE, NO),), False),
        ((Rule("update", STRICT, PAGE, ("DeployKey",)),), True),
        ((Rule("pull_request", STRICT, PAGE),), True),
        ((Rule("required_status_checks", STRICT, PAGE, NO),), True),
    ],
)
def test_a_deploy_key_is_looked_for_where_rules_ask_for_one(rules: tuple[Rule, ...], expected: bool) -> None:
    assert wants_deploy_key(rules) is expected


def test_restricted_updates_with_a_bypass_for_the_key_need_the_key_and_no_approvals() -> None:
    checks = judged(rules=(*KEPT, Rule("update", STRICT, f"{PAGE}/rules/3", ("DeployKey",))), sites=SITES)
    assert bad(checks) == {}
    assert [name for name in checks if name.startswith("level 2")] == PUSHING
