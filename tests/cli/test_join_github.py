"""`fedops join` on GitHub: the token says whose account it is; without one the line says what to put in, and from where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fedops.adapters.forge_github import GitHubForge
from tests.cli_world import Ran, environment, in_process
from tests.github_face.cli_world import GitHubWorld, github_cli

D = "bank-d"
SECRET = "token-of-bank-d"
ID, LOGIN = 583_231, "dora-d"
NO_TOKEN: dict[str, str | None] = dict.fromkeys(("FEDOPS_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitHubWorld]:
    """With the account of a site that is not on the roster, and its clone; joining changes nothing but that clone."""
    with pytest.MonkeyPatch.context() as patch, github_cli(tmp_path_factory.mktemp("join") / "world", patch) as world:
        world.hub.add_user(LOGIN, ID, SECRET)
        world.new_clone(D)
        yield world


def join(world: GitHubWorld, *arguments: str, token: Mapping[str, str | None]) -> Ran:
    with environment(**{**NO_TOKEN, **token}):  # and for git, whatever it is given
        ran = in_process(world.clone(D), "join", D, "--generate-key", *arguments)
    assert ran.code == 0, ran.err
    assert SECRET not in ran.out + ran.err
    return ran


def line(ran: Ran) -> str:
    return next(text.strip() for text in ran.out.splitlines() if text.startswith("  fedops site add"))


@pytest.mark.parametrize("name", ["FEDOPS_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"])
def test_the_account_of_the_token_is_in_the_line(name: str, world: GitHubWorld) -> None:
    # The common names are for github.com, or for the server that GITHUB_API_URL names.
    ran = join(world, token={name: SECRET, "GITHUB_API_URL": world.server.api})
    assert line(ran).startswith(f"fedops site add {D} --login {LOGIN} --id {ID} --key 'ssh-ed25519 ")
    assert "send this line to a lead" in ran.out
    assert "NUMERIC-ID" not in ran.out


def test_without_a_token_it_says_where_each_is_found(world: GitHubWorld) -> None:
    ran = join(world, token={})
    assert line(ran).startswith(f"fedops site add {D} --login LOGIN --id NUMERIC-ID ")
    assert "put in LOGIN and NUMERIC-ID, then send this line to a lead" in ran.out
    assert f"  LOGIN: the name of your account on {world.server.web}" in ran.out
    assert (
        f"  NUMERIC-ID: `id` at {world.server.api}/users/LOGIN, or what `gh api users/LOGIN --jq .id` prints" in ran.out
    )
    assert "set FEDOPS_TOKEN" in ran.out


@pytest.mark.parametrize(
    ("said", "expected", "left"),
    [
        (("--login", LOGIN), f"--login {LOGIN} --id {ID}", []),
        (("--id", str(ID)), f"--login {LOGIN} --id {ID}", []),
        # Of another account than the token's, of which the token says nothing.
        (("--login", "erik-d"), "--login erik-d --id NUMERIC-ID", ["NUMERIC-ID"]),
        (("--id", "7"), "--login LOGIN --id 7", ["LOGIN"]),
        (("--login", "erik-d", "--id", "7"), "--login erik-d --id 7", []),
    ],
)
def test_halves_of_two_accounts_are_never_put_together(
    said: tuple[str, ...], expected: str, left: list[str], world: GitHubWorld
) -> None:
    ran = join(world, *said, token={"FEDOPS_TOKEN": SECRET})
    assert line(ran).startswith(f"fedops site add {D} {expected} ")
    assert list(join(world, *said, "--format", "json", token={"FEDOPS_TOKEN": SECRET}).json["unknown"]) == left
    assert ("/users/erik-d" in ran.out) == (left == ["NUMERIC-ID"])


def test_a_token_of_no_person_is_nobodys_account(world: GitHubWorld) -> None:
    with world.as_("ci"):
        ran = join(world, token={"FEDOPS_TOKEN": world.token("ci")})
    assert "--login LOGIN --id NUMERIC-ID" in line(ran)


def test_a_token_that_is_refused_is_told_and_the_line_comes_all_the_same(world: GitHubWorld) -> None:
    ran = join(world, token={"FEDOPS_TOKEN": "revoked-long-ago"})
    assert "note: GitHub did not say whose token it is: " in ran.err
    assert "--login LOGIN --id NUMERIC-ID" in line(ran)


def test_who_is_on_the_roster_is_not_asked_for(world: GitHubWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GitHubForge, "whoami", lambda self: pytest.fail("nobody has to be asked"))
    ran = world("hospital-a", "join", "hospital-a")
    assert "this site: active, with this key" in ran.out
    assert "site add" not in ran.out


def test_the_folder_has_nothing_else(world: GitHubWorld) -> None:
    assert sorted(p.name for p in (world.clone(D) / ".fedops").iterdir()) == [
        "id_ed25519",
        "id_ed25519.pub",
        "site.yaml",
    ]
    assert SECRET not in (Path(world.clone(D)) / ".fedops" / "site.yaml").read_text()
