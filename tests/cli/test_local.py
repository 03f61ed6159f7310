"""`fedops local` as a command, with a runner that runs nothing: loops, locks, tables and exit codes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.act_runner import ActRunner
from fedops.adapters.site_lock import only_one
from fedops.cli import local as command
from fedops.ports import Conclusion, WorkflowRequest, WorkflowResult
from fedops.render.local import run_line, runs_text
from tests.cli_world import World, begun, found, fresh, git

START = {"number": 1, "workflow": "reconcile.yml", "event": "push", "seconds": 1.25, "log": "/l/1", "jobs": {}}


@pytest.fixture
def ends(no_schedule: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Conclusion]:
    """How runs of a file end; default: success."""
    how: dict[str, Conclusion] = {}

    def run(self: ActRunner, request: WorkflowRequest) -> WorkflowResult:
        conclusion = how.get(request.workflow.file, "success")
        jobs = dict.fromkeys(request.workflow.jobs, "failure" if conclusion == "failure" else "success")
        return WorkflowResult(7, conclusion, jobs, {}, 0.5, Path("/logs/7"))

    monkeypatch.setattr(ActRunner, "run", run)
    monkeypatch.setattr("fedops.adapters.act_runner.find_act", lambda path: Path("/bin/act"))
    return how


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")


@pytest.fixture
def quiet(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return fresh(found, tmp_path_factory.getbasetemp(), tmp_path / "quiet")


def test_up_goes_on_until_it_is_stopped_and_tells_each_run_once(
    world: World, ends: dict[str, Conclusion], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            world.edit("policies/training.yaml", lambda text: text + "# new\n")
        if len(slept) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    said = world("lead", "local", "up", "--poll", "3", code=130)
    assert slept == [3.0] * 4
    assert [line.split()[:3] for line in said.out.splitlines() if "yml" in line] == [
        ["7", "validate.yml", "pull_request"],
        ["7", "validate.yml", "pull_request"],
        ["-", "reconcile.yml", "workflow_run"],
        ["7", "reconcile.yml", "workflow_run"],
        ["7", "reconcile.yml", "push"],
    ]
    assert said.err.count("run 7: reconcile.yml on push: ok, 0.5 s\n") == 1
    monkeypatch.undo()


def test_two_watchers_of_one_origin_are_one_too_many(quiet: World, ends: dict[str, Conclusion]) -> None:
    with only_one(quiet.origin / "fedops-local" / "up.lock", "fedops local up"):
        assert "fedops local up, process" in quiet("lead", "local", "up", "--once", code=5).err


@pytest.mark.parametrize(("how", "code"), [("success", 0), ("skipped", 0), ("failure", 3), ("timed_out", 3)])
def test_a_run_that_failed_is_an_answer(how: Conclusion, code: int, quiet: World, ends: dict[str, Conclusion]) -> None:
    ends["audit.yml"] = how
    done = quiet.json("lead", "local", "run", "workflow_dispatch", "--workflow", "audit.yml", code=code)
    assert (done["schema"], done["ok"]) == ("fedops.local/v1", code == 0)
    [run] = done["runs"]
    assert (run["result"], run["number"], run["log"], run["seconds"]) == (how, 7, "/logs/7", 0.5)


def test_a_push_of_the_first_commit_brings_all_files(quiet: World, ends: dict[str, Conclusion]) -> None:
    git(quiet.origin, "update-ref", "refs/heads/main", git(quiet.origin, "rev-list", "--max-parents=0", "main"))
    done = quiet.json("lead", "local", "run", "push")
    assert [run["workflow"] for run in done["runs"]] == ["reconcile.yml"]


def test_a_push_that_touches_nothing_of_ours_starts_nothing(quiet: World, ends: dict[str, Conclusion]) -> None:
    quiet.edit("README.md", lambda text: text + "\n")
    assert quiet("lead", "local", "run", "push").out == "nothing to run\n"


def test_runs_of_one_group_wait_for_each_other_across_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = threading.Event()
    monkeypatch.setattr("time.sleep", lambda seconds: waited.set())
    order: list[str] = []

    def second() -> None:
        with command._locked(tmp_path, "fedops-reconcile"):
            order.append("second")

    with (
        command._locked(tmp_path, "fedops-reconcile"),
        command._locked(tmp_path, "another/group"),
        command._locked(tmp_path, ""),
    ):
        thread = threading.Thread(target=second)
        thread.start()
        assert waited.wait(30)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


def row(**more: Any) -> dict[str, Any]:
    return {**START, "result": "success", **more}


def test_the_table_names_what_failed_and_what_gave_way() -> None:
    rows = [
        row(),
        row(
            number=12,
            workflow="validate.yml",
            event="pull_request #3",
            result="failure",
            jobs={"validate": "failure"},
            log="/long/" * 20,
        ),
        row(number=None, result="replaced", seconds=None, log=None),
        row(result="timed_out"),
    ]
    assert runs_text(rows).splitlines() == [
        "run  workflow       event            result            seconds  log",
        "  1  reconcile.yml  push             ok                    1.2  /l/1",
        " 12  validate.yml   pull_request #3  failed: validate      1.2  " + "/long/" * 20,
        "  -  reconcile.yml  push             replaced",
        "  1  reconcile.yml  push             time is over          1.2  /l/1",
    ]
    assert [run_line(one) for one in rows] == [
        "run 1: reconcile.yml on push: ok, 1.2 s",
        "run 12: validate.yml on pull_request #3: failed: validate, 1.2 s",
        "run -: reconcile.yml on push: replaced",
        "run 1: reconcile.yml on push: time is over, 1.2 s",
    ]
    assert runs_text([]) == "nothing to run"
