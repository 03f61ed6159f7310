"""The jobs of the workflows on a GitHub that gives each job's token what its file states, and refuses it all else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from fedops.app import version_push
from fedops.core.ids import is_version_branch
from tests.cli_world import SITES
from tests.github_face.cli_world import GitHubWorld, github_cli, pin
from tests.github_face.hub import Fault, PullItem

C, A, B = SITES
KILLED = 130
RULES = "policies/aggregation.yaml"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubWorld]:
    with github_cli(tmp_path / "world", monkeypatch) as made:
        yield made
        assert made.hub.refused == [], "each job's rights suffice"


def pages(world: GitHubWorld) -> list[str]:
    return [release.tag for release in world.hub.releases]


def test_every_version_has_its_page_also_after_a_kill(world: GitHubWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.jobs()
    assert pages(world) == ["global@v0.0.0"], "what the lead's init could not make"

    def kill(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in world.hand_in(A, B):
        assert world.validate(number)["ok"] is True
    merged = world.job("merge", "--verdicts", world.verdicts())
    proposed = world.job("aggregate", *pin(merged))
    with monkeypatch.context() as patched:
        patched.setattr(version_push, "announce", kill)
        world.job("publish", *pin(merged), "--proposal", proposed["proposal"], code=KILLED)
    assert (world.version()["version"], pages(world)) == (1, ["global@v0.0.0"]), "killed after its push"
    world.job("signal", "--skipped", "")
    assert pages(world) == ["global@v0.0.0"], "the job that signals may not make it"
    assert world.job("merge", "--verdicts", world.verdicts())["changed"] is True
    assert pages(world) == ["global@v0.0.0", "global@v1.0.0"]

    del world.hub.releases[-1]
    world.hub.faults.append(Fault("POST", "/releases$", 422, message="Validation Failed"))
    assert world.jobs()["changed"] is False, "a page that cannot be made stops nothing"
    assert not world.hub.faults[-1].times
    world.jobs()
    assert pages(world) == ["global@v0.0.0", "global@v1.0.0"], "a page that somebody deleted is made again"
    assert world.job("audit", file="audit.yml")["ok"] is True


def test_a_quiet_run_writes_nothing_and_is_refused_nothing(world: GitHubWorld) -> None:
    world.hand_in(A, B)
    world.edit("policies/submission.yaml", lambda text: text.replace("max: 10000000", "max: 1"))  # now both are refused
    world.jobs()
    before, asked = world.hub.snapshot(), len(world.hub.exchanges)
    world.jobs()
    assert world.hub.snapshot() == before
    exchanges = world.hub.exchanges[asked:]
    assert {e.method for e in exchanges} == {"GET"}
    assert [(e.path, e.status) for e in exchanges if e.status != 200] == []


def test_a_version_by_review_is_made_rejected_and_proposed_by_jobs(world: GitHubWorld) -> None:
    world.edit("policies/aggregation.yaml", lambda text: text.replace("mode: push", "mode: review"))
    world.hand_in(A, B)
    world.jobs()
    [first] = [p.number for p in world.hub.pulls() if is_version_branch(p.ref)]
    world("lead", "review", str(first), "--reject", "--reason", "not this one")
    world.jobs()
    assert (world.version()["version"], world.hub.items[first].state) == (0, "closed")
    world.hand_in(C)
    world.jobs()
    [second] = [p.number for p in world.hub.pulls() if is_version_branch(p.ref) and p.state == "open"]
    world.approve(second)
    world.jobs()
    assert (world.version()["version"], len(world.version()["contributions"])) == (1, 3)
    assert pages(world) == ["global@v0.0.0", "global@v1.0.0"]


def test_what_comes_too_late_for_a_run_starts_the_next(world: GitHubWorld) -> None:
    world.hand_in(A)
    verdicts = world.verdicts()
    world.hand_in(B)
    assert world.job("merge", "--verdicts", verdicts)["left"] == "true"
    world.job("again", "--attempt", "1")
    assert world.hub.dispatches == [("reconcile.yml", {"attempt": "2"})]
    assert world.jobs()["due"] == "true"


def proposed_by_lena(world: GitHubWorld, branch: str, change: Callable[[str], str]) -> PullItem:
    """A pull request of the lead that edits the rules, from a branch of the repository."""
    path = world.clone("lead") / RULES
    world.git("lead", "switch", "--quiet", "--create", branch)
    path.write_text(change(path.read_text()))
    world.git("lead", "commit", "--quiet", "--all", "-m", branch)
    world.git("lead", "push", "--quiet", "origin", branch)
    hub, now = world.hub, world.hub.now()
    pull = PullItem(
        hub.next_number(), hub.users["token-of-lena"], branch, "", now, now, source=hub.upstream, ref=branch
    )
    hub.take_head(pull, world.git("lead", "rev-parse", "HEAD"))
    hub.items[pull.number] = pull
    world.git("lead", "switch", "--quiet", "main")
    return pull


def test_a_main_that_cannot_be_used_is_mended_by_a_pull_request(world: GitHubWorld) -> None:
    world.jobs()
    [theirs] = world.hand_in(A)
    world.edit(RULES, lambda text: text + "triger: {}\n")
    main = world.main()
    assert "triger" in world.job("inspect", code=2)["error"]["message"], "nothing to judge"
    mending = proposed_by_lena(world, "mend", lambda text: text.replace("triger: {}\n", "# mended\n"))
    worse = proposed_by_lena(world, "worse", lambda text: text + "more: {}\n")
    assert world.validate(mending.number)["ok"] is True
    [found] = world.job(
        "validate", "--pull", str(worse.number), "--head", worse.head, file="validate.yml", command="inspect", code=3
    )["findings"]
    assert (found["slug"], found["where"]) == ("policy_invalid", RULES)
    world.job("validate", "--pull", str(theirs), file="validate.yml", command="inspect", code=2)

    verdicts = world.verdicts()
    assert {v["pull"] for v in json.loads(verdicts)["verdicts"]} == {mending.number, worse.number}
    failed = world.job("merge", "--verdicts", verdicts, code=2)
    assert "triger" in failed["error"]["message"]
    said = {s.sha: (s.state, s.description) for s in world.hub.statuses}
    assert said[mending.head] == ("success", "no submission: a lead's change, for people to review")
    line = len(world.show(RULES).splitlines())
    assert said[worse.head][0] == "failure"
    assert said[worse.head][1].startswith(f"{RULES}:{line}: triger: unknown key")
    assert said.keys() == {mending.head, worse.head}
    assert (world.main(), world.version()["version"]) == (main, 0)

    before = world.hub.snapshot()
    world.job("merge", "--verdicts", verdicts, code=2)
    assert world.hub.snapshot() == before, "said once"
    world.git("lead", "push", "--quiet", "origin", f"{mending.head}:main")
    world.jobs()
    pull = world.hub.pull(theirs)
    assert pull is not None
    assert pull.merged_at is not None
