"""What `fedops doctor` says of settings on GitHub."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedops.core.facts import Account
from fedops.core.forge_settings import (
    NO_PUSH,
    NOT_ASKED,
    JobRights,
    Package,
    Rule,
    Unread,
    Workflows,
    applies,
    packages_of,
)
from fedops.core.health import Check
from fedops.core.health_forge import check_forge
from fedops.core.health_rules import BY_CONTENT, NO_MERGE
from fedops.core.ids import SiteId
from tests.core.forge_samples import ALICE, AUTO, EVE, KEPT, LENA, NO, PAGE, SITES, TAGS, VERSIONS_REVIEWED, WELL
from tests.doctor_report import bad as not_well
from tests.doctor_report import by_name


def judged(site: str | None = None, *, jobs_open_pulls: bool = False, **changes: Any) -> dict[str, Check]:
    seen = replace(WELL, **changes)
    where = SiteId(site) if site is not None else None
    return by_name(check_forge(seen, "main", SITES, where, VERSIONS_REVIEWED if jobs_open_pulls else AUTO))


def bad(checks: dict[str, Check]) -> dict[str, str]:
    return not_well(checks.values())


def rule(kind: str, **more: Any) -> tuple[Rule, ...]:
    return (*KEPT, Rule(kind, "ruleset 'strict'", f"{PAGE}/rules/3", **more))


def test_level_1_as_the_guide_has_it_is_well() -> None:
    checks = judged()
    assert bad(checks) == {}
    assert len(checks) == 13


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"archived": True}, {"repository": "broken"}),
        ({"has_issues": False}, {"repository": "broken"}),
        ({"default_branch": "trunk"}, {"default branch": "broken"}),
        ({"merge_commits": False}, {"merge commits": "broken"}),
        ({"merge_commits": None}, {"merge commits": "warning"}),
        ({"other_merges": True}, {"merge commits": "warning"}),
        ({"rules": ()}, {"main: force pushes": "warning", "main: deletion": "warning"}),
        ({"rules": NO}, {"main: rules": "warning"}),
        ({"protection": NO}, {"main: protection": "warning"}),
        ({"rules": (), "protection": KEPT}, {}),
        ({"tag_rules": ()}, {"tags global@*: update": "warning", "tags global@*: deletion": "warning"}),
        ({"tag_rules": NO}, {"tags global@*": "warning"}),
        ({"writers": NO}, {"write access": "warning"}),
        ({"writers": (LENA, EVE)}, {"write access": "warning"}),
        ({"workflows": NO}, {"actions": "warning"}),
        ({"workflows": Workflows(enabled=False)}, {"actions": "broken"}),
        ({"workflows": Workflows(enabled=True, allowed="local_only")}, {"actions": "broken"}),
        ({"workflows": Workflows(enabled=True, allowed="selected")}, {}),
        ({"workflows": Workflows(enabled=True, allowed="selected", github_owned=False)}, {"actions": "warning"}),
        ({"workflows": Workflows(enabled=True, allowed="selected", github_owned=NO)}, {"actions": "warning"}),
        ({"job_rights": NO}, {"workflow permissions": "warning"}),
        ({"job_rights": JobRights("write", pulls=False)}, {"workflow permissions": "warning"}),
        ({"job_rights": JobRights("read", pulls=True)}, {"workflow permissions": "warning"}),
        ({"job_rights": JobRights("read", pulls=True), "jobs_open_pulls": True}, {}),
        ({"job_rights": JobRights("read", pulls=False), "jobs_open_pulls": True}, {"workflow permissions": "broken"}),
        ({"first_runs": NO}, {"workflows of forks": "warning"}),
        ({"first_runs": "first_time_contributors_new_to_github"}, {"workflows of forks": "warning"}),
        ({"first_runs": "all_external_contributors"}, {}),
        ({"packages": ()}, {}),
        ({"packages": (("heart/archive", "p", NO),)}, {"package heart/archive": "warning"}),
        (
            {"packages": (("heart/archive", "p", Package("private", None)),)},
            {"package heart/archive": "warning"},
        ),
        (
            {"packages": (("heart/archive", "p", Package("public", "acme/other")),)},
            {"package heart/archive": "warning"},
        ),
        ({"packages": (("heart/archive", "p", Package("private", "Acme/Heart")),)}, {}),
    ],
)
def test_one_setting_that_is_not_as_it_should_be_is_the_one_line(
    changes: dict[str, Any], expected: dict[str, str]
) -> None:
    assert bad(judged(**changes)) == expected


@pytest.mark.parametrize(
    ("name", "visibility", "said"),
    [
        ("heart/global", "private", "private, connected to acme/heart: sites need the role Read; its rights: p"),
        ("global", "internal", "internal, connected to acme/heart: sites need the role Read; its rights: p"),
        ("heart/archive", "private", "private, connected to acme/heart: auditors need the role Read; its rights: p"),
        ("heart/global", "public", "public, connected to acme/heart; its rights: p"),
    ],
)
def test_a_package_that_not_everybody_reads_is_well_and_says_who_needs_to(
    name: str, visibility: str, said: str
) -> None:
    check = judged(packages=((name, "p", Package(visibility, "acme/heart")),))[f"package {name}"]
    assert (check.state, check.got) == ("ok", said)


def test_what_the_token_may_not_read_is_said_with_its_reason_and_page() -> None:
    checks = judged(
        merge_commits=None, rules=NO, protection=NO, tag_rules=NO, writers=NO, workflows=NO, job_rights=NO, first_runs=NO,
        packages=(("heart/global", "https://github.com/p", NO),),
    )  # fmt: skip
    unread = [c for c in checks.values() if c.state != "ok"]
    assert len(unread) == 9
    for check in unread:
        assert check.got.startswith("cannot be checked: ")
        assert "https://github.com/" in check.next
    assert "403, no rights" in checks["actions"].got


# ---------------------------------------------------------------- whose token


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "ok"),
        ({"may_write": False}, "warning"),
        ({"account": EVE}, "warning"),
        ({"account": EVE, "may_write": False}, "ok"),
        ({"account": EVE, "may_write": None}, "ok"),
        ({"account": Account("github-actions[bot]", 41898282), "is_person": False}, "ok"),
        ({"account": Unread("401")}, "warning"),
    ],
)
def test_a_token_has_the_rights_of_its_owners_part(changes: dict[str, Any], state: str) -> None:
    assert judged(**changes)["token"].state == state


def test_a_site_that_may_write_is_told_to_use_a_fork() -> None:
    checks = judged("hospital-a", account=ALICE)
    assert (bad(checks), checks["token"].expected) == ({"token": "warning"}, "read access, and a fork")


def test_a_lead_by_login_alone_is_none() -> None:
    """Attack: an account takes the login that a lead gave up."""
    assert judged(account=Account("lena", 99))["token"].state == "warning"


def test_in_a_sites_clone_settings_are_the_leads_business() -> None:
    checks = judged("hospital-a", account=ALICE, may_write=False, rules=(), workflows=NO, merge_commits=False)
    assert (bad(checks), list(checks)) == ({}, ["token", "repository", "default branch", "rules and rights"])


def test_what_keeps_all_from_working_is_said_to_sites_too() -> None:
    checks = judged("hospital-a", account=ALICE, may_write=False, archived=True, default_branch="old")
    assert bad(checks) == {"repository": "broken", "default branch": "broken"}


def test_sites_that_may_write_are_named_as_such() -> None:
    many = (LENA, ALICE, *(Account(f"x{n}", 50 + n) for n in range(6)))
    got = judged(writers=many)["write access"].got
    assert "alice-a (of hospital-a), x0" in got
    assert got.endswith("x3, …")


# ---------------------------------------------------------------- rules that stop the jobs


@pytest.mark.parametrize("kind", NO_PUSH)
def test_a_rule_that_the_jobs_token_cannot_bypass_is_broken(kind: str) -> None:
    check = judged(rules=rule(kind))[f"main: {kind}"]
    assert check.state == "broken"
    assert "ruleset 'strict'" in check.got
    assert NO_PUSH[kind] in check.got
    assert check.next == f"{PAGE}/rules/3"
    assert "level 1" in check.expected


def test_an_app_that_may_bypass_is_a_warning_for_the_workflows_push_with_a_deploy_key() -> None:
    check = judged(rules=rule("pull_request", bypass=("RepositoryRole", "Integration")))["main: pull_request"]
    assert (check.state, "Integration may bypass it" in check.got) == ("warning", True)
    assert check.next == f"let a deploy key bypass it too, which the workflows push with: {PAGE}/rules/3"


@pytest.mark.parametrize("who", ["RepositoryRole", "Team", "User", "OrganizationAdmin"])
def test_a_bypass_for_people_does_not_help_a_job(who: str) -> None:
    assert judged(rules=rule("pull_request", bypass=(who,)))["main: pull_request"].state == "broken"


def test_a_bypass_that_cannot_be_read_is_said() -> None:
    check = judged(rules=rule("pull_request", bypass=NO))["main: pull_request"]
    assert (check.state, check.got.endswith("who may bypass cannot be checked: 403, no rights")) == ("warning", True)


@pytest.mark.parametrize("kind", NO_MERGE)
def test_a_rule_against_what_jobs_make_is_broken_whoever_may_bypass(kind: str) -> None:
    assert judged(rules=rule(kind, bypass=("DeployKey",)))[f"main: {kind}"].state == "broken"


@pytest.mark.parametrize("kind", BY_CONTENT)
def test_a_rule_about_contents_is_a_warning(kind: str) -> None:
    assert judged(rules=rule(kind))[f"main: {kind}"].state == "warning"


def test_a_rule_without_merge_commits_is_broken_even_with_a_bypass() -> None:
    check = judged(rules=rule("pull_request", bypass=("DeployKey",), methods=("squash",)))["main: pull_request"]
    assert (check.state, check.expected) == ("broken", "merge among the allowed methods")


def test_of_two_rules_of_one_kind_the_worse_one_is_said() -> None:
    old = (Rule("pull_request", "branch protection", f"{PAGE}/branches"),)
    check = judged(rules=rule("pull_request", bypass=("DeployKey",)), protection=old)["main: pull_request"]
    assert (check.state, check.next) == ("broken", f"{PAGE}/branches")


@pytest.mark.parametrize("kind", ["creation", "copilot_code_review", "a_rule_of_tomorrow"])
def test_rules_that_stop_nothing_are_not_mentioned(kind: str) -> None:
    assert bad(judged(rules=rule(kind))) == {}


@pytest.mark.parametrize(
    ("bypass", "expected"),
    [((), "broken"), (("User",), "broken"), (NO, "broken"), (("DeployKey",), None), (("Integration",), None)],
)
def test_tags_that_no_job_may_make_are_broken(bypass: Any, expected: str | None) -> None:
    checks = judged(tag_rules=(*TAGS, Rule("creation", "ruleset 'tags'", f"{PAGE}/rules/2", bypass)))
    assert bad(checks).get("tags global@*: creation") == expected


def test_what_was_not_asked_for_is_not_there_to_be_judged() -> None:
    """A site's clone reads no rules; were they judged all the same, each would say so."""
    seen = judged(rules=NOT_ASKED, protection=NOT_ASKED, tag_rules=NOT_ASKED, writers=NOT_ASKED)
    assert {c.got for c in seen.values() if c.state != "ok"} == {"cannot be checked: not asked for"}


# ---------------------------------------------------------------- refs and packages


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["refs/tags/global@*"], [], True),
        (["refs/tags/*"], [], True),
        (["refs/tags/**/*"], [], True),
        (["~ALL"], [], True),
        (["refs/tags/global@v?.0.0"], [], True),
        (["refs/tags/v*"], [], False),
        (["refs/*"], [], False),
        (["refs/tags/global@"], [], False),
        (["refs/tags/globalXv1.0.0"], [], False),
        (["~ALL"], ["refs/tags/global@*"], False),
        ([], [], False),
    ],
)
def test_a_ruleset_takes_in_what_its_patterns_say(include: list[str], exclude: list[str], expected: bool) -> None:
    assert applies("refs/tags/global@v1.0.0", include, exclude) is expected


def test_a_star_ends_at_a_slash_and_two_with_a_slash_do_not() -> None:
    assert applies("refs/heads/a/b", ["refs/heads/**/b"], [])
    assert not applies("refs/heads/a/b", ["refs/heads/*"], [])
    assert not applies("refs/heads/a/b", ["refs/heads/a?b"], [])


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("oci://ghcr.io/acme/heart", (("acme", "heart/global"), ("acme", "heart/archive"))),
        ("oci://ghcr.io/acme/x/y", (("acme", "x/y/global"), ("acme", "x/y/archive"))),
        ("oci://ghcr.io/acme", (("acme", "global"), ("acme", "archive"))),
        ("oci://harbor.example/acme/heart", ()),
        ("ocidir:store", ()),
    ],
)
def test_the_packages_that_ci_writes(store: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert packages_of(store) == expected
