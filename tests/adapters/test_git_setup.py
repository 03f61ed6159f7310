"""The clone that `fedops init` starts from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fedops.adapters.git_repo import GitRepository
from fedops.adapters.git_setup import demand_clone, is_clone, make_origin
from fedops.core.errors import ConfigError


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "clone").mkdir()
    return tmp_path / "clone"


def test_one_call_makes_a_bare_repository_and_its_clone(clone: Path, tmp_path: Path) -> None:
    for _ in range(2):
        make_origin(clone, tmp_path / "fed.git", "main")
        assert git(tmp_path / "fed.git", "rev-parse", "--is-bare-repository") == "true"
        assert git(tmp_path / "fed.git", "symbolic-ref", "HEAD") == "refs/heads/main"
        assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/main"
        assert git(clone, "remote", "get-url", "origin") == str(tmp_path / "fed.git")
        demand_clone(clone, "main")
    assert is_clone(clone, "main")


def test_an_existing_repository_keeps_its_history(clone: Path, tmp_path: Path) -> None:
    git(clone, "init", "-q", "-b", "main")
    git(clone, "commit", "-q", "--allow-empty", "-m", "mine")
    make_origin(clone, tmp_path / "fed.git", "main")
    assert git(clone, "log", "--format=%s") == "mine"


def test_an_existing_bare_repository_is_taken(clone: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "fed.git")
    make_origin(clone, tmp_path / "fed.git", "main")
    with GitRepository(clone) as repository:
        assert repository.remote_url() == str(tmp_path / "fed.git")


def test_an_empty_folder_is_no_clone_and_the_commands_are_named(clone: Path) -> None:
    with pytest.raises(ConfigError, match="not a git repository") as caught:
        demand_clone(clone, "trunk")
    assert "git init -b trunk . && git remote add origin URL" in caught.value.hint
    assert "fedops init --origin ../fed.git" in caught.value.hint
    assert not is_clone(clone, "trunk")


def test_a_repository_without_origin_is_not_enough(clone: Path) -> None:
    git(clone, "init", "-q", "-b", "main")
    with pytest.raises(ConfigError, match="no remote `origin`") as caught:
        demand_clone(clone, "main")
    assert caught.value.hint.startswith("git remote add origin URL")


def test_a_folder_inside_another_repository_is_not_its_top(clone: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    with pytest.raises(ConfigError, match="inside the repository") as caught:
        demand_clone(clone, "main")
    assert caught.value.hint == f"cd {tmp_path}"
    with pytest.raises(ConfigError, match="inside the repository"):
        make_origin(clone, tmp_path / "fed.git", "main")
    assert not (tmp_path / "fed.git").exists()


def test_a_clone_of_another_origin_is_left_alone(clone: Path, tmp_path: Path) -> None:
    make_origin(clone, tmp_path / "one.git", "main")
    with pytest.raises(ConfigError, match=r"one\.git -> .*two\.git"):
        make_origin(clone, tmp_path / "two.git", "main")
    assert not (tmp_path / "two.git").exists()


@pytest.mark.parametrize("inside", ["a file", "a work tree"])
def test_a_folder_with_other_contents_does_not_become_an_origin(clone: Path, tmp_path: Path, inside: str) -> None:
    there = tmp_path / "there"
    there.mkdir()
    if inside == "a file":
        (there / "x").touch()
    else:
        git(there, "init", "-q")
    with pytest.raises(ConfigError, match="is no bare repository"):
        make_origin(clone, there, "main")
    assert list(clone.iterdir()) == []
