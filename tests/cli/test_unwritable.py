"""A disk that is full, or that lets this account write nothing: a message with what to do, and no bug."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest

from fedops.cli import history
from fedops.cli.console import TerminalProgress, say
from fedops.cli.unwritable import unwritable
from fedops.core.errors import GitError
from tests.cli_world import in_process

SUBMIT = ("submit",)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a clone, as far as files of it are looked at."""
    root = tmp_path / "clone"
    (root / ".git").mkdir(parents=True)
    (root / "federation.yaml").touch()
    monkeypatch.chdir(root)
    return root


def refusing(*paths: Path) -> Callable[..., bool]:
    """`os.access` of an account that may write nothing of these; for root it says yes to everything."""
    return lambda path, mode: not (mode == os.W_OK and Path(path) in paths)


def refused(path: Path, code: int = errno.EROFS) -> OSError:
    return OSError(code, os.strerror(code), str(path))


def test_a_file_that_cannot_be_written_is_named_with_what_to_do(clone: Path) -> None:
    for below in (clone, clone / "sites"):
        below.mkdir(exist_ok=True)
        os.chdir(below)
        told = unwritable(refused(clone / ".fedops" / "versions"), SUBMIT)
        assert told is not None
        assert told.message == f"{clone}: .fedops/versions cannot be written, got Read-only file system"
        assert told.hint == "get the right to write there, or work in a clone of your own: git clone"


@pytest.mark.parametrize("command", ["verify", "status"])
def test_what_can_judge_a_clone_without_fetching_says_how(command: str, clone: Path) -> None:
    told = unwritable(refused(clone / "x"), (command,))
    assert told is not None
    assert told.hint.startswith(f"fedops {command} --no-fetch ")


def test_an_account_without_the_right_is_told_too(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = refused(clone / ".fedops" / "new" / "file", errno.EACCES)
    read = unwritable(fault, SUBMIT)
    assert read is not None
    # It may write there, so it was reading that was refused; or the file alone is locked.
    assert ".fedops/new/file cannot be used, got Permission denied" in read.message
    monkeypatch.setattr(os, "access", refusing(clone))  # the nearest folder that is there
    told = unwritable(fault, SUBMIT)
    assert told is not None
    assert ".fedops/new/file cannot be written, got Permission denied" in told.message


def test_other_faults_stay_what_they_are(clone: Path) -> None:
    assert unwritable(OSError(errno.EROFS, "no name"), SUBMIT) is None
    assert unwritable(refused(clone / "x", errno.ENOENT), SUBMIT) is None
    assert unwritable(OSError("no number"), SUBMIT) is None
    assert unwritable(ValueError("x"), SUBMIT) is None


def test_what_lies_outside_of_a_clone_is_another_matter_for_the_person(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for here in (clone, clone.parent):
        monkeypatch.chdir(here)
        told = unwritable(refused(clone.parent / "out"), SUBMIT)
        assert told is not None
        assert told.message == f"{clone.parent}/out cannot be written, got Read-only file system"
        assert told.hint == "give this account the right to it, or name another place"
    told = unwritable(refused(clone.parent / "key", errno.EACCES), SUBMIT)
    assert told is not None
    assert told.message == f"{clone.parent}/key cannot be used, got Permission denied", "its folder may be written to"


# ---------------------------------------------------------------- a disk that is full


def full(*names: Path, code: int = errno.ENOSPC) -> OSError:
    return OSError(
        code, os.strerror(code), *(str(name) for name in names[:1]), *(x for n in names[1:] for x in (None, str(n)))
    )


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_temporary_and_the_file_is_named(code: int, clone: Path) -> None:
    for inside, shown in (
        (".fedops/journal.jsonl", f"{clone}: .fedops/journal.jsonl"),
        ("../out", f"{clone.parent}/out"),
    ):
        told = unwritable(full(clone / inside, code=code), SUBMIT)
        assert told is not None
        assert (told.cause, told.message) == ("temporary", f"{shown}: cannot be written, got {os.strerror(code)}")
        assert told.hint.endswith("then run the same command again; nothing was lost")


def test_of_a_link_or_a_rename_the_new_file_is_named(clone: Path) -> None:
    told = unwritable(full(clone / "part", clone / "result.json"), SUBMIT)
    assert told is not None
    assert told.message.startswith(f"{clone}: result.json: ")


def test_the_demo_begins_anew(clone: Path) -> None:
    told = unwritable(full(clone.parent / "demo"), ("demo", "--dir", "x"))
    assert told is not None
    assert told.hint.startswith("make room there, then run the same command again with --replace")


def test_of_a_temporary_file_its_folder_is_named_and_how_to_name_another(clone: Path) -> None:
    told = unwritable(full(Path("/tmp/fedops-scratch-abcdefgh/tmp1/index.lock")), SUBMIT)
    assert told is not None
    assert told.message.startswith("/tmp: a temporary file: cannot be written")
    assert "TMPDIR=FOLDER" in told.hint


@pytest.mark.parametrize("inside", [True, False])
def test_where_no_file_is_named_the_places_are(inside: bool, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not inside:
        monkeypatch.chdir(clone.parent)
    told = unwritable(full(), SUBMIT)
    assert told is not None
    here = clone if inside else clone.parent
    assert told.message.startswith(f"{here}, or the folder of temporary files: cannot be written")


def test_no_folder_at_all_for_temporary_files_is_temporary_too() -> None:
    # What `tempfile` raises, which has the number of a file that is absent.
    told = unwritable(FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/w']"), SUBMIT)
    assert told is not None
    assert (told.cause, "'/tmp', '/w'" in told.message, "TMPDIR" in told.hint) == ("temporary", True, True)


def test_a_fetch_into_such_a_clone_is_not_put_down_to_the_connection(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = GitError("origin: fetch: cannot lock ref", hint="check the connection", cause="temporary")
    assert unwritable(fault, ("verify",)) is None
    monkeypatch.setattr(os, "access", refusing(clone / ".git"))
    told = unwritable(fault, ("verify",))
    assert told is not None
    assert told.message == f"{clone}: .git cannot be written; origin: fetch: cannot lock ref"
    assert told.hint.startswith("fedops verify --no-fetch ")
    assert unwritable(GitError("no such account", cause="auth"), ("verify",)) is None
    assert unwritable(GitError("git commit-tree: nobody to name"), ("verify",)) is None
    denied = GitError("git update-ref: cannot lock ref: Permission denied")
    assert unwritable(denied, ("verify",)) is not None, "git takes it for final"


@pytest.mark.parametrize("kind", ["file", "git"])
def test_the_command_ends_with_2(kind: str, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = refused(clone / ".fedops") if kind == "file" else GitError("fetch", cause="temporary")

    @click.command()
    def command() -> None:
        raise fault

    monkeypatch.setattr(os, "access", refusing(clone / ".git"))
    monkeypatch.setattr(history, "show_command", command)
    ran = in_process(clone, "show")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {clone}: ")
    assert "bug" not in ran.err


# ---------------------------------------------------------------- commands


def command_that(raises: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.option("--format")
    def command(**_: object) -> None:
        raise raises

    monkeypatch.setattr(history, "show_command", command)


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_a_full_disk_ends_a_command_with_5(fmt: str, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command_that(full(clone / ".fedops" / "lock"), monkeypatch)
    ran = in_process(clone, "show", *(["--format=json"] if fmt == "json" else []))
    assert (ran.code, "bug" in ran.err) == (5, False)
    if fmt == "json":
        assert (ran.json["error"]["slug"], ran.json["error"]["cause"]) == ("disk_failed", "temporary")


class Full(io.RawIOBase):
    """An output on a disk that takes nothing more; /dev/full on systems that have it."""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise full()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only another system has such a file")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ci", "merge", "--help"]])
@pytest.mark.parametrize("both", [True, False])
def test_an_output_that_takes_nothing_more_ends_a_command_with_5(arguments: Sequence[str], both: bool) -> None:
    with Path("/dev/full").open("w") as full_disk:
        done = subprocess.run(
            [sys.executable, "-m", "fedops.cli.main", *arguments],
            stdout=full_disk,
            stderr=full_disk if both else subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 5
    if not both:
        lines = done.stderr.splitlines()
        assert lines[0] == "error: the output: cannot be written, got No space left on device"
        assert len(lines) == 2, "Python has nothing to add at its end"


def test_what_people_cannot_be_told_stops_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Full(), 1), write_through=True))
    say("next: fedops pull")
    progress = TerminalProgress()
    progress.finish(progress.start("updates", 3, "bytes"))

    class Gone(Full):
        def write(self, data: object) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Gone(), 1), write_through=True))
    with pytest.raises(BrokenPipeError):
        say("next: fedops pull")
