"""The walking path by the command line alone: from an empty folder to a last version, and back to its beginning by verify."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.cli_world import (
    BY_CLIENT,
    BY_COMMAND,
    COMMENT,
    EXAMPLES,
    SITES,
    STEPS,
    World,
    begun,
    found,
    fresh,
    git,
    join,
)


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """At v0, with two open pull requests (#1 of hospital-a, #2 of hospital-b), and clinic-c's training done."""
    return fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")


def model(world: World, version: int) -> dict[str, NDArray[Any]]:
    """A version's tensors as a consumer gets them, read by the reference library."""
    out = world.folder / f"v{version}.safetensors"
    world("ci", "pull", f"v{version}", "--out", str(out))
    return dict(load_file(out))


def expected(current: float, *parts: tuple[str, float, int]) -> np.float32:
    """FedAvg by hand: current + sum of w * delta / sum of w, with w = examples / (1 + staleness).

    Args:
        parts: site, value of its base, staleness.
    """
    weights = [EXAMPLES[site] / (1 + staleness) for site, _, staleness in parts]
    # A site trains in float32, so its update is rounded before the mean is.
    deltas = [float(np.float32(base + STEPS[site])) - base for site, base, _ in parts]
    return np.float32(current + sum(w * d for w, d in zip(weights, deltas, strict=True)) / sum(weights))


def test_from_an_empty_folder_to_a_verified_version(tmp_path: Path) -> None:
    world = found(tmp_path / "world")
    assert world.version()["version"] == 0
    for site in SITES:
        join(world, site)
    world.new_clone("ci")
    roster = world.show("policies/sites.yaml")
    assert COMMENT in roster
    assert all(f"\n  {site}:\n" in roster for site in SITES)

    said = world("hospital-a", "pull")
    assert said.out.splitlines()[1:] == [".fedops/versions/v0/model.safetensors", "next: fedops train"]
    said = world("hospital-a", *BY_CLIENT)
    assert "training on 0 with rate 0.1" in said.err
    assert "training on 0" not in said.out
    world("hospital-b", "pull")
    assert "the hook of hospital-b ran" in world("hospital-b", *BY_COMMAND).err
    for site in ("hospital-a", "hospital-b"):
        assert world(site, "submit").out.startswith("submitted: PR #")

    said = world("ci", "ci", "reconcile")
    assert said.out.splitlines()[:3] == [
        "pull request #1: merged",
        "pull request #2: merged",
        "published v1: hospital-a 67%, hospital-b 33%",
    ]
    assert "updates: 304 bytes" in said.err  # two models of 152
    value = expected(0.0, ("hospital-a", 0.0, 0), ("hospital-b", 0.0, 0))
    assert {n: a.tolist() for n, a in model(world, 1).items()} == {"b": [value] * 2, "w": [[value] * 3] * 2}
    assert world("hospital-a", "verify", "--all").out.splitlines()[-1] == "2 versions verified, 0 failed"


def test_a_stale_site_counts_less_and_the_last_version_ends_it(world: World) -> None:
    world.edit("policies/aggregation.yaml", lambda text: text.replace("max_version: null", "max_version: 3"))
    assert [v["version"] for v in world.json("ci", "ci", "reconcile")["published"]] == [1]
    world.hand_in("hospital-a", "hospital-b")
    assert [v["version"] for v in world.json("ci", "ci", "reconcile")["published"]] == [2]
    assert "update on v0" in world("clinic-c", "submit").out
    world.hand_in("hospital-a")
    done = world.json("ci", "ci", "reconcile")
    assert [(v["version"], v["status"]) for v in done["published"]] == [(3, "final")]
    assert (done["decision"], done["decision_text"]) == ({"stop": "max_version"}, "done: this was the last version")
    parts = {c["site"]: (c["base_version"], c["staleness"], c["weight"]) for c in world.version()["contributions"]}
    assert parts == {"clinic-c": (0, 2, 30 / 3), "hospital-a": (2, 0, 100.0)}

    first, second, third = (float(model(world, n)["b"][0]) for n in (1, 2, 3))
    both = (("hospital-a", first, 0), ("hospital-b", first, 0))
    assert second == expected(first, *both)
    assert third == expected(second, ("clinic-c", 0.0, 2), ("hospital-a", second, 0))

    assert_done(world, third=world.main())
    verified = world.json("ci", "verify", "--all")
    assert [(v["version"], v["ok"], v["level"]) for v in verified["versions"]] == [
        (n, True, "inputs") for n in range(4)
    ]
    assert world.json("ci", "ci", "audit")["versions"] == verified["versions"]


def assert_done(world: World, third: str) -> None:
    """Every command that a site runs says so, and none does anything."""
    done = "done: v3 is the last version of the federation"
    assert "done: this is the last version" in world("hospital-b", "status").out
    assert world.json("hospital-b", "status")["status"] == "final"
    assert world("hospital-b", "pull").out.splitlines()[-1] == done
    for train in (BY_COMMAND, (*BY_COMMAND, "--again")):
        said = world("hospital-b", *train)
        assert (said.out, said.err) == (done + "\n", "")
    trained = world.json("hospital-b", *BY_COMMAND)
    assert (trained["changed"], trained["status"], trained["result"]) == (False, "final", None)
    # Its last training was used: said so, and that nothing is left to do.
    said = world("hospital-b", "submit")
    assert said.out.startswith("already used up by a version (hospital-b, update on v1)\n")
    assert said.out.splitlines()[-1] == done
    # Something new is not handed in, with --dry-run neither; and who never trained hears the same.
    update = ".fedops/versions/v2/update.safetensors"
    world.new_clone("late")
    world("late", "join", "clinic-c", "--key", str(world.clone("clinic-c") / ".fedops/id_ed25519"))
    for more in ((), ("--dry-run",)):
        said = world("hospital-a", "submit", update, "--examples", "7", *more)
        assert said.out.startswith("not submitted (hospital-a, update on v2): no further version will be made\n")
        assert world("late", "submit", *more).out == done + "\n"
    assert world.json("late", "submit")["outcome"] == "final"
    assert world.json("hospital-a", "submit", update, "--examples", "7")["outcome"] == "final"
    assert world.json("ci", "ci", "reconcile")["changed"] is False
    assert world.main() == third


def test_status_log_show_review_and_check_tell_the_same_story(world: World) -> None:
    before = world.json("lead", "status")
    assert (before["version"], before["pulls"], before["quorum"]["have"]) == (0, 2, 0)
    world("ci", "ci", "reconcile")
    record = world.version()

    status = world.json("hospital-a", "status")
    assert (status["name"], status["version"], status["sha256"]) == ("fed", 1, record["model"]["sha256"])
    assert status["next"] == "fedops pull"
    shown = world.json("clinic-c", "show")
    assert (shown["record"], shown["tag"]) == (record, "global@v1.0.0")
    logged = world.json("clinic-c", "log")["versions"]
    assert [v["version"] for v in logged] == [1, 0]
    assert logged[0]["record"] == record
    review = world.json("lead", "review", "1")
    assert (review["state"], review["verdict"], review["author"]) == ("merged", "accepted", "hospital-a-login")
    assert "**Accepted**" in review["comments"][0]
    text = world("lead", "review", "1").out
    assert "<!--" not in text
    assert "\n**Accepted** at" in text
    update, base = ".fedops/versions/v0/update.safetensors", ".fedops/versions/v0/model.safetensors"
    checked = world.json("hospital-a", "check", update, "--base", base)
    assert checked["ok"]
    facts = checked["items"][0]["facts"]
    assert facts["sha256"] == {c["site"]: c["sha256"] for c in record["contributions"]}["hospital-a"]


def test_a_refused_pull_request_says_why_and_hinders_nobody(world: World) -> None:
    number = 1
    # The site takes somebody else's folder into its commit, past the client's own checks.
    clone = world.clone("hospital-a")
    world.git("hospital-a", "fetch", "-q", "origin", f"refs/pull/{number}/head")
    world.git("hospital-a", "checkout", "-q", "--detach", "FETCH_HEAD")
    (clone / "sites" / "hospital-b").mkdir(parents=True)
    (clone / "sites/hospital-b/submission.json").write_text("{}")
    world.git("hospital-a", "add", "sites/hospital-b/submission.json")
    world.git("hospital-a", "commit", "-q", "--amend", "--no-edit")
    head = world.git("hospital-a", "rev-parse", "HEAD")
    world.git("hospital-a", "push", "-q", "--force", "origin", f"{head}:refs/pull/{number}/head")
    world.git("hospital-a", "checkout", "-q", "main")

    said = world("ci", "ci", "inspect", "--pull", str(number), code=3)
    assert f"#{number}  {head[:12]}  rejected" in said.out
    assert "FO-" in said.err
    done = world.json("ci", "ci", "reconcile")
    assert {p["pull"]: p["outcome"] for p in done["pulls"]} == {2: "merged", number: "rejected"}
    assert done["decision"]["wait"] == "quorum"
    assert "**Rejected**" in world("lead", "review", str(number)).out
    # Handing in again without the foreign file heals it.
    assert world.json("hospital-a", "submit")["outcome"] == "moved"
    assert [v["version"] for v in world.json("ci", "ci", "reconcile")["published"]] == [1]


def test_review_mode_merges_exactly_the_commit_that_a_lead_approved(world: World) -> None:
    world.edit("policies/aggregation.yaml", lambda text: text.replace("mode: auto", "mode: review"))
    first, second = 1, 2
    done = world.json("ci", "ci", "reconcile")
    assert [p["outcome"] for p in done["pulls"]] == ["waiting", "waiting"]
    head = world.json("lead", "review", str(first))["head"]
    approve = ("--approve", "--key", "../lena")
    said = world("lead", "review", str(first), *approve, "--head", "0000000", code=2)
    assert f"its head is {head[:12]} -> 0000000" in said.err
    said = world("lead", "review", str(first), *approve, "--head", head[:7])
    assert said.out == f"#{first} {head[:12]}: approved\n"
    world("lead", "review", str(second), "--reject", "--reason", "looks odd", "--key", "../lena")
    done = world.json("ci", "ci", "reconcile")
    assert {p["pull"]: (p["outcome"], p["reason"]) for p in done["pulls"]} == {
        first: ("merged", ""),
        second: ("waiting", "a lead asks for changes"),
    }
    world("lead", "review", str(second), *approve)
    assert [v["version"] for v in world.json("ci", "ci", "reconcile")["published"]] == [1]


def test_a_review_by_somebody_who_is_no_lead_is_refused(world: World) -> None:
    before = world.snapshot()
    said = world("hospital-b", "review", "1", "--approve", code=4)
    assert "error: " in said.err
    world("lead", "review", "1", "--approve", code=4)  # no key at all
    world("lead", "review", "1", "--reject", code=2)
    world("lead", "review", "99", "--approve", "--key", "../lena", code=2)
    world("lead", "review", "0", code=2)
    assert world.snapshot() == before
    world("ci", "ci", "reconcile")
    before = world.snapshot()
    said = world("lead", "review", "1", "--approve", "--key", "../lena", code=2)
    assert "pull request #1: is merged -> an open one" in said.err
    assert world.snapshot() == before


def installed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("fedops")
    assert program.is_file(), "the package is not installed beside this Python"
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_the_installed_command_does_the_same(world: World) -> None:
    for again in (("pull",), (*BY_CLIENT, "--again"), ("submit",)):
        done = installed(world.clone("hospital-a"), *again)
        assert done.returncode == 0, done.stderr
    done = installed(world.clone("ci"), "ci", "reconcile", "--format", "json")
    assert [v["version"] for v in json.loads(done.stdout)["published"]] == [1]
    done = installed(world.clone("hospital-a"), "verify", "--all")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 versions verified, 0 failed")
    assert installed(world.folder, "status").returncode == 2


def test_a_clone_that_somebody_works_in_is_never_disturbed(world: World) -> None:
    """Commands of a site read objects; edits, other branches and staged files of the person stay as they are."""
    clone = world.clone("hospital-a")
    world.git("hospital-a", "checkout", "-q", "-b", "notes")
    (clone / "federation.yaml").write_text((clone / "federation.yaml").read_text() + "# mine\n")
    (clone / "notes.txt").write_text("staged")
    world.git("hospital-a", "add", "notes.txt")
    before = (git(clone, "status", "--porcelain"), git(clone, "rev-parse", "HEAD"), git(clone, "branch"))
    world("hospital-a", "ci", "reconcile")
    world.hand_in("hospital-a")
    world("hospital-a", "verify", "--all")
    world("hospital-a", "status")
    after = (git(clone, "status", "--porcelain"), git(clone, "rev-parse", "HEAD"), git(clone, "branch"))
    assert after == before


def test_stdout_is_one_document_and_progress_goes_to_stderr(world: World) -> None:
    for who, arguments in (
        ("hospital-a", ("pull",)),
        ("hospital-a", (*BY_CLIENT, "--again")),
        ("clinic-c", ("submit",)),
        ("ci", ("ci", "reconcile")),
        ("ci", ("verify", "--all")),
    ):
        said = world(who, *arguments, "--format", "json")
        assert json.loads(said.out)["ok"] is True, arguments
        assert arguments == ("pull",) or said.err, arguments
