"""`fedops run` as typed and as a process: on real git and a store on disk, ended by signals too."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.site_lock import only_one
from fedops.app.site_state import SiteState, write_site_state
from fedops.app.work import Work
from fedops.cli.main import run
from fedops.cli.run import ends_like_ctrl_c
from fedops.cli.wire import SystemClock
from fedops.core.ids import record_path
from tests.core.samples import version
from tests.site_world import World, git_world, moved

A = "hospital-a"
# The number of the training is written into the last value, so that each training gives other bytes.
HOOK = """
import json, os, struct, sys, time
from pathlib import Path

fits = Path("fits.log")
with fits.open("a") as out:
    out.write(os.environ["FEDOPS_VERSION"] + "\\n")
if "--slow" in sys.argv:
    print("begun by", os.getpid(), flush=True)
    time.sleep(60)
model = bytearray(Path(os.environ["FEDOPS_MODEL"]).read_bytes())
model[-4:] = struct.pack("<f", len(fits.read_text().splitlines()))
Path(os.environ["FEDOPS_UPDATE"]).write_bytes(model)
metrics = {"auc": 1.0} if "--bad" in sys.argv else {"loss": 0.5}
Path(os.environ["FEDOPS_RESULT"]).write_text(json.dumps({"num_examples": 150, "metrics": metrics}))
"""
COMMAND = ("--command", f"{sys.executable} hook.py")
KILL_SECONDS = 8.0  # for all kills together


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """In hospital-a's clone, set up as `fedops join` does, with its training code."""
    world = git_world(tmp_path)
    monkeypatch.chdir(world.root(A))
    write_site_state(world.root(A), SiteState(A, str(world.key(A))))
    (world.root(A) / "hook.py").write_text(HOOK)
    yield world
    world.close()


@pytest.fixture
def fedops(world: World, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command line; gives (stdout, stderr) once the exit code is the expected one."""

    def call(*arguments: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        got = run(arguments)
        out, err = capsys.readouterr()
        assert got == code, err
        return out, err

    return call


Fedops = Callable[..., tuple[str, str]]


def start(world: World, *arguments: str) -> subprocess.Popen[str]:
    """`fedops run` as a process of its own."""
    command = [sys.executable, "-m", "fedops.cli.main", "run", *arguments]
    return subprocess.Popen(command, cwd=world.root(A), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fits(world: World) -> list[str]:
    path = world.root(A) / "fits.log"
    return path.read_text().splitlines() if path.exists() else []


def told(process: subprocess.Popen[str], words: str) -> str:
    """The next line with these words that a run tells."""
    assert process.stderr is not None
    while words not in (line := process.stderr.readline()):
        assert line, f"it ended without {words!r}"
    return line


def test_run_once_hands_in_an_update_and_then_says_what_it_waits_for(world: World, fedops: Fedops) -> None:
    out, err = fedops("run", *COMMAND, "--once")
    assert out == "handed in the update on v0: PR #1\nwaits for CI: PR #1\n"
    lines = [line for line in err.splitlines() if line.startswith("2")]
    assert [line.split(" ", 1)[1].split(":")[0] for line in lines] == [
        "pulled v0",
        "trained on v0",
        "handed in the update on v0",
    ]
    assert lines[0].split(" ")[0].endswith("Z")
    out, err = fedops("run", *COMMAND, "--once")
    assert (out, fits(world)) == ("waits for CI: PR #1\n", ["0"])


def test_the_result_is_a_document_for_other_tools(world: World, fedops: Fedops) -> None:
    out, _ = fedops("run", *COMMAND, "--once", "--format", "json")
    first = json.loads(out)
    assert first == {
        "schema": "fedops.run/v1",
        "ok": True,
        "changed": True,
        "findings": [],
        "site": A,
        "ended": "once",
        "current": 0,
        "handed_in": [{"version": 0, "outcome": "opened", "pull": 1}],
        "waiting": {"reason": "open", "version": 0, "pull": 1, "text": ""},
    }
    world.merge(1)
    second = json.loads(fedops("run", *COMMAND, "--once", "--format", "json")[0])
    assert second["waiting"] == {"reason": "quorum", "version": 0, "pull": None, "text": None}
    beat = json.loads(fedops("status", "--format", "json")[0])["sites"][0]["heartbeat"]
    assert (beat["version"], beat["state"], beat["stalled"]) == (0, "waiting", False)
    assert "heartbeats, as the sites claim them" in fedops("status")[0]


def test_it_ends_after_as_many_versions_as_were_asked_for(world: World, fedops: Fedops) -> None:
    out, _ = fedops("run", *COMMAND, "--max-versions", "1")
    assert out.splitlines()[-1] == "done: 1 version, as many as were asked for"
    assert json.loads(fedops("run", *COMMAND, "--once", "--format=json")[0])["ended"] == "once"


def test_a_service_works_from_version_to_version_and_ends_with_the_last(world: World) -> None:
    with start(world, *COMMAND, "--poll", "0.1") as service:
        told(service, "waits for CI: PR #1")
        world.merge(1)
        world.publish(version(1, contributions=[world.contribution_of(A)], consumed={A: 0}), moved(1))
        told(service, "waits for CI: PR #2")
        final = version(2, consumed={A: 0}).model_copy(update={"status": "final"})
        world.publish(final, moved(2))
        out, err = service.communicate(timeout=300)
        assert service.returncode == 0, err
    assert out.splitlines() == [
        "handed in the update on v0: PR #1",
        "handed in the update on v1: PR #2",
        "done: v2 is the last version of the federation",
    ]
    assert fits(world) == ["0", "1"]


def test_a_service_that_starts_before_its_origin_is_mounted_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch, fedops: Fedops
) -> None:
    origin = world.folder / "origin.git"
    origin.rename(world.folder / "unmounted")
    slept: list[float] = []

    def sleep(_: SystemClock, seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            (world.folder / "unmounted").rename(origin)

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    out, err = fedops("run", *COMMAND, "--max-versions", "1")
    assert out.startswith("handed in the update on v0: PR #1\n")
    assert (err.count("cannot go on: "), err.count("it answers again"), len(slept)) == (1, 1, 3)


# ---------------------------------------------------------------- when the answer is no


def test_an_update_that_is_refused_here_is_a_no(world: World, fedops: Fedops) -> None:
    command = ("--command", f"{sys.executable} hook.py --bad")
    out, err = fedops("run", *command, "--once", code=3)
    assert "was refused here, nothing was sent" in err
    assert "waits for the next version: the update on v0 would be rejected" in out
    result = json.loads(fedops("run", *command, "--once", "--format", "json", code=3)[0])
    assert (result["ok"], result["findings"][0]["slug"], fits(world)) == (False, "metrics_invalid", ["0"])
    fedops("run", *COMMAND, "--once", "--again")
    assert fits(world) == ["0", "0"]


def test_a_site_that_is_not_on_the_roster_is_a_no(world: World, fedops: Fedops) -> None:
    out, err = fedops("run", *COMMAND, "--site", "clinic-x", code=3)
    assert (out, fits(world)) == ("", [])
    assert "FO-230" in err


def test_a_site_without_a_key_is_a_no_before_it_trains(world: World, fedops: Fedops) -> None:
    write_site_state(world.root(A), SiteState(A, None))
    _, err = fedops("run", *COMMAND, "--once", code=3)
    assert ("FO-235" in err, fits(world)) == (True, [])
    fedops("run", *COMMAND, "--once", "--key", str(world.key(A)))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "either --client MODULE:CLASS or --command"),
        ((*COMMAND, "--client", "ours:Ours"), "either --client"),
        ((*COMMAND, "--poll", "0"), "0.0 is not in the range"),
        ((*COMMAND, "--poll", "nan"), "nan -> a number of seconds"),
        ((*COMMAND, "--max-versions", "0"), "0 is not in the range"),
        ((*COMMAND, "--config", "none.yaml"), "none.yaml: no such file"),
    ],
)
def test_what_cannot_be_meant_is_said(arguments: tuple[str, ...], says: str, world: World, fedops: Fedops) -> None:
    assert says in fedops("run", *arguments, code=2)[1]


def test_code_that_fails_ends_the_run(world: World, fedops: Fedops) -> None:
    _, err = fedops("run", "--command", f"{sys.executable} none.py", "--once", code=2)
    assert "No such file" in err


# ---------------------------------------------------------------- two at once, signals


def test_a_second_run_in_the_same_clone_says_so(world: World, fedops: Fedops) -> None:
    with only_one(world.root(A) / ".fedops" / "lock", "fedops run"):
        _, err = fedops("run", *COMMAND, "--once", code=5)
        assert f"fedops run, process {os.getpid()} is at work in this clone" in err
        out, _ = fedops("run", *COMMAND, "--format", "json", code=5)
        assert (json.loads(out)["error"]["slug"], fits(world)) == ("busy", [])
    fedops("run", *COMMAND, "--once")


def test_asked_to_end_it_ends_the_training_too_and_leaves_the_clone_free(world: World, fedops: Fedops) -> None:
    with start(world, "--command", f"{sys.executable} hook.py --slow") as service:
        child = int(told(service, "begun by").split()[-1])
        service.send_signal(signal.SIGTERM)
        _, err = service.communicate(timeout=300)
        assert service.returncode == 130
        assert "it goes on where it stopped" in err
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    fedops("run", *COMMAND, "--once")
    assert fits(world) == ["0", "0"]


def test_a_request_to_end_is_taken_for_ctrl_c_while_it_runs_and_no_longer() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ends_like_ctrl_c():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_another_thread_signals_are_left_alone() -> None:
    seen: list[object] = []

    def elsewhere() -> None:
        with ends_like_ctrl_c():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_killed_at_any_time_it_trains_once_and_hands_in_once(world: World) -> None:
    """At random times, by SIGKILL, again and again; what is left of each run must be enough for the next."""
    dice, work = random.Random(11), Work(world.root(A))

    def trained() -> bool:
        return any(line["step"] == "trained" for line in work.noted())

    spent, longest, kills = 0.0, 0.7, 0
    while spent < KILL_SECONDS and kills < 12:
        begun, finished = len(fits(world)), trained()
        after = dice.uniform(0.1, longest)
        with start(world, *COMMAND, "--once") as doomed:
            try:
                doomed.wait(after)
            except subprocess.TimeoutExpired:
                doomed.kill()
                kills += 1
            else:
                assert doomed.returncode == 0, doomed.communicate()
            doomed.communicate()
        spent += after
        assert not finished or len(fits(world)) == begun, "trained again after the journal said `trained`"
        longest *= 1.2  # slow machines get as far as fast ones
    assert kills >= 1
    with start(world, *COMMAND, "--once") as last:
        _, err = last.communicate(timeout=300)
        assert last.returncode == 0, err
    lena, repository = world.forges["lena"], world.repositories["lena"]
    (one,) = lena.open_pulls()
    repository.fetch()
    entry = next(e for e in repository.entries(one.head) if e.path == record_path(A))  # type: ignore[arg-type]
    record: dict[str, Any] = json.loads(repository.read(entry.blob, max_bytes=20_000))
    done = work.trained(0)
    assert done is not None
    assert (one.number, record["base_version"], record["sha256"]) == (1, 0, done.sha256)
    steps = [line["step"] for line in work.noted()]
    assert (steps.count("trained"), steps.count("submitted")) in ((1, 1), (1, 0))
