"""The workflows of a federation: thin, pinned, with the least rights, and in step with the commands that they call."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from fedops.adapters.act_actions import STAND_INS, demand_runnable
from fedops.app.scaffold import Scaffold, render
from fedops.cli.main import cli
from fedops.cli.stores import PASSWORD, TOKEN_HOST, USERNAME
from fedops.core.deploy_key import HOST_KEYS, KEY
from fedops.core.settings import Forge
from fedops.core.workflows import parse_workflow
from fedops.core.yaml_reader import parse_yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FEDERATION = Scaffold(
    name="fed",
    store="oci://h/n",
    fedops="0.1.0",
    forge=Forge(kind="github", repository="acme/fed"),
    require_signed=False,
)
WORKFLOWS = {
    p.rsplit("/", 1)[1]: data.decode() for p, data in render(FEDERATION).items() if p.startswith(".github/workflows/")
}
OURS = {"ci.yml": (ROOT / ".github" / "workflows" / "ci.yml").read_text()}
ALL = sorted((WORKFLOWS | OURS).items())
every_workflow = pytest.mark.parametrize(("name", "text"), ALL, ids=[name for name, _ in ALL])


def parsed(text: str) -> Any:
    return parse_yaml(text.encode(), "workflow")[0]


def jobs(text: str) -> dict[str, Any]:
    out: dict[str, Any] = parsed(text)["jobs"]
    return out


def steps(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for job, body in jobs(text).items():
        for step in body["steps"]:
            yield job, step


def test_the_three_workflows_and_their_jobs() -> None:
    assert {name: list(jobs(text)) for name, text in WORKFLOWS.items()} == {
        "validate.yml": ["validate"],
        "reconcile.yml": ["inspect", "merge", "aggregate", "publish", "signal", "again"],
        "audit.yml": ["audit"],
    }


@every_workflow
def test_actions_are_pinned_by_hash_with_the_version_beside_it(name: str, text: str) -> None:
    used = [line.strip() for line in text.splitlines() if re.match(r" *(- )?uses:", line)]
    assert used, name
    for line in used:
        assert re.fullmatch(r"uses: actions/(checkout|setup-python)@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


@every_workflow
def test_nothing_has_rights_but_what_a_job_names_with_its_reason(name: str, text: str) -> None:
    assert parsed(text)["permissions"] == {}
    for line in text.split("\njobs:\n")[1].splitlines():
        if re.match(r"      (actions|contents|issues|packages|pull-requests|statuses): ", line):
            assert re.fullmatch(r"      [a-z-]+: (read|write) # .{5,}", line), line
    for job, body in jobs(text).items():
        assert "permissions" in body, job


def test_what_parses_tensors_cannot_write_to_git_and_what_writes_is_alone() -> None:
    rights = {
        f"{name}/{job}": {right for right, level in body["permissions"].items() if level == "write"}
        for name, text in WORKFLOWS.items()
        for job, body in jobs(text).items()
    }
    assert rights == {
        "validate.yml/validate": set(),
        "reconcile.yml/inspect": set(),
        "reconcile.yml/merge": {"contents", "issues", "pull-requests", "statuses"},
        "reconcile.yml/aggregate": {"packages"},
        "reconcile.yml/publish": {"contents", "packages", "pull-requests"},
        "reconcile.yml/signal": {"issues", "packages"},
        "reconcile.yml/again": {"actions"},
        "audit.yml/audit": set(),
    }


@every_workflow
def test_values_reach_commands_by_the_environment_alone(name: str, text: str) -> None:
    for job, step in steps(text):
        if "run" in step:
            assert "${{" not in step["run"], (name, job, step["run"])


@every_workflow
def test_no_job_runs_for_ever_or_leaves_its_token_behind(name: str, text: str) -> None:
    for job, body in jobs(text).items():
        assert 0 < body["timeout-minutes"] <= 360, job
        assert body["runs-on"] == "ubuntu-latest"
    for job, step in steps(text):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, job


@every_workflow
def test_what_would_give_a_pull_request_rights_or_break_a_local_run_is_not_used(name: str, text: str) -> None:
    for word in ("pull_request_target", "artifact", "container:", "services:", "docker://", "hashFiles",
                 "continue-on-error", "github.actor", "github.head_ref", "github.event.workflow_run"):  # fmt: skip
        assert word not in text, (name, word)


REGISTRY = {f"secrets.{PASSWORD}", f"vars.{USERNAME}", f"vars.{TOKEN_HOST}"}
DEPLOY = {f"secrets.{KEY}", f"vars.{HOST_KEYS}"}
_SETTING = re.compile(r"\$\{\{ ((?:secrets|vars)\.([A-Z_]+)) \}\}")


def test_settings_of_the_repository_go_to_the_commands_that_read_them_and_to_no_run_for_a_pull_request() -> None:
    given: dict[str, set[str]] = {}
    for name, text in ALL:
        found = []
        for job, step in steps(text):
            for variable, value in step.get("env", {}).items():
                if match := _SETTING.fullmatch(value):
                    assert match[2] == variable, (name, job, "the name by which fedops reads it")
                    assert step["run"].startswith("fedops ci "), (name, job)
                    given.setdefault(f"{name}/{job}", set()).add(match[1])
                    found.append(match[1])
        # Nowhere else: in no `if`, no output, not for a whole job, and never all of them.
        assert len(re.findall(r"\b(secrets|vars)\b", re.sub("#.*", "", text))) == len(found), name
    assert given == {
        "reconcile.yml/inspect": REGISTRY,
        "reconcile.yml/aggregate": REGISTRY,
        "reconcile.yml/publish": REGISTRY | DEPLOY,
        "reconcile.yml/signal": REGISTRY,
        "audit.yml/audit": REGISTRY,
    }
    for name, text in WORKFLOWS.items():
        if {event for event in parsed(text)["on"] if event.startswith("pull_request")}:
            assert not [key for key in given if key.startswith(name)], "a fork can edit what runs here"


def test_who_pushes_versions_alone_has_an_environment_and_so_its_secrets() -> None:
    places = {f"{name}/{job}": body["environment"] for name, text in ALL for job, body in jobs(text).items()
              if "environment" in body}  # fmt: skip
    assert places == {"reconcile.yml/publish": "fedops-publish"}


def test_only_reconcile_is_woken_by_another_workflow_and_says_why() -> None:
    assert [name for name, text in ALL if "workflow_run" in text] == ["reconcile.yml"]
    [line] = [line for line in WORKFLOWS["reconcile.yml"].splitlines() if "workflow_run:" in line]
    assert re.fullmatch(r"  workflow_run: # zizmor: ignore\[dangerous-triggers\] .{30,}", line)
    assert parsed(WORKFLOWS["reconcile.yml"])["on"]["workflow_run"] == {
        "workflows": ["validate"],
        "types": ["completed"],
    }
    assert parsed(WORKFLOWS["validate.yml"])["name"] == "validate"


def test_an_approval_wakes_reconcile_by_way_of_validate() -> None:
    on = parsed(WORKFLOWS["validate.yml"])["on"]
    assert on == {"pull_request": {"branches": ["main"]}, "pull_request_review": {"types": ["submitted", "dismissed"]}}


def test_federation_jobs_check_out_main_or_the_commit_that_was_decided_on_and_never_a_head() -> None:
    pinned = {}
    for name, text in WORKFLOWS.items():
        for job, step in steps(text):
            if step.get("uses", "").startswith("actions/checkout@"):
                if step["with"]["ref"] != "main":
                    pinned[name, job] = step["with"]["ref"]
                assert "head" not in step["with"]["ref"]
    commit = "${{ needs.merge.outputs.input_commit }}"
    assert pinned == {("reconcile.yml", "aggregate"): commit, ("reconcile.yml", "publish"): commit}


def test_what_the_jobs_install_is_pinned_by_hash_and_skipped_by_act_alone() -> None:
    for name, text in WORKFLOWS.items():
        installs = [(job, step) for job, step in steps(text) if "pip" in step.get("run", "")]
        assert [job for job, _ in installs] == list(jobs(text)), name
        for _, step in installs:
            words = shlex.split(step["run"])
            assert {"--require-hashes", "--no-deps"} <= set(words)
            assert words[-2:] == ["--requirement", ".github/requirements.txt"]
            assert step["if"] == "${{ !env.ACT }}"


def test_a_local_run_has_a_stand_in_for_every_action_and_finds_no_fault() -> None:
    for name, text in WORKFLOWS.items():
        workflow = parse_workflow(name, text.encode())
        assert set(workflow.uses) == set(STAND_INS)
        demand_runnable(workflow)


def test_federation_jobs_start_only_in_their_own_repository() -> None:
    for name, text in WORKFLOWS.items():
        for job, body in jobs(text).items():
            guarded = body.get("if") == "github.repository == 'acme/fed'"
            assert guarded or body.get("needs"), (name, job)


def test_schedules_avoid_the_full_hour_and_everything_can_be_started_by_hand() -> None:
    for name in ("reconcile.yml", "audit.yml"):
        on = parsed(WORKFLOWS[name])["on"]
        assert "workflow_dispatch" in on
        for entry in on["schedule"]:
            assert "0" not in entry["cron"].split()[0].split(",")


def test_runs_of_a_group_wait_and_are_never_cancelled() -> None:
    groups = {name: parsed(text)["concurrency"] for name, text in WORKFLOWS.items()}
    assert [group["cancel-in-progress"] for group in groups.values()] == [False] * 3
    assert len({group["group"] for group in groups.values()}) == 3


def option_names(path: list[str]) -> set[str]:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        below = command.get_command(click.Context(command), name)
        assert below is not None, f"fedops {' '.join(path)}: no such command"
        command = below
    return {option for p in command.params for option in p.opts}


def test_the_commands_exist_and_take_the_options_that_are_given() -> None:
    called = []
    for _, text in WORKFLOWS.items():
        for _, step in steps(text):
            words = shlex.split(step.get("run", ""))
            if words[:1] == ["fedops"]:
                called.append(words[2])
                assert {w for w in words if w.startswith("--")} <= option_names(words[1:3]), words
    assert sorted(called) == ["again", "aggregate", "audit", "inspect", "inspect", "merge", "publish", "signal"]


def test_job_outputs_are_those_that_later_jobs_read() -> None:
    text = WORKFLOWS["reconcile.yml"]
    given = {(job, output) for job, body in jobs(text).items() for output in body.get("outputs", {})}
    assert set(re.findall(r"needs\.([a-z]+)\.outputs\.([a-z_]+)", text)) == given


def tool(name: str) -> str:
    path = Path(sys.executable).with_name(name)
    if not path.is_file():
        pytest.skip(f"{name} is not installed")
    return str(path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / ".github" / "workflows"
    folder.mkdir(parents=True)
    for name, text in ALL:
        (folder / name).write_text(text)
    return folder


def test_actionlint_has_nothing_to_say(written: Path) -> None:
    command = [tool("actionlint"), "-shellcheck", tool("shellcheck"), *map(str, sorted(written.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_act_reads_the_workflows_strictly(written: Path) -> None:
    command = [tool("act"), "--validate", "--strict", "-P", "ubuntu-latest=-self-hosted", "-W", str(written)]
    environment = {**os.environ, "ACT_DISABLE_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_has_nothing_to_say(written: Path) -> None:
    command = [tool("zizmor"), "--offline", "--pedantic", "--no-progress", str(written)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflows_pass_githubs_schema(written: Path) -> None:
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *map(str, sorted(written.iterdir()))], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
