"""The handed case on the workflows that `fedops init` writes: what starts what, and which commit is looked at."""

from __future__ import annotations

import re
from typing import Any

from fedops.core.yaml_reader import parse_yaml
from tests.cases.harness import Cases
from tests.template.test_workflows import WORKFLOWS, steps

PUBLISHES = {"publish", "signal"}


def started_by(name: str) -> dict[str, Any]:
    on: dict[str, Any] = parse_yaml(WORKFLOWS[name].encode(), name)[0]["on"]
    return on


def test_h43_nothing_waits_for_a_push_that_the_job_token_made(cases: Cases) -> None:
    case = cases["H43"]
    assert case.expected["outcome"] == "ok"
    first, second, third, fourth = case.json(case.files["assertions"])["assertions"]

    assert "started only by 'on: push: tags'" in first
    called = {
        step["run"].split()[2]: name
        for name, text in WORKFLOWS.items()
        for _, step in steps(text)
        if step.get("run", "").startswith("fedops ci ")
    }
    for command in PUBLISHES:
        on = started_by(called[command])
        assert {"workflow_run", "workflow_dispatch", "schedule"} <= set(on)
        assert "tags" not in (on["push"] or {})
    # Publishing and signalling are jobs of the run that aggregates.
    assert {called[command] for command in PUBLISHES} == {called["aggregate"]}

    assert "does not sit on minute 0" in second
    for name in WORKFLOWS:
        on = started_by(name)
        for entry in on.get("schedule", []):
            assert "0" not in entry["cron"].split()[0].split(","), name
            assert "workflow_dispatch" in on, name

    assert "deadlines are judged at run time" in third
    # Nothing that a job is told depends on when it was to run: no step sees the schedule.
    for name, text in WORKFLOWS.items():
        assert "github.event.schedule" not in text, name
        assert "github.event.repository.pushed_at" not in text, name

    # Its checkout line means: the head is named by its commit. It is never checked out, nor named by its branch.
    assert "github.event.pull_request.head.sha" in fourth
    [(_, step)] = [
        (job, step) for job, step in steps(WORKFLOWS["validate.yml"]) if "fedops ci inspect" in step.get("run", "")
    ]
    assert step["env"]["HEAD"] == "${{ github.event.pull_request.head.sha }}"
    assert '--head "$HEAD"' in step["run"]
    for name, text in WORKFLOWS.items():
        assert not re.search(r"head\.ref|head_ref", text), name
        for _, step in steps(text):
            assert "head" not in str(step.get("with", {})), name
