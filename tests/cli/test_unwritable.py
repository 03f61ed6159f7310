"""A clone on a disk, or of an owner, that lets this account write nothing: a message, and no bug."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from fedops.cli import history
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
    assert unwritable(fault, SUBMIT) is None, "it may write there, so it was reading that was refused"
    monkeypatch.setattr(os, "access", refusing(clone))  # the nearest folder that is there
    told = unwritable(fault, SUBMIT)
    assert told is not None
    assert ".fedops/new/file cannot be written, got Permission denied" in told.message


def test_other_faults_stay_what_they_are(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unwritable(refused(clone.parent / "elsewhere"), SUBMIT) is None
    assert unwritable(OSError(errno.EROFS, "no name"), SUBMIT) is None
    assert unwritable(refused(clone / "x", errno.EIO), SUBMIT) is None
    assert unwritable(ValueError("x"), SUBMIT) is None
    monkeypatch.chdir(clone.parent)
    assert unwritable(refused(clone / "x"), SUBMIT) is None, "no clone here"


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
