"""A site's commands are killed with SIGKILL at every boundary: started again, each comes to the same end."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedops.app.work import STALE_SECONDS
from fedops.cli import scratch
from tests.cli_world import BY_CLIENT, World, begun, build, copy, fresh, git
from tests.scenario.fed import fast_folder
from tests.scenario.job_kills import HOOKS, INSIDE, Clock, age, facts, in_child, left_in, unfinished, whole

if sys.platform == "win32":
    pytest.skip("another system: forks, and kills as POSIX does", allow_module_level=True)

SITE = "clinic-c"
# What the site has when the command begins: trained and nothing handed in, or nothing at all.
COMMANDS = {"submit": (begun, ("submit",)), "run": (build, ("run", *BY_CLIENT[1:], "--once"))}
# Two boundaries at which most is left behind: locks in the origin, and an answer that was lost.
WORST = ("git push: prepared", "git push: committed")


class Kills:
    """One command of a site, to be killed at each boundary; each time on a new copy of what it begins with.

    Args:
        shared: where federations are made once.
        temporary: where commands make temporary files.
    """

    def __init__(self, name: str, shared: Path, folder: Path, temporary: Path) -> None:
        make, self.command = COMMANDS[name]
        self._folder, self._temporary = folder, temporary
        self._count = itertools.count()
        self._seen: list[object] = []
        self.killed = 0
        whole_one = fresh(make, shared, folder / "all")
        self._begun = World(folder / "begun")
        for place in (whole_one.origin, whole_one.clone(SITE)):
            shutil.copytree(place, self._begun.folder / place.name, symlinks=True)
        shutil.rmtree(whole_one.folder)
        hooks = self._begun.origin / "hooks"
        hooks.mkdir(exist_ok=True)
        for hook, line in HOOKS.items():
            (hooks / hook).write_text(f"#!/bin/sh\n{line}\nexit 0\n")
            (hooks / hook).chmod(0o755)
        self._before = facts(self._begun)
        self._undisturbed, code, self.names = self._run(None)
        assert code == 0, self.names
        self.end, self.own = facts(self._undisturbed), self._of_site(self._undisturbed)
        assert len(self._pulls(self._undisturbed)) == len(self._pulls(self._begun)) + 1

    @property
    def followed(self) -> int:
        """How many different states were found."""
        return len(self._seen)

    def _run(self, at: int | None) -> tuple[World, int, list[str]]:
        world = copy(self._begun, self._folder / f"case-{next(self._count)}")
        log = world.folder / "log"
        code = in_child(lambda: world(SITE, *self.command), at, log)
        return world, code, log.read_text().splitlines()

    def _pulls(self, world: World) -> list[str]:
        return git(world.origin, "for-each-ref", "--format=%(refname)", "refs/pull/").splitlines()

    def _of_site(self, world: World) -> dict[str, Any]:
        """The folder in which the site keeps its work, with the journal line by line."""
        folder = world.clone(SITE) / ".fedops"
        found: dict[str, Any] = dict(left_in(folder))
        lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
        # NOTE: a step is noted after its effect; what was in effect already, nobody does or notes again. These two, which
        # the clone and the origin themselves tell of, may be missing; none may be there twice.
        found["journal.jsonl"] = [line for line in lines if line["step"] not in ("pulled", "submitted")]
        assert len({line["step"] for line in lines}) == len(lines)
        # NOTE: an update that was trained and not taken yet is never thrown away, whatever became of its run.
        if "versions/v0/run-*/update.safetensors" in found:
            found = {name: text for name, text in found.items() if not name.startswith("versions/v0/run-*")}
        found.pop("lock", None)  # names the process that had it last; held by processes alone
        return found

    def kill(self, at: int) -> None:
        """Kill the command at a boundary, start it again, and see what comes of it."""
        world, code, names = self._run(at)
        try:
            # NOTE: what kills inside of a push is a hook; all of its boundaries are counted before it is begun.
            assert (code, names[: at + 1]) == (-signal.SIGKILL, self.names[: at + 1])
            self.killed += 1
            age(self._temporary)
            scratch.sweep(self._temporary)  # as the next command on this machine does first
            assert left_in(self._temporary) == {}
            self._follow(world)
        except BaseException as e:
            e.add_note(f"killed at boundary {at}, {self.names[at]}")
            raise
        shutil.rmtree(world.folder)

    def _follow(self, world: World) -> None:
        clone = world.clone(SITE)
        names = sorted(name for name in left_in(clone / ".git") if "objects" not in name)
        state = (left_in(world.origin), left_in(clone / ".fedops"), names)
        if state in self._seen:
            return
        self._seen.append(state)
        whole(world)
        age(world.folder, STALE_SECONDS + 3600)
        world(SITE, *self.command)
        assert facts(world) == self.end
        assert self._of_site(world) == self.own
        for repository in (world.origin, clone / ".git"):
            git(repository, "prune", "--expire=1.hour.ago")  # as `git gc --auto` does, two weeks later
            assert unfinished(repository) == []
        assert left_in(self._temporary) == {}
        before = left_in(world.origin), self._of_site(world)
        world(SITE, *self.command)
        assert (left_in(world.origin), self._of_site(world)) == before, "another run changed something"


@pytest.fixture
def places(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, Path, Path]]:
    """Where federations are made once, where copies of them are, and where temporary files are made."""
    Clock(monkeypatch)
    with fast_folder() as name:
        temporary = Path(name, "tmp")
        temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        yield tmp_path_factory.getbasetemp(), Path(name), temporary


def test_a_submit_that_is_killed_where_it_leaves_most_behind_is_made_good_by_the_next(
    places: tuple[Path, Path, Path],
) -> None:
    kills = Kills("submit", *places)
    for name in WORST:
        kills.kill(kills.names.index(name))
    assert (kills.killed, kills.followed) == (len(WORST), len(WORST))


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_a_sites_command_that_is_killed_at_any_boundary_is_made_good_by_the_next(
    name: str, places: tuple[Path, Path, Path]
) -> None:
    """`run` is pull, train and submit in turn: the first and the last boundary of each name, or it takes five minutes."""
    kills = Kills(name, *places)
    count = len(kills.names)
    first, last = (
        {n: at for at, n in order} for order in (reversed([*enumerate(kills.names)]), enumerate(kills.names))
    )
    chosen = range(count) if name == "submit" else sorted({*first.values(), *last.values()})
    for at in chosen:
        kills.kill(at)
    assert kills.killed == len(chosen) > 0
    assert {f"git push: {when}" for when in INSIDE} <= set(kills.names)
    assert kills.followed > 1
