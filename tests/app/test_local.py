"""What `fedops local` does around a run: events, concurrency groups, what an end starts; with a runner that runs nothing."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_repo import GitRepository
from fedops.app import local as local_module
from fedops.app.local import Driver, Ran, catch_up
from fedops.app.local_events import Place, Seen, events_since, look, push_event, workflows_of
from fedops.app.local_state import read_seen, write_seen
from fedops.core.errors import ConfigError, GitError
from fedops.core.ids import CommitId
from fedops.core.workflows import JOB_AUTHOR, Event
from fedops.ports import Dispatch, WorkflowRequest, WorkflowResult
from tests.cli_world import World, begun, environment, fresh, git
from tests.forge_worlds import ManualClock

START = dt.datetime(2026, 3, 2, 10, 0, tzinfo=dt.UTC)


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two open pull requests; nothing merged yet."""
    return fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")


@pytest.fixture
def place(world: World, tmp_path: Path) -> Iterator[Place]:
    with GitRepository.clone(str(world.origin), tmp_path / "watcher") as repository:
        clock = ManualClock(START)
        yield Place(repository, GitForge(repository, clock=clock), clock, "none", "main")


def events(place: Place, before: Seen | None) -> tuple[list[Event], Seen]:
    seen, pulls = look(place)
    return list(events_since(place, before, seen, pulls, workflows_of(place.repository, seen.main))), seen


def named(found: list[Event]) -> list[tuple[str, str]]:
    return [(event.label, event.action) for event in found]


def test_the_first_look_takes_open_pull_requests_for_new_and_main_for_old(place: Place, world: World) -> None:
    found, seen = events(place, None)
    assert named(found) == [("pull_request #1", "opened"), ("pull_request #2", "opened")]
    one = found[0]
    head = git(world.origin, "rev-parse", "refs/pull/1/head")
    assert (one.ref, one.sha) == ("refs/pull/1/merge", world.main())
    assert one.paths == ("sites/hospital-a/submission.json", "sites/hospital-a/update.safetensors.dvc")
    assert one.payload["pull_request"]["head"] == {
        "ref": "submit/hospital-a",
        "sha": head,
        "repo": {"full_name": "none"},
    }
    assert one.payload["pull_request"]["user"] == {"login": "hospital-a-login", "id": 1002}
    assert json.loads(json.dumps(one.payload)) == one.payload
    assert events(place, seen)[0] == []


def test_a_push_and_a_review_are_told_once_each(place: Place, world: World) -> None:
    _, seen = events(place, None)
    world.edit("README.md", lambda text: text + "\n")
    world("lead", "review", "2", "--approve", "--key", str(world.folder / "lena"))
    found, now = events(place, seen)
    assert named(found) == [("push", ""), ("pull_request_review #2", "submitted")]
    assert found[0].paths == ("README.md",)
    assert found[0].payload["before"] == seen.main
    assert events(place, now)[0] == []


def test_a_moved_head_is_a_change_of_the_pull_request(place: Place, world: World) -> None:
    _, seen = events(place, None)
    moved = replace(seen, pulls={**seen.pulls, 1: CommitId(world.main())})
    assert named(events(place, moved)[0]) == [("pull_request #1", "synchronize")]


def bot_commits(world: World) -> None:
    """CI merges and publishes, as a job does."""
    nobody = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"))
    with environment(GITHUB_ACTIONS="true", **nobody):
        world("ci", "ci", "reconcile")


def test_pushes_of_a_job_start_nothing_but_a_persons_between_them_does(place: Place, world: World) -> None:
    _, seen = events(place, None)
    bot_commits(world)
    assert world.version()["version"] == 1
    found, after = events(place, seen)
    assert named(found) == []
    world.edit("policies/aggregation.yaml", lambda text: text + "# a person\n")
    world("clinic-c", "submit")
    bot_commits(world)
    assert git(world.origin, "log", "-1", "--format=%cn", "main") == JOB_AUTHOR[0]
    found, _ = events(place, after)
    assert [event.name for event in found] == ["push"]
    assert "policies/aggregation.yaml" in found[0].paths


def test_a_main_that_was_moved_by_force_is_all_new(place: Place, world: World) -> None:
    world.edit("README.md", lambda text: text + "\n")
    _, seen = events(place, None)
    git(world.origin, "update-ref", "refs/heads/main", "main~1")
    found, _ = events(place, seen)
    assert "federation.yaml" in found[0].paths
    assert found[0].name == "push"


def test_other_faults_of_git_are_no_force_push(place: Place, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _, seen = events(place, None)

    def broken(*_: Any) -> Any:
        raise GitError("broken", slug="object_corrupt")

    world.edit("README.md", lambda text: text + "\n")
    monkeypatch.setattr(place.repository, "commits", broken)
    with pytest.raises(GitError, match="broken"):
        events(place, seen)


def test_lines_of_the_schedule_are_due_by_the_clock(place: Place) -> None:
    _, seen = events(place, None)
    clock = place.clock
    assert isinstance(clock, ManualClock)
    clock.sleep(600)
    assert events(place, seen)[0] == []
    clock.sleep(60)
    found, seen = events(place, seen)
    [event] = found
    assert (event.name, event.cron, event.payload["schedule"]) == ("schedule", "11,41 * * * *", "11,41 * * * *")
    assert events(place, seen)[0] == []


def test_an_origin_without_main_is_told(tmp_path: Path) -> None:
    GitRepository.init(tmp_path / "empty.git", bare=True).close()
    with GitRepository.clone(str(tmp_path / "empty.git"), tmp_path / "clone") as repository:
        clock = ManualClock(START)
        with pytest.raises(ConfigError, match="no such branch on origin"):
            look(Place(repository, GitForge(repository, clock=clock), clock, "none", "main"))


def test_only_plain_files_of_the_folder_itself_are_workflows(place: Place, world: World) -> None:
    folder = world.clone("lead") / ".github" / "workflows"
    world.git("lead", "pull", "-q", "--rebase")
    (folder / "below").mkdir()
    (folder / "below" / "x.yml").write_text("x")
    (folder / "notes.md").write_text("x")
    (folder / "link.yml").symlink_to("audit.yml")
    world.git("lead", "add", ".github")
    world.git("lead", "commit", "-q", "-m", "more")
    world.git("lead", "push", "-q", "origin", "main")
    seen, _ = look(place)
    assert [w.file for w in workflows_of(place.repository, seen.main)] == ["audit.yml", "reconcile.yml", "validate.yml"]


# ---------------------------------------------------------------- runs


@dataclass
class Script:
    """A runner that notes what it is asked to run, and ends as told."""

    folder: Path
    dispatches: Mapping[int, tuple[Dispatch, ...]] = field(default_factory=dict)
    during: Callable[[int], None] = lambda number: None
    asked: list[WorkflowRequest] = field(default_factory=list)

    def run(self, request: WorkflowRequest) -> WorkflowResult:
        self.asked.append(request)
        number = len(self.asked)
        self.during(number)
        jobs = dict.fromkeys(request.workflow.jobs, "success")
        return WorkflowResult(number, "success", jobs, {}, 1.0, self.folder / "log", self.dispatches.get(number, ()))

    @property
    def files(self) -> list[str]:
        return [request.workflow.file.removesuffix(".yml") for request in self.asked]


@dataclass
class Groups:
    held: list[str] = field(default_factory=list)

    @contextmanager
    def __call__(self, group: str) -> Iterator[None]:
        self.held.append(group)
        yield


def driver(place: Place, runner: Script, **more: Any) -> tuple[Driver, list[Ran]]:
    told: list[Ran] = []
    return Driver(place, runner, Groups(), told.append, **more), told


def test_a_pull_request_is_validated_and_then_reconciled_once(place: Place, tmp_path: Path) -> None:
    runner = Script(tmp_path)
    one, told = driver(place, runner)
    kept: list[Seen] = []
    table, seen = catch_up(one, None, kept.append)
    assert runner.files == ["validate", "validate", "reconcile"]
    assert [(ran.workflow.file, ran.conclusion) for ran in table] == [
        ("validate.yml", "success"), ("validate.yml", "success"), ("reconcile.yml", "replaced"), ("reconcile.yml", "success")
    ]  # fmt: skip
    assert told == table
    assert kept[-1] == seen
    assert [request.event.name for request in runner.asked] == ["pull_request", "pull_request", "workflow_run"]
    run = runner.asked[-1].event.payload["workflow_run"]
    assert (run["name"], run["conclusion"], run["event"]) == ("validate", "success", "pull_request")
    assert isinstance(one.locked, Groups)
    assert one.locked.held == ["fedops-validate-1", "fedops-validate-2", "fedops-reconcile"]
    assert catch_up(one, seen, kept.append)[0] == []


def test_what_comes_while_it_runs_is_run_too(place: Place, world: World, tmp_path: Path) -> None:
    def person_pushes(number: int) -> None:
        if number == 3:
            world.edit("policies/aggregation.yaml", lambda text: text + "# new\n")

    runner = Script(tmp_path, during=person_pushes)
    catch_up(driver(place, runner)[0], None, lambda seen: None)
    assert runner.files == ["validate", "validate", "reconcile", "reconcile"]
    assert runner.asked[-1].event.name == "push"
    # The second one runs the file of the new main.
    assert runner.asked[-1].commit == world.main() != runner.asked[0].commit


def test_a_push_elsewhere_starts_nothing(place: Place, world: World, tmp_path: Path) -> None:
    _, seen = events(place, None)
    world.edit("README.md", lambda text: text + "\n")
    runner = Script(tmp_path)
    assert catch_up(driver(place, runner)[0], seen, lambda seen: None)[0] == []


def test_a_job_that_asks_for_a_workflow_gets_it(place: Place, tmp_path: Path) -> None:
    asked = (Dispatch("reconcile.yml", {"attempt": "1"}), Dispatch("nothing.yml", {}))
    runner = Script(tmp_path, {1: asked})
    one, _ = driver(place, runner)
    seen, _ = look(place)
    one.drain([push_event(place, seen.main, seen.main, ("policies/x",))])
    assert runner.files == ["reconcile", "reconcile"]
    again = runner.asked[1].event
    assert (again.name, again.payload["inputs"]) == ("workflow_dispatch", {"attempt": "1"})


def test_alone_and_only_leave_the_rest(place: Place, tmp_path: Path) -> None:
    found, _ = events(place, None)
    runner = Script(tmp_path, {1: (Dispatch("reconcile.yml", {}),)})
    driver(place, runner, follow=False)[0].drain(found)
    assert runner.files == ["validate", "validate"]
    runner = Script(tmp_path)
    driver(place, runner, only=["reconcile.yml"])[0].drain(found)
    assert runner.files == []


def test_workflows_that_start_each_other_for_ever_are_stopped(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module, "MAX_RUNS", 5)
    runner = Script(tmp_path, {n: (Dispatch("reconcile.yml", {}),) for n in range(1, 9)})
    seen, _ = look(place)
    with pytest.raises(ConfigError, match="workflows start each other"):
        driver(place, runner)[0].drain([push_event(place, seen.main, seen.main, ("policies/x",))])
    assert len(runner.asked) == 5


# ---------------------------------------------------------------- state


def test_what_was_seen_is_kept(place: Place, tmp_path: Path) -> None:
    seen, _ = look(place)
    path = tmp_path / "seen.json"
    assert read_seen(path) is None
    write_seen(path, seen)
    assert read_seen(path) == seen
    write_seen(path, replace(seen, pulls={}, reviews={}))
    again = read_seen(path)
    assert again is not None
    assert again.pulls == {}


@pytest.mark.parametrize("text", ["", "{", '{"schema": "fedops.local-seen/v1"}'])
def test_a_damaged_state_is_named_with_the_way_out(text: str, tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as e:
        read_seen(path)
    assert f"rm {path}" in e.value.hint
