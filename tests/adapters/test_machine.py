"""What `fedops doctor` sees of a real machine, a real clone and real keys."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.adapters.git_process import GitProcess
from fedops.adapters.git_repo import GitRepository
from fedops.adapters.machine import ThisMachine
from fedops.adapters.store_layout import LayoutStore
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.health import Attributes, WorkTree, check_attributes, check_git, check_ssh
from fedops.core.ids import RepoPath
from fedops.ports import Machine, WriteProbe
from tests.forge_worlds import START
from tests.sshkeys import make_key

MACHINE: Machine = ThisMachine()
FILES = {RepoPath(".gitignore"): b"/.fedops/\n", RepoPath("a.json"): b"{}\n"}


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[GitRepository]:
    """A clone on main with two files, of a bare origin."""
    GitRepository.init(tmp_path / "origin.git", bare=True).close()
    with GitRepository.init(tmp_path / "lead") as lead:
        GitProcess(lead.path).check("remote", "add", "origin", str(tmp_path / "origin.git"))
        push(lead, FILES)
    with GitRepository.clone(str(tmp_path / "origin.git"), tmp_path / "clone") as repository:
        yield repository


def push(repository: GitRepository, files: dict[RepoPath, bytes]) -> None:
    from fedops.core.facts import RefUpdate

    old = repository.resolve("main")
    new = repository.write_commit([old] if old else [], files, "m", at=START)
    assert repository.push([RefUpdate("refs/heads/main", old, new)])


def test_the_programs_of_this_machine_are_new_enough() -> None:
    assert check_git(MACHINE.git_version()).state == "ok"
    assert check_ssh(MACHINE.ssh_version()).state == "ok"
    assert MACHINE.python_version() == sys.version_info[:3]


def test_programs_that_are_not_there_are_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="ssh-keygen: not found"):
        MACHINE.ssh_version()
    program = tmp_path / "ssh-keygen"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert MACHINE.ssh_version() == "unknown, there is no ssh to ask"
    assert check_ssh(MACHINE.ssh_version()).state == "warning"
    with pytest.raises(ConfigError, match="git: not found"):
        MACHINE.git_version()


def test_only_distributions_that_could_be_taken_for_fedops_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"fedops": "9.9", "numpy": "2.0"}

    def version(name: str) -> str:
        if name not in there:
            raise importlib.metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert MACHINE.distributions() == {"fedops": "9.9"}
    there["fedops-git"] = "0.1.0"
    assert MACHINE.distributions() == {"fedops": "9.9", "fedops-git": "0.1.0"}


def test_who_commits_is_told_by_git_as_it_would_write_it(clone: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    git = GitProcess(clone.path)
    assert MACHINE.identity(clone.path) == "Test <test@example.invalid>", "of the environment"
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name)
    git.check("config", "user.useConfigOnly", "true")  # git guesses nothing from the machine's name
    assert MACHINE.identity(clone.path) is None
    git.check("config", "user.name", "Ann > Bo")
    assert MACHINE.identity(clone.path) is None, "a name without an address"
    git.check("config", "user.email", "ann@a.example")
    assert MACHINE.identity(clone.path) == "Ann  Bo <ann@a.example>"
    assert ThisMachine(("job", "j@x")).identity(clone.path) == "job <j@x>"


def test_a_work_tree_is_told_as_it_is(clone: GitRepository, tmp_path: Path) -> None:
    root, git = clone.path, GitProcess(clone.path)
    assert MACHINE.work_tree(root, "main") == WorkTree("main", 0, 0, 0, ignored=True)
    (root / "untracked").touch()
    (root / "a.json").write_text("changed\n")
    (root / ".gitignore").write_text("")
    assert MACHINE.work_tree(root, "main") == WorkTree("main", 2, 0, 0, ignored=False)
    git.check("commit", "--quiet", "-a", "-m", "mine")
    with GitRepository(tmp_path / "lead") as lead:
        push(lead, {RepoPath("b"): b"1"})
        push(lead, {RepoPath("b"): b"2"})
    clone.fetch()
    assert MACHINE.work_tree(root, "main") == WorkTree("main", 0, 1, 2, ignored=False)
    git.check("checkout", "--quiet", "--detach")
    assert MACHINE.work_tree(root, "main").branch is None
    git.check("checkout", "--quiet", "-b", "topic")
    assert MACHINE.work_tree(root, "main").branch == "topic"
    assert MACHINE.work_tree(root, "trunk") == WorkTree("topic", 0, 0, 0, ignored=False)  # origin has none


def test_what_is_no_clone_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(GitError):
        MACHINE.work_tree(tmp_path, "main")


def test_an_ignore_file_that_git_cannot_read_is_an_error_and_not_an_answer(
    clone: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = GitProcess._command

    def command(self: GitProcess, args: tuple[str, ...]) -> list[str]:
        return real(self, ("check-ignore",) if "check-ignore" in args else args)

    monkeypatch.setattr(GitProcess, "_command", command)
    with pytest.raises(GitError, match="check-ignore"):
        MACHINE.work_tree(clone.path, "main")


@pytest.mark.parametrize(
    ("text", "expected", "state"),
    [
        ("", ("unspecified", "unspecified", "unspecified", "unspecified"), "ok"),
        ("*.json text eol=lf\n", ("set", "lf", "unspecified", "unspecified"), "ok"),
        ("*.json -text\n", ("unset", "unspecified", "unspecified", "unspecified"), "ok"),
        ("* merge=union\n", ("unspecified", "unspecified", "union", "unspecified"), "broken"),
        ("* filter=lfs\n", ("unspecified", "unspecified", "unspecified", "lfs"), "broken"),
    ],
)
def test_attributes_are_those_that_git_goes_by(
    text: str, expected: tuple[str, str, str, str], state: str, clone: GitRepository
) -> None:
    (clone.path / ".gitattributes").write_text(text)
    paths = ["a.json", "sites/some where/x.json"]
    found = MACHINE.attributes(clone.path, paths)
    assert found == tuple(Attributes(path, *expected) for path in paths)
    assert check_attributes(found, MACHINE.git_config(clone.path, "core.autocrlf")).state == state


def test_a_setting_of_the_clone_is_read(clone: GitRepository) -> None:
    assert MACHINE.git_config(clone.path, "core.autocrlf") is None
    GitProcess(clone.path).check("config", "core.autocrlf", "input")
    assert MACHINE.git_config(clone.path, "core.autocrlf") == "input"


# ---------------------------------------------------------------- keys


def test_a_key_is_described_without_its_content(tmp_path: Path) -> None:
    key = make_key(tmp_path, "k")
    facts = MACHINE.key_facts(key.private)
    assert (facts.path, facts.public) == (str(key.private), key.public)
    assert (facts.open_to_others, facts.locked) == (False, False)


def test_a_key_with_a_passphrase_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "k"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(path)], check=True)
    assert MACHINE.key_facts(path).locked


@pytest.mark.parametrize("beside", [True, False])
def test_a_key_that_others_may_read_is_said_to_be_so(beside: bool, tmp_path: Path) -> None:
    key = make_key(tmp_path, "k")
    key.private.chmod(0o644)
    if not beside:
        key.private.with_suffix(".pub").unlink()  # then ssh-keygen would have to read the private one, and does not
    facts = MACHINE.key_facts(key.private)
    assert (facts.open_to_others, facts.locked) == (True, False)
    assert facts.public == (key.public if beside else "")


def test_a_key_that_is_not_there_or_a_public_one_is_an_error(tmp_path: Path) -> None:
    key = make_key(tmp_path, "k")
    with pytest.raises(ConfigError, match="no such key"):
        MACHINE.key_facts(tmp_path / "none")
    with pytest.raises(ConfigError, match="is the public key"):
        MACHINE.key_facts(key.private.with_suffix(".pub"))


# ---------------------------------------------------------------- may a site write?


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LayoutStore:
    """A store on which rights hold for the test's user too, who may be root."""
    root = tmp_path / "store"
    root.mkdir()

    def access(path: Path, mode: int) -> bool:
        return bool(path.stat().st_mode & 0o200)

    monkeypatch.setattr(os, "access", access)
    return LayoutStore(root)


def put(store: LayoutStore, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    file.write_bytes(b"model")
    store.put("sites/a", file, {})


def test_a_store_says_before_whether_a_site_may_write(store: LayoutStore, tmp_path: Path) -> None:
    probe: WriteProbe = store
    assert isinstance(store, WriteProbe)
    assert probe.write_fault("sites/a") is None  # nothing is there yet: it may be made
    assert list(store.root.iterdir()) == []
    put(store, tmp_path)
    before = sorted(store.root.rglob("*"))
    assert probe.write_fault("sites/a") is None
    assert sorted(store.root.rglob("*")) == before


@pytest.mark.parametrize("path", ["sites/a", "sites/a/blobs/sha256", "sites/a/.lock"])
def test_what_may_not_be_written_is_named(path: str, store: LayoutStore, tmp_path: Path) -> None:
    put(store, tmp_path)
    place = store.root / path
    mode = place.stat().st_mode
    place.chmod(mode & ~0o222)
    assert store.write_fault("sites/a") == f"{place}: no right to write"
    place.chmod(mode)


def test_a_new_site_needs_the_right_to_make_its_folder(store: LayoutStore) -> None:
    store.root.chmod(0o500)
    assert store.write_fault("sites/b") == f"{store.root}: no right to write"
    store.root.chmod(0o700)


def test_a_store_that_is_not_mounted_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="folder is not there"):
        LayoutStore(tmp_path / "none").write_fault("sites/a")
