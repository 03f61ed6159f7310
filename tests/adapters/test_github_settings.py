"""Settings as GitHub tells them to an admin, a writer, a reader and nobody; PyGithub against the loopback GitHub."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from fedops.adapters.forge_github import Clone, GitHubForge
from fedops.core.errors import ForgeError
from fedops.core.facts import Account
from fedops.core.forge_settings import ForgeSettings, JobRights, Package, Unread, Workflows
from fedops.core.github_hosts import host_of
from fedops.ports import ForgeProbe
from tests.forge_worlds import ACCOUNTS, ManualClock, git_template
from tests.github_face.hub import NAME, OWNER, Fault
from tests.github_face.settings import Ruleset, Settings, main_ruleset, set_up, tag_ruleset
from tests.github_face.world import FaceWorld, github_world, token_of
from tests.sshkeys import SshKey

LOGIN = ACCOUNTS["lena"].login
PR: dict[str, Any] = {
    "type": "pull_request",
    "parameters": {
        "allowed_merge_methods": ["squash"],
        "dismiss_stale_reviews_on_push": False,
        "require_code_owner_review": False,
        "require_last_push_approval": False,
        "required_approving_review_count": 1,
        "required_review_thread_resolution": False,
    },
}
PACKAGES = ((OWNER, f"{NAME}/global"), ("lena-l", f"{NAME}/archive"))


@pytest.fixture(scope="module")
def world(keys: Mapping[str, SshKey], tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaceWorld]:
    template = git_template(keys, tmp_path_factory.mktemp("template"))
    yield from github_world(keys, template, tmp_path_factory.mktemp("world"))


@pytest.fixture
def settings(world: FaceWorld) -> Settings:
    """Level 1; lena is an admin."""
    world.hub.settings = Settings()
    return set_up(world.hub, LOGIN)


def read(
    world: FaceWorld,
    who: str = "lena",
    *,
    token: str | None = "",
    packages: tuple[tuple[str, str], ...] = (),
    for_lead: bool = True,
) -> ForgeSettings:
    forge = GitHubForge(
        cast("Clone", world.repository("lena")),
        host=host_of(world.server.api),
        name=f"{OWNER}/{NAME}",
        token=token_of(who) if token == "" else token,
        clock=ManualClock(),
        pace=(0, 0),
    )
    try:
        assert isinstance(forge, ForgeProbe)
        return forge.settings("main", "global@v1.0.0", packages, for_lead=for_lead)
    finally:
        forge.close()


def kinds(rules: Any) -> list[str]:
    assert not isinstance(rules, Unread)
    return sorted(rule.kind for rule in rules)


def reason(what: object) -> str:
    assert isinstance(what, Unread)
    return what.reason


def test_an_admin_sees_everything(world: FaceWorld, settings: Settings) -> None:
    seen = read(world)
    assert (seen.name, seen.page) == (f"{OWNER}/{NAME}", f"{world.server.web}/{OWNER}/{NAME}/settings")
    assert (seen.account, seen.is_person, seen.may_write) == (ACCOUNTS["lena"], True, True)
    assert (seen.default_branch, seen.archived, seen.has_issues) == ("main", False, True)
    assert (seen.merge_commits, seen.other_merges) == (True, False)
    assert (kinds(seen.rules), kinds(seen.tag_rules)) == (["deletion", "non_fast_forward"], ["deletion", "update"])
    assert seen.writers == (ACCOUNTS["lena"],)
    assert (seen.workflows, seen.job_rights) == (Workflows(enabled=True), JobRights("read", pulls=False))
    assert (seen.first_runs, seen.packages) == ("first_time_contributors", ())


def test_nothing_is_written_and_little_is_asked(world: FaceWorld, settings: Settings) -> None:
    before, count = world.state(), len(world.hub.requests)
    read(world, packages=PACKAGES)
    asked = [method for method, _, _ in world.hub.requests[count:]]
    assert (world.state(), set(asked)) == (before, {"GET"})
    assert len(asked) <= 18


def test_of_a_site_s_clone_github_is_asked_two_questions(world: FaceWorld, settings: Settings) -> None:
    count = len(world.hub.requests)
    seen = read(world, "alice", packages=PACKAGES, for_lead=False)
    asked = [path.removeprefix("/api/v3") for _, path, _ in world.hub.requests[count:]]
    assert asked == [f"/repos/{OWNER}/{NAME}", "/user"]
    assert (seen.account, seen.may_write, seen.default_branch) == (ACCOUNTS["alice"], False, "main")
    unread = (
        seen.rules,
        seen.protection,
        seen.tag_rules,
        seen.writers,
        seen.workflows,
        seen.job_rights,
        seen.first_runs,
    )
    assert {reason(what) for what in unread} == {"not asked for"}
    assert seen.packages == ()


def test_a_reader_is_told_what_it_may_not_read(world: FaceWorld, settings: Settings) -> None:
    settings.protection = {}
    seen = read(world, "alice", packages=PACKAGES)
    assert (seen.may_write, seen.merge_commits) == (False, None)
    assert isinstance(seen.tag_rules, tuple), "rulesets are shown to everybody"
    assert kinds(seen.rules) == ["deletion", "non_fast_forward"], "and so is what applies to a branch"
    refused = (seen.protection, seen.writers, seen.workflows, seen.job_rights, seen.first_runs)
    assert {reason(what) for what in refused} == {"403, Resource not accessible by personal access token"}
    assert {reason(found) for _, _, found in seen.packages} == {
        "403, You need at least read:packages scope to get a package."
    }


def test_a_job_is_no_person_and_nobody_is_nobody(world: FaceWorld, settings: Settings) -> None:
    world.hub.add_job("job", {})
    job = read(world, token="job")
    assert (job.account, job.is_person, job.may_write) == (Account("github-actions[bot]", 41898282), False, None)
    nobody = read(world, token=None)
    assert "401" in reason(nobody.account)
    assert (nobody.is_person, nobody.may_write) == (False, None)
    assert kinds(nobody.rules) == ["deletion", "non_fast_forward"]
    assert "401" in reason(nobody.protection)
    assert "401" in reason(nobody.writers)


def test_a_plan_without_rulesets_is_a_reason_too(world: FaceWorld, settings: Settings) -> None:
    settings.refused = "/rules"
    seen = read(world)
    assert reason(seen.rules).startswith("403, Upgrade to GitHub Pro")
    assert reason(seen.tag_rules).startswith("403, Upgrade to GitHub Pro")


@pytest.mark.parametrize("path", ["/rulesets", "/branches"])
def test_what_cannot_be_asked_alone_is_unread_alone(path: str, world: FaceWorld, settings: Settings) -> None:
    settings.refused = path
    seen = read(world)
    assert len(kinds(seen.rules)) == 2
    assert reason(seen.tag_rules if path == "/rulesets" else seen.protection).startswith("403")


def test_a_ruleset_that_goes_while_it_is_read_leaves_tags_unread(world: FaceWorld, settings: Settings) -> None:
    settings.refused = "/rulesets/12"
    assert reason(read(world).tag_rules) == "404, Not Found"


def test_github_that_does_not_answer_is_an_error_and_no_setting(world: FaceWorld, settings: Settings) -> None:
    for path in ("/user$", r"/rulesets\?", "/actions/permissions$"):
        world.hub.faults.append(Fault("GET", path, 502, times=3))
        with pytest.raises(ForgeError) as caught:
            read(world)
        assert caught.value.cause == "temporary"
    assert not [f for f in world.hub.faults if f.times]


# ---------------------------------------------------------------- rules


def test_a_rule_is_told_with_its_ruleset_who_may_bypass_and_how_it_lets_merge(
    world: FaceWorld, settings: Settings
) -> None:
    bypass = [("DeployKey", "always"), ("RepositoryRole", "pull_request"), ("Integration", "exempt")]
    settings.rulesets[0] = main_ruleset(PR, bypass=bypass)
    [rule] = [r for r in _rules(read(world)) if r.kind == "pull_request"]
    assert (rule.source, rule.methods) == ("ruleset 'main'", ("squash",))
    assert rule.page == f"{world.server.web}/{OWNER}/{NAME}/settings/rules/11"
    assert rule.bypass == ("DeployKey", "Integration")
    [rule] = [r for r in _rules(read(world, "alice")) if r.kind == "pull_request"]
    assert "may change the ruleset" in reason(rule.bypass)


def _rules(seen: ForgeSettings) -> Any:
    assert not isinstance(seen.rules, Unread)
    return seen.rules


GREEN = {
    "type": "required_status_checks",
    "parameters": {
        "strict_required_status_checks_policy": False,
        "required_status_checks": [{"context": "build"}, {"context": "fedops/verdict", "integration_id": 15368}],
    },
}


def test_what_rules_demand_of_a_pull_request_is_read(world: FaceWorld, settings: Settings) -> None:
    strict = copy.deepcopy(PR)
    strict["parameters"] |= {"dismiss_stale_reviews_on_push": True, "require_last_push_approval": True}
    settings.rulesets[0] = main_ruleset(strict, GREEN)
    seen = read(world)
    by_kind = {rule.kind: rule for rule in _rules(seen)}
    asked = by_kind["pull_request"]
    assert (asked.approvals, asked.dismisses, asked.last_push) == (1, True, True)
    assert by_kind["required_status_checks"].statuses == ("build", "fedops/verdict")
    free = by_kind["deletion"]
    assert (free.statuses, free.approvals, free.dismisses, free.last_push) == ((), 0, False, False)
    settings.rulesets[0] = main_ruleset(PR)
    assert [(r.dismisses, r.last_push) for r in _rules(read(world)) if r.kind == "pull_request"] == [(False, False)]


def test_the_same_demands_in_classic_branch_protection(world: FaceWorld, settings: Settings) -> None:
    settings.rulesets.clear()
    checks = [{"context": "fedops/verdict", "app_id": None}]
    settings.protection = {
        "required_pull_request_reviews": REVIEWS
        | {"required_approving_review_count": 2, "require_last_push_approval": True},
        "required_status_checks": {"url": "https://x.invalid", "strict": True, "enforcement_level": "everyone"}
        | {"contexts": ["fedops/verdict"], "contexts_url": "https://x.invalid", "checks": checks},
    }
    seen = read(world)
    assert not isinstance(seen.protection, Unread)
    by_kind = {rule.kind: rule for rule in seen.protection}
    asked = by_kind["pull_request"]
    assert (asked.approvals, asked.dismisses, asked.last_push) == (2, True, True)
    assert by_kind["required_status_checks"].statuses == ("fedops/verdict",)


def test_rulesets_that_are_off_or_for_other_refs_count_for_nothing(world: FaceWorld, settings: Settings) -> None:
    settings.rulesets[:] = [
        Ruleset("off", "tag", ["~ALL"], [{"type": "update"}], enforcement="disabled", id=1),
        Ruleset("tried", "branch", ["refs/heads/main"], [{"type": "update"}], enforcement="evaluate", id=2),
        Ruleset("other", "tag", ["refs/tags/v*"], [{"type": "update"}], id=3),
        Ruleset("side", "branch", ["refs/heads/side"], [{"type": "update"}], id=4),
    ]
    seen = read(world)
    assert (seen.rules, seen.tag_rules) == ((), ())


def test_rulesets_and_rules_of_every_page_are_read(world: FaceWorld, settings: Settings) -> None:
    for number in range(100, 205):
        settings.rulesets.append(
            Ruleset(
                f"{number}", "branch", ["refs/heads/main"], [{"type": "creation"}], enforcement="evaluate", id=number
            )
        )
    settings.rulesets.append(Ruleset("late", "tag", ["~ALL"], [{"type": "creation"}], id=300))
    settings.rulesets[0].rules += [{"type": "creation"}] * 150 + [{"type": "required_signatures"}]
    seen = read(world)
    assert kinds(seen.tag_rules) == ["creation", "deletion", "update"]
    assert "required_signatures" in kinds(seen.rules)


def test_everybody_who_may_write_is_counted(world: FaceWorld, settings: Settings) -> None:
    writers = world.hub.upstream.writers
    more = {f"w-{number}": world.hub.add_user(f"w-{number}", 5_000 + number, f"t-{number}") for number in range(120)}
    writers.update(more)
    try:
        assert set(cast("Any", read(world).writers)) == {
            ACCOUNTS["lena"],
            *(Account(u.login, u.id) for u in more.values()),
        }
    finally:
        writers.difference_update(more)
        for number in range(120):
            del world.hub.users[f"t-{number}"]


def test_tags_have_the_rules_of_all_their_rulesets(world: FaceWorld, settings: Settings) -> None:
    settings.rulesets[:] = [tag_ruleset(), Ruleset("all", "tag", ["~ALL"], [{"type": "creation"}], id=9)]
    assert kinds(read(world).tag_rules) == ["creation", "deletion", "update"]


def test_a_name_that_acts_on_a_terminal_is_made_harmless(world: FaceWorld, settings: Settings) -> None:
    settings.rulesets[0].name = "x\x1b[2J"
    assert {r.source for r in _rules(read(world))} == {"ruleset 'x\\\\x1b[2J'"}


REVIEWS = {"dismiss_stale_reviews": True, "require_code_owner_reviews": False}


@pytest.mark.parametrize(
    ("protection", "expected"),
    [
        ({}, ["deletion", "non_fast_forward"]),
        ({"allow_force_pushes": {"enabled": True}, "allow_deletions": {"enabled": True}}, []),
        (
            {"allow_force_pushes": {"enabled": True}, "required_pull_request_reviews": REVIEWS},
            ["deletion", "pull_request"],
        ),
        (
            {"allow_force_pushes": {"enabled": True}, "allow_deletions": {"enabled": True}}
            | {"required_linear_history": {"enabled": True}, "lock_branch": {"enabled": True}}
            | {"required_signatures": {"url": "https://x.invalid", "enabled": True}},
            ["required_linear_history", "required_signatures", "update"],
        ),
    ],
)
def test_classic_branch_protection_counts_like_rulesets(
    protection: dict[str, Any], expected: list[str], world: FaceWorld, settings: Settings
) -> None:
    settings.rulesets.clear()
    settings.protection = protection
    seen = read(world)
    assert (seen.rules, kinds(seen.protection)) == ((), expected)
    assert {(r.source, r.page.rsplit("/", 1)[1]) for r in cast("Any", seen.protection)} <= {
        ("branch protection", "branches")
    }


def test_without_any_protection_there_are_no_rules(world: FaceWorld, settings: Settings) -> None:
    settings.rulesets.clear()
    seen = read(world)
    assert (seen.rules, seen.protection) == ((), ())


# ---------------------------------------------------------------- switches and packages


@pytest.mark.parametrize("owned", [True, False])
def test_selected_actions_are_asked_for(owned: bool, world: FaceWorld, settings: Settings) -> None:
    settings.actions = {"enabled": True, "allowed_actions": "selected"}
    settings.selected = {"github_owned_allowed": owned}
    assert read(world).workflows == Workflows(enabled=True, allowed="selected", github_owned=owned)


def test_switched_off_actions_and_other_merges(world: FaceWorld, settings: Settings) -> None:
    settings.actions, settings.merges["allow_rebase_merge"] = {"enabled": False}, True
    seen = read(world)
    assert (seen.workflows, seen.other_merges) == (Workflows(enabled=False), True)


def test_packages_of_an_organization_and_of_an_account(world: FaceWorld, settings: Settings) -> None:
    settings.packages = {f"{OWNER}/{NAME}/global": ("private", True), f"lena-l/{NAME}/archive": ("public", False)}
    seen = read(world, packages=PACKAGES)
    page = "https://github.com/{}/packages/container/demo%2F{}/settings"
    assert seen.packages == (
        (f"{NAME}/global", page.format(f"orgs/{OWNER}", "global"), Package("private", f"{OWNER}/{NAME}")),
        (f"{NAME}/archive", page.format("users/lena-l", "archive"), Package("public", None)),
    )


def test_a_package_that_is_not_there_yet_is_unread(world: FaceWorld, settings: Settings) -> None:
    assert [reason(found) for _, _, found in read(world, packages=PACKAGES).packages] == ["404, Package not found."] * 2
