"""Clones as CI services make them: without blobs, or cut off after some commits. They must answer as a whole one does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.adapters.git_repo import GitRepository
from fedops.app.merged import merged_state
from fedops.app.snapshot import main_snapshot
from fedops.app.verify import verify
from fedops.core.findings import errors
from tests.scenario.fed import Fed, GitFed, fast_folder
from tests.scenario.oracle import check_all

A, B = "hospital-a", "hospital-b"


def git(where: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(where), *words], capture_output=True, check=True, text=True).stdout


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with fast_folder() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def fed(folder: Path) -> Iterator[Fed]:
    """Three versions, and submissions on the last that CI has not seen yet."""

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}.items():
            patch.setenv(name, value)
        fed = GitFed(folder, rules={"trigger": {"quorum": 2}}, people=("lena", A, B), sites=(A, B))
        git(fed.origin, "config", "uploadpack.allowFilter", "true")
        git(fed.origin, "config", "uploadpack.allowAnySHA1InWant", "true")
        for number in range(3):
            fed.submit(A, 1.0 + number)
            fed.submit(B, 9.0 + number)
            fed.reconcile()
            fed.commit({f"docs/{number}.md": b"x" * 100, "docs/log.md": b"%d" % number})
        fed.submit(A, 30.0)
        yield fed
        fed.close()


def cloned(fed: Fed, name: str, *options: str) -> Path:
    """A clone as `actions/checkout` makes it: main alone, checked out."""
    assert isinstance(fed, GitFed)
    target = fed.folder / name
    words = ["git", "clone", "--quiet", "--no-tags", "--single-branch", *options, f"file://{fed.origin}", str(target)]
    subprocess.run(words, check=True, capture_output=True)
    return target


def missing(clone: Path) -> int:
    """How many objects of history the clone does not have."""
    listed = git(clone, "rev-list", "--objects", "--all", "--missing=print")
    return sum(line.startswith("?") for line in listed.splitlines())


def look(fed: Fed, clone: Path) -> object:
    """What a run of CI would find: what is merged and unused, which version there is, what verify says."""
    with GitRepository(clone, author=("bot", "bot@example.invalid")) as repository:
        ctx = fed.context(repository=repository, forge=fed.forge("bot", repository))
        ctx.repository.fetch(pulls=())
        main = main_snapshot(repository)
        merged = merged_state(repository, main)
        checked = [(c.version, errors(c.findings)) for c in verify(ctx, main, None)]
        pulls = [(p.number, p.head, p.author) for p in ctx.forge.open_pulls()]
        return main.commit, main.version, merged, checked, pulls


def test_a_clone_without_blobs_answers_as_a_whole_one_and_needs_no_old_blob_for_a_run(fed: Fed) -> None:
    clone = cloned(fed, "blobless", "--filter=blob:none")
    assert missing(clone) > 10
    with GitRepository(clone, author=("bot", "bot@example.invalid")) as repository:
        ctx = fed.context(repository=repository, forge=fed.forge("bot", repository))
        repository.fetch(pulls=())
        before = missing(clone)
        [pull] = ctx.forge.open_pulls()
        assert repository.changes(main_snapshot(repository).commit, pull.head)
        merged_state(repository, main_snapshot(repository))
        assert missing(clone) == before, "an old blob was fetched, each by a connection of its own"
    assert look(fed, clone) == look(fed, cloned(fed, "whole"))
    assert missing(clone) < before, "verify fetches what it must read again"


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_clone_that_was_cut_off_is_made_whole_before_anything_is_decided_on_it(fed: Fed, depth: int) -> None:
    clone = cloned(fed, f"shallow-{depth}", f"--depth={depth}")
    assert git(clone, "rev-parse", "--is-shallow-repository").strip() == "true"
    assert look(fed, clone) == look(fed, cloned(fed, f"whole-{depth}"))
    assert git(clone, "rev-parse", "--is-shallow-repository").strip() == "false"


def test_a_run_in_a_shallow_clone_without_blobs_makes_the_next_version(fed: Fed) -> None:
    clone = cloned(fed, "both", "--depth=1", "--filter=blob:none")
    fed.submit(B, 40.0)
    with GitRepository(clone, author=("bot", "bot@example.invalid")) as repository:
        done = fed.reconcile(fed.context(repository=repository, forge=fed.forge("bot", repository)))
        assert [v.version for v in done.published] == [4]
    check_all(fed, rerun=lambda: fed.reconcile().changed)
