"""The same files on a GitHub that answers on this machine: forks, job token, REST and git over HTTP, versions by review."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedops.adapters.act_runner import ActRunner, Server
from fedops.core.ids import CommitId
from fedops.core.workflows import Event, parse_workflow
from fedops.ports import WorkflowRequest, WorkflowResult
from tests.cli_world import EXAMPLES, SITES, STEPS, environment
from tests.github_face.cli_world import JOB, GitHubWorld, github_cli
from tests.github_face.hub import NAME, OWNER
from tests.workflow.runs import runner

VERSIONS = 5
# GitHub asks for pauses between requests; this one does not need them.
NO_PAUSES = "from fedops.adapters import github_http\ngithub_http.PACE = (0.0, 0.0)\n"


@pytest.fixture
def world(act: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubWorld]:
    with github_cli(tmp_path / "world", monkeypatch, review=True) as made:
        yield made


@pytest.fixture
def ci(world: GitHubWorld, tmp_path: Path) -> ActRunner:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_PAUSES)
    server = Server(world.server.web, world.server.api, JOB)
    return runner(world, repository=f"{OWNER}/{NAME}", server=server, kept={"PYTHONPATH": str(tmp_path / "site")})


def run(world: GitHubWorld, ci: ActRunner, file: str, event: str, **payload: Any) -> WorkflowResult:
    main = CommitId(world.main())
    workflow = parse_workflow(file, world.show(f".github/workflows/{file}").encode())
    ref = f"refs/pull/{payload['number']}/merge" if "number" in payload else "refs/heads/main"
    # Nothing of the tests' own identity reaches a job.
    with environment(FEDOPS_TOKEN=None):
        return ci.run(WorkflowRequest(workflow, main, Event(event, ref, main, workflow=file, payload=payload)))


def validate(world: GitHubWorld, ci: ActRunner, number: int) -> WorkflowResult:
    pull = world.hub.pull(number)
    assert pull is not None
    facts = {"number": number, "head": {"sha": pull.head}}
    return run(world, ci, "validate.yml", "pull_request", action="opened", number=number, pull_request=facts)


def reconcile(world: GitHubWorld, ci: ActRunner) -> WorkflowResult:
    ran = run(world, ci, "reconcile.yml", "workflow_run", action="completed")
    assert ran.conclusion == "success", ran.log.read_text()
    return ran


@pytest.mark.long
@pytest.mark.slow
def test_three_fork_sites_make_five_versions_by_the_unedited_files(world: GitHubWorld, ci: ActRunner) -> None:
    """Three runs of validate (1 s each), two of reconcile for v1 and one for each other version (4 to 6 s each)."""
    value = 0.0
    for version in range(1, VERSIONS + 1):
        numbers = world.hand_in(*SITES)
        if version == 1:
            for number in numbers:
                assert validate(world, ci, number).conclusion == "success"
            assert reconcile(world, ci).jobs["aggregate"] == "skipped", "nothing is merged without an approval"
        world.approve(*numbers)
        assert reconcile(world, ci).jobs["publish"] == "success"
        record = world.version()
        assert (record["version"], len(record["contributions"])) == (version, len(SITES))
        # FedAvg by hand: all on the current version, training in float32.
        deltas = {site: float(np.float32(value + STEPS[site])) - value for site in SITES}
        value = float(np.float32(value + sum(EXAMPLES[s] * deltas[s] for s in SITES) / sum(EXAMPLES[s] for s in SITES)))
    out = world.folder / "last.safetensors"
    world("ci", "pull", f"v{VERSIONS}", "--out", str(out))
    np.testing.assert_array_equal(load_file(out)["w"], np.float32(value))
    assert [release.tag for release in world.hub.releases][-VERSIONS:] == [
        f"global@v{n}.0.0" for n in range(1, VERSIONS + 1)
    ]
    waiting = [i.title for i in world.hub.items.values() if i.state == "open" and "signal:train" in i.labels]
    assert sorted(waiting) == [f"Train on v{VERSIONS}: {site}" for site in SITES]
    assert reconcile(world, ci).jobs["aggregate"] == "skipped"
    assert run(world, ci, "audit.yml", "schedule").conclusion == "success"
    world.new_clone("auditor")
    verified = world.json("auditor", "verify", "--all")
    assert (verified["ok"], len(verified["versions"])) == (True, VERSIONS + 1)


def test_a_bad_pull_request_of_a_fork_fails_its_validation(world: GitHubWorld, ci: ActRunner) -> None:
    """One run of validate: about 1 s."""
    [number] = world.hand_in(SITES[0])
    world.edit(
        "policies/submission.yaml", lambda text: text.replace("num_examples_max: 10000000", "num_examples_max: 1")
    )
    ran = validate(world, ci, number)
    assert (ran.conclusion, dict(ran.jobs)) == ("failure", {"validate": "failure"})
    assert world.hub.items[number].state == "open"
