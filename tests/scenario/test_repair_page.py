"""docs/how-to/repair-main.md: what happened is told as the page says, and its commands put it right."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli_world import World, begun, fresh
from tests.pages import ROOT, shell

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "how-to" / "repair-main.md").read_text("utf-8")
GOOD: tuple[list[int], list[str]] = ([], [])  # versions that failed, and what is wrong beside them


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """At v1, made of two updates; a clone of somebody who looks on."""
    made = fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")
    made("ci", "ci", "reconcile")
    made.edit("policies/aggregation.yaml", lambda text: text.replace("  quorum: 2 ", "  quorum: 1 "))
    made.new_clone("auditor")
    return made


def section(heading: str) -> str:
    found = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE)
    assert found is not None
    return found[1]


def blocks(world: World, heading: str, commit: str) -> None:
    """Run the console blocks of a section in the lead's clone, of v1 and with a commit in place of the page's names."""
    script = shell(section(heading)).replace("COMMIT", commit).replace("@v9.", "@v1.")
    assert script.strip()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("/srv/fed/heart.git", str(world.origin))],
        cwd=world.clone("lead"),
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def judged(world: World, who: str = "lead", *, code: int = 0) -> tuple[list[int], list[str]]:
    """What `verify --all` finds: versions that failed, and slugs of what belongs to no version."""
    report = world.json(who, "verify", "--all", code=code)
    of_versions = [f for row in report["versions"] for f in row["findings"]]
    failed = [row["version"] for row in report["versions"] if not row["ok"]]
    return failed, [f["slug"] for f in report["findings"] if f not in of_versions]


def warned(world: World) -> list[str]:
    return [f["slug"] for f in world.json("lead", "status")["findings"]]


def pushed(world: World, path: str, text: str) -> str:
    """Somebody commits a file and pushes it to main with git; returns the commit."""
    world.git("auditor", "pull", "-q", "--rebase")
    file = world.clone("auditor") / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    world.git("auditor", "add", path)
    world.git("auditor", "commit", "-q", "-m", f"by hand: {path}")
    world.git("auditor", "push", "-q", "origin", "HEAD:main")
    world.git("lead", "pull", "-q", "--rebase")
    return world.main()


def next_version(world: World) -> int:
    """A site hands in, and CI makes the next version."""
    world.hand_in("hospital-a")
    world("ci", "ci", "reconcile")
    made: dict[str, Any] = world.version()
    return int(made["version"])


def reconciled(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.json("ci", "ci", "reconcile")["findings"]
    return found


def test_a_file_beside_the_records(world: World) -> None:
    commit = pushed(world, "global/notes.txt", "x\n")
    assert warned(world) == ["foreign_file"]
    assert judged(world, code=3) == ([], ["lineage_broken"])
    assert next_version(world) == 2, "CI goes on"
    world.git("lead", "pull", "-q", "--rebase")
    blocks(world, "A file beside the records", commit)
    assert judged(world) == ([], ["global_restored"] * 2)
    assert warned(world) == []
    assert world("lead", "ci", "audit").code == 0
    assert next_version(world) == 3


def test_data_about_people_that_nothing_came_after(world: World) -> None:
    commit = pushed(world, "sites/hospital-a/patients.csv", "name\n")
    assert warned(world) == ["foreign_file"]
    assert judged(world, "auditor") == GOOD
    blocks(world, "Data about people", commit)
    gone = subprocess.run(["git", "-C", str(world.origin), "cat-file", "-e", commit], capture_output=True, check=False)
    assert gone.returncode != 0
    assert judged(world, "auditor", code=3) == ([], ["main_rewritten"])
    world.new_clone("fresh")
    assert judged(world, "fresh") == GOOD
    assert next_version(world) == 2


def test_a_policy_that_cannot_be_read(world: World) -> None:
    text = (world.clone("lead") / "policies/aggregation.yaml").read_text()
    commit = pushed(world, "policies/aggregation.yaml", text + "trigger: [\n")
    told = world("lead", "status", code=2).err
    assert re.search(r"policies/aggregation\.yaml:\d+: ", told)
    assert "a lead corrects it on main; nothing of yours is lost" in told
    world("ci", "ci", "reconcile", code=2)
    assert judged(world) == GOOD, "nothing was made under it"
    blocks(world, "A policy that cannot be read", commit)
    assert next_version(world) == 2
    assert judged(world) == GOOD


@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_a_tag_moved_or_deleted(world: World, how: str) -> None:
    before = world.git("lead", "ls-remote", "origin", "refs/tags/global@v1.0.0")
    where = f"+{world.main()}" if how == "moved" else ""
    world.git("lead", "push", "-q", "origin", f"{where}:refs/tags/global@v1.0.0")
    assert judged(world, code=3) == ([1], [])
    assert warned(world) == ["tag_moved" if how == "moved" else "tag_missing"]
    assert [f["slug"] for f in reconciled(world)] == (["tag_moved"] if how == "moved" else [])
    if how == "moved":
        blocks(world, "A tag moved, deleted or added", "")
    assert world.git("lead", "ls-remote", "origin", "refs/tags/global@v1.0.0") == before, "byte for byte as it was"
    assert judged(world) == GOOD
    assert judged(world, "auditor") == GOOD
    assert next_version(world) == 2


def test_a_version_taken_back_by_git_revert(world: World) -> None:
    world.git("lead", "pull", "-q", "--rebase")
    made = world.git("lead", "rev-parse", "global@v1.0.0^{commit}")
    world.git("lead", "revert", "--no-edit", made)
    world.git("lead", "push", "-q")
    (found,) = reconciled(world)
    assert (found["slug"], found["expected"]) == ("tag_moved", "v1 on main, which went back to v0")
    assert judged(world, code=3) == ([], ["lineage_broken"])
    blocks(world, "A version taken back by git revert", world.main())
    assert judged(world) == ([], ["global_restored"] * 2)
    assert next_version(world) == 2
    assert judged(world, "auditor") == ([], ["global_restored"] * 2)


def test_a_record_changed_by_hand(world: World) -> None:
    text = world.show("global/version.json")
    commit = pushed(world, "global/version.json", text.replace('"loss": ', '"loss": 1'))
    report = world.json("lead", "verify", "--all", code=3)
    assert [(row["version"], row["ok"]) for row in report["versions"]] == [(0, True), (1, True), (1, False)]
    world.git("lead", "revert", "--no-edit", commit)
    world.git("lead", "push", "-q")
    assert next_version(world) == 2
    report = world.json("lead", "verify", "--all", code=3)
    assert [row["ok"] for row in report["versions"]] == [True, True, False, True]


def test_a_merge_the_wrong_way_round(world: World) -> None:
    world.git("lead", "pull", "-q", "--rebase")
    (world.clone("lead") / "README.md").write_text("ours\n")
    world.git("lead", "commit", "-q", "-a", "-m", "docs: ours")
    assert next_version(world) == 2
    world.git("lead", "pull", "-q", "--no-rebase", "--no-edit")
    world.git("lead", "push", "-q")
    wrong = world.main()
    assert [f["slug"] for f in reconciled(world)] == ["tag_moved"]
    failed, _ = judged(world, "auditor", code=3)
    assert 2 in failed
    blocks(world, "A merge the wrong way round", wrong)
    assert world.show("README.md") == "ours"
    assert judged(world, "auditor") == GOOD, "nothing is lost, also for a clone that met the wrong merge"
    assert next_version(world) == 3


@pytest.mark.parametrize("tag", ["kept", "deleted"])
def test_a_push_by_force(world: World, tag: str) -> None:
    assert next_version(world) == 2
    world("lead", "status")
    good = world.main()
    world.git("lead", "push", "-q", "origin", "+global@v1.0.0^{commit}:main")
    if tag == "deleted":
        world.git("lead", "push", "-q", "origin", ":refs/tags/global@v2.0.0")
    failed, beside = judged(world, code=3)
    assert (failed, beside) == ([2] if tag == "kept" else [], ["main_rewritten"])
    if tag == "kept":
        (found,) = reconciled(world)
        assert (found["slug"], found["expected"]) == ("tag_moved", "v2 on main, which was set back to v1")
    blocks(world, "A push by force", good)
    assert world.main() == good
    assert judged(world) == GOOD
    refused = subprocess.run(
        ["git", "-C", str(world.clone("lead")), "push", "-q", "origin", "+HEAD~1:main"],
        capture_output=True,
        check=False,
    )
    assert refused.returncode != 0, "the last block keeps it from happening again"
    assert next_version(world) == 3
    assert json.loads(world("lead", "log", "--format", "json").out)["ok"]
