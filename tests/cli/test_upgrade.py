"""`fedops upgrade`: generated files follow the installed fedops, what people changed is theirs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedops.app import scaffold
from fedops.app.scaffold import GENERATED
from tests.cli_world import World, found, fresh, git, join

WORKFLOWS = [f".github/workflows/{name}.yml" for name in ("audit", "reconcile", "validate")]
PIN = ["federation.yaml", ".fedops-generated.json"]
SHA = "5" * 64


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return fresh(found, tmp_path_factory.getbasetemp(), tmp_path / "world")


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs fedops of another version, whose templates have other texts where told so."""

    def install(version: str = "0.2.0", *changed: str) -> None:
        real = scaffold.template_text

        def template_text(name: str) -> str:
            return real(name) + "# of the next version\n" * (name in changed)

        monkeypatch.setattr(scaffold, "template_text", template_text)
        monkeypatch.setattr("fedops.cli.upgrade.__version__", version)

    return install


def upgrade(world: World, *options: str, code: int = 0) -> Any:
    return world.json("lead", "upgrade", *options, code=code)


def test_a_new_federation_needs_no_upgrade(world: World) -> None:
    before = world.snapshot()
    done = upgrade(world)
    assert (done["changed"], done["files"], done["commit"]) == (False, [], None)
    assert upgrade(world, "--check")["ok"] is True
    assert world.snapshot() == before
    assert world("lead", "upgrade").out == "everything is as fedops 0.1.0 writes it\n"


def test_files_and_pin_follow_the_installed_version_in_one_commit(world: World, newer: Callable[..., None]) -> None:
    newer("0.2.0", "workflows/validate.yml", "workflows/setup.yml.part", "sites-README.md")
    policies = {path: world.show(path) for path in ("policies/sites.yaml", "policies/aggregation.yaml", "README.md")}
    parent = world.main()
    done = upgrade(world)
    assert (done["before"], done["version"], done["changed"]) == ("0.1.0", "0.2.0", True)
    wanted = sorted([*PIN, *WORKFLOWS, "sites/README.md", ".github/requirements.txt"])
    assert done["files"] == wanted
    assert git(world.origin, "diff", "--name-only", parent, "main").splitlines() == wanted
    assert git(world.origin, "log", "-1", "--format=%s %P", "main") == f"policy: upgrade to fedops 0.2.0 {parent}"
    assert 'fedops: "0.2.0" # exact version that CI installs' in world.show("federation.yaml")
    assert "fedops-git==0.2.0" in world.show(".github/requirements.txt")
    assert world.show("sites/README.md").endswith("# of the next version")
    assert {path: world.show(path) for path in policies} == policies
    noted = json.loads(world.show(".fedops-generated.json"))
    assert noted["fedops"] == "0.2.0"
    for path in GENERATED:
        data = git(world.origin, "cat-file", "blob", f"main:{path}").encode() + b"\n"
        assert noted["files"][path] == hashlib.sha256(data).hexdigest(), path
    assert (world.clone("lead") / "sites" / "README.md").read_text().endswith("# of the next version\n")
    again = world.main()
    assert upgrade(world)["changed"] is False
    assert world.main() == again


def test_check_and_dry_run_write_nothing(world: World, newer: Callable[..., None]) -> None:
    newer("0.2.0", "workflows/audit.yml")
    before = world.snapshot()
    told = upgrade(world, "--check", code=3)
    assert (told["ok"], told["changed"], told["commit"]) == (False, True, None)
    assert ".github/workflows/audit.yml" in told["files"]
    assert upgrade(world, "--dry-run")["ok"] is True
    said = world("lead", "upgrade", "--check", code=3)
    assert said.out.splitlines()[0] == "fedops 0.1.0 -> 0.2.0: would write 4 files"
    assert said.err == "  hint: fedops upgrade\n"
    assert world.snapshot() == before


@pytest.mark.parametrize("path", [WORKFLOWS[1], "schemas/sites.schema.json", ".github/CODEOWNERS"])
def test_a_file_that_a_person_edited_stops_the_upgrade_until_decided(
    path: str, world: World, newer: Callable[..., None]
) -> None:
    world.edit(path, lambda text: text + "# ours\n")
    ours = world.show(path)
    newer("0.2.0", "workflows/audit.yml")
    main = world.main()
    told = upgrade(world, code=3)
    assert [(f["id"], f["slug"], f["where"]) for f in told["findings"]] == [("FO-103", "file_edited", path)]
    assert (told["changed"], world.main()) == (False, main)
    said = world("lead", "upgrade", code=3)
    assert said.out == "nothing was written\n"
    assert "--overwrite PATH" in said.err
    assert upgrade(world, "--keep", path)["changed"] is True
    assert world.show(path) == ours
    # It is still theirs, and still asked for.
    assert upgrade(world, "--check", code=3)["findings"][0]["where"] == path
    assert upgrade(world, "--overwrite", path)["files"] == [path]
    assert "# ours" not in world.show(path)
    assert upgrade(world)["changed"] is False


def test_a_generated_file_that_was_deleted_is_not_brought_back_unasked(world: World) -> None:
    world.git("lead", "pull", "-q", "--rebase")
    world.git("lead", "rm", "-q", WORKFLOWS[0])
    world.git("lead", "commit", "-q", "-m", "no audit")
    world.git("lead", "push", "-q", "origin", "main")
    assert upgrade(world, code=3)["findings"][0]["where"] == WORKFLOWS[0]
    assert upgrade(world, "--keep", WORKFLOWS[0])["changed"] is False
    assert upgrade(world, "--overwrite", WORKFLOWS[0])["files"] == [WORKFLOWS[0]]


def test_a_link_in_the_place_of_a_file_is_somebodys(world: World) -> None:
    world.git("lead", "pull", "-q", "--rebase")
    place = world.clone("lead") / "sites" / "README.md"
    place.unlink()
    place.symlink_to("../README.md")
    world.git("lead", "commit", "-q", "-a", "-m", "a link")
    world.git("lead", "push", "-q", "origin", "main")
    assert upgrade(world, code=3)["findings"][0]["where"] == "sites/README.md"


def test_a_federation_without_a_record_takes_no_file_for_its_own(world: World, newer: Callable[..., None]) -> None:
    world.git("lead", "pull", "-q", "--rebase")
    world.git("lead", "rm", "-q", ".fedops-generated.json")
    world.git("lead", "commit", "-q", "-m", "an older one")
    world.git("lead", "push", "-q", "origin", "main")
    newer("0.2.0", "workflows/audit.yml")
    told = upgrade(world, code=3)
    assert {f["where"] for f in told["findings"]} == {WORKFLOWS[0], ".github/requirements.txt"}
    both = ("--overwrite", WORKFLOWS[0], "--overwrite", ".github/requirements.txt")
    assert ".fedops-generated.json" in upgrade(world, *both)["files"]


def test_lines_that_people_added_stay_and_missing_ones_are_added(world: World, newer: Callable[..., None]) -> None:
    world.edit(".gitignore", lambda text: "/ours/\n" + text.rstrip("\n"))
    newer("0.2.0", "gitignore")
    assert ".gitignore" in upgrade(world)["files"]
    lines = world.show(".gitignore").splitlines()
    assert (lines[0], lines[-1], lines.count("/.fedops/")) == ("/ours/", "# of the next version", 1)
    assert upgrade(world)["changed"] is False
    world.git("lead", "rm", "-q", ".gitattributes")
    world.git("lead", "commit", "-q", "-m", "without")
    world.git("lead", "push", "-q", "origin", "main")
    assert upgrade(world)["files"] == [".gitattributes"]


def test_missing_remotes_and_leads_are_brought_up_to_the_roster(world: World) -> None:
    join(world, "hospital-a")
    config = world.show(".dvc/config")
    assert "sites-hospital-a" in config
    assert upgrade(world)["changed"] is False
    world.edit(".dvc/config", lambda text: text[: text.index("['remote \"sites-hospital-a\"']")] + "# mine\n")
    world.edit(
        "policies/sites.yaml", lambda text: text.replace("- login: lena", "- {login: mia, id: 7}\n- login: lena")
    )
    assert upgrade(world)["files"] == [".dvc/config", ".fedops-generated.json", ".github/CODEOWNERS"]
    assert "sites-hospital-a" in world.show(".dvc/config")
    assert "# mine" in world.show(".dvc/config")
    assert "@mia" in world.show(".github/CODEOWNERS")


def test_the_wheel_is_pinned_with_the_version(world: World, newer: Callable[..., None]) -> None:
    url = "https://h.example/fedops_git-0.1.0-py3-none-any.whl"
    done = upgrade(world, "--wheel-hash", SHA, "--wheel-url", url)
    assert done["files"] == sorted([*PIN, ".github/requirements.txt"])
    assert f"fedops-git @ {url} --hash=sha256:{SHA}" in world.show(".github/requirements.txt")
    assert upgrade(world, "--wheel-hash", SHA, "--wheel-url", url)["changed"] is False
    newer("0.2.0")
    said = world("lead", "upgrade", code=2)
    assert "wheel is that of 0.1.0 -> one of 0.2.0" in said.err
    assert upgrade(world, "--wheel-hash", "6" * 64)["changed"] is True
    assert f"fedops-git==0.2.0 --hash=sha256:{'6' * 64}" in world.show(".github/requirements.txt")


def test_an_older_fedops_does_not_take_a_federation_back(world: World, newer: Callable[..., None]) -> None:
    newer("0.0.9")
    said = world("lead", "upgrade", code=2)
    assert "fedops 0.1.0 -> at most 0.0.9, which is installed" in said.err
    world.edit("federation.yaml", lambda text: text.replace('fedops: "0.1.0"', 'fedops: "newest"'))
    assert "'newest' -> a version such as 0.1.0" in world("lead", "upgrade", code=2).err


def test_a_federation_file_that_cannot_be_edited_alone_is_left(
    world: World, newer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    newer("0.2.0")
    monkeypatch.setattr("fedops.adapters.yaml_edit.RoundTripEditor.put", lambda self, data, path, value: data)
    assert "cannot be edited without changing more" in world("lead", "upgrade", code=2).err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--keep", "README.md"), "--keep README.md: not a generated file"),
        (("--overwrite", "../x"), "--overwrite ../x: not a generated file"),
        (("--keep", WORKFLOWS[0], "--overwrite", WORKFLOWS[0]), "both --overwrite and --keep"),
        (("--wheel-hash", "123"), "--wheel-hash"),
        (("--wheel-url", "https://h/x.whl"), "--wheel-url: of which file?"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: tuple[str, ...], says: str, world: World) -> None:
    assert says in world("lead", "upgrade", *options, code=2).err


def test_init_never_overwrites_what_a_newer_version_would_write(world: World, newer: Callable[..., None]) -> None:
    newer("0.1.0", "workflows/audit.yml")
    main = world.main()
    told = world.json("lead", "init")
    assert {WORKFLOWS[0], ".fedops-generated.json"} <= {f["where"] for f in told["findings"]}
    assert {f["slug"] for f in told["findings"]} == {"file_kept"}
    assert world.main() == main
