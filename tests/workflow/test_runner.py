"""What one run gets and what it cannot reach, with small workflow files of its own; about 0.3 s each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedops.adapters.act_actions import STAND_INS
from fedops.adapters.act_runner import Server, find_act
from fedops.core.errors import ConfigError
from fedops.ports import Dispatch
from tests.cli_world import World, environment, git, in_process
from tests.workflow.runs import left_over, probe, request, runner

CHECKOUT, PYTHON = STAND_INS


def test_nothing_of_the_users_environment_reaches_a_step(quiet: World) -> None:
    asked = request(quiet, probe("env | sort", "pwd; ls -a; git config --list"), inputs={"x": "1"})
    with environment(
        MY_PASSWORD="canary-1", AWS_SECRET_ACCESS_KEY="canary-2", GITHUB_TOKEN="canary-3", FEDOPS_KEY="canary-4"
    ):
        result = runner(quiet).run(asked)
    text = result.log.read_text()
    assert (result.conclusion, dict(result.jobs)) == ("success", {"look": "success"})
    assert "canary" not in text
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("=="))
    assert values["GITHUB_REPOSITORY"] == "none"
    assert values["GITHUB_SERVER_URL"] == "http://fedops-local.invalid"
    assert values["GITHUB_API_URL"].startswith("http://127.0.0.1:")
    assert values["GITHUB_REF"] == "refs/heads/main"
    assert values["GITHUB_SHA"] == quiet.main()
    assert values["GITHUB_ACTIONS"] == values["ACT"] == "true"
    assert values["HOME"] != str(Path.home())
    # The workspace is empty before a checkout, and git has no configuration.
    assert "user.name" not in text
    assert not Path(values["HOME"]).exists()


def told(*values: str) -> str:
    """A step that puts out what commands print; the logs of jobs that run side by side are mixed."""
    lines = "".join(
        f'          echo "{name}=$({command})" >>"$GITHUB_OUTPUT"\n'
        for name, command in (v.split("=", 1) for v in values)
    )
    return f"- id: told\n        run: |\n{lines}"


def test_a_checkout_is_the_commit_that_was_asked_for(quiet: World) -> None:
    old = quiet.main()
    facts = ("head=git rev-parse HEAD", "branch=git symbolic-ref -q HEAD || true", "origin=git remote get-url origin",
             "tags=git tag --list", "there=ls .github/workflows/probe.yml 2>&1 || true")  # fmt: skip
    text = f"""
name: probe
on: workflow_dispatch
jobs:
  one:
    runs-on: ubuntu-latest
    steps:
      - uses: {CHECKOUT}
        with: {{ref: main}}
      {told(*facts)}
  two:
    runs-on: ubuntu-latest
    steps:
      - uses: {CHECKOUT}
        with: {{ref: {old}}}
      {told(*facts)}
  three:
    runs-on: ubuntu-latest
    steps:
      - uses: {CHECKOUT}
        id: checkout
      - uses: {PYTHON}
        with: {{python-version: "2.7"}}
      {told("fedops=fedops --version", "where=command -v fedops", "python=python -c 'import sys; print(sys.executable)'")}
  four:
    runs-on: ubuntu-latest
    steps:
      - uses: {CHECKOUT}
        with: {{repository: other/one}}
"""
    result = runner(quiet).run(request(quiet, text))
    assert dict(result.jobs) == {"one": "success", "two": "success", "three": "success", "four": "failure"}
    one, two, three = (result.outputs[job] for job in ("one", "two", "three"))
    assert (one["head"], one["branch"], one["origin"]) == (quiet.main(), "refs/heads/main", str(quiet.origin))
    assert (two["head"], two["branch"], two["tags"]) == (old, "", "global@v0.0.0")
    assert one["there"] == ".github/workflows/probe.yml"
    assert "No such file" in two["there"]
    assert (three["commit"], three["python"]) == (quiet.main(), sys.executable)
    assert three["fedops"].startswith("fedops, version ")
    assert three["where"].endswith("/bin/fedops")


@pytest.mark.parametrize(
    "pin",
    ["actions/checkout@v7", CHECKOUT[:-1] + "0", "evil/thing@" + "a" * 40, "docker://alpine", "./.github/actions/x"],
)
def test_an_action_without_a_stand_in_is_refused_before_anything_runs(pin: str, quiet: World) -> None:
    text = probe("touch ran").replace("    steps:\n", f"    steps:\n      - if: false\n        uses: {pin}\n")
    with pytest.raises(ConfigError, match="no stand-in for") as e:
        runner(quiet).run(request(quiet, text))
    assert pin in e.value.message
    assert not (quiet.folder / "logs").exists()


def test_what_act_would_skip_in_silence_is_refused(quiet: World) -> None:
    asked = request(quiet, probe("true").replace("ubuntu-latest", "my-own-runner"))
    with pytest.raises(ConfigError, match="runs-on my-own-runner -> ubuntu-latest"):
        runner(quiet).run(asked)


def test_a_job_may_start_a_workflow_with_its_own_token_alone(quiet: World) -> None:
    post = """
import json, os, sys, urllib.request
url = os.environ["GITHUB_API_URL"] + "/repos/none/actions/workflows/reconcile.yml/dispatches"
data = json.dumps({"ref": "main", "inputs": {"attempt": "1"}}).encode()
for token in ("wrong", sys.argv[1]):
    try:
        urllib.request.urlopen(urllib.request.Request(url, data, {"Authorization": "Bearer " + token}))
        print("status ok")
    except OSError as e:
        print("status", e)
"""
    (quiet.folder / "post.py").write_text(post)
    text = probe(f'python3 {quiet.folder}/post.py "$TOKEN"').replace(
        "    steps:\n", "    env:\n      TOKEN: ${{ github.token }}\n    steps:\n"
    )
    result = runner(quiet).run(request(quiet, text))
    assert result.dispatches == (Dispatch("reconcile.yml", {"attempt": "1"}),)
    assert "status HTTP Error 401: Unauthorized\nstatus ok\n" in result.log.read_text()


def test_a_run_without_end_is_ended(quiet: World) -> None:
    result = runner(quiet, timeout_seconds=1.0).run(request(quiet, probe("exec sleep 1000")))
    assert (result.conclusion, result.seconds < 30) == ("timed_out", True)
    assert left_over(quiet.origin) == []


def test_jobs_that_do_not_start_are_skipped_and_so_is_the_run(quiet: World) -> None:
    text = probe("true").replace("    runs-on", "    if: github.repository == 'acme/fed'\n    runs-on")
    result = runner(quiet).run(request(quiet, text))
    assert (result.conclusion, dict(result.jobs)) == ("skipped", {"look": "skipped"})


def test_runs_have_numbers_of_their_own_and_keep_their_logs(quiet: World) -> None:
    asked = request(quiet, probe('echo "name=value" >>"$GITHUB_OUTPUT"', "echo bad >&2; exit 3"))
    results = [runner(quiet).run(asked) for _ in range(2)]
    assert [result.number for result in results] == [1, 2]
    assert {result.conclusion for result in results} == {"failure"}
    assert results[0].outputs == {"look": {"name": "value"}}
    assert sorted(p.name for p in (quiet.folder / "logs").iterdir()) == ["0001", "0002"]


def test_a_forge_over_http_is_asked_by_its_own_address(quiet: World) -> None:
    """For a federation on a GitHub that answers on this machine; here only what the steps are told."""
    server = Server("http://127.0.0.1:1", "http://127.0.0.1:1/api/v3", "t" * 40)
    result = runner(quiet, server=server).run(
        request(quiet, probe("env | grep -E '^(GITHUB_.*URL|FEDOPS_LOCAL_ORIGIN)='"))
    )
    text = result.log.read_text()
    assert "GITHUB_API_URL=http://127.0.0.1:1/api/v3\n" in text
    assert "FEDOPS_LOCAL_ORIGIN=http://127.0.0.1:1/none\n" in text
    assert result.dispatches == ()


# ---------------------------------------------------------------- the command line


def test_another_pin_on_main_stops_the_command_with_its_name(quiet: World) -> None:
    quiet.edit(".github/workflows/audit.yml", lambda text: text.replace(CHECKOUT, "actions/checkout@" + "b" * 40))
    said = quiet("lead", "local", "run", "schedule", "--workflow", "audit.yml", code=2)
    assert "no stand-in for actions/checkout@" + "b" * 40 in said.err
    assert "fedops upgrade" in said.err


def test_a_federation_on_github_is_not_run_here(quiet: World) -> None:
    quiet.edit("federation.yaml", lambda text: text.replace("{kind: git}", '{kind: github, repository: "acme/fed"}'))
    assert "forge.kind github" in in_process(quiet.origin, "local", "up", "--once").err


def test_another_version_than_the_pinned_one_is_told(quiet: World) -> None:
    quiet.edit("federation.yaml", lambda text: text.replace('fedops: "0.1.0"', 'fedops: "0.0.9"'))
    said = quiet("lead", "local", "up", "--once")
    assert (said.out, "pins fedops 0.0.9; the jobs run 0.1.0" in said.err) == ("nothing to run\n", True)


def test_the_origin_is_found_from_a_clone_from_itself_or_by_name(quiet: World, tmp_path: Path) -> None:
    for folder, more in ((quiet.clone("lead"), ()), (quiet.origin, ()), (tmp_path, ("--origin", str(quiet.origin)))):
        ran = in_process(folder, "local", "up", "--once", "--logs", str(tmp_path / "logs"), "--format", "json", *more)
        assert (ran.code, json.loads(ran.out)["runs"]) == (0, [])
    assert (tmp_path / "logs" / "seen.json").is_file()
    assert not (quiet.origin / "fedops-local").exists()
    assert (
        "no bare repository" in in_process(tmp_path, "local", "up", "--once", "--origin", str(quiet.clone("lead"))).err
    )
    assert "no federation.yaml here" in in_process(tmp_path, "local", "up", "--once").err
    git(quiet.clone("lead"), "remote", "set-url", "origin", "https://h.invalid/x.git")
    assert "no bare repository" in quiet("lead", "local", "up", "--once", code=2).err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pull_request"], "needs --pull"),
        (["push", "--pull", "1"], "has no --pull"),
        (["workflow_dispatch"], "needs one --workflow"),
        (["schedule", "--input", "a=b"], "has no --input"),
        (["workflow_dispatch", "--workflow", "audit.yml", "--input", "a"], "-> NAME=VALUE"),
        (["push", "--workflow", "x.yml"], "--workflow x.yml: no such file on main -> audit.yml, reconcile.yml"),
        (["pull_request", "--pull", "9"], "pulls/9: there is none"),
        (["issues"], "Invalid value"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], says: str, quiet: World) -> None:
    assert says in quiet("lead", "local", "run", *arguments, code=2).err


def test_without_act_the_command_says_how_to_get_it(quiet: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with environment(PATH="/nowhere"), pytest.raises(ConfigError, match="act: not found") as e:
        find_act("/nowhere")
    assert "fedops-git[local]" in e.value.hint
