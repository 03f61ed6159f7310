"""Level 2 on GitHub from a lead's side: what main takes by no push comes by a pull request, with the jobs' real rights."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fedops.adapters.forge_github import GitHubForge
from fedops.adapters.git_repo import GitRepository
from fedops.cli.wire import SystemClock
from fedops.core.facts import MergeOutcome
from fedops.core.github_hosts import host_of
from fedops.core.ids import CommitId
from tests.cli_world import git
from tests.github_face.cli_world import GitHubWorld, github_cli
from tests.github_face.hub import NAME, OWNER
from tests.github_face.level2 import VERDICT, level_2

GREEN = ("success", "no submission: a lead's change, for people to review")
LEO = "\nleads:\n- {login: leo, id: 2}\n"
ADD = ("site", "add", "bank-d", "--login", "dora", "--id", "1004")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubWorld]:
    """At level 2, with a second lead, leo, who may approve and merge."""
    with github_cli(tmp_path / "world", monkeypatch, review=True) as made:
        made.hub.add_user("leo", 2, made.token("leo"))
        made.hub.upstream.writers.add("leo")
        made.edit("policies/sites.yaml", lambda text: text.replace("\nleads:\n", LEO, 1))
        made.new_clone("leo")
        level_2(made.server, None).require_pull_request()
        yield made


def status(world: GitHubWorld, number: int) -> tuple[str, str] | None:
    """What the pull request's head is told last."""
    pull = world.hub.pull(number)
    assert pull is not None
    said = [(s.state, s.description) for s in world.hub.statuses if (s.sha, s.context) == (pull.head, VERDICT)]
    return said[-1] if said else None


@contextmanager
def forge_of(world: GitHubWorld, who: str) -> Iterator[GitHubForge]:
    """The forge with somebody's token."""
    with GitRepository(world.clone(who)) as clone:
        forge = GitHubForge(
            clone,
            host=host_of(world.server.api),
            name=f"{OWNER}/{NAME}",
            token=world.token(who),
            clock=SystemClock(),
            pace=(0, 0),
        )
        with closing(forge):
            yield forge


def merge(world: GitHubWorld, number: int) -> MergeOutcome:
    """leo presses the button."""
    pull = world.hub.pull(number)
    assert pull is not None
    with world.as_("leo"), forge_of(world, "leo") as forge:
        return forge.merge(number, CommitId(pull.head), "Merge")


def test_a_site_is_added_by_a_pull_request_that_the_jobs_make_green_and_leads_merge(world: GitHubWorld) -> None:
    before = world.main()
    refused = world("lead", *ADD, code=2).err
    assert "main: is protected against pushes" in refused
    [hint] = [line.removeprefix("  hint: ") for line in refused.splitlines() if line.startswith("  hint: ")]
    assert (world.main(), shlex.split(hint)) == (before, ["fedops", *ADD, "--pull-request"])
    opened = world.json("lead", *shlex.split(hint)[1:])
    number = opened["pull"]
    pull = world.hub.pull(number)
    assert pull is not None
    assert (pull.head, pull.ref, pull.title) == (opened["commit"], "lead/add-bank-d", "policy: add site bank-d")
    assert world.json("lead", *ADD, "--pull-request")["changed"] is False

    assert world.validate(number)["ok"] is True
    world.approve(number, who="leo")
    world.jobs()
    assert status(world, number) == GREEN
    count = len(world.hub.statuses)
    world.jobs()
    assert (len(world.hub.statuses), world.main()) == (count, before), "once, and nothing merges it but people"
    assert merge(world, number) == "merged"
    assert "bank-d:" in world.show("policies/sites.yaml")
    assert world("lead", *ADD).out == "bank-d: active, nothing to do\n"
    assert world.hub.refused == [], "each job's rights suffice"


def test_new_content_needs_a_new_status_and_a_new_approval(world: GitHubWorld) -> None:
    number = world.json("lead", "site", "suspend", "clinic-c", "--pull-request")["pull"]
    world.approve(number, who="leo")
    world.jobs()
    assert status(world, number) == GREEN
    # Somebody who may write pushes more to the branch: a file that CI alone may bring.
    git_of_leo = world.clone("leo")
    world.git("leo", "fetch", "--quiet", "origin", "lead/suspend-clinic-c")
    world.git("leo", "checkout", "--quiet", "FETCH_HEAD")
    (git_of_leo / "global" / "metrics.json").write_text('{"loss": 0.0}\n')
    git(git_of_leo, "commit", "--quiet", "--all", "-m", "more")
    world.git("leo", "push", "--quiet", "origin", "HEAD:refs/heads/lead/suspend-clinic-c")
    world.jobs()
    assert status(world, number) is None
    again = world.json("lead", "site", "suspend", "clinic-c", "--pull-request")
    assert (again["pull"], again["changed"]) == (number, True)
    world.jobs()
    assert status(world, number) == GREEN


def test_who_is_no_lead_opens_none(world: GitHubWorld) -> None:
    count = len(world.hub.items)
    said = world("hospital-a", *ADD, "--pull-request", code=2).err
    assert "hospital-a-login is no lead of policies/sites.yaml" in said
    assert len(world.hub.items) == count


def test_a_lead_does_not_change_what_another_one_opened(world: GitHubWorld) -> None:
    """Whoever did could approve it: the pull request stays the other one's."""
    number = world.json("lead", *ADD, "--pull-request")["pull"]
    before = world.hub.pull(number)
    other = ("site", "add", "bank-d", "--login", "evil", "--id", "6666", "--pull-request")
    with world.as_("leo"):
        said = world("leo", *other, code=2).err
    assert f"#{number} of lena proposes something else from lead/add-bank-d" in said
    assert before is not None
    assert world.hub.pull(number) == before


def test_a_branch_that_is_somebody_elses_is_named_and_left(world: GitHubWorld) -> None:
    world.hub.upstream.writers.add("hospital-a-login")
    world.git("hospital-a", "fetch", "--quiet", "origin", "main")
    world.git("hospital-a", "checkout", "--quiet", "--detach", "FETCH_HEAD")
    (world.clone("hospital-a") / "README.md").write_text("mine\n")
    world.git("hospital-a", "commit", "--quiet", "--all", "-m", "mine")
    head = CommitId(world.git("hospital-a", "rev-parse", "HEAD"))
    with world.as_("hospital-a"), forge_of(world, "hospital-a") as forge:
        number = forge.submit_pull(head, "lead/add-bank-d", "mine", "").number
    said = world("lead", *ADD, "--pull-request", code=2).err
    assert f"#{number} of hospital-a-login proposes something else" in said
    pull = world.hub.pull(number)
    assert pull is not None
    assert pull.head == head
