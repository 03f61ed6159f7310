"""`fedops join`: notes site and key in the clone, and tells what a lead still has to do."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from fedops.app.join import Applicant, Joined, demand_free_clone, join
from fedops.app.site_state import SiteState, read_site_state
from fedops.core.errors import ConfigError
from fedops.core.ids import SiteId
from tests.app.test_roster import add, fake_key, state
from tests.founding_world import World, founded_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return founded_world(tmp_path)


def joined(world: World, **facts: Any) -> Joined:
    with world.context() as ctx:
        return join(ctx, world.clone, Applicant(SiteId("hospital-a"), **facts))


def test_an_unknown_site_gets_the_line_for_the_lead(world: World) -> None:
    key = world.clone / ".fedops" / "id"
    done = joined(world, key=key, public_key=fake_key(1))
    assert (done.state, done.key_known, done.changed) == (None, False, True)
    assert done.line is not None
    words = shlex.split(done.line)
    assert words == [
        "fedops",
        "site",
        "add",
        "hospital-a",
        "--login",
        "hospital-a",
        "--id",
        "1001",
        "--key",
        fake_key(1),
    ]
    assert read_site_state(world.clone) == SiteState("hospital-a", str(key))


def test_the_line_does_what_is_missing(world: World) -> None:
    line = joined(world, public_key=fake_key(1)).line
    assert line is not None
    words = shlex.split(line)
    add(world, words[3], words[5], int(words[7]), [words[9]])
    done = joined(world, public_key=fake_key(1))
    assert (done.state, done.key_known, done.line, done.changed) == ("active", True, None, False)


def test_a_new_key_of_a_known_site_is_asked_for_alone(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001, [fake_key(1)])
    done = joined(world, public_key=fake_key(2))
    assert (done.state, done.key_known) == ("active", False)
    assert shlex.split(done.line or "") == ["fedops", "site", "add", "hospital-a", "--key", fake_key(2)]


def test_a_suspended_site_is_told_so(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001)
    state(world, "hospital-a", "suspended")
    done = joined(world)
    assert (done.state, done.line) == ("suspended", None)


def test_a_number_that_nobody_has_is_proposed(world: World) -> None:
    add(world, "hospital-b", "bob-b", 4711)
    assert "--id 4712" in (joined(world).line or "")


def test_what_the_site_says_of_its_account_is_taken(world: World) -> None:
    line = joined(world, login="alice-a", account_id=0).line
    assert line == "fedops site add hospital-a --login alice-a --id 0"


def test_on_github_only_the_site_knows_its_account(world: World) -> None:
    text = world.show("federation.yaml").replace(b"{kind: git}", b"{kind: github, repository: acme/fed}", 1)
    world.commit({"federation.yaml": text})
    assert joined(world).line == "fedops site add hospital-a --login LOGIN --id NUMERIC-ID"
    line = joined(world, login="alice-a", account_id=583231).line
    assert line == "fedops site add hospital-a --login alice-a --id 583231"


def test_a_key_that_was_noted_is_not_forgotten(world: World, tmp_path: Path) -> None:
    joined(world, key=tmp_path / "id", public_key=fake_key(1))
    joined(world)
    assert read_site_state(world.clone) == SiteState("hospital-a", str(tmp_path / "id"))


def test_nothing_is_sent_anywhere(world: World) -> None:
    before = world.refs()
    joined(world, public_key=fake_key(1))
    assert world.refs() == before
    assert world.git("status", "--porcelain", at=world.clone) in ("", "?? .fedops/")


def test_a_clone_belongs_to_one_site(world: World) -> None:
    assert demand_free_clone(world.clone, "hospital-a") == "hospital-a"
    joined(world)
    assert demand_free_clone(world.clone, "hospital-a") == "hospital-a"
    with pytest.raises(ConfigError, match="this clone is hospital-a's -> hospital-b"):
        demand_free_clone(world.clone, "hospital-b")
    with pytest.raises(ConfigError, match="not a site id"):
        demand_free_clone(world.clone, "Hospital B")
