"""`fedops ci again`, and what `merge` and `publish` say is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedops.adapters.act_api import local_api
from fedops.ports import Dispatch
from tests.cli_world import World, begun, environment, found, fresh, git

TOKEN = "t" * 40


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return fresh(found, tmp_path_factory.getbasetemp(), tmp_path / "world")


@pytest.fixture
def busy(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "busy")


@pytest.mark.parametrize(
    ("attempt", "sent"), [("", "1"), ("0", "1"), ("1", "2"), ("2", "3"), ("3", None), ("99999", None)]
)
def test_three_runs_in_a_row_start_the_next_and_then_the_schedule_goes_on(
    attempt: str, sent: str | None, world: World
) -> None:
    with (
        local_api("none", TOKEN) as api,
        environment(GITHUB_API_URL=api.url, GITHUB_REPOSITORY="none", GITHUB_TOKEN=TOKEN),
    ):
        done = world.json("lead", "ci", "again", "--attempt", attempt)
        assert api.taken == ([Dispatch("reconcile.yml", {"attempt": sent})] if sent else [])
    assert (done["started"], done["changed"]) == (sent is not None, sent is not None)


@pytest.mark.parametrize("attempt", ["x", "-1", "1.5", "123456", "१"])
def test_an_attempt_that_is_no_number_is_a_usage_error(attempt: str, world: World) -> None:
    assert "-> a number" in world("lead", "ci", "again", "--attempt", attempt, code=2).err


@pytest.mark.parametrize("missing", ["GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_TOKEN"])
def test_outside_of_a_job_it_says_what_to_run(missing: str, world: World) -> None:
    given = {"GITHUB_API_URL": "http://127.0.0.1:1", "GITHUB_REPOSITORY": "none", "GITHUB_TOKEN": TOKEN}
    with environment(**{**given, missing: None}):
        said = world("lead", "ci", "again", code=2)
    assert f"{missing}: not set" in said.err
    assert "fedops ci reconcile" in said.err


def test_a_forge_that_does_not_answer_is_temporary_and_no_token_is_told(world: World) -> None:
    with environment(GITHUB_API_URL="http://127.0.0.1:1", GITHUB_REPOSITORY="none", GITHUB_TOKEN=TOKEN):
        said = world("lead", "ci", "again", code=5)
    assert TOKEN not in said.err


# ---------------------------------------------------------------- what is left


def outputs(world: World, *arguments: str) -> dict[str, str]:
    file = world.folder / "outputs"
    file.unlink(missing_ok=True)
    world("ci", "ci", *arguments, "--github-output", str(file))
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_a_pull_request_that_nobody_judged_is_left_for_the_next_run(busy: World) -> None:
    verdicts = outputs(busy, "inspect")["verdicts"]
    busy("clinic-c", "submit")
    assert outputs(busy, "merge", "--verdicts", verdicts)["left"] == "true"
    assert "something is left" in busy("ci", "ci", "merge", "--verdicts", verdicts).out
    verdicts = outputs(busy, "inspect")["verdicts"]
    assert outputs(busy, "merge", "--verdicts", verdicts)["left"] == "false"


def test_a_policy_that_changed_after_the_look_leaves_everything(busy: World) -> None:
    verdicts = outputs(busy, "inspect")["verdicts"]
    busy.edit("policies/submission.yaml", lambda text: text + "\n# looked at\n")
    assert outputs(busy, "merge", "--verdicts", verdicts)["left"] == "true"


def proposed(world: World) -> tuple[str, ...]:
    """Merge and aggregate; the options of the publish job."""
    done = outputs(world, "merge", "--verdicts", outputs(world, "inspect")["verdicts"])
    pinned = ("--input-commit", done["input_commit"], "--decided-at", done["decided_at"])
    return (*pinned, "--proposal", outputs(world, "aggregate", *pinned)["proposal"])


def test_a_policy_that_changed_under_the_jobs_starts_the_next_run(busy: World) -> None:
    options = proposed(busy)
    busy.edit("policies/aggregation.yaml", lambda text: text.replace("quorum: 2", "quorum: 1"))
    assert outputs(busy, "publish", *options)["again"] == "true"
    assert busy.version()["version"] == 0


def test_what_was_merged_while_the_jobs_were_busy_starts_the_next_run_if_it_makes_a_version(busy: World) -> None:
    busy.edit("policies/aggregation.yaml", lambda text: text.replace("quorum: 2", "quorum: 1"))
    options = proposed(busy)
    busy("clinic-c", "submit")
    outputs(busy, "merge", "--verdicts", outputs(busy, "inspect")["verdicts"])
    assert outputs(busy, "publish", *options)["again"] == "true"
    assert busy.version()["version"] == 1
    said = busy("ci", "ci", "publish", *proposed(busy))
    assert said.out == "published v2\n"
    assert [c["site"] for c in busy.version()["contributions"]] == ["clinic-c"]


def test_what_does_not_make_a_version_starts_nothing(busy: World) -> None:
    options = proposed(busy)
    busy("clinic-c", "submit")
    outputs(busy, "merge", "--verdicts", outputs(busy, "inspect")["verdicts"])
    assert outputs(busy, "publish", *options)["again"] == "false"


def test_a_job_writes_commits_as_the_forges_bot(busy: World) -> None:
    nobody = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"))
    with environment(GITHUB_ACTIONS="true", **nobody):
        busy("ci", "ci", "reconcile")
    bot = "github-actions[bot] <41898282+github-actions[bot]@users.noreply.github.com>"
    assert git(busy.origin, "log", "-1", "--format=%cn <%ce>|%an <%ae>", "main") == f"{bot}|{bot}"


# ---------------------------------------------------------------- which commit is judged


def test_inspect_judges_the_commit_that_it_is_told_or_none(busy: World) -> None:
    head = git(busy.origin, "rev-parse", "refs/pull/1/head")
    assert busy("ci", "ci", "inspect", "--pull", "1", "--head", head).out.startswith("#1  ")
    said = busy("ci", "ci", "inspect", "--pull", "1", "--head", "0" * 40, code=5)
    assert f"its head is {head[:12]} -> 000000000000" in said.err
    assert busy.json("ci", "ci", "inspect", "--pull", "1", "--head", "0" * 40, code=5)["error"]["slug"] == "head_moved"
    assert "--head needs --pull" in busy("ci", "ci", "inspect", "--head", head, code=2).err
