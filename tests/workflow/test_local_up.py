"""`fedops local` runs the federation's own files, unedited: pull requests, reviews, pushes, schedule, dispatch."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedops.core.workflows import JOB_AUTHOR
from tests.cli_world import World, git
from tests.workflow.runs import left_over, rows

PULLS = [("validate.yml", f"pull_request #{n}", "success") for n in (1, 2)]
REPLACED, RECONCILED = ("reconcile.yml", "workflow_run", "replaced"), ("reconcile.yml", "workflow_run", "success")


def up(world: World, code: int = 0) -> list[tuple[str, str, str]]:
    return rows(world.json("lead", "local", "up", "--once", code=code))


def test_good_pull_requests_become_a_version_that_anybody_can_verify(world: World) -> None:
    """Two runs of validate and one of reconcile: about 5 s; the second look costs nothing."""
    before = {name: world.show(f".github/workflows/{name}.yml") for name in ("validate", "reconcile", "audit")}
    ran = world.json("lead", "local", "up", "--once")
    assert rows(ran) == [*PULLS, REPLACED, RECONCILED]
    assert ran["runs"][-1]["jobs"] == dict.fromkeys(
        ("inspect", "merge", "aggregate", "publish", "signal"), "success"
    ) | {"again": "skipped"}
    version = world.version()
    assert (version["version"], [c["site"] for c in version["contributions"]]) == (1, ["hospital-a", "hospital-b"])
    assert version["witness"]["run_url"] == f"http://fedops-local.invalid/none/actions/runs/{ran['runs'][-1]['number']}"
    assert git(world.origin, "log", "-1", "--format=%cn <%ce>", "main") == f"{JOB_AUTHOR[0]} <{JOB_AUTHOR[1]}>"
    assert "**Accepted" in world("lead", "review", "1").out
    assert world.json("ci", "verify", "--all")["ok"] is True
    assert "published v1" in Path(ran["runs"][-1]["log"]).read_text()
    # Nothing of it is in a clone or in the files that ran.
    assert {name: world.show(f".github/workflows/{name}.yml") for name in before} == before
    assert up(world) == []


def hostile_workflow(world: World, mark: Path) -> None:
    """hospital-a's pull request also changes the workflow that validates it."""
    clone = world.clone("hospital-a")
    world.git("hospital-a", "fetch", "-q", "origin", "refs/pull/1/head")
    world.git("hospital-a", "checkout", "-q", "--detach", "FETCH_HEAD")
    path = clone / ".github/workflows/validate.yml"
    path.write_text(path.read_text().replace("run: fedops ci inspect", f"run: touch {mark} && fedops ci inspect"))
    push(world, "hospital-a", 1)


def hostile_folder(world: World) -> None:
    """hospital-b's pull request changes the folder of hospital-a too."""
    clone = world.clone("hospital-b")
    world.git("hospital-b", "fetch", "-q", "origin", "refs/pull/2/head")
    world.git("hospital-b", "checkout", "-q", "--detach", "FETCH_HEAD")
    theirs = clone / "sites/hospital-a"
    theirs.mkdir(exist_ok=True)
    (theirs / "submission.json").write_text((clone / "sites/hospital-b/submission.json").read_text())
    world.git("hospital-b", "add", "sites")
    push(world, "hospital-b", 2)


def push(world: World, site: str, number: int) -> None:
    key = f"user.signingkey={world.clone(site)}/.fedops/id_ed25519"
    world.git(site, "config", "gpg.format", "ssh")
    world.git(site, "-c", key, "commit", "-q", "-S", "--amend", "-a", "--no-edit")
    head = world.git(site, "rev-parse", "HEAD")
    world.git(site, "push", "-q", "--force", "origin", f"{head}:refs/pull/{number}/head")


def test_hostile_pull_requests_fail_and_run_nothing_of_their_own(world: World, tmp_path: Path) -> None:
    """About 4 s: two validations that fail, and a reconcile that merges neither."""
    mark = tmp_path / "was-here"
    hostile_workflow(world, mark)
    hostile_folder(world)
    main = world.main()
    ran = world.json("lead", "local", "up", "--once", code=3)
    assert ran["ok"] is False
    failed = [("validate.yml", f"pull_request #{n}", "failure") for n in (1, 2)]
    assert rows(ran) == [*failed, REPLACED, RECONCILED]
    assert not mark.exists()
    assert world.main() == main
    for number in ("1", "2"):
        shown = world.json("lead", "review", number)
        assert (shown["state"], shown["verdict"].split(" and ")[0]) == ("open", "rejected: path_not_allowed")
    # A failed validation wakes reconcile too: it is the one that tells the site.
    assert "**Rejected**" in world("lead", "review", "1").out


def test_an_approval_wakes_reconcile_and_a_push_to_a_policy_does(world: World) -> None:
    """About 12 s: four runs of validate and three of reconcile."""
    world.edit("policies/aggregation.yaml", lambda text: text.replace("mode: auto", "mode: review"))
    assert up(world) == [*PULLS, REPLACED, RECONCILED]
    assert world.json("lead", "review", "1")["state"] == "open"
    for number in ("1", "2"):
        world("lead", "review", number, "--approve", "--key", str(world.folder / "lena"))
    reviewed = [("validate.yml", f"pull_request_review #{n}", "success") for n in (1, 2)]
    assert up(world) == [*reviewed, REPLACED, RECONCILED]
    assert world.version()["version"] == 1
    world.edit("policies/training.yaml", lambda text: text + "# looked at\n")
    assert up(world) == [("reconcile.yml", "push", "success")]


def test_schedule_and_dispatch_start_what_the_files_say(world: World) -> None:
    """About 6 s: audit, and reconcile by the schedule, which does what is missing without any event of a pull request."""
    ran = world.json("lead", "local", "run", "schedule", "--alone")
    assert sorted(rows(ran)) == [("audit.yml", "schedule", "success"), ("reconcile.yml", "schedule", "success")]
    assert world.version()["version"] == 1
    ran = world.json("lead", "local", "run", "workflow_dispatch", "--workflow", "audit.yml")
    assert rows(ran) == [("audit.yml", "workflow_dispatch", "success")]


def test_one_event_of_a_pull_request_can_be_run_by_hand(world: World) -> None:
    """About 2 s: three runs of validate."""
    ran = world.json("lead", "local", "run", "pull_request", "--pull", "1", "--alone")
    assert rows(ran) == PULLS[:1]
    assert rows(world.json("lead", "local", "run", "pull_request_review", "--pull", "2", "--alone")) == [
        ("validate.yml", "pull_request_review #2", "success")
    ]
    said = world("lead", "local", "run", "push", "--alone")
    # Main's last commit put a site on the roster.
    assert "reconcile.yml" in said.out
    assert said.err.startswith("run 3: reconcile.yml on push: ok, ")


@pytest.mark.skipif(sys.platform == "win32", reason="another system: no SIGINT between processes there")
def test_ctrl_c_ends_it_and_leaves_nothing_running(world: World) -> None:
    """About 2 s: one run of validate, ended in the middle."""
    command = [sys.executable, "-m", "fedops.cli.main", "local", "up", "--poll", "0.1"]
    with subprocess.Popen(
        command, cwd=world.clone("lead"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("run 1: validate.yml on pull_request #1: ok")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert left_over(world.folder) == []
    # The next start does what was begun; the pull requests are looked at again.
    assert up(world)[-1] == RECONCILED
    assert world.version()["version"] == 1
