"""The jobs of reconcile.yml as processes that are killed with SIGKILL at a boundary, and what each kill leaves behind.

A boundary lies before each call that changes something: every git process that is not known to read only, every change of
a file's or folder's name, every fsync. A push has three more inside of the origin: its objects have come, its refs are
locked, its refs have moved and nobody was told. Boundaries are counted in a run that nobody kills.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.git_process import GitProcess
from fedops.cli.wire import SystemClock
from tests.adapters.layout_checks import assert_valid, tags_of
from tests.cli_world import World, git

# Of these no call changes anything; whatever else git is asked to do counts as a write.
READS = frozenset(
    {"cat-file", "config", "diff-tree", "for-each-ref", "log", "ls-remote", "ls-tree", "merge-base", "rev-list"}
    | {"rev-parse", "var"}
)
CHANGES = ("fsync", "link", "mkdir", "remove", "rename", "replace", "rmdir", "symlink", "unlink")  # of the module os
INSIDE = ("pre-receive", "prepared", "committed")  # of a push, in this order
HOOKS = {
    "pre-receive": '[ "$KILL_WHEN" = pre-receive ] && kill -9 0',
    "reference-transaction": '[ "$KILL_WHEN" = "$1" ] && kill -9 0',
}
AGE = 2 * 3600.0  # seconds after which whatever a dead process left counts as left
LATER = dt.timedelta(hours=1)
_RANDOM = re.compile(
    r"(?<=\.part-)[0-9a-f]{16}|(?<=fedops-)[a-z0-9_]{8}|(?<=fedops-scratch-)[a-z0-9_]{8}|(?<=tmp_objdir-incoming-)[A-Za-z0-9]{6}"
    r"|(?<=run-)[0-9a-f]{8}|(?<=\.)[0-9a-f]{8}\Z"
)


class Clock:
    """The machine's clock, standing still at `at` until somebody moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.start = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(minutes=1)
        self.at = self.start
        monkeypatch.setattr(SystemClock, "now", lambda _: self.at)


class Boundaries:
    """Counts the boundaries that this process comes to, and kills its whole process group at one of them.

    Args:
        at: number of the boundary, from 0; None: it is not killed.
        log: file that each one's name is written to.
    """

    def __init__(self, at: int | None, log: Path) -> None:
        self._left = at
        self._log = log

    def point(self, name: str, die: Callable[[], None] = lambda: os.killpg(0, signal.SIGKILL)) -> None:
        with self._log.open("a") as log:
            log.write(f"{_RANDOM.sub('*', name)}\n")
        if self._left == 0:
            die()
        if self._left is not None:
            self._left -= 1

    def git(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(process: GitProcess, *args: str, **more: Any) -> Any:
            words = list(args)
            while words[0] == "-c":
                del words[:2]
            if words[0] not in READS:
                self.point(f"git {words[0]}")
            for when in INSIDE if words[0] == "push" else ():
                self.point(f"git push: {when}", lambda when=when: os.environ.update(KILL_WHEN=when))  # type: ignore[misc]
            return real(process, *args, **more)

        return call

    def change(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            # NOTE: not what is deleted: a folder's files go in whatever order the file system lists them.
            named = name not in ("fsync", "remove", "unlink")
            self.point(f"os.{name} {Path(os.fspath(args[0])).name}" if named else f"os.{name}")
            return real(*args, **more)

        return call


def in_child(work: Callable[[], object], at: int | None, log: Path) -> int:
    """Do some work in a process group of its own, killed at a boundary; how it ended: 0, or minus the signal's number."""
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            os.cpu_count = lambda: 1  # threads would come to the boundaries in another order each time
            boundaries = Boundaries(at, log)
            GitProcess.run = boundaries.git(GitProcess.run)  # type: ignore[method-assign]
            for name in CHANGES:
                setattr(os, name, boundaries.change(name, getattr(os, name)))
            work()
            os._exit(0)
        except BaseException as e:  # noqa: BLE001 the parent asks for the code
            with log.open("a") as said:
                said.write(repr(e))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---------------------------------------------------------------- a federation, and what its origin says


def due(world: World) -> None:
    """Sites were told of v0; #2 and #6 are good, #1 changes more than the leads came to allow; two make a version."""
    world("ci", "ci", "signal")
    world("clinic-c", "submit")
    world.edit("policies/submission.yaml", lambda text: text.replace("update_norm_max: null", "update_norm_max: 2.0"))
    (world.origin / "hooks").mkdir(exist_ok=True)
    for name, line in HOOKS.items():
        hook = world.origin / "hooks" / name
        hook.write_text(f"#!/bin/sh\n{line}\nexit 0\n")
        hook.chmod(0o755)


def of_origin(origin: Path, folder: Path) -> World:
    """A federation of which nothing but a copy of the origin is left: each job has a clone of its own."""
    folder.mkdir()
    shutil.copytree(origin, folder / "fed.git", symlinks=True)
    return World(folder)


def left_in(folder: Path) -> dict[str, str]:
    """All files and folders below a folder, and what they hold; random parts of names are alike."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = _RANDOM.sub("*", str(path.relative_to(folder)))
        found[name] = "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def age(folder: Path, seconds: float = AGE) -> None:
    """Let the time pass after which locks and unfinished files count as left behind."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - seconds,) * 2, follow_symlinks=False)


def unfinished(origin: Path) -> list[str]:
    """Locks, and files that were being written; not what the store locks, which is held by processes alone."""
    names = (str(path.relative_to(origin)) for path in origin.rglob("*"))
    return [name for name in names if re.search(r"\.part-|[^/]\.lock\Z|(\A|/)tmp_", name)]


def leaves(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """The values of a JSON document that hold no others, each with its place."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{at} {key}")
    else:
        yield at, value


def facts(world: World) -> dict[str, Any]:
    """Everything that people, sites and the next run can see of a federation, value by value."""
    subjects = git(world.origin, "log", "--first-parent", "--reverse", "--format=%s", "main").splitlines()
    found: dict[str, Any] = {f"commit {n} of main": subject for n, subject in enumerate(subjects)}
    for line in git(world.origin, "for-each-ref", "--format=%(refname) %(objecttype) %(*subject)").splitlines():
        name, found[name] = line.split(" ", 1)
        if not name.startswith(("refs/heads/", "refs/fedops/")):
            continue
        for path in git(world.origin, "ls-tree", "-r", "--name-only", name).splitlines():
            text = world.show(path, name)
            found |= leaves(json.loads(text) if path.endswith(".json") else text, f"{name}:{path}")
    for index in sorted((world.origin / "store").rglob("index.json")):
        repository = index.parent.relative_to(world.origin / "store")
        found |= {f"store {repository}:{tag}": digest for tag, digest in tags_of(index.parent).items()}
    return found


def whole(world: World) -> None:
    """Nothing is broken or half-visible: each commit, tag, model and record is there with all that it names."""
    assert git(world.origin, "fsck", "--full", "--no-dangling") == ""
    version = world.version()["version"]
    tags = git(world.origin, "for-each-ref", "--format=%(refname:short)", "refs/tags/").splitlines()
    assert sorted(tags) == [f"global@v{n}.0.0" for n in range(version + 1)]
    assert world.version(tags[-1])["version"] == version
    for blobs in (world.origin / "store").rglob("blobs/sha256"):
        assert_valid(blobs.parents[1])
    world.new_clone("auditor")
    world("auditor", "verify")
    shutil.rmtree(world.clone("auditor"))
