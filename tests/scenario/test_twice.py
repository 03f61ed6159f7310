"""Running any command twice changes nothing the second time; a dry run and a command that only reads change nothing at all."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedops.cli.main import COMMANDS, cli
from tests.cli_world import BY_CLIENT, BY_COMMAND, CLONES, INIT, TENSORS, World, begun, fresh
from tests.template.test_workflows import option_names

LEAD = ("--key", "../lena")
GENERATED = ("--generator", "zeros", *TENSORS)


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """At v0, with two open pull requests (#1 of hospital-a, #2 of hospital-b), and clinic-c's training done."""
    world = fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")
    world.outside.mkdir()
    return world


def nothing(world: World) -> tuple[str, ...]:
    return ()


def reconciled(world: World) -> tuple[str, ...]:
    world("ci", "ci", "reconcile")
    return ()


def signalled_by_nobody(world: World) -> tuple[str, ...]:
    """A version is there whose sites were not told."""
    published(world)
    return ()


def merged(world: World) -> tuple[str, ...]:
    """Options of the jobs after `ci merge`."""
    verdicts = world("ci", "ci", "inspect", "--format", "json").out
    done = world.json("ci", "ci", "merge", "--verdicts", verdicts)
    assert done["due"] == "true"
    return ("--input-commit", done["input_commit"], "--decided-at", done["decided_at"])


def proposed(world: World) -> tuple[str, ...]:
    options = merged(world)
    return (*options, "--proposal", world.json("ci", "ci", "aggregate", *options)["proposal"])


def published(world: World) -> tuple[str, ...]:
    options = proposed(world)
    assert world.json("ci", "ci", "publish", *options)["version"] == 1
    return options


def verified(world: World) -> tuple[str, ...]:
    """A first time, after which the clone remembers which files it has read."""
    reconciled(world)
    world("ci", "verify", "--all")
    return ()


def inspected(world: World) -> tuple[str, ...]:
    return ("--verdicts", world("ci", "ci", "inspect", "--format", "json").out)


def suspended(world: World) -> tuple[str, ...]:
    world("lead", "site", "suspend", "clinic-c")
    return ()


def another_lead(world: World) -> tuple[str, ...]:
    """Somebody whom the generated files do not name yet."""
    lead = "leads:\n- {login: mia, id: 7, keys: []}\n"
    world.edit("policies/sites.yaml", lambda text: text.replace("leads:\n", lead, 1))
    return ()


def new_clone(world: World) -> tuple[str, ...]:
    world.new_clone("late")
    return ()


def new_folder(world: World) -> tuple[str, ...]:
    world.clone("other").mkdir()
    return ()


def plan(world: World) -> tuple[str, ...]:
    """An offline plan of two updates."""
    for name, value in (("base", 0.0), ("a", 1.0), ("b", 3.0)):
        save_file({"w": np.full((2, 3), value, np.float32)}, world.outside / f"{name}.safetensors")
    document = {
        "schema": "fedops.aggregate-plan/v1",
        "current_version": 0,
        "globals": {"0": {"path": "base.safetensors"}},
        "submissions": [
            {"update": f"{s}.safetensors", "record": {"site": s, "base_version": 0, "num_examples": 10}} for s in "ab"
        ],
    }
    (world.outside / "plan.json").write_text(json.dumps(document))
    return ("--plan", "../outside/plan.json", "--out", "../outside/next")


@dataclass(frozen=True)
class Case:
    """A command line, what must be there before it, and in whose clone it runs; `before` may give more options."""

    who: str
    command: str
    before: Callable[[World], tuple[str, ...]] = nothing
    options: tuple[str, ...] = ()

    def line(self, world: World) -> tuple[str, ...]:
        return (*shlex.split(self.command), *self.options, *self.before(world))


NEW_SITE = "site add lab-d --login dora --id 1009 --key ../lena.pub"
WRITING = {
    "init": Case("other", " ".join((*INIT[:2], "../other.git", *INIT[3:])), new_folder, TENSORS),
    "init by an example": Case("other", "init --origin ../other.git --example", new_folder),
    "site add": Case("lead", NEW_SITE),
    "site add, another key": Case("lead", "site add clinic-c --key ../lena.pub"),
    "site suspend": Case("lead", "site suspend clinic-c"),
    "site activate": Case("lead", "site activate clinic-c", suspended),
    "upgrade": Case("lead", "upgrade", another_lead),
    "join": Case("late", "join clinic-c --generate-key", new_clone),
    "pull": Case("hospital-a", "pull", reconciled),
    "pull to a file": Case("hospital-a", "pull v0 --out ../outside/v0.safetensors"),
    "train by a class": Case("clinic-c", "train --site hospital-b", options=BY_CLIENT[1:]),
    "train by a program": Case("clinic-c", "train --site hospital-b", options=BY_COMMAND[1:]),
    "submit": Case("clinic-c", "submit"),
    "rollback": Case("lead", "rollback v0", reconciled, LEAD),
    "run": Case("clinic-c", "run --once", options=BY_CLIENT[1:]),
    "review approve": Case("lead", "review 1 --approve", options=LEAD),
    "review reject": Case("lead", "review 1 --reject --reason 'looks odd'", options=LEAD),
    "ci merge": Case("ci", "ci merge", inspected),
    "ci aggregate": Case("ci", "ci aggregate", merged),
    "ci publish": Case("ci", "ci publish", proposed),
    "ci signal": Case("ci", "ci signal", signalled_by_nobody),
    "ci reconcile": Case("ci", "ci reconcile"),
    "aggregate": Case("lead", "aggregate", plan),
}
READING = {
    "status": Case("hospital-a", "status"),
    "log": Case("hospital-a", "log"),
    "show": Case("hospital-a", "show"),
    "check": Case("hospital-a", "check .fedops/versions/v0/update.safetensors"),
    "verify": Case("ci", "verify --all", verified),
    "review": Case("lead", "review 1", reconciled),
    "site list": Case("lead", "site list"),
    "doctor": Case("hospital-a", "doctor"),
    "ci inspect": Case("ci", "ci inspect"),
    "ci audit": Case("ci", "ci audit", reconciled),
    "init of what is there": Case("lead", " ".join(INIT), options=TENSORS),
    "reconcile with nothing to do": Case("ci", "ci reconcile", reconciled),
}
# Each does something anew each time: builds in an empty folder, starts a run. What `local up` does twice is told in
# tests/workflow.
ANEW = {"demo", "ci again", "local up", "local run"}
# Told in tests of their own, in worlds that these commands need.
ELSEWHERE = {
    "ci retain": "tests/scenario/test_retention_git.py",
    "dvc install-hook": "tests/cli/test_dvc.py",
    "dvc remove-hook": "tests/cli/test_dvc.py",
}
DRY = {
    "upgrade": Case("lead", "upgrade", another_lead),
    "init": Case("other", "init --origin ../other.git", new_folder, GENERATED),
    "site add": Case("lead", NEW_SITE),
    "site suspend": Case("lead", "site suspend clinic-c"),
    "site activate": Case("lead", "site activate clinic-c", suspended),
    "submit": Case("clinic-c", "submit"),
    "review": Case("lead", "review 1 --approve", options=LEAD),
    "rollback": Case("lead", "rollback v0", reconciled, LEAD),
    "aggregate": Case("lead", "aggregate", plan),
}


def everything(world: World, case: Case) -> dict[str, Any]:
    """What the second run may not change; a site's loop may say that it is alive, which counts for nothing."""
    seen = world.snapshot(clones=(*CLONES, "late", "other"))
    if case.command.startswith("run"):
        seen["refs"] = [ref for ref in seen["refs"] if not ref.startswith("refs/fedops/heartbeat/")]
        del seen["objects"]
    return seen


@pytest.mark.parametrize("case", WRITING.values(), ids=WRITING)
def test_the_second_run_changes_nothing_and_says_so(case: Case, world: World) -> None:
    line = case.line(world)
    assert world.json(case.who, *line)["changed"] is True
    before = everything(world, case)
    again = world.json(case.who, *line)
    assert (again["ok"], again["changed"]) == (True, False)
    assert everything(world, case) == before
    world(case.who, *line)  # in words as well
    assert everything(world, case) == before


@pytest.mark.parametrize("case", READING.values(), ids=READING)
def test_what_only_reads_or_has_nothing_to_do_changes_nothing(case: Case, world: World) -> None:
    line = case.line(world)
    before = world.snapshot()
    assert world.json(case.who, *line)["changed"] is False
    world(case.who, *line)
    assert world.snapshot() == before


@pytest.mark.parametrize("case", DRY.values(), ids=DRY)
def test_a_dry_run_changes_nothing_at_all(case: Case, world: World) -> None:
    line = case.line(world)
    clones = (*CLONES, "other")
    before = world.snapshot(clones=clones)
    assert world.json(case.who, *line, "--dry-run")["ok"] is True
    assert world(case.who, *line, "--dry-run").out
    assert world.snapshot(clones=clones) == before
    assert not (world.folder / "other.git").exists()
    # The same line without it does something, so that there was something not to do.
    assert world.json(case.who, *line)["changed"] is True


def all_commands() -> list[str]:
    """Every command line of the program, without options."""
    names = []
    for name in COMMANDS:
        command = cli.get_command(None, name)  # type: ignore[arg-type]  # this group needs no context
        below = list(getattr(command, "commands", {}))
        names += [f"{name} {one}" for one in below] or [name]
    return names


def test_every_command_is_in_one_of_these_tables() -> None:
    here = {case.command for table in (WRITING, READING) for case in table.values()}
    missing = [n for n in all_commands() if not any(line == n or line.startswith(n + " ") for line in here)]
    assert set(missing) == ANEW | ELSEWHERE.keys()


def test_every_dry_run_is_tried() -> None:
    have = {n for n in all_commands() if "--dry-run" in option_names(n.split())}
    here = {n for n in all_commands() if any(c.command.startswith(n) for c in DRY.values())}
    assert have == here | ELSEWHERE.keys()
    for command, path in ELSEWHERE.items():
        text = (Path(__file__).parents[2] / path).read_text("utf-8")
        assert command.split()[1] in text, command
        assert "--dry-run" in text, command
