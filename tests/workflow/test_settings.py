"""Secrets and variables of a local run: they reach the jobs that ask for them, as GitHub would have it, and nobody else."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from fedops.adapters.act_settings import Settings
from fedops.core.workflows import Event
from fedops.ports import WorkflowRequest
from tests.cli_world import World
from tests.workflow.runs import probe, request, runner

SECRET = "p$HOME \"q\" '#' \\n é=😀 end"
KEY = "-----BEGIN X-----\nabc+/=\n-----END X-----\n"
SETTINGS = Settings({"REGISTRY": SECRET, "KEY": KEY, "GITHUB_TOKEN": "of nobody"}, {"USER": "ci: # 'x'"})
# Writes what a step's environment has, where the log does not matter.
NOTE = """import json, os
names = ("REGISTRY", "KEY", "USER", "ABSENT")
open({out!r}, "w").write(json.dumps({{name: os.environ[name] for name in names}}))
"""
ENV = """    env:
      REGISTRY: ${{ secrets.REGISTRY }}
      KEY: ${{ secrets.KEY }}
      USER: ${{ vars.USER }}
      ABSENT: ${{ secrets.ABSENT }}
      TOKEN: ${{ github.token }}
    steps:
"""
FAKE_ACT = """#!{python}
import json, os, pathlib, sys
options = dict(zip(sys.argv[3:], sys.argv[4:]))
files = {{name: options[f"--{{name}}-file"] for name in ("secret", "var")}}
noted = {{name: [oct(os.stat(path).st_mode & 0o777), pathlib.Path(path).read_text()] for name, path in files.items()}}
pathlib.Path({note!r}).write_text(json.dumps([sys.argv, dict(os.environ), noted]))
"""


def asked(world: World, *steps: str) -> WorkflowRequest:
    text = probe(*steps).replace("on: workflow_dispatch", "on: [workflow_dispatch, pull_request, pull_request_review]")
    return request(world, text.replace("    steps:\n", ENV))


def of_event(one: WorkflowRequest, name: str) -> WorkflowRequest:
    """The same file, as if another event had started it."""
    payload = {"number": 1, "pull_request": {"number": 1}} if name.startswith("pull_request") else {}
    return dataclasses.replace(one, event=Event(name, "refs/heads/main", one.event.sha, payload=payload))


def test_a_job_gets_exactly_the_values(quiet: World, tmp_path: Path) -> None:
    note, out = tmp_path / "note.py", tmp_path / "out.json"
    note.write_text(NOTE.format(out=str(out)))
    ran = runner(quiet, settings=SETTINGS).run(asked(quiet, f"python3 {note}"))
    assert ran.conclusion == "success", ran.log.read_text()
    assert json.loads(out.read_text()) == {"REGISTRY": SECRET, "KEY": KEY, "USER": "ci: # 'x'", "ABSENT": ""}


@pytest.mark.parametrize("event", ["pull_request", "pull_request_review"])
def test_a_run_for_a_pull_request_gets_none_as_from_a_fork(event: str, quiet: World, tmp_path: Path) -> None:
    note, out = tmp_path / "note.py", tmp_path / "out.json"
    note.write_text(NOTE.format(out=str(out)))
    ran = runner(quiet, settings=SETTINGS).run(of_event(asked(quiet, f"python3 {note}", 'test "$TOKEN"'), event))
    assert ran.conclusion == "success", ran.log.read_text()
    assert set(json.loads(out.read_text()).values()) == {""}


def test_a_secret_that_a_step_prints_is_not_in_the_logs(quiet: World) -> None:
    ran = runner(quiet, settings=Settings({"REGISTRY": "canary-1"})).run(asked(quiet, 'echo "it is $REGISTRY, seen"'))
    logs = [path.read_text() for path in ran.log.parent.iterdir()]
    assert "it is ***, seen" in ran.log.read_text()
    assert not [text for text in logs if "canary" in text]


def test_act_is_told_by_files_that_its_user_alone_may_read(quiet: World, tmp_path: Path) -> None:
    act, note = tmp_path / "act", tmp_path / "note.json"
    act.write_text(FAKE_ACT.format(python=sys.executable, note=str(note)))
    act.chmod(0o755)
    one = dataclasses.replace(runner(quiet, settings=SETTINGS), act=act)
    one.run(asked(quiet, "true"))
    argv, environ, files = json.loads(note.read_text())
    assert [files[name][0] for name in ("secret", "var")] == ["0o600"] * 2
    told = json.loads(files["secret"][1])
    assert (told["REGISTRY"], told["KEY"], json.loads(files["var"][1])) == (SECRET, KEY, dict(SETTINGS.variables))
    assert len(told["GITHUB_TOKEN"]) == 40, "a run's own token is never one of the settings"
    shown = "\n".join([*argv, *environ.values()])
    assert not [value for value in (SECRET, KEY, told["GITHUB_TOKEN"]) if value in shown]
    assert SECRET not in repr(one)
    assert not Path(argv[argv.index("--secret-file") + 1]).exists()
