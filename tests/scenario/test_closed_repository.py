"""On a real registry with scoped tokens: a site closes its repository, or its own registry is gone, after the merge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import cli_world
from tests.cli_world import World, environment
from tests.registry.accounts import PASSWORDS, PATH, rights, sign_in
from tests.registry.proxy import Answer, FaultProxy, fault_proxy
from tests.registry.server import registry_server
from tests.registry.tokens import TokenService

A, B, C = "hospital-a", "hospital-b", "clinic-c"


@dataclass(frozen=True)
class Fed:
    """A federation at v0; two sites make a version.

    Attributes:
        rights: of whom in which repository; changed while the token service runs.
        own: a registry without passwords, which hospital-a's roster entry may name.
    """

    world: World
    service: TokenService
    rights: dict[tuple[str, str], str]
    own: FaultProxy

    @contextmanager
    def as_(self, who: str) -> Iterator[World]:
        with environment(**sign_in(self.service, who)):
            yield self.world

    def hand_in(self, *sites: str) -> None:
        for site in sites:
            with self.as_(site) as world:
                world.hand_in(site)

    def reconcile(self) -> list[str]:
        """One run of CI; what became of the pull requests that it looked at."""
        with self.as_("ci") as world:
            return [pull["outcome"] for pull in world.json("ci", "ci", "reconcile")["pulls"]]

    def merged_by_job(self) -> tuple[str, ...]:
        """Inspect and merge as jobs; options of the jobs that follow."""
        with self.as_("ci") as world:
            verdicts = world("ci", "ci", "inspect", "--format", "json").out
            merged = world.json("ci", "ci", "merge", "--verdicts", verdicts)
        assert merged["due"] == "true"
        return "--input-commit", merged["input_commit"], "--decided-at", merged["decided_at"]

    def verify(self, who: str) -> Any:
        with self.as_(who) as world:
            return world.json(who, "verify", "--all")

    def used(self) -> list[tuple[str, int]]:
        return [(c["site"], c["staleness"]) for c in self.world.version()["contributions"]]

    def unavailable(self) -> list[tuple[str, str]]:
        return [(u["site"], u["slug"]) for u in self.world.version()["witness"]["unavailable"]]


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Fed]:
    access = rights()
    with (
        TokenService(PASSWORDS, access).running() as service,
        registry_server(tmp_path / "registry", auth=service.auth(tmp_path / "registry")) as server,
        registry_server(tmp_path / "own") as theirs,
        fault_proxy(theirs.host) as own,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(cli_world, "INIT", (*cli_world.INIT, "--store", f"oci://{server.host}/{PATH}"))
        made = Fed(World(tmp_path / "world"), service, access, own)
        with made.as_("lead"):
            cli_world.build(tmp_path / "world")
        yield made


def test_repository_that_its_site_made_private_stops_no_other_site(fed: Fed) -> None:
    fed.hand_in(A)
    assert fed.reconcile() == ["merged"]
    fed.rights["ci", f"{PATH}/sites/{A}"] = ""
    fed.hand_in(B, C)
    fed.reconcile()
    assert (fed.used(), fed.unavailable()) == ([(C, 0), (B, 0)], [(A, "auth_failed")])
    for who in ("ci", B):  # one of them may read what the other may not
        assert fed.verify(who)["ok"]

    fed.rights["ci", f"{PATH}/sites/{A}"] = "pull"
    fed.hand_in(B)
    fed.reconcile()
    assert (fed.used(), fed.unavailable()) == ([(A, 1), (B, 0)], [])
    assert fed.verify("ci")["ok"]


def test_password_of_ci_that_is_no_longer_good_makes_no_version(fed: Fed) -> None:
    """What it opened is closed for all sites alike, and so is what anybody may read without one."""
    fed.hand_in(A, B)
    pinned = fed.merged_by_job()
    with fed.as_("ci") as world, environment(FEDOPS_REGISTRY_PASSWORD="of yesterday"):
        world("ci", "ci", "aggregate", *pinned, code=4)
    with fed.as_("ci") as world:
        assert world.json("ci", "ci", "aggregate", *pinned)["skipped"] == {}


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(Answer(503, {"Retry-After": "3600"}), id="503"),
        pytest.param(Answer(403), id="403", marks=pytest.mark.long),
    ],
)
def test_registry_of_a_sites_own_that_refuses_stops_no_other_site(fed: Fed, gone: Answer) -> None:
    text = f"  {A}:\n    store: oci://{fed.own.host}/{A}/fed"
    fed.world.edit("policies/sites.yaml", lambda old: old.replace(f"  {A}:", text, 1))
    fed.hand_in(A)
    assert fed.reconcile() == ["merged"]
    fed.own.plan("GET", "/v2/", gone, times=10**6)
    fed.hand_in(B, C)
    fed.reconcile()
    slug = "auth_failed" if gone.status == 403 else "registry_unavailable"
    assert (fed.used(), fed.unavailable()) == ([(C, 0), (B, 0)], [(A, slug)])
    assert fed.verify("ci")["ok"]

    fed.own.mend()
    fed.hand_in(B)
    fed.reconcile()
    assert (fed.used(), fed.unavailable()) == ([(A, 1), (B, 0)], [])
    # What was used is kept, whatever the site does afterwards.
    fed.own.plan("GET", "/v2/", gone, times=10**6)
    assert fed.verify("ci")["ok"]


def test_registry_of_a_sites_own_that_is_closed_at_the_archive_copy_stops_no_other_site(fed: Fed) -> None:
    """As jobs: what was aggregated while it answered cannot be copied any more, so the next run decides again."""
    text = f"  {A}:\n    store: oci://{fed.own.host}/{A}/fed"
    fed.world.edit("policies/sites.yaml", lambda old: old.replace(f"  {A}:", text, 1))
    fed.hand_in(A)
    fed.reconcile()
    fed.hand_in(B, C)
    pinned = fed.merged_by_job()
    with fed.as_("ci") as world:
        proposed = world.json("ci", "ci", "aggregate", *pinned)
        assert proposed["skipped"] == {}
        fed.own.plan("GET", "/v2/", Answer(403), times=10**6)
        published = world.json("ci", "ci", "publish", *pinned, "--proposal", proposed["proposal"])
    assert (published["again"], published["version"]) == (True, None)
    fed.reconcile()
    assert (fed.used(), fed.unavailable()) == ([(C, 0), (B, 0)], [(A, "auth_failed")])
    assert fed.verify("ci")["ok"]
