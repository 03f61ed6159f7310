"""Which workflow an event starts, and what is read from a file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fedops.core.errors import ConfigError
from fedops.core.ids import CommitId
from fedops.core.workflows import Event, Workflow, group_of, parse_workflow, starts

MAIN = CommitId("a" * 40)
JOB = {"runs-on": "ubuntu-latest", "steps": [{"run": "x"}]}


def workflow(on: Any, file: str = "w.yml", **more: Any) -> Workflow:
    return parse_workflow(file, json.dumps({"on": on, "jobs": {"a": JOB}, **more}).encode())


def event(name: str, **more: Any) -> Event:
    return Event(name=name, ref="refs/heads/main", sha=MAIN, **more)


def test_a_file_is_read() -> None:
    steps = [{"uses": "a/b@1"}, {"run": "x"}, {"uses": "a/b@1"}]
    jobs = {"one": {"runs-on": "ubuntu-latest", "steps": steps}, "two": {"runs-on": "ubuntu-latest"}}
    read = workflow({"schedule": [{"cron": "1 2 3 4 5"}]}, name="Name", concurrency="g", jobs=jobs)
    assert (read.name, read.group, read.jobs, read.uses, read.faults, read.crons) == (
        "Name", "g", ("one", "two"), ("a/b@1",), (), ("1 2 3 4 5",)
    )  # fmt: skip
    bare = workflow("push", concurrency={"cancel-in-progress": False})
    assert (bare.name, bare.group, bare.crons) == (".github/workflows/w.yml", "", ())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "no jobs"),
        ("{}", "no jobs"),
        ('{"on": "push", "jobs": {}}', "no jobs"),
        ('{"on": "push", "jobs": {"a": 1}}', "no jobs"),
        ('{"jobs": {"a": {}}}', "on: missing"),
        ('{"on": {}, "jobs": {"a": {}}}', "on: missing"),
        ("on: [push\n", "w.yml:"),
    ],
)
def test_what_is_no_workflow_is_told(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"\.github/workflows/w\.yml") as e:
        parse_workflow("w.yml", text.encode())
    assert says in e.value.message


def test_what_a_local_run_cannot_do_is_named() -> None:
    jobs = {
        "a": {"uses": "./.github/workflows/x.yml"},
        "b": {"runs-on": "windows-latest"},
        "c": {"runs-on": "ubuntu-latest", "container": "x", "services": {}},
    }
    assert workflow("push", jobs=jobs).faults == (
        "job a: a reusable workflow",
        "job b: runs-on windows-latest -> ubuntu-latest",
        "job c: container",
        "job c: services",
    )


@pytest.mark.parametrize(
    ("on", "given", "started"),
    [
        ("push", event("push"), True),
        (["push", "schedule"], event("push"), True),
        ("push", event("pull_request", action="opened"), False),
        ({"push": {"branches": ["main"]}}, event("push"), True),
        ({"push": {"branches": "rel*"}}, event("push"), False),
        ({"push": {"branches-ignore": ["main"]}}, event("push"), False),
        ({"push": {"tags": ["v*"]}}, event("push"), False),
        ({"push": {"tags": ["v*"], "branches": ["main"]}}, event("push"), True),
        ({"push": {"paths": ["sites/**"]}}, event("push", paths=("sites/a/b",)), True),
        ({"push": {"paths": ["sites/**"]}}, event("push", paths=("docs/x", "global/y")), False),
        ({"push": {"paths-ignore": ["docs/**"]}}, event("push", paths=("docs/x",)), False),
        ({"push": {"paths-ignore": ["docs/**"]}}, event("push", paths=("docs/x", "y")), True),
        ("pull_request", event("pull_request", action="synchronize"), True),
        ("pull_request", event("pull_request", action="labeled"), False),
        ({"pull_request": {"types": ["labeled"]}}, event("pull_request", action="labeled"), True),
        ({"pull_request": {"types": "labeled"}}, event("pull_request", action="opened"), False),
        ({"pull_request": {"paths": ["x"]}}, event("pull_request", action="opened", paths=("y",)), False),
        ({"pull_request": {"branches": ["dev"]}}, event("pull_request", action="opened"), False),
        ("pull_request_review", event("pull_request_review", action="dismissed"), True),
        ({"pull_request_review": {"types": ["submitted"]}}, event("pull_request_review", action="dismissed"), False),
        ({"schedule": [{"cron": "1 * * * *"}]}, event("schedule", cron="1 * * * *"), True),
        ({"schedule": [{"cron": "1 * * * *"}]}, event("schedule", cron="2 * * * *"), False),
        ({"schedule": None}, event("schedule", cron="2 * * * *"), False),
        ("workflow_dispatch", event("workflow_dispatch", workflow="w.yml"), True),
        ("workflow_dispatch", event("workflow_dispatch", workflow="x.yml"), False),
        ({"workflow_run": {"workflows": ["v"], "types": ["completed"]}}, event("workflow_run", action="completed", workflow="v"), True),
        ({"workflow_run": {"workflows": ["v"]}}, event("workflow_run", action="completed", workflow="x"), False),
        ({"workflow_run": {"workflows": ["v"], "branches": ["x"]}}, event("workflow_run", action="completed", workflow="v"), False),
    ],
)  # fmt: skip
def test_filters_decide_what_an_event_starts(on: Any, given: Event, started: bool) -> None:
    assert starts(workflow(on), given) is started


def test_groups_are_filled_in_from_the_event() -> None:
    one = workflow(
        "push", name="w", concurrency={"group": "v-${{ github.event.pull_request.number }}-${{github.workflow}}"}
    )
    pull = event("pull_request", payload={"pull_request": {"number": 7}})
    assert group_of(one, pull) == "v-7-w"
    assert group_of(one, event("push")) == "v--w"
    assert group_of(one, event("push", payload={"pull_request": 3})) == "v--w"
    assert group_of(workflow("push"), pull) == ""
    refs = workflow("push", concurrency="${{ github.ref }} ${{ github.sha }}")
    assert group_of(refs, pull) == f"refs/heads/main {MAIN}"


@pytest.mark.parametrize("expression", ["inputs.x", "github.ref || 'x'", "hashFiles('x')", "github"])
def test_an_expression_of_another_kind_is_told_and_never_guessed(expression: str) -> None:
    with pytest.raises(ConfigError, match=r"a plain github\.… value"):
        group_of(workflow("push", concurrency="${{ " + expression + " }}"), event("push"))


def test_an_event_is_named_with_its_pull_request() -> None:
    pull = event("pull_request", payload={"pull_request": {"number": 7}})
    assert (pull.label, replace(pull, payload={}).label) == ("pull_request #7", "pull_request")
