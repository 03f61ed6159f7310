"""`fedops rollback`, versions by review and the jobs of CI, on the command line alone; here the one lead judges alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli_world import Ran, World, begun, fresh
from tests.scenario.test_ci_jobs import Jobs


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """At v0, with two open pull requests of a quorum of two."""
    return fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")


def lead(world: World, *arguments: str) -> Ran:
    return world("lead", *arguments, "--key", str(world.folder / "lena"))


def by_review(world: World) -> None:
    world.edit("policies/aggregation.yaml", lambda text: text.replace("mode: push", "mode: review"))


def pull_of(world: World, kind: str = "fedops") -> int:
    """Number of the open pull request that brings a version."""
    facts = world.json("ci", "ci", "reconcile")["decision"]
    assert facts["wait"] == "review"
    number: int = facts["pull"]
    return number


@pytest.mark.long
def test_a_rollback_from_the_command_to_the_version(world: World) -> None:
    world("ci", "ci", "reconcile")
    first = world.version()
    world.hand_in("hospital-a", "hospital-b")
    world("ci", "ci", "reconcile")
    dry = lead(world, "rollback", "v1", "--dry-run")
    assert dry.out == "v3 with the model of v1 (dry run: nothing was written)\n"
    opened = lead(world, "rollback", "v1", "--reason", "it forgets", "--format", "json").json
    number = opened["pull"]
    assert opened == {
        "schema": "fedops.rollback/v1",
        "ok": True,
        "changed": True,
        "findings": [],
        "outcome": "opened",
        "version": 3,
        "pull": number,
        "source": 1,
    }
    before = world.snapshot()
    again = world("lead", "rollback", "v1")
    assert again.out == f"#{number}: is open already, waits for 1 more approval(s)\n"
    assert world.snapshot() == before
    waiting = world("ci", "ci", "reconcile").out
    assert f"waits: a version is under review, #{number}" in waiting
    assert f"pull request #{number}" in world("hospital-a", "status").out
    shown = world("lead", "review", str(number)).out
    assert "Under review" in shown
    lead(world, "review", str(number), "--approve")
    done = world("ci", "ci", "reconcile").out
    assert "published v3: the model of v1 again\n" in done
    now = world.version()
    assert (now["kind"], now["source"], now["model"]) == ("rollback", {"version": 1}, first["model"])
    assert world("lead", "rollback", "v1").out == "v3 has the model of v1: nothing to do\n"
    assert "v3 (rollback to v1)" in world("lead", "log").out
    told = world("lead", "show", "v3").out
    assert "no contributions: the model is that of v1" in told
    assert "decided   rollback at" in told
    assert world("lead", "verify", "--all").code == 0
    assert world("ci", "ci", "audit").code == 0
    world("hospital-a", "pull")
    before = world.snapshot()
    assert world.json("ci", "ci", "reconcile")["changed"] is False
    assert world.snapshot() == before


def test_a_lead_without_a_key_is_told_to_name_one(world: World) -> None:
    world("ci", "ci", "reconcile")
    before = world.snapshot()
    for options in ((), ("--dry-run",)):
        refused = world("lead", "rollback", "v0", *options, code=2)
        assert refused.out == ""
        assert "rollback to v0: no key signs it" in refused.err
        assert "-> a lead's key" in refused.err
        assert "hint: fedops rollback v0 --key FILE" in refused.err
    assert world.snapshot() == before
    assert world.json("lead", "rollback", "v0", "--key", "../lena")["outcome"] == "opened"
    assert world.json("lead", "rollback", "v0")["outcome"] == "open", "what is there needs no key to be found"


def test_who_does_not_lead_is_refused_with_what_to_do(world: World) -> None:
    world("ci", "ci", "reconcile")
    refused = world("hospital-a", "rollback", "v0", code=3)
    assert refused.out == ""
    assert "only a lead may propose this version" in refused.err
    assert "[FO-414]" in refused.err
    assert world.json("hospital-a", "rollback", "v0", code=3)["findings"][0]["slug"] == "lead_required"
    assert "no such version" in world("lead", "rollback", "v7", code=2).err
    assert "is not a version" in world("lead", "rollback", "7", code=2).err


@pytest.mark.long
def test_the_jobs_bring_a_version_through_review(world: World) -> None:
    by_review(world)
    jobs = Jobs(world)
    jobs.all()
    assert world.version()["version"] == 0
    number = opened_by(jobs)
    jobs.all()
    assert jobs.outputs["due"] == "false"
    assert "waits for 1 more approval" in world("lead", "review", str(number)).out
    lead(world, "review", str(number), "--approve")
    jobs.all()
    assert jobs.outputs["proposal"].startswith("record:sha256:")
    assert world.version()["version"] == 1
    assert world("lead", "verify", "--all").code == 0
    before = world.snapshot()
    jobs.all()
    assert world.snapshot() == before
    assert world.json("ci", "ci", "reconcile")["changed"] is False


def opened_by(jobs: Jobs) -> int:
    facts = jobs.world.json("ci", "ci", "reconcile")["decision"]
    number: int = facts["pull"]
    return number


@pytest.mark.long
def test_the_jobs_tag_a_version_that_a_person_merged(world: World) -> None:
    by_review(world)
    jobs = Jobs(world)
    jobs.all()
    number = opened_by(jobs)
    key = world.folder / "lena"
    signing = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key}")
    world.git("lead", "fetch", "--quiet", "origin", f"refs/pull/{number}/head")
    world.git("lead", "pull", "--quiet", "origin", "main")
    world.git("lead", "fetch", "--quiet", "origin", f"refs/pull/{number}/head")
    world.git("lead", *signing, "merge", "--quiet", "--no-ff", "-S", "-m", "Merge the version", "FETCH_HEAD")
    world.git("lead", "push", "--quiet", "origin", "main")
    assert world.version()["version"] == 1
    signals = world("ci", "ci", "signal").out
    assert signals == "nothing to do\n", "no site is told before it is verified"
    jobs.all()
    assert jobs.outputs["proposal"].startswith("record:sha256:")
    assert "global@v1.0.0" in world.git("ci", "ls-remote", "--tags", "origin")
    assert world("lead", "verify", "--all").code == 0


@pytest.mark.long
def test_what_leads_rejected_can_be_proposed_again(world: World) -> None:
    by_review(world)
    world("ci", "ci", "reconcile")
    number = pull_of(world)
    lead(world, "review", str(number), "--reject", "--reason", "not now")
    held = world.json("ci", "ci", "reconcile")
    assert held["decision"]["wait"] == "rejected"
    assert "leads rejected this version" in held["decision_text"]
    again: Any = world.json("ci", "ci", "reconcile", "--retry-rejected")
    assert again["decision"]["wait"] == "review"
    assert again["decision"]["pull"] != number


@pytest.mark.parametrize("text", ["record:sha256:" + "0" * 64, "sha256:" + "0" * 64, "record:x", "x"])
def test_a_ticket_of_nothing_publishes_nothing(world: World, text: str) -> None:
    jobs = Jobs(world)
    jobs.merge()
    ran = jobs.run("publish", *jobs.pinned, "--proposal", text, code=0 if text.startswith("record:sha") else 2)
    if ran.code == 0:
        assert jobs.outputs["again"] == "true"
    assert world.version()["version"] == 0
