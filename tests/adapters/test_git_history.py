"""Walking a line of history that is damaged, or that somebody's configuration or copies would show otherwise."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.adapters.git_history import touched
from fedops.adapters.git_process import GitProcess, Output
from fedops.adapters.git_repo import GitRepository
from fedops.core.errors import GitError
from fedops.core.ids import CommitId, RepoPath

AT = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[GitRepository]:
    with GitRepository.init(tmp_path / "clone") as repository:
        yield repository


def git(repo: GitRepository, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(repo.path), *arguments], capture_output=True, check=True)
    return done.stdout.decode().strip()


def line(repo: GitRepository, length: int) -> list[CommitId]:
    """Each commit writes its number into s/f; oldest first."""
    commits: list[CommitId] = []
    for n in range(length):
        files: dict[RepoPath, bytes | None] = {RepoPath("s/f"): b"%d" % n, RepoPath("other"): b"%d" % n}
        commits.append(repo.write_commit(commits[-1:], files, f"c{n}", at=AT))
    return commits


def damage(repo: GitRepository, name: str) -> None:
    path = repo.path / ".git" / "objects" / name[:2] / name[2:]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


def told(repo: GitRepository, until: CommitId) -> list[tuple[CommitId, list[str] | None]]:
    walk = repo.touched(until, ["s"])
    return [(t.commit, None if t.changes is None else [c.path for c in t.changes]) for t in walk]


def test_a_damaged_tree_hides_two_commits_and_no_other(repo: GitRepository) -> None:
    commits = line(repo, 6)
    damage(repo, git(repo, "rev-parse", f"{commits[2]}:s"))
    assert told(repo, commits[5]) == [
        (commits[5], ["s/f"]),
        (commits[4], ["s/f"]),
        (commits[3], None),
        (commits[2], None),
        (commits[1], ["s/f"]),
        (commits[0], ["s/f"]),
    ]


def test_damage_at_both_ends(repo: GitRepository) -> None:
    commits = line(repo, 4)
    for n in (0, 3):
        damage(repo, git(repo, "rev-parse", f"{commits[n]}^{{tree}}"))
    assert [changes for _, changes in told(repo, commits[3])] == [None, ["s/f"], None, None]


def test_a_damaged_tree_beside_the_folders_hides_nothing(repo: GitRepository) -> None:
    files: dict[RepoPath, bytes | None] = {RepoPath("s/f"): b"1", RepoPath("away/g"): b"2"}
    commit = repo.write_commit([], files, "m", at=AT)
    damage(repo, git(repo, "rev-parse", f"{commit}:away"))
    assert told(repo, commit) == [(commit, ["s/f"])]


def test_the_line_ends_with_an_error_at_a_damaged_commit_and_the_newer_ones_came_before(repo: GitRepository) -> None:
    commits = line(repo, 5)
    damage(repo, commits[2])
    walk = repo.touched(commits[4], ["s"])
    seen = [next(walk), next(walk)]
    assert [(t.commit, t.changes is None) for t in seen] == [(commits[4], False), (commits[3], True)]
    with pytest.raises(GitError, match=commits[2]) as caught:
        next(walk)
    assert caught.value.slug == "object_corrupt"


def test_a_newest_commit_that_is_damaged_is_named(repo: GitRepository) -> None:
    commits = line(repo, 2)
    damage(repo, commits[1])
    with pytest.raises(GitError, match=commits[1]) as caught:
        told(repo, commits[1])
    assert caught.value.slug == "object_corrupt"


def test_a_walk_that_git_refuses_without_damage_keeps_its_words(
    repo: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = line(repo, 2)
    run = GitProcess.run

    def broken(self: GitProcess, *arguments: str, **options: object) -> Output:
        if "rev-list" in arguments:
            return Output(9, b"", "fatal: odd\n")
        return run(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(GitProcess, "run", broken)
    with pytest.raises(GitError, match="fatal: odd"):
        told(repo, commits[1])


def test_a_failure_without_damage_is_told_and_not_repeated_for_each_commit(
    repo: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = line(repo, 3)
    run, calls = GitProcess.run, []

    def broken(self: GitProcess, *arguments: str, **options: object) -> Output:
        if "diff-tree" in arguments:
            calls.append(arguments)
            return Output(9, b"", "fatal: odd\n")
        return run(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(GitProcess, "run", broken)
    with pytest.raises(GitError, match="fatal: odd") as caught:
        told(repo, commits[2])
    assert (caught.value.slug, len(calls)) == ("git_failed", 1)


def test_configuration_of_the_clone_changes_nothing(repo: GitRepository) -> None:
    commits = line(repo, 3)
    honest = told(repo, commits[2])
    for key, value in {
        "diff.renames": "copies",
        "diff.orderFile": "/dev/null",
        "diff.noprefix": "true",
        "diff.external": "false",
        "diff.ignoreSubmodules": "all",
        "log.showRoot": "false",
        "log.showSignature": "true",
        "log.diffMerges": "combined",
        "core.abbrev": "4",
        "core.quotePath": "true",
        "color.ui": "always",
    }.items():
        git(repo, "config", key, value)
    assert told(repo, commits[2]) == honest


def test_a_copy_of_history_beside_the_objects_is_not_believed(repo: GitRepository) -> None:
    """A commit-graph says what each commit's parents are and which paths it changes; here it is of other commits."""
    commits = line(repo, 4)
    git(repo, "update-ref", "refs/heads/main", commits[3])
    git(repo, "commit-graph", "write", "--reachable", "--changed-paths")
    honest = told(repo, commits[3])
    (graph,) = (repo.path / ".git" / "objects" / "info").glob("commit-graph*")
    graph.chmod(0o644)
    data = bytearray(graph.read_bytes())
    for at in range(len(data) - 120, len(data) - 20):
        data[at] ^= 0xFF
    graph.write_bytes(data)
    assert told(repo, commits[3]) == honest


def test_names_that_are_odd_are_told_whole(repo: GitRepository) -> None:
    names = ["s/a b", "s/:100644", "s/tab\tnew\nline", "s/ä", "s/" + "1" * 40]
    commit = repo.write_commit([], {RepoPath(name): b"1" for name in names}, "m", at=AT)
    assert told(repo, commit) == [(commit, sorted(names))]


def test_only_an_object_id_is_walked(repo: GitRepository) -> None:
    with pytest.raises(GitError, match="object id"):
        list(touched(repo._git, repo._objects, CommitId("--all"), ["s"]))
