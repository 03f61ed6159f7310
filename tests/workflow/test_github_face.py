"""The same files on a GitHub and with a registry that answer on this machine.

Forks, a token for each job, REST, git over HTTP and ssh, merges by review, and what the repository's settings give: the
password of the registry, and the deploy key, without which nobody may push to main.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedops.adapters.act_runner import ActRunner, Server
from fedops.adapters.act_settings import Settings
from fedops.core.ids import CommitId
from fedops.core.workflows import Event, parse_workflow
from fedops.ports import WorkflowRequest, WorkflowResult
from tests.cli_world import EXAMPLES, SITES, STEPS, environment
from tests.github_face.cli_world import JOB, GitHubWorld, github_cli
from tests.github_face.hub import NAME, OWNER
from tests.github_face.jobs import rights_on_main
from tests.github_face.level2 import SshServer, level_2, ssh_server
from tests.registry.accounts import PASSWORDS, PATH, rights, sign_in
from tests.registry.server import registry_server
from tests.registry.tokens import TokenService
from tests.sshkeys import SshKey, make_key
from tests.workflow.runs import runner

VERSIONS = 5
PRIVATE = "clinic-c"
# Before each Python of a job. GitHub asks for pauses between requests; this one does not need them. And act gives all
# jobs of a run one token, where GitHub mints one for each: here it becomes that of its job.
BEFORE = f"""
import os
from fedops.adapters import github_http
github_http.PACE = (0.0, 0.0)
if os.environ.get("GITHUB_TOKEN") == "{JOB}":
    os.environ["GITHUB_TOKEN"] += "_" + os.environ["GITHUB_WORKFLOW"] + "_" + os.environ["GITHUB_JOB"]
"""


@pytest.fixture
def service() -> Iterator[TokenService]:
    """Tokens for the registry; of the sites' updates only clinic-c's is not for everybody to read."""
    public = {("", f"{PATH}/sites/{site}"): "pull" for site in SITES if site != PRIVATE}
    with TokenService(PASSWORDS, rights() | public).running() as running:
        yield running


@pytest.fixture
def world(act: Path, service: TokenService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubWorld]:
    folder = tmp_path / "registry"
    with (
        registry_server(folder, auth=service.auth(folder)) as server,
        github_cli(
            tmp_path / "world",
            monkeypatch,
            review=True,
            store=f"oci://{server.host}/{PATH}",
            sign_in=lambda who: sign_in(service, who),
        ) as made,
    ):
        yield made


@pytest.fixture
def deploy_key(tmp_path: Path) -> SshKey:
    return make_key(tmp_path, "deploy-key")


@pytest.fixture
def ssh(world: GitHubWorld, deploy_key: SshKey) -> Iterator[SshServer]:
    """GitHub's side of ssh, which knows the deploy key."""
    with ssh_server(world.hub, deploy_key.public) as running:
        yield running


@pytest.fixture
def ci(world: GitHubWorld, service: TokenService, ssh: SshServer, deploy_key: SshKey, tmp_path: Path) -> ActRunner:
    for name in ("site", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BEFORE)
    world.hub.add_job(JOB, {"contents": "read"})  # for the step that checks out
    for name in ("validate", "reconcile", "audit"):
        for job, given in rights_on_main(world.hub, f"{name}.yml").items():
            world.hub.add_job(f"{JOB}_{name}_{job}", given)
    settings = Settings(
        {"FEDOPS_REGISTRY_PASSWORD": PASSWORDS["ci"], "FEDOPS_DEPLOY_KEY": deploy_key.private.read_text()},
        {"FEDOPS_REGISTRY_USERNAME": "ci", "FEDOPS_REGISTRY_TOKEN_HOST": service.host},
    )
    return dataclasses.replace(
        runner(world, repository=f"{OWNER}/{NAME}"),
        kept={"PYTHONPATH": str(tmp_path / "site"), "TMPDIR": str(tmp_path / "temporary")},
        server=Server(world.server.web, world.server.api, JOB),
        settings=settings,
        path=ssh.client(tmp_path / "bin"),
    )


def without_key(ci: ActRunner) -> ActRunner:
    secrets = {name: value for name, value in ci.settings.secrets.items() if name != "FEDOPS_DEPLOY_KEY"}
    return dataclasses.replace(ci, settings=dataclasses.replace(ci.settings, secrets=secrets))


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
def test_three_fork_sites_make_five_versions_by_the_unedited_files(
    world: GitHubWorld, ci: ActRunner, ssh: SshServer
) -> None:
    """Three runs of validate (1 s each), three of reconcile for v1 and one for each other version (4 to 6 s each).

    One of the first three is not signed at first, and refused. Main takes no push but that of the deploy key.
    """
    level_2(world.server, [ssh.host_key]).require_pull_request()
    value = 0.0
    for version in range(1, VERSIONS + 1):
        numbers = world.hand_in(*SITES)
        if version == 1:
            world.unsign(SITES[0], numbers[0])
            world.approve(numbers[0])
            checked = [validate(world, ci, number).conclusion for number in numbers]
            assert checked == ["failure", "success", "success"]
            assert reconcile(world, ci).jobs["aggregate"] == "skipped", "nothing is merged without an approval"
            told = [c.body for c in world.hub.comments.values() if "signature_invalid" in c.body]
            assert [c.number for c in world.hub.comments.values() if c.body in told] == numbers[:1]
            assert world.json(SITES[0], "submit")["pull"] == numbers[0]
            unsaid = validate(world, ci, numbers[0])
            assert unsaid.conclusion == "failure", "its bytes are not public, and a run for a fork has no password"
            assert "pending  the check could not finish" in unsaid.log.read_text()
        world.approve(*numbers)
        if version == 1:
            refused = run(world, without_key(ci), "reconcile.yml", "workflow_run", action="completed")
            assert (refused.jobs["merge"], refused.jobs["publish"]) == ("success", "failure")
            assert "push refused" in refused.log.read_text()
            assert (world.version()["version"], ssh.commands) == (0, []), "all are merged, and no version is made"
        assert reconcile(world, ci).jobs["publish"] == "success"
        record = world.version()
        assert (record["version"], len(record["contributions"])) == (version, len(SITES))
        # FedAvg by hand: all on the current version, training in float32.
        deltas = {site: float(np.float32(value + STEPS[site])) - value for site in SITES}
        value = float(np.float32(value + sum(EXAMPLES[s] * deltas[s] for s in SITES) / sum(EXAMPLES[s] for s in SITES)))
    out = world.folder / "last.safetensors"
    world("ci", "pull", f"v{VERSIONS}", "--out", str(out))
    np.testing.assert_array_equal(load_file(out)["w"], np.float32(value))
    assert [release.tag for release in world.hub.releases] == [f"global@v{n}.0.0" for n in range(VERSIONS + 1)]
    waiting = [i.title for i in world.hub.items.values() if i.state == "open" and "signal:train" in i.labels]
    assert sorted(waiting) == [f"Train on v{VERSIONS}: {site}" for site in SITES]
    assert reconcile(world, ci).jobs["aggregate"] == "skipped"
    assert run(world, ci, "audit.yml", "schedule").conclusion == "success"
    world.new_clone("auditor")
    verified = world.json("auditor", "verify", "--all")
    assert (verified["ok"], len(verified["versions"])) == (True, VERSIONS + 1)
    assert world.hub.refused == [], "each job's rights suffice"
    assert ssh.commands == [f"git-receive-pack '/{OWNER}/{NAME}.git'"] * VERSIONS
    assert not list(Path(ci.kept["TMPDIR"]).iterdir())
    logs = "".join(path.read_text() for path in ci.logs.rglob("*") if path.is_file())
    assert not [text for text in (PASSWORDS["ci"], "PRIVATE KEY") if text in logs]


def test_a_bad_pull_request_of_a_fork_fails_its_validation(world: GitHubWorld, ci: ActRunner) -> None:
    """One run of validate: about 1 s."""
    [number] = world.hand_in("hospital-a")
    world.edit(
        "policies/submission.yaml", lambda text: text.replace("num_examples_max: 10000000", "num_examples_max: 1")
    )
    ran = validate(world, ci, number)
    assert (ran.conclusion, dict(ran.jobs)) == ("failure", {"validate": "failure"})
    assert "num_examples is not a whole number" in ran.log.read_text()
    assert world.hub.items[number].state == "open"
