"""Each job of reconcile.yml is killed at every boundary: the schedule's next run brings everything to the same end."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load

from fedops.adapters.store_layout import LayoutStore
from fedops.cli import scratch
from tests.adapters.layout_checks import tags_of
from tests.cli_world import EXAMPLES, STEPS, World, begun, fresh, git
from tests.scenario.fed import fast_folder
from tests.scenario.job_kills import (
    INSIDE,
    LATER,
    Clock,
    age,
    due,
    facts,
    in_child,
    left_in,
    of_origin,
    unfinished,
    whole,
)
from tests.scenario.test_ci_jobs import Jobs

if sys.platform == "win32":
    pytest.skip("another system: forks, and kills as POSIX does", allow_module_level=True)

JOBS = ("inspect", "merge", "aggregate", "publish", "signal")
# One boundary of each: locks of main and of its tag, an answer that was lost, half a blob.
WORST = {
    "inspect": "git fetch",
    "merge": "git push: prepared",
    "aggregate": "os.replace blob.part-*",
    "publish": "git push: prepared",
    "signal": "git push: committed",
}
# What a version that is decided on an hour later says otherwise, and people who look at the forge see otherwise.
TIMED = {
    "refs/heads/main:global/version.json witness decided_at",
    "refs/heads/main:global/version.json witness input_commit",  # its merges have other dates
    # The manifest's config is the proposal, which names both.
    "refs/heads/main:global/version.json model manifest",
    "refs/heads/main:global/model.safetensors.dvc",
    *(f"store global:{tag}" for tag in ("v1", "md5-", "m-")),
    *(f"refs/fedops/forge:comments/0/{number}/000001.json at" for number in (1, 2, 6)),
    *(f"refs/fedops/forge:issues/open/{number}.json opened_at" for number in (7, 8, 9)),
}


@dataclass(frozen=True)
class Begun:
    """What a job finds when it begins: the origin, to be copied, and the options that the workflow gives it."""

    origin: Path
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Undisturbed:
    """Runs that nobody killed.

    Attributes:
        begun: by job; `signal` begins after a publish whose push won and which was killed then.
        end: what everybody can see in the end.
        late: the same, of a run an hour later.
    """

    start: dt.datetime
    begun: Mapping[str, Begun]
    end: Mapping[str, Any]
    late: Mapping[str, Any]


def ready(folder: Path) -> World:
    world = begun(folder)
    due(world)
    return world


def undisturbed(world: World, folder: Path, clock: Clock) -> Undisturbed:
    """Play the chain job by job, keeping the origin before each; and once more, an hour later."""
    found = {}
    jobs = Jobs(of_origin(world.origin, folder / "early"))

    def keep(job: str, *options: str, then: World = jobs.world) -> None:
        kept = of_origin(then.origin, folder / f"before-{job}")
        found[job] = Begun(kept.origin, options)

    keep("inspect")
    jobs.run("inspect")
    keep("merge", "--verdicts", jobs.outputs["verdicts"])
    jobs.run("merge", *found["merge"].options)
    keep("aggregate", *jobs.pinned)
    jobs.run("aggregate", *jobs.pinned)
    keep("publish", *jobs.pinned, "--proposal", jobs.outputs["proposal"])
    keep("signal", "--skipped", jobs.outputs["skipped"], then=push_won(found["publish"], folder / "push-won"))
    jobs.run("publish", *found["publish"].options)
    jobs.run("signal", *found["signal"].options, output=False)
    jobs.all()
    clock.at += LATER
    late = Jobs(of_origin(world.origin, folder / "late"))
    late.all()
    late.all()
    check_model(jobs.world)
    clock.at -= LATER
    return Undisturbed(clock.at, found, facts(jobs.world), facts(late.world))


def check_model(world: World) -> None:
    """The end that all others are compared with is right: the mean of what was accepted, added to zeros."""
    accepted = ("clinic-c", "hospital-b")
    mean = sum(EXAMPLES[site] * STEPS[site] for site in accepted) / sum(EXAMPLES[site] for site in accepted)
    model = world.origin / "store" / "global" / "blobs" / "sha256" / world.version()["model"]["sha256"]
    assert {float(value) for array in load(model.read_bytes()).values() for value in array.flat} == {mean}


def push_won(publish: Begun, folder: Path) -> World:
    """The version is on main and has its tag, and that was the last thing that publish did: the store knows nothing of it."""
    kills = Kills("publish", publish, folder)
    world = kills.kill(kills.names.index("git push: committed"))
    assert world.version()["version"] == 1
    assert "v1" not in tags_of(world.origin / "store" / "global")
    return world


class Kills:
    """One job, to be killed at each boundary; each time on a new copy of what it begins with."""

    def __init__(self, job: str, begun: Begun, folder: Path) -> None:
        folder.mkdir()
        self._command, self._begun, self._folder = ("ci", job, *begun.options), begun, folder
        self._count = itertools.count()
        self.killed = 0
        _, code, self.names = self._run(None)
        assert code == 0, self.names

    def _run(self, at: int | None) -> tuple[World, int, list[str]]:
        world = of_origin(self._begun.origin, self._folder / f"case-{next(self._count)}")
        world.new_clone("job")
        log = world.folder / "log"
        outputs = str(world.folder / "outputs")
        code = in_child(lambda: world("job", *self._command, "--github-output", outputs), at, log)
        shutil.rmtree(world.clone("job"))
        return world, code, log.read_text().splitlines()

    def kill(self, at: int) -> World:
        """The federation after the job was killed at a boundary."""
        world, code, names = self._run(at)
        # NOTE: what kills inside of a push is a hook; all of its boundaries are counted before it is begun.
        assert (code, names[: at + 1]) == (-signal.SIGKILL, self.names[: at + 1])
        self.killed += 1
        return world


class Follower:
    """The runs after a kill; one for each state of the origin, as a run sees nothing else."""

    def __init__(self, folder: Path, clock: Clock, expected: Undisturbed, *, meanwhile: bool) -> None:
        self._folder, self._clock, self._expected = folder, clock, expected
        self._ways = (False, True) if meanwhile else (False,)
        self._seen: list[dict[str, str]] = []
        self._count = itertools.count()

    @property
    def followed(self) -> int:
        """How many different states were found."""
        return len(self._seen)

    def follow(self, killed: World) -> None:
        state = left_in(killed.origin)
        if state in self._seen:
            return
        self._seen.append(state)
        whole(killed)
        for signalled in self._ways:
            jobs = Jobs(of_origin(killed.origin, self._folder / f"next-{next(self._count)}"))
            if signalled:
                jobs.run("signal", "--skipped", "", output=False)
            age(jobs.world.origin)
            self._clock.at = self._expected.start + LATER
            jobs.all()
            jobs.all()  # what is left of the pull request that was rejected: its comment now speaks of v1
            self._check(jobs)
            self._clock.at = self._expected.start
            shutil.rmtree(jobs.world.folder)

    def _check(self, jobs: Jobs) -> None:
        world, expected = jobs.world, self._expected
        whole(world)
        got = facts(world)
        same = {key: value for key, value in expected.end.items() if not is_timed(key)}
        assert {key: value for key, value in got.items() if not is_timed(key)} == same
        moments = {f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (expected.start, expected.start + LATER)}
        assert {got[key] for key in TIMED if re.search(r"[ _]at\Z", key)} <= moments
        assert got["store global:v1"] == world.version()["model"]["manifest"]
        git(world.origin, "prune", "--expire=1.hour.ago")  # as `git gc --auto` does after pushes, two weeks later
        # What was young when somebody wrote into that folder goes when somebody does so again, as the next version will.
        LayoutStore(world.origin / "store").tag("global", got["store global:v1"], "v1")
        assert unfinished(world.origin) == []
        before = left_in(world.origin)
        jobs.all()
        assert left_in(world.origin) == before, "another run changed something"


def is_timed(key: str) -> bool:
    return untimed(key) in TIMED


def untimed(key: str) -> str:
    """A key without what is computed from moments."""
    return re.sub(r"^(store global:(m|md5)-).*", r"\1", key)


_MADE: list[Undisturbed] = []


def made_once(shared: Path, clock: Clock) -> Undisturbed:
    """The same for all tests of one process; the clock is set back to when it was made."""
    if not _MADE:
        folder = shared / "undisturbed"
        folder.mkdir()
        _MADE.append(undisturbed(fresh(ready, shared, folder / "ready"), folder, clock))
    expected = _MADE[0]
    clock.at = expected.start
    keys = expected.end.keys() | expected.late.keys()
    assert {untimed(key) for key in keys if expected.end.get(key) != expected.late.get(key)} == TIMED
    return expected


class Places:
    """Where jobs are killed; `temporary` is where their commands make temporary files."""

    def __init__(self, folder: Path, temporary: Path, clock: Clock, expected: Undisturbed) -> None:
        self._folder, self._temporary, self._clock, self._expected = folder, temporary, clock, expected

    def job(self, job: str) -> tuple[Kills, Follower]:
        kills = Kills(job, self._expected.begun[job], self._folder / job)
        # After these the workflow starts `signal` all the same, if the whole run was not killed.
        meanwhile = job in ("aggregate", "publish")
        return kills, Follower(self._folder, self._clock, self._expected, meanwhile=meanwhile)

    def kill(self, kills: Kills, after: Follower, at: int) -> None:
        """Kill a job at a boundary, and see what comes of it."""
        try:
            killed = kills.kill(at)
            age(self._temporary)
            scratch.sweep(self._temporary)  # as the next command on this machine does first
            assert left_in(self._temporary) == {}
            after.follow(killed)
            shutil.rmtree(killed.folder)
        except BaseException as e:
            e.add_note(f"killed at boundary {at}, {kills.names[at]}")
            raise


@pytest.fixture
def places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    clock = Clock(monkeypatch)
    expected = made_once(tmp_path_factory.getbasetemp(), clock)
    with fast_folder() as name:
        temporary = Path(name, "tmp")
        temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        yield Places(Path(name), temporary, clock, expected)


def test_a_job_that_is_killed_where_it_leaves_most_behind_is_made_good_by_the_next_run(places: Places) -> None:
    for job, name in WORST.items():
        kills, after = places.job(job)
        places.kill(kills, after, kills.names.index(name))
        assert (kills.killed, after.followed) == (1, 1), job


@pytest.mark.long
@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_is_killed_at_any_boundary_is_made_good_by_the_next_run(job: str, places: Places) -> None:
    kills, after = places.job(job)
    for at in range(len(kills.names)):
        places.kill(kills, after, at)
    assert kills.killed == len(kills.names) > 0
    inside = {f"git push: {when}" for when in INSIDE}
    assert inside & set(kills.names) == (inside if job in ("merge", "publish", "signal") else set())
    assert (after.followed > 1) == (job != "inspect")
