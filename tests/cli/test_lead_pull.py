"""A lead's commands where main takes no pushes: they say so, and `--pull-request` puts the same commit into a pull request."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fedops.app import scaffold
from tests.cli_world import World, environment, found, fresh, git

ADD = ("site", "add", "hospital-a", "--login", "alice-a", "--id", "1001")
KEYS = ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB one",)
PULL = "--pull-request"
NEXT = "then a person merges it\n"


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return fresh(found, tmp_path_factory.getbasetemp(), tmp_path / "world")


@pytest.fixture(autouse=True)
def key(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lead's private key, which signs."""
    monkeypatch.setenv("FEDOPS_KEY", str(world.folder / "lena"))
    return world.folder / "lena"


def protect(world: World) -> None:
    """Let origin refuse every push to main, as a protected branch does."""
    hook = world.origin / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\n[ "$1" != refs/heads/main ]\n')
    hook.chmod(0o755)


def head(world: World, number: int) -> str:
    return git(world.origin, "rev-parse", f"refs/pull/{number}/head")


def test_a_push_that_protection_refuses_names_the_same_command_with_a_pull_request(world: World) -> None:
    protect(world)
    before = world.main()
    ran = world("lead", *ADD, "--key", KEYS[0], code=2)
    assert "main: is protected against pushes; origin: push refused, refs/heads/main: hook declined" in ran.err
    [hint] = [line.removeprefix("  hint: ") for line in ran.err.splitlines() if line.startswith("  hint: ")]
    assert shlex.split(hint) == ["fedops", *ADD, "--key", KEYS[0], PULL]
    assert world.main() == before
    told = world("lead", *shlex.split(hint)[1:])
    assert (told.out, told.err) == (f"#1: opened; next: another lead runs `fedops review 1 --approve`, {NEXT}", "")


def test_the_pull_request_is_the_commit_that_would_have_been_pushed(world: World) -> None:
    main, tree = world.main(), world.git("lead", "status", "--porcelain")
    done = world.json("lead", *ADD, PULL)
    assert (done["ok"], done["changed"], done["pull"], done["work_tree"]) == (True, True, 1, None)
    assert done["commit"] == head(world, 1)
    assert done["files"] == [".dvc/config", "policies/sites.yaml"]
    assert (world.main(), world.git("lead", "status", "--porcelain")) == (main, tree)
    pushed = world.json("lead", *ADD)
    assert pushed["pull"] is None
    assert git(world.origin, "rev-parse", "main^{tree}") == git(world.origin, "rev-parse", f"{done['commit']}^{{tree}}")
    for form in ("--format=%s", "--format=%P"):
        both = [git(world.origin, "log", "-1", form, commit) for commit in ("main", done["commit"])]
        assert both[0] == both[1]
    assert world.json("lead", *ADD, PULL)["changed"] is False, "it is on main"


def test_a_second_run_changes_nothing_and_names_the_open_pull_request(world: World) -> None:
    world("lead", *ADD, PULL)
    before = world.snapshot()
    again = world("lead", *ADD, PULL)
    assert (
        again.out
        == f"#1: is open already, with the same content; next: another lead runs `fedops review 1 --approve`, {NEXT}"
    )
    assert world.json("lead", *ADD, PULL)["changed"] is False
    assert world.snapshot() == before
    world.edit("README.md", lambda text: text + "more\n")
    before = world.snapshot()
    assert world.json("lead", *ADD, PULL)["commit"] == head(world, 1), "main moved, and what is proposed is the same"
    assert world.snapshot() == before


def test_new_content_updates_the_same_pull_request(world: World) -> None:
    world("lead", *ADD, PULL)
    first = head(world, 1)
    more = world("lead", *ADD, "--key", KEYS[0], PULL)
    assert more.out.startswith("#1: updated; what it proposed before is replaced; next: ")
    assert head(world, 1) != first
    assert KEYS[0] in world.show("policies/sites.yaml", head(world, 1))
    world.edit("policies/sites.yaml", lambda text: text + "# edited meanwhile\n")
    assert world.json("lead", *ADD, "--key", KEYS[0], PULL)["changed"] is True
    assert git(world.origin, "rev-parse", f"{head(world, 1)}^") == world.main(), "made again on the new text"
    assert world.show("policies/sites.yaml", head(world, 1)).endswith("# edited meanwhile")


def test_each_command_that_changes_main_has_a_pull_request_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world("lead", *ADD)
    world("lead", "site", "add", "hospital-b", "--login", "b", "--id", "1002")
    world("lead", "site", "suspend", "hospital-b")
    monkeypatch.setattr("fedops.cli.upgrade.__version__", "0.2.0")
    protect(world)
    commands = (("site", "suspend", "hospital-a"), ("site", "activate", "hospital-b"), ("upgrade",))
    before = world.main()
    for number, command in enumerate(commands, 1):
        refused = world("lead", *command, code=2)
        assert f"hint: fedops {' '.join(command)} {PULL}\n" in refused.err
        assert world.json("lead", *command, PULL)["pull"] == number
        assert world.json("lead", *command, PULL)["changed"] is False
    assert world.main() == before
    subjects = [git(world.origin, "log", "-1", "--format=%s", head(world, n)) for n in (1, 2, 3)]
    assert subjects == [
        "policy: suspend site hospital-a",
        "policy: activate site hospital-b",
        "policy: upgrade to fedops 0.2.0",
    ]
    text = world("lead", "upgrade", PULL).out.splitlines()
    assert text[0].startswith("fedops 0.1.0 -> 0.2.0: proposed ")
    assert text[-1].startswith("#3: is open already")


@pytest.mark.parametrize("command", [ADD, ("upgrade",)])
def test_ci_tells_it_and_people_see_that(
    world: World, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr("fedops.cli.upgrade.__version__", "0.2.0")
    real = scaffold.template_text
    more = "# of the next version\n"
    monkeypatch.setattr(scaffold, "template_text", lambda name: real(name) + more * (name == "sites-README.md"))
    done = world.json("lead", *command, PULL)
    assert ("sites/README.md" in done["files"]) == (command == ("upgrade",))
    world.new_clone("ci")
    told = world("ci", "ci", "reconcile").out
    assert "#1" in told
    assert "verdict: no submission: a lead's change, for people to review" in world("lead", "review", "1").out
    assert world.json("ci", "ci", "reconcile")["changed"] is False


def test_without_a_key_or_with_a_sites_key_there_is_none_on_the_git_forge(world: World, tmp_path: Path) -> None:
    before = world.snapshot()
    with environment(FEDOPS_KEY=None):
        assert "no key signs it, and on forge git the signature is the account" in world("lead", *ADD, PULL, code=2).err
    world.new_clone("hospital-a")
    world("hospital-a", "join", "hospital-a", "--generate-key")
    with environment(FEDOPS_KEY=str(world.clone("hospital-a") / ".fedops" / "id_ed25519")):
        refused = world("lead", *ADD, PULL, code=2).err
    assert "is no lead of policies/sites.yaml -> a lead's account or key" in refused
    assert world.snapshot(clones=())["refs"] == before["refs"]


def test_a_dry_run_opens_nothing(world: World) -> None:
    before = world.snapshot()
    assert "would change" in world("lead", *ADD, PULL, "--dry-run").out
    assert world.snapshot() == before


def test_the_starter_file_is_written_while_the_pull_request_is_open(world: World) -> None:
    file = world.folder / "hospital-a.yaml"
    done = world.json("lead", *ADD, PULL, "--bundle", str(file))
    assert (done["changed"], done["pull"]) == (True, 1)
    data = file.read_bytes()
    assert b"login: alice-a\n" in data
    assert world.json("lead", *ADD, PULL, "--bundle", str(file))["changed"] is False
    world("lead", *ADD)
    world("lead", *ADD, "--bundle", str(file))
    assert file.read_bytes() == data, "the same as of a site on main"


def test_a_pull_request_of_that_name_by_who_is_no_lead_is_not_taken_for_it(world: World) -> None:
    world("lead", *ADD, PULL)
    forged = git(world.origin, "commit-tree", f"{head(world, 1)}^{{tree}}", "-p", world.main(), "-m", "policy: x")
    git(world.origin, "update-ref", "refs/pull/1/head", forged)
    done = world.json("lead", *ADD, PULL)
    assert done["changed"] is True
    assert head(world, done["pull"]) == done["commit"] != forged
