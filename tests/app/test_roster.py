"""The roster: sites are added, suspended and activated by commits on origin's main that keep people's comments."""

from __future__ import annotations

import base64
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.yaml_edit import RoundTripEditor
from fedops.app.change_main import Writing
from fedops.app.roster import RosterChange, add_site, addition, roster, set_state
from fedops.core.documents import load_document
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import RefUpdate
from fedops.core.settings import Person, Sites
from tests.founding_world import World, Wrapped, founded_world
from tests.sshkeys import make_key

EDITOR = RoundTripEditor()
WRITING = Writing(jitter=lambda: 0.5)


def fake_key(number: int) -> str:
    """A well-formed public key that nobody has the other half of."""
    wire = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes([number]) * 32
    return f"ssh-ed25519 {base64.b64encode(wire).decode()} key-{number}"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return founded_world(tmp_path)


def add(
    world: World,
    site: str,
    login: str | None = None,
    number: int | None = None,
    keys: Sequence[str] = (),
    store: str | None = None,
    *,
    writing: Writing = WRITING,
    wrap: Any = None,
) -> RosterChange:
    with world.context(wrap=wrap) as ctx:
        return add_site(ctx, EDITOR, addition(site, login, number, keys, store), writing)


def state(world: World, site: str, wanted: Any) -> RosterChange:
    with world.context() as ctx:
        return set_state(ctx, EDITOR, site, wanted, WRITING)


def on_main(world: World) -> Sites:
    return load_document(world.show("policies/sites.yaml"), Sites, "policies/sites.yaml")


def subjects(world: World) -> list[str]:
    return world.git("log", "--format=%s", "main").splitlines()


# ---------------------------------------------------------------- add


def test_a_site_is_added_by_one_commit_on_main(world: World) -> None:
    done = add(world, "hospital-a", "alice-a", 1001, [fake_key(1)])
    assert done.changed
    assert done.commit == world.refs()["refs/heads/main"]
    assert list(done.files) == [".dvc/config", "policies/sites.yaml"]
    entry = on_main(world).sites["hospital-a"]
    assert entry.accounts == (Person(login="alice-a", id=1001),)
    assert (entry.keys, entry.state, entry.store) == ((fake_key(1),), "active", None)
    assert subjects(world) == ["policy: add site hospital-a", "global: v0 (init)"]
    changed = world.git("diff", "--name-only", "main^", "main").splitlines()
    assert changed == [".dvc/config", "policies/sites.yaml"]


def test_the_same_again_changes_nothing(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001, [fake_key(1)])
    before = world.refs()
    again = add(world, "hospital-a", "alice-a", 1001, [fake_key(1).replace("key-1", "another comment")])
    assert (again.changed, again.commit, again.files) == (False, None, ())
    assert world.refs() == before


def test_comments_and_order_of_people_stay(world: World) -> None:
    text = (
        "schema: fedops.sites/v1\n"
        "# the boss\n"
        "leads:\n"
        "  - {login: lena,   id: 1}   # since 2024\n"
        "\n"
        "sites:\n"
        "  # in the north\n"
        "  zeta: {accounts: [{login: z, id: 5}], state: active}  # hm\n"
        "  # end\n"
    )
    world.commit({"policies/sites.yaml": text.encode()})
    add(world, "alpha", "alice", 7, [fake_key(2)])
    state(world, "zeta", "suspended")
    after = world.show("policies/sites.yaml").decode()
    removed = [d for d in difflib.ndiff(text.splitlines(), after.splitlines()) if d.startswith("- ")]
    assert removed == ["-   zeta: {accounts: [{login: z, id: 5}], state: active}  # hm"]
    assert "  zeta: {accounts: [{login: z, id: 5}], state: suspended} # hm\n" in after
    assert list(on_main(world).sites) == ["zeta", "alpha"]


def test_a_site_may_have_a_store_of_its_own(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001, (), "oci://host/alice")
    assert on_main(world).sites["hospital-a"].store == "oci://host/alice"
    assert b"url = oci://host/alice/sites/hospital-a\n" in world.show(".dvc/config")
    with pytest.raises(ConfigError, match="oci://host/alice -> oci://host/other"):
        add(world, "hospital-a", None, None, (), "oci://host/other")


def test_a_second_key_and_account_are_added_to_a_site(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001, [fake_key(1)])
    done = add(world, "hospital-a", "anna", 1009, [fake_key(1), fake_key(2)])
    assert list(done.files) == ["policies/sites.yaml"]
    entry = on_main(world).sites["hospital-a"]
    assert [a.id for a in entry.accounts] == [1001, 1009]
    assert entry.keys == (fake_key(1), fake_key(2))
    assert subjects(world)[0] == "policy: extend site hospital-a"


def test_a_suspended_site_stays_suspended_when_a_key_is_added(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001, [])
    state(world, "hospital-a", "suspended")
    add(world, "hospital-a", None, None, [fake_key(1)])
    assert on_main(world).sites["hospital-a"].state == "suspended"


def test_a_missing_dvc_config_is_made_for_all_sites(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001)
    world.commit({".dvc/config": None})  # type: ignore[dict-item]  # None deletes
    add(world, "hospital-b", "bob-b", 1002)
    config = world.show(".dvc/config")
    assert b"sites-hospital-a" in config
    assert b"sites-hospital-b" in config


def test_a_dry_run_says_what_would_change(world: World) -> None:
    before = world.refs()
    done = add(world, "hospital-a", "alice-a", 1001, writing=Writing(lambda: 0.0, dry_run=True))
    assert done.changed
    assert done.commit is None
    assert "policies/sites.yaml" in done.files
    assert world.refs() == before


def test_the_commit_is_signed_if_there_is_a_key(world: World, tmp_path: Path) -> None:
    key = make_key(tmp_path, "lena")
    done = add(world, "hospital-a", "alice-a", 1001, writing=Writing(lambda: 0.0, key=key.private))
    assert done.commit is not None
    with world.context() as ctx:
        assert ctx.repository.signer(done.commit, [key.public]) == key.public


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Hospital-A", "a", 1), "not a site id"),
        (("global", "a", 1), "reserved name"),
        (("new",), "needs an account"),
        (("new", "a", None), "--login and --id together"),
        (("new", None, 4), "--login and --id together"),
        (("new", "a", 4, ["ssh-ed25519 AAAA x"]), "cut off"),
        (("new", "a", 4, ["-----BEGIN OPENSSH PRIVATE KEY-----"]), "private key"),
        (("new", "a", 4, (), "store"), "not a store"),
        (("new", "a", 1001), "account id 1001 belongs to hospital-a already"),
        (("new", "a", 4, [fake_key(1)]), "this key belongs to hospital-a already"),
    ],
)
def test_what_cannot_be_added_is_refused_and_main_stays(world: World, arguments: tuple[Any, ...], said: str) -> None:
    add(world, "hospital-a", "alice-a", 1001, [fake_key(1)])
    before = world.refs()
    with pytest.raises(ConfigError, match=said):
        add(world, *arguments)
    assert world.refs() == before


def test_an_editor_that_changes_more_than_the_site_is_stopped(world: World) -> None:
    class Careless(RoundTripEditor):
        def put(self, data: bytes, path: Any, value: Any) -> bytes:
            return super().put(data, path, value).replace(b"id: 1\n", b"id: 2\n")

    with world.context() as ctx, pytest.raises(ConfigError, match="without changing more than hospital-a"):
        add_site(ctx, Careless(), addition("hospital-a", "alice-a", 1001, [], None), WRITING)


# ---------------------------------------------------------------- suspend, activate, list


def test_suspend_and_activate_change_the_state_alone(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001)
    before = world.show("policies/sites.yaml")
    suspended = state(world, "hospital-a", "suspended")
    assert suspended.entry.state == "suspended"
    assert world.show("policies/sites.yaml") == before.replace(b"state: active", b"state: suspended")
    assert state(world, "hospital-a", "suspended").changed is False
    state(world, "hospital-a", "active")
    assert world.show("policies/sites.yaml") == before
    assert subjects(world)[:2] == ["policy: activate site hospital-a", "policy: suspend site hospital-a"]


def test_a_site_that_is_not_on_the_roster_cannot_be_suspended(world: World) -> None:
    with pytest.raises(ConfigError, match="no site hospital-a -> none"):
        state(world, "hospital-a", "suspended")
    add(world, "hospital-b", "bob-b", 1002)
    with pytest.raises(ConfigError, match="no site hospital-a -> hospital-b"):
        state(world, "hospital-a", "active")


def test_the_roster_is_that_of_origin(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001)
    with world.context() as ctx:
        assert list(roster(ctx).sites) == ["hospital-a"]


# ---------------------------------------------------------------- races


def racing(times: int, rival: Any) -> Any:
    left = [times]

    def wrap(repository: Any) -> Any:
        def push(updates: list[RefUpdate]) -> bool:
            if left[0]:
                left[0] -= 1
                rival()
            return bool(repository.push(updates))

        return Wrapped(repository, push=push)

    return wrap


def test_two_leads_who_add_at_once_both_get_their_site(world: World) -> None:
    add(world, "hospital-a", "alice-a", 1001, wrap=racing(1, lambda: add(world, "hospital-b", "bob-b", 1002)))
    assert sorted(on_main(world).sites) == ["hospital-a", "hospital-b"]
    assert world.clock.slept == [0.05]
    assert world.git("rev-list", "--count", "--merges", "main") == "0"


def test_a_race_that_is_lost_for_a_minute_ends_as_temporary(world: World) -> None:
    count = iter(range(99))
    rival = racing(99, lambda: world.commit({"n": str(next(count)).encode()}))
    with pytest.raises(GitError, match="lost its race for 60 s") as caught:
        add(world, "hospital-a", "alice-a", 1001, wrap=rival)
    assert caught.value.cause == "temporary"
    assert max(world.clock.slept) == 5.0
    assert "hospital-a" not in on_main(world).sites
