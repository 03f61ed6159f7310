"""What versions are pushed with, and forks of a private repository, as GitHub tells an admin, a writer and a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from fedops.core.facts import Account
from fedops.core.forge_settings import NOT_ASKED, ForkRuns, Publisher
from fedops.core.health_forge import check_forge
from fedops.core.settings import Lead, Sites
from tests.adapters.test_github_settings import PACKAGES, read, reason
from tests.core.forge_samples import REVIEW
from tests.doctor_report import bad, by_name
from tests.forge_worlds import ACCOUNTS, git_template
from tests.github_face.hub import OWNER, Fault
from tests.github_face.level2 import RULES
from tests.github_face.settings import DeployKey, Environment, Settings, main_ruleset, set_up, set_up_publisher
from tests.github_face.world import FaceWorld, github_world
from tests.sshkeys import SshKey

LEADS = tuple(Lead(login=f"lead-{n}", id=n) for n in (ACCOUNTS["lena"].id, 99))
LOGIN = ACCOUNTS["lena"].login
FINE_GRAINED = "403, Resource not accessible by personal access token"
BELOW = ("/keys", "/environments/fedops-publish", "/environments/fedops-publish/secrets")
POLICIES = "/environments/fedops-publish/deployment-branch-policies"


@pytest.fixture(scope="module")
def world(keys: Mapping[str, SshKey], tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaceWorld]:
    template = git_template(keys, tmp_path_factory.mktemp("template"))
    yield from github_world(keys, template, tmp_path_factory.mktemp("world"))


@pytest.fixture
def settings(world: FaceWorld) -> Settings:
    """Level 2 as the guide has it; lena is an admin."""
    world.hub.settings = Settings()
    made = set_up(world.hub, LOGIN)
    made.rulesets[0] = main_ruleset(*RULES, bypass=[("DeployKey", "always")])
    set_up_publisher(made)
    return made


def environment(settings: Settings) -> Environment:
    return settings.environments["fedops-publish"]


def asked_of(world: FaceWorld, who: str = "lena") -> list[str]:
    """Paths below the repository that are asked for, without their queries."""
    count = len(world.hub.requests)
    read(world, who, packages=PACKAGES)
    return [path.partition("?")[0].partition("/demo")[2] for _, path, _ in world.hub.requests[count:]]


def test_level_2_as_the_guide_has_it_is_read_whole_and_all_is_well(world: FaceWorld, settings: Settings) -> None:
    settings.packages = {f"{OWNER}/demo/global": ("private", True), "lena-l/demo/archive": ("public", True)}
    seen = read(world)
    assert seen.publisher == Publisher(
        environment=True, refs=("refs/heads/main",), secret=True, keys=("fedops publish",)
    )
    seen = replace(seen, writers=tuple(Account(lead.login, lead.id) for lead in LEADS))
    sites = Sites.model_validate({"schema": "fedops.sites/v1", "leads": LEADS})
    assert bad(check_forge(seen, "main", sites, None, REVIEW)) == {}
    settings.deploy_keys.pop()
    seen = replace(read(world), writers=seen.writers)
    checks = by_name(check_forge(seen, "main", sites, None, REVIEW))
    assert bad(checks.values()) == {
        "main: pull_request": "broken",
        "main: required_status_checks": "broken",
        "level 2: deploy key": "warning",
    }


def test_level_2_costs_at_most_five_requests_more_and_level_1_none(world: FaceWorld, settings: Settings) -> None:
    right = asked_of(world)
    environment(settings).secrets.clear()
    without = asked_of(world)
    settings.rulesets[0] = main_ruleset()
    plain = asked_of(world)
    assert read(world).publisher == Publisher()
    assert [path for path in right if path not in plain] == [*BELOW, POLICIES]
    assert sorted(path for path in without if path not in plain) == sorted([*BELOW, POLICIES, "/actions/secrets"])
    assert (len(right) - len(plain), len(without) - len(plain)) == (4, 5)
    assert len(plain) <= 18


def test_a_secret_of_the_repository_is_looked_for_where_the_environment_has_none(
    world: FaceWorld, settings: Settings
) -> None:
    environment(settings).secrets[:] = ["OTHER", "FEDOPS_DEPLOY_KEYS"]
    for names, expected in (([], False), (["FEDOPS_DEPLOY_KEY"], True)):
        settings.secrets = names
        publisher = read(world).publisher
        assert (publisher.secret, publisher.repository_secret) == (False, expected)
    settings.environments.clear()
    publisher = read(world).publisher
    assert (publisher.environment, publisher.refs, publisher.secret) == (False, None, False)
    assert publisher.repository_secret is True


def test_what_stands_on_a_later_page_is_seen(world: FaceWorld, settings: Settings) -> None:
    settings.deploy_keys[:] = [DeployKey(f"mirror {n}", read_only=True) for n in range(230)] + [
        DeployKey("fedops publish")
    ]
    environment(settings).secrets[:] = [*(f"OTHER_{n}" for n in range(130)), "FEDOPS_DEPLOY_KEY"]
    environment(settings).patterns[:0] = [("branch", f"dev-{n}") for n in range(105)]
    publisher = read(world).publisher
    assert (publisher.keys, publisher.secret) == (("fedops publish",), True)
    refs = publisher.refs
    assert isinstance(refs, tuple)
    assert (len(refs), refs[-1]) == (106, "refs/heads/main")
    environment(settings).secrets.pop()
    settings.secrets = [*environment(settings).secrets, "FEDOPS_DEPLOY_KEY"]
    assert read(world).publisher.repository_secret is True


@pytest.mark.parametrize("count", [1_000, 1_001])
def test_of_more_than_ten_pages_it_is_said_that_not_all_were_read(
    world: FaceWorld, settings: Settings, count: int
) -> None:
    settings.deploy_keys[:] = [DeployKey(f"mirror {n}", read_only=True) for n in range(count)]
    before = len(world.hub.requests)
    keys = read(world).publisher.keys
    assert sum("/keys?" in path for _, path, _ in world.hub.requests[before:]) == 10
    if count == 1_000:
        assert keys == ()
    else:
        assert reason(keys) == "there are more than 1000, and no more were read"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, None),
        ({"protected_branches": True, "custom_branch_policies": False}, None),
        (
            {"protected_branches": False, "custom_branch_policies": True},
            ("refs/heads/main", "refs/heads/dev/*", "refs/tags/v*"),
        ),
    ],
)
def test_the_branches_that_an_environment_takes(
    policy: dict[str, bool] | None, expected: tuple[str, ...] | None, world: FaceWorld, settings: Settings
) -> None:
    environment(settings).policy = policy
    environment(settings).patterns = [("branch", "main"), ("branch", "dev/*"), ("tag", "v*")]
    assert read(world).publisher.refs == expected


def test_keys_that_may_only_read_or_are_switched_off_do_not_count(world: FaceWorld, settings: Settings) -> None:
    settings.deploy_keys[:] = [
        DeployKey("reads", read_only=True),
        DeployKey("off", enabled=False),
        DeployKey("\x1b[2J"),
        DeployKey("b"),
    ]
    keys = read(world).publisher.keys
    assert isinstance(keys, tuple)
    assert len(keys) == 2
    assert "\x1b" not in keys[0]
    assert keys[1] == "b"


def test_a_writer_and_a_reader_are_told_what_they_may_not_read(world: FaceWorld, settings: Settings) -> None:
    settings.admins.clear()
    writer, reader = read(world).publisher, read(world, "alice").publisher
    assert (writer.environment, writer.refs, writer.secret) == (True, ("refs/heads/main",), True)
    assert reason(writer.keys) == FINE_GRAINED
    assert (reader.environment, reader.refs) == (True, ("refs/heads/main",))
    assert {reason(what) for what in (reader.secret, reader.keys)} == {FINE_GRAINED}
    assert reader.repository_secret == NOT_ASKED


@pytest.mark.parametrize(
    ("path", "unread"),
    [
        ("/environments", {"environment", "refs"}),
        ("/deployment-branch-policies", {"refs"}),
        ("/actions/secrets", {"repository_secret"}),
    ],
)
def test_a_token_without_one_right_leaves_that_part_alone_unread(
    path: str, unread: set[str], world: FaceWorld, settings: Settings
) -> None:
    settings.refused = path
    environment(settings).secrets.clear()
    publisher = read(world).publisher
    parts = {
        "environment": publisher.environment,
        "refs": publisher.refs,
        "secret": publisher.secret,
        "repository_secret": publisher.repository_secret,
        "keys": publisher.keys,
    }
    read_alone = {
        "environment": True,
        "refs": ("refs/heads/main",),
        "secret": False,
        "repository_secret": False,
        "keys": ("fedops publish",),
    }
    for name, part in parts.items():
        if name in unread:
            assert reason(part).startswith("403, Upgrade to GitHub Pro")
        else:
            assert part == read_alone[name]


def test_no_answer_about_the_environment_is_an_error_and_no_missing_one(world: FaceWorld, settings: Settings) -> None:
    world.hub.faults.append(Fault("GET", "/environments/fedops-publish$", 502, times=1))
    assert read(world).publisher.environment is True, "asked again"
    assert not [f for f in world.hub.faults if f.times]


# ---------------------------------------------------------------- private repositories


def test_of_a_private_repository_the_switches_for_its_forks_are_read_instead_of_those_for_strangers(
    world: FaceWorld, settings: Settings
) -> None:
    public = read(world)
    assert (public.private, public.may_fork, public.fork_runs) == (False, None, NOT_ASKED)
    asked = len(asked_of(world))
    settings.private, settings.allow_forking = True, False
    settings.fork_runs |= {"send_secrets_and_variables": True}
    seen = read(world)
    assert (seen.private, seen.may_fork, seen.first_runs) == (True, False, NOT_ASKED)
    assert seen.fork_runs == ForkRuns(on=True, write_tokens=False, secrets=True)
    assert len(asked_of(world)) == asked
    assert reason(read(world, "alice").fork_runs) == FINE_GRAINED
