"""What git says where a file cannot be written, here or where the remote is: exit code and hint follow from whose disk it is."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.git_access import no_access
from fedops.adapters.git_objects import ObjectReader
from fedops.adapters.git_process import GitProcess, Output, failure
from fedops.adapters.git_refusals import refusal, refusals
from fedops.adapters.git_remote import Remote
from fedops.adapters.git_upkeep import fast_forward
from fedops.core.errors import GitError
from fedops.core.ids import CommitId
from tests.forge_worlds import GitWorld, forge, submission
from tests.sshkeys import SshKey

# As git 2.39 says them, of a disk that was full, or refused, at that moment.
OBJECT = "error: unable to create temporary file: No space left on device\nfatal: failed to write object\n"
INDEX = "fatal: Unable to create '/tmp/fedops-scratch-a/index.lock': No space left on device\n"
FOLDER = "error: cannot lock ref 'refs/pull/1/head': unable to create directory for .git/refs/pull/1/head\n"
NOT_SAID = (
    "error: cannot update ref 'refs/remotes/origin/main': couldn't write '/c/.git/refs/remotes/origin/main.lock'\n"
)
CHECKOUT = "error: unable to write file schemas/version.schema.json\nfatal: unable to checkout working tree\n"
DENIED = "error: insufficient permission for adding an object to repository database .git/objects\n"
LOCKED = "fatal: Unable to create '/c/.git/refs/fedops/forge.lock': Permission denied\n"
READ_ONLY = "fatal: Unable to create '/c/.git/index.lock': Read-only file system\n"
THERE = "remote: error: unable to write file ./objects/5c: No space left on device\nerror: remote unpack failed\n"


@pytest.mark.parametrize(
    ("said", "cause", "hint"),
    [
        (OBJECT, "temporary", "make room on the disk of this clone, or of temporary files"),
        (INDEX, "temporary", "make room on the disk of this clone, or of temporary files"),
        (OBJECT.replace("No space left on device", "Disk quota exceeded"), "temporary", "make room on the disk"),
        (THERE, "temporary", "ask whoever keeps origin to make room there"),
        (FOLDER, "temporary", "see that the disk of this clone has room, and that this account may write"),
        (NOT_SAID, "temporary", "see that the disk of this clone has room"),
        (CHECKOUT, "temporary", "see that the disk of this clone has room"),
        (DENIED, "permanent", "give this account the right to write all of this clone's .git"),
        (LOCKED, "permanent", "give this account the right to write all of this clone's .git"),
        (READ_ONLY, "permanent", "give this account the right to write all of this clone's .git"),
        ("fatal: bad object HEAD\n", "permanent", "as before"),
        ("fatal: read error: Input/output error\n", "temporary", "as before"),
    ],
)
def test_a_disk_is_told_by_what_a_person_does_about_it(said: str, cause: str, hint: str) -> None:
    told = failure("git write-tree", Output(128, b"", said), hint="as before")
    assert told.cause == cause
    assert told.hint.startswith(hint)


@pytest.mark.parametrize(
    ("said", "cause", "hint"),
    [
        (OBJECT, "temporary", "make room on the disk of this clone"),
        (DENIED, "permanent", "give this account the right"),
        (FOLDER, "temporary", "see that the disk of this clone"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h\n", "temporary", "check the connection"),
        (
            "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.\n",
            "auth",
            "the address",
        ),
    ],
)
def test_a_fetch_that_cannot_be_kept_is_not_put_down_to_the_connection(said: str, cause: str, hint: str) -> None:
    told = no_access("origin: fetch", Output(128, b"", said), "https://h/fed.git", start=Path())
    assert told.cause == cause
    assert told.hint.startswith(hint)


def refused(why: str, said: str = "") -> GitError:
    ref = "refs/heads/main:refs/heads/main"
    output = Output(1, f"To /srv/fed.git\n!\t{ref}\t[remote rejected] ({why})\nDone\n".encode(), said)
    return refusal("origin", refusals(output), output, hint="the rules", of_workflows="the scope")


@pytest.mark.parametrize(
    ("why", "said", "cause", "slug", "hint"),
    [
        ("unpacker error", THERE, "temporary", "git_failed", "origin's disk may be full"),
        ("unpacker error", "", "temporary", "git_failed", "origin's disk may be full"),
        (
            "unable to migrate objects to permanent storage",
            OBJECT,
            "temporary",
            "git_failed",
            "origin's disk may be full",
        ),
        ("unpacker error", f"remote: {DENIED}", "auth", "git_failed", "this account may not write all files of origin"),
        # What origin's own settings do not let in: the same push never gets through.
        ("unpacker error", "remote: fatal: fsck error in packed object\n", "permanent", "git_failed", "the rules"),
        (
            "unpacker error",
            "remote: fatal: pack exceeds maximum allowed size\n",
            "permanent",
            "git_failed",
            "the rules",
        ),
        ("pre-receive hook declined", "", "permanent", "push_refused", "the rules"),
    ],
)
def test_what_origin_cannot_keep_is_no_rule_of_it(why: str, said: str, cause: str, slug: str, hint: str) -> None:
    told = refused(why, said)
    assert (told.cause, told.slug) == (cause, slug)
    assert told.hint.startswith(hint)
    assert why in told.message


def test_a_pull_whose_push_was_won_is_found_though_this_clone_could_not_note_it(
    keys: Mapping[str, SshKey],
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    world = GitWorld(keys, template, tmp_path)
    request.addfinalizer(world.close)
    head = submission(world, "alice")
    with monkeypatch.context() as patch:
        patch.setattr(Remote, "_follow", lambda self, updates: None)  # as on a disk that is full at that moment
        made = forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    assert (made.number, made.head) == (1, head)


# ---------------------------------------------------------------- the work tree


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with two commits: main is at the first, `second` changes one file and brings another."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for command in (
        "git init -q -b main",
        "git commit -q --allow-empty -m empty",
        "sh -c 'echo old > a'",
        "git add a",
        "git commit -q -m first",
        "git branch second",
        "git switch -q second",
        "sh -c 'echo new > a; echo more > b'",
        "git add a b",
        "git commit -q -m second",
        "git switch -q main",
    ):
        subprocess.run(command, shell=True, cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("half", [True, False])
def test_a_work_tree_that_could_not_be_written_is_not_said_to_have_changes_of_a_person(
    half: bool, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = GitProcess(clone)
    target = CommitId(git.check("rev-parse", "second").decode().strip())
    plain = GitProcess.run

    def stopped(self: GitProcess, *args: str, **more: Any) -> Output:
        if args[0] != "merge":
            return plain(self, *args, **more)
        if half:  # a full disk: the old file is gone, the new one not there
            (clone / "a").unlink()
            return Output(128, b"", "error: unable to create file a")
        return Output(128, b"", "fatal: Unable to create '.git/index.lock': No space left on device")

    with closing(ObjectReader(git)) as objects, monkeypatch.context() as patch:
        patch.setattr(GitProcess, "run", stopped)
        assert fast_forward(git, objects, "main", target) == "not_written"
    # What the hint says brings the work tree to main.
    subprocess.run("git restore . && git merge -q --ff-only second", shell=True, cwd=clone, check=True)
    assert ((clone / "a").read_text(), (clone / "b").read_text()) == ("new\n", "more\n")


def test_a_file_of_a_persons_own_in_the_way_is_still_told_as_that(clone: Path) -> None:
    git = GitProcess(clone)
    (clone / "b").write_text("mine\n")
    target = CommitId(git.check("rev-parse", "second").decode().strip())
    with closing(ObjectReader(git)) as objects:
        assert fast_forward(git, objects, "main", target) == "dirty"
    assert (clone / "b").read_text() == "mine\n"
