"""A site's disk that is full at any moment: exit code 5 with a file and a hint, and the same command again goes on."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedops.app.site_state import SiteState, write_site_state
from fedops.app.work import Work
from tests.cli_world import Ran, in_process
from tests.site_world import World, git_world

A = "hospital-a"
CODE = """
import numpy as np
from fedops import Client, FitResult

class Ours(Client):
    def fit(self, parameters, config):
        return FitResult({n: a + np.asarray(1, a.dtype) for n, a in parameters.items()}, 150, {"loss": 0.31})
"""
TRAIN = ("train", "--client", "ours:Ours")
MOST = 12  # moments of one command that are tried, spread over all


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = git_world(tmp_path)
    write_site_state(world.root(A), SiteState(A, str(world.key(A))))
    (world.root(A) / "ours.py").write_text(CODE)
    yield world
    world.close()


class Disk:
    """Counts what is written by this process; from change number `room` on, all fails."""

    def __init__(self, room: int | None, code: int) -> None:
        self.changes, self._room, self._code = 0, room, code

    def change(self, *names: object) -> None:
        self.changes += 1
        if self._room is not None and self.changes > self._room:
            raise OSError(self._code, os.strerror(self._code), *(str(name) for name in names[:1]))


@contextmanager
def disk(room: int | None, code: int = errno.ENOSPC) -> Iterator[Disk]:
    """Files and folders are made, and made durable, on a disk with so much room; to remove them always works."""
    here = Disk(room, code)
    plain_open, plain_fsync = os.open, os.fsync

    def opened(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if flags & os.O_CREAT:
            here.change(path)
        return plain_open(path, flags, *args, **more)

    def synced(descriptor: int) -> None:
        here.change()  # the system names no file for an open one
        plain_fsync(descriptor)

    def guarded(real: Callable[..., Any], *, at: int) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            here.change(args[at])
            return real(*args, **more)

        return call

    def writes(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if not set(mode) <= set("rbt"):
            here.change(self)
        return plain_path_open(self, mode, *args, **more)

    plain_path_open = Path.open
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opened)
        patch.setattr(os, "fsync", synced)
        patch.setattr(Path, "open", writes)
        for owner, name, at in (
            (Path, "mkdir", 0),
            (Path, "replace", 1),
            (Path, "hardlink_to", 0),
            (shutil, "copyfile", 1),
        ):
            patch.setattr(owner, name, guarded(getattr(owner, name), at=at))
        yield here


def moments(count: int) -> list[int]:
    """Some of the numbers below `count`, the first and the last among them."""
    return sorted({round(i * (count - 1) / (MOST - 1)) for i in range(MOST)})


def prepared(world: World, before: Sequence[tuple[str, ...]]) -> Path:
    """The site's clone as it is before a command."""
    root = world.root(A)
    for arguments in before:
        ran = in_process(root, *arguments)
        assert ran.code == 0, ran.err
    return root


def demand_told(ran: Ran, root: Path) -> None:
    error, hint = ran.err.splitlines()[-2:]
    assert error.startswith("error: ")
    assert "got No space left on device" in error
    assert str(root) in error or "temporary file" in error or "/origin.git/store/" in error, "which disk it is"
    assert hint.startswith("  hint: ")
    assert "again" in hint or "go on with" in hint


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        (("pull",), (), "model.safetensors"),
        (TRAIN, (("pull",),), "result.json"),
        (("submit",), (("pull",), TRAIN), "submit/submission.json"),
    ],
    ids=["pull", "train", "submit"],
)
def test_at_any_moment_it_is_told_and_the_same_command_goes_on(
    command: tuple[str, ...], before: Sequence[tuple[str, ...]], after: str, world: World, tmp_path: Path
) -> None:
    root = prepared(world, before)
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path, saved, ignore=lambda folder, names: ["saved"] if folder == str(tmp_path) else [])

    def restored() -> None:
        for path in tmp_path.iterdir():
            if path != saved:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(saved, tmp_path, dirs_exist_ok=True)

    with disk(None) as whole:
        assert in_process(root, *command).code == 0
    failed = 0
    for room in moments(whole.changes):
        restored()
        with disk(room):
            ran = in_process(root, *command)
        assert ran.code in (0, 5), ran.err
        if ran.code:
            failed += 1
            demand_told(ran, root)
        again = in_process(root, *command)
        assert again.code == 0, again.err
        assert (Work(root).version(0) / after).is_file()
        names = [p.name for p in (root / ".fedops").rglob("*")]
        assert not [name for name in names if ".part-" in name or name.startswith(".")]
        # Hours of work are not thrown away since a line of a few bytes could not be written.
        assert any(name.startswith("run-") for name in names) == ("what it wrote is kept: fedops submit" in ran.err)
    assert failed >= MOST / 2
