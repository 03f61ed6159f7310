"""docs/how-to/change-leads-and-rules.md: its commands change leads and rules, and what it says of slips is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_world import World, begun, fresh
from tests.pages import ROOT, fenced, shell
from tests.sshkeys import make_key

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "how-to" / "change-leads-and-rules.md").read_text("utf-8")
SITES = "policies/sites.yaml"


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """At v0, with a clone of a second person."""
    made = fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")
    made.new_clone("mia")
    return made


def block(words: str) -> str:
    """The one console block with these words, as a script."""
    (found,) = (body for body in fenced(PAGE, "console") if words in body)
    return shell(f"```console\n{found}```\n")


def bash(world: World, who: str, script: str, **environment: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=world.clone(who),
        env=os.environ | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def with_mia(world: World, key: str, number: int = 2) -> None:
    """The four lines of the page, where it says."""
    example = next(body for body in fenced(PAGE, "yaml") if "- login: mia" in body)
    lines = example[example.index("- login: mia") :].replace("id: 2", f"id: {number}")
    lines = re.sub(r'"ssh-ed25519 .*"', f'"{key}"', lines)
    world.edit(SITES, lambda text: re.sub(r"(?m)^leads:\n", lambda found: found[0] + lines, text, count=1))


def lines_of_doctor(world: World, who: str = "lead") -> dict[str, tuple[str, str]]:
    """State and words of each line that is not ok."""
    checks = world.json(who, "doctor", code=0)["checks"]
    return {c["name"]: (c["state"], c["got"]) for c in checks if c["state"] != "ok"}


def test_a_rule_is_proposed_by_one_lead_and_merged_by_another(world: World) -> None:
    before = world.show("policies/aggregation.yaml")
    bash(world, "lead", block("git switch -c lead/quorum"), EDITOR="sed -i s/quorum:.2./quorum:\\x201\\x20/")
    assert world.show("policies/aggregation.yaml") == before
    shown = bash(world, "mia", block("git diff origin/main...origin/lead/quorum"))
    assert "+  quorum: 1 " in shown
    assert "all well" in shown
    assert world.show("policies/aggregation.yaml") == before.replace("quorum: 2 ", "quorum: 1 ")
    assert world.git("lead", "ls-remote", "origin", "refs/heads/lead/*") == ""


def test_a_lead_is_added_proposes_and_goes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    mia = make_key(world.folder, "mia-key")
    with_mia(world, mia.public)
    assert "all well" in bash(world, "lead", block("$ fedops upgrade"))
    assert "/policies/ @mia @lena" in world.show(".github/CODEOWNERS")
    said = bash(world, "mia", block("export FEDOPS_KEY").replace("~/.ssh/id_ed25519", str(mia.private)))
    assert re.search(r"ok +key +\S+, of lead mia\n", said)
    monkeypatch.setenv("FEDOPS_KEY", str(mia.private))
    number = world.json("mia", "site", "suspend", "clinic-c", "--pull-request")["pull"]
    monkeypatch.delenv("FEDOPS_KEY")
    world("ci", "ci", "reconcile")
    bash(world, "lead", block("refs/pull/12/head").replace("12", str(number)))
    assert "state: suspended" in world.show(SITES)
    world.edit(SITES, lambda text: re.sub(r"- login: mia\n(  .*\n)+", "", text))
    monkeypatch.setenv("FEDOPS_KEY", str(mia.private))
    assert "mia" not in world.show(SITES)
    assert lines_of_doctor(world, "mia")["key"][1].endswith("not on the roster of main")
    assert world.json("lead", "verify", "--all")["ok"]


def test_a_slip_in_the_roster_is_told_as_the_page_says(world: World) -> None:
    mia, lena = make_key(world.folder, "mia-key"), (world.folder / "lena.pub").read_text().strip()
    good = world.show(SITES) + "\n"
    for key, number, name, got in (
        ("~/.ssh/mia.pub", 2, "key of lead mia", "line 1 is no public key: starts with '~/.ssh/mia.pub'"),
        (mia.public, 1, "leads", "mia and lena have id 1 in common, and count as one"),
        (lena, 2, "leads", "mia and lena have a key in common, and count as one"),
    ):
        with_mia(world, key, number)
        assert lines_of_doctor(world)[name] == ("warning", got)
        world.edit(SITES, lambda _: good)
    with_mia(world, mia.public)
    world.edit(SITES, lambda text: text.replace("  id: 2\n", '  id: "2"\n'))
    told = world("lead", "doctor", code=3).out
    assert re.search(
        r"broken +policies/sites\.yaml +policies/sites\.yaml:\d+: leads\.0\.id: Input should be a valid", told
    )
