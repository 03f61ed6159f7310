"""The folder for model files: gone with its command, or, if that was killed, with the next one; nobody else's is touched."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("another system: nothing is swept there", allow_module_level=True)

import fcntl

from fedops.cli import scratch
from fedops.cli.scratch import LOCK, command_folder, scratch_folder, sweep
from fedops.core.artifacts import EMPTY_CONFIG
from tests import cli_world
from tests.cli_world import World, build
from tests.registry.proxy import CutAnswer, FaultProxy, Keep, fault_proxy
from tests.registry.server import registry_server

A = "hospital-a"
SECONDS = 60.0  # for what must come, however slow the machine


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folders are made."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left_behind(parent: Path, name: str = "fedops-scratch-dead") -> Path:
    """What a killed command leaves."""
    folder = parent / name
    folder.mkdir(mode=0o700)
    (folder / LOCK).write_bytes(os.uname().nodename.encode())
    (folder / "update.model.part-0123456789abcdef").write_bytes(b"half of an update")
    (folder / "inner").mkdir()
    (folder / "inner" / "base.model").write_bytes(b"a model")
    return folder


# ---------------------------------------------------------------- as processes


@contextmanager
def command(world: World, who: str, tmp: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command as a process of its own; killed at the end of the block if it is still there."""
    line = [sys.executable, "-m", "fedops.cli.main", *arguments]
    env = os.environ | {"TMPDIR": str(tmp)}
    with subprocess.Popen(
        line, cwd=world.clone(who), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    started = time.monotonic()
    while not is_so():
        assert process.poll() is None, process.stdout.read() if process.stdout is not None else ""
        assert time.monotonic() - started < SECONDS
        time.sleep(0.02)


def to_its_end(world: World, who: str, tmp: Path, *arguments: str) -> None:
    with command(world, who, tmp, *arguments) as process:
        out, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, out


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[World, FaultProxy]]:
    """A federation whose store is a registry, with one submission that waits for CI."""
    with (
        registry_server(tmp_path / "registry") as server,
        fault_proxy(server.host) as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(cli_world, "INIT", (*cli_world.INIT, "--store", f"oci://{proxy.host}/acme/fed"))
        world = build(tmp_path / "world")
        world.hand_in(A)
        yield world, proxy


def folders(tmp: Path) -> set[Path]:
    return {p for p in tmp.iterdir() if p.name.startswith("fedops-")}


def test_what_a_command_killed_in_mid_download_left_is_gone_with_the_next_one(
    proxied: tuple[World, FaultProxy], tmp_path: Path
) -> None:
    world, proxy = proxied
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    # Some bytes of the update come, then none.
    update = f"sites/{A}/blobs/sha256:(?!{hashlib.sha256(EMPTY_CONFIG).hexdigest()})"
    proxy.plan("GET", update, CutAnswer(40))
    proxy.plan("GET", update, Keep(), times=9)
    with command(world, "ci", tmp, "ci", "reconcile") as process:
        until(lambda: len(list(tmp.glob("fedops-*/*.part-*"))) > 0, process)
        (folder,) = folders(tmp)

        # While it lives, no other command takes its bytes away.
        to_its_end(world, "lead", tmp, "verify", "--all")
        assert folders(tmp) == {folder}
        assert list(folder.glob("*.part-*"))
        assert process.poll() is None
        process.kill()
        process.wait()
    assert list(folder.glob("*.part-*")), "nobody has cleaned up: this test would show nothing"

    proxy.mend()
    to_its_end(world, "ci", tmp, "ci", "reconcile")
    assert folders(tmp) == set()


# ---------------------------------------------------------------- what is swept, and what is not


def test_a_folder_is_empty_and_gone_afterwards(tmp: Path) -> None:
    with scratch_folder() as folder:
        assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp, 0o700)
        assert [p.name for p in folder.iterdir()] == [LOCK]
        (folder / "inner").mkdir()
        (folder / "inner" / "model").write_bytes(b"x")
        (folder / "link").symlink_to(tmp)
    assert list(tmp.iterdir()) == []


def test_an_error_in_the_block_leaves_nothing_either(tmp: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_folder():
        raise KeyboardInterrupt
    assert list(tmp.iterdir()) == []


def test_folders_of_the_living_stay_and_those_of_the_dead_go(tmp: Path) -> None:
    with scratch_folder() as one:
        (one / "model").write_bytes(b"in use")
        dead = left_behind(tmp)
        with scratch_folder() as other:
            assert folders(tmp) == {one, other}
            assert (one / "model").read_bytes() == b"in use"
        assert not dead.exists()
    assert folders(tmp) == set()


def test_links_are_never_followed(tmp: Path, tmp_path: Path) -> None:
    """Attack: somebody who may write to the parent lets a name of ours lead to what is dear to us."""
    dear = left_behind(tmp_path, "dear")
    (tmp / "fedops-scratch-link").symlink_to(dear)
    inside = left_behind(tmp, "fedops-scratch-with-links")
    (inside / "out").symlink_to(dear)
    (inside / "inner" / "out").symlink_to(dear)
    locked = left_behind(tmp, "fedops-scratch-linked-lock")
    (locked / LOCK).unlink()
    (locked / LOCK).symlink_to(dear / LOCK)
    sweep(tmp)
    assert sorted(p.name for p in tmp.iterdir()) == ["fedops-scratch-link", "fedops-scratch-linked-lock"]
    assert (dear / "inner" / "base.model").read_bytes() == b"a model"
    assert len(list(locked.iterdir())) == 3


def test_folders_of_others_are_never_touched(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(tmp)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    sweep(tmp)
    assert len(list(tmp.rglob("*.part-*"))) == 1


def test_a_lock_of_others_in_a_folder_of_ours_is_none(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left_behind(tmp)
    honest = os.fstat

    def foreign(descriptor: int) -> Any:
        found = honest(descriptor)
        is_folder = os.path.samestat(found, folder.stat())
        return found if is_folder else os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr(os, "fstat", foreign)
    sweep(tmp)
    assert folder.exists()


def test_what_is_not_surely_a_killed_commands_stays(tmp: Path) -> None:
    """No lock, as of something else of that name; one of another machine; a queue in its place; a file; another name."""
    (tmp / "fedops-scratch-data").mkdir()
    (tmp / "fedops-scratch-data" / "thesis.tex").write_text("years of work")
    (left_behind(tmp, "fedops-scratch-shared") / LOCK).write_bytes(b"another machine")
    queue = left_behind(tmp, "fedops-scratch-queue")
    (queue / LOCK).unlink()
    os.mkfifo(queue / LOCK)
    (tmp / "fedops-scratch-file").write_text("")
    left_behind(tmp, "other")
    before = sorted(tmp.rglob("*"))
    sweep(tmp)
    assert sorted(tmp.rglob("*")) == before


def test_all_temporary_files_of_a_command_lie_in_its_folder(tmp: Path) -> None:
    """What is no model is left by a kill too: documents for git, a signature that is looked at."""
    with command_folder() as folder, tempfile.TemporaryDirectory() as inner:
        assert (folder.parent, Path(inner).parent) == (tmp, folder)
    assert tempfile.gettempdir() == str(tmp)
    assert list(tmp.iterdir()) == []


@pytest.mark.parametrize("age_hours", [0, 2])
@pytest.mark.parametrize("holds", ["nothing", "a lock without its name"])
def test_a_folder_that_was_just_made_or_emptied_when_its_command_was_killed_goes_after_an_hour(
    age_hours: float, holds: str, tmp: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fedops-scratch-"))
    if holds != "nothing":
        (folder / f"{LOCK}.new").write_bytes(os.uname().nodename.encode())
    os.utime(folder, (time.time() - age_hours * 3600,) * 2)
    sweep(tmp)
    assert folder.exists() == (age_hours < 1)


def test_an_old_folder_that_may_be_somebodys_stays(tmp: Path) -> None:
    """Named by a person, or open to others, or with more in it than a lock; or its lock is held."""
    (tmp / "fedops-scratch-ward-7").mkdir(mode=0o700)
    (tmp / "fedops-scratch-hospital").mkdir(mode=0o755)
    used = Path(tempfile.mkdtemp(prefix="fedops-scratch-"))
    (used / "model").write_bytes(b"a model")
    held = Path(tempfile.mkdtemp(prefix="fedops-scratch-"))
    (held / f"{LOCK}.new").write_bytes(os.uname().nodename.encode())
    before = sorted(tmp.rglob("*"))
    for path in tmp.iterdir():
        os.utime(path, (time.time() - 7200,) * 2)
    with (held / f"{LOCK}.new").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(tmp)
    assert sorted(tmp.rglob("*")) == before


def test_a_parent_that_cannot_be_listed_stops_nothing(tmp: Path) -> None:
    sweep(tmp / "not-there")
    assert list(tmp.iterdir()) == []


def test_a_sweep_that_was_killed_is_ended_by_the_next(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left_behind(tmp)
    unlink = os.unlink

    def killed(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EINTR, "as if the process were gone")

    monkeypatch.setattr(os, "unlink", killed)
    sweep(tmp)
    monkeypatch.setattr(os, "unlink", unlink)
    assert (folder / LOCK).exists(), "the lock's file is the last to go"
    sweep(tmp)
    assert not folder.exists()


def test_a_folder_that_another_sweep_has_just_removed_is_not_the_new_one_of_that_name(
    tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = left_behind(tmp)
    take = scratch._take

    def late(held: int) -> bool:
        (folder / LOCK).unlink()
        (folder / LOCK).write_bytes(os.uname().nodename.encode())
        return take(held)

    monkeypatch.setattr(scratch, "_take", late)
    sweep(tmp)
    assert (folder / "inner" / "base.model").exists()


def test_where_nothing_can_be_locked_nothing_is_swept(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with scratch_folder() as one:
        assert not (one / LOCK).exists(), "it would look like a dead one where locks can be taken"
        with scratch_folder():
            assert one.exists()
    assert folders(tmp) == set()


def test_many_who_start_at_once_sweep_only_the_dead(tmp: Path) -> None:
    """Each has its folder from first to last, whoever else starts, ends and sweeps meanwhile."""
    wrong: list[str] = []
    dead = [left_behind(tmp, f"fedops-scratch-dead-{n}") for n in range(40)]
    begin = threading.Barrier(8)

    def one(number: int) -> None:
        begin.wait()
        for turn in range(25):
            with scratch_folder() as folder:
                mine = folder / "mine"
                mine.write_text(f"{number} {turn}")
                sweep(tmp)
                if mine.read_text() != f"{number} {turn}" or not (folder / LOCK).exists():
                    wrong.append(folder.name)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not [folder for folder in dead if folder.exists()]
    assert folders(tmp) == set()


def test_two_processes_that_sweep_the_same_folder_agree(tmp: Path, tmp_path: Path) -> None:
    """Real processes: the locks are the system's, so what threads show is shown again between them."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom fedops.cli.scratch import scratch_folder\n"
        "for turn in range(30):\n"
        "    with scratch_folder() as folder:\n"
        "        (folder / 'mine').write_text(str(turn))\n"
        "        assert (folder / 'mine').read_text() == str(turn)\n"
    )
    for n in range(60):
        left_behind(tmp, f"fedops-scratch-dead-{n}")
    env = os.environ | {"TMPDIR": str(tmp)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in running:
        _, said = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, said
    assert list(tmp.iterdir()) == []
