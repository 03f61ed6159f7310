"""What only real git has: work trees, damage on disk, hostile objects and configuration, servers that refuse."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from fedops.adapters.git_locks import remove_stale_locks
from fedops.adapters.git_objects import ids_in
from fedops.adapters.git_process import GitProcess, Output, failure, words
from fedops.adapters.git_repo import GitRepository, discover
from fedops.core.errors import ConfigError, FedopsError, GitError
from fedops.core.facts import RefUpdate
from fedops.core.ids import BlobId, CommitId, RepoPath
from fedops.ports import Repository
from tests.adapters.refusing import NO_WORKFLOWS, refuse
from tests.fakes_repository import FakeOrigin

AT = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
MAIN = "refs/heads/main"


def git(where: Path, *args: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["git", "-C", str(where), *args], input=stdin, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace").strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A bare origin whose main has the files a and d/b."""
    path = tmp_path / "origin.git"
    GitRepository.init(path, bare=True).close()
    with GitRepository.clone(str(path), tmp_path / "first") as first:
        commit = first.write_commit([], {RepoPath("a"): b"1\n", RepoPath("d/b"): b"2\n"}, "root", at=AT)
        assert first.push([RefUpdate(MAIN, None, commit)])
    return path


@pytest.fixture
def repo(origin: Path, tmp_path: Path) -> Iterator[GitRepository]:
    with GitRepository.clone(str(origin), tmp_path / "clone") as repository:
        yield repository


def main_of(repo: GitRepository) -> CommitId:
    commit = repo.resolve("main")
    assert commit is not None
    return commit


def child(repo: GitRepository, data: bytes = b"x", path: str = "new") -> CommitId:
    return repo.write_commit([main_of(repo)], {RepoPath(path): data}, "child", at=AT)


def slug_of(ask: Callable[[], object]) -> str:
    with pytest.raises(GitError) as caught:
        ask()
    return caught.value.slug


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


# --- opening, cloning, making


def test_a_clone_has_main_checked_out_whatever_branch_the_origin_prefers(origin: Path, tmp_path: Path) -> None:
    git(origin, "symbolic-ref", "HEAD", "refs/heads/other")
    with GitRepository.clone(str(origin), tmp_path / "c") as repo:
        assert (repo.path / "d/b").read_bytes() == b"2\n"
        assert git(repo.path, "symbolic-ref", "HEAD") == MAIN
        assert git(repo.path, "rev-parse", "@{upstream}") == git(origin, "rev-parse", "main")
        assert git(repo.path, "status", "--porcelain") == ""


def test_a_clone_into_a_folder_with_files_is_refused_and_leaves_them(origin: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    for path in ("full", "full/file"):
        with pytest.raises(GitError, match="not an empty folder") as caught:
            GitRepository.clone(str(origin), tmp_path / path)
        assert caught.value.cause == "permanent"
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    GitRepository.clone(str(origin), tmp_path / "empty").close()


def test_an_address_never_runs_a_command(tmp_path: Path) -> None:
    for url in (f"ext::touch {tmp_path}/pwned", f"--upload-pack=touch {tmp_path}/pwned"):
        with pytest.raises(GitError):
            GitRepository.clone(url, tmp_path / "c")
    with GitRepository.init(tmp_path / "r") as repo:
        git(repo.path, "config", "protocol.ext.allow", "always")
        git(repo.path, "remote", "add", "origin", f"ext::touch {tmp_path}/pwned")
        with pytest.raises(GitError):
            repo.fetch()
    assert not (tmp_path / "pwned").exists()


def test_init_makes_the_named_branch_and_keeps_what_is_there(tmp_path: Path) -> None:
    with GitRepository.init(tmp_path / "r", "trunk", author=("A", "a@b")) as repo:
        commit = repo.write_commit([], {RepoPath("f"): b"1"}, "m", at=AT)
        assert repo.commit(commit).author == "A <a@b>"
        git(repo.path, "update-ref", "refs/heads/trunk", commit)
    with GitRepository.init(tmp_path / "r", "trunk") as again:
        assert git(again.path, "symbolic-ref", "HEAD") == "refs/heads/trunk"
        assert (
            again.resolve("trunk")
            == again.resolve("main")
            == again.resolve("refs/heads/trunk")
            == again.resolve("HEAD")
            == commit
        )


def test_a_repository_without_origin_has_its_own_main(tmp_path: Path) -> None:
    with GitRepository.init(tmp_path / "r") as repo:
        assert repo.remote_url() is None
        assert repo.resolve("main") is None
        commit = repo.write_commit([], {}, "m", at=AT)
        git(repo.path, "update-ref", MAIN, commit)
        assert repo.resolve("main") == commit
        with pytest.raises(ConfigError, match="no remote"):
            repo.fetch()
        with pytest.raises(ConfigError, match="no remote"):
            repo.push([RefUpdate(MAIN, None, commit)])


def test_what_is_no_repository_is_refused_also_inside_of_one(repo: GitRepository, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", repo.path / "d"):
        assert slug_of(partial(GitRepository, path)) == "not_a_repository"


def test_a_repository_that_names_objects_by_sha256_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "r")
    assert slug_of(lambda: GitRepository(tmp_path / "r")) == "not_a_repository"


def test_a_git_dir_left_in_the_environment_is_not_followed(
    repo: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    assert slug_of(lambda: GitRepository(repo.path)) == "not_a_repository"


def test_a_linked_work_tree_and_the_git_folder_itself_can_be_opened(repo: GitRepository, tmp_path: Path) -> None:
    git(repo.path, "worktree", "add", "-q", str(tmp_path / "linked"))
    for path in (tmp_path / "linked", repo.path / ".git"):
        with GitRepository(path) as other:
            assert other.resolve("main") == repo.resolve("main")


def test_discover_finds_the_top_of_the_work_tree(repo: GitRepository, origin: Path, tmp_path: Path) -> None:
    assert discover(repo.path / "d") == repo.path
    assert discover(repo.path) == repo.path
    for outside in (tmp_path, origin, tmp_path / "none"):
        assert discover(outside) is None


def test_without_git_the_error_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "from fedops.core.errors import ConfigError\n"
        "try:\n    import fedops.adapters.git_repo\n"
        "except ConfigError as e:\n    print(e.hint)\n"
    )
    env = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.startswith("install git"), done.stderr


def test_git_that_vanishes_later_is_a_configuration_error(
    repo: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="git: not found"):
        repo.config_get("a.b")


def test_closing_ends_every_process_and_reading_starts_anew(repo: GitRepository) -> None:
    repo.commit(main_of(repo))
    running = [process.proc for process in repo._objects._processes.values()]
    assert len(running) == 2
    repo.close()
    repo.close()
    assert all(process.poll() is not None for process in running)
    assert repo.commit(main_of(repo)).message == "root"


def test_a_refused_large_blob_leaves_no_process_behind(repo: GitRepository) -> None:
    commit = child(repo, b"x" * 5_000_000)
    blob = repo.blob_of(commit, "new")
    assert blob is not None
    repo.commit(commit)
    running = repo._objects._processes["--batch"].proc
    assert slug_of(lambda: repo.read(blob, max_bytes=4_999_999)) == "file_too_large"
    assert running.poll() is not None
    assert len(repo.read(blob, max_bytes=5_000_000)) == 5_000_000


# --- writing


def test_writing_touches_neither_index_nor_work_tree_nor_head(repo: GitRepository) -> None:
    (repo.path / "a").write_text("being edited")
    git(repo.path, "add", "a")
    before = {p: p.read_bytes() for p in (repo.path / ".git/index", repo.path / ".git/HEAD", repo.path / "a")}
    commit = repo.write_commit([main_of(repo)], {RepoPath("a"): b"other"}, "m", at=AT)
    repo.write_tag("global@v0.0.0", commit, "m")
    assert {p: p.read_bytes() for p in before} == before
    assert git(repo.path, "for-each-ref", "refs/tags") == ""
    assert git(repo.path, "show", f"{commit}:a") == "other"


def test_the_fake_gives_the_ids_that_git_gives(repo: GitRepository) -> None:
    first: dict[RepoPath, bytes | None] = {RepoPath(p): p.encode() for p in ("a", "a-b", "a0", "c/d/e", "c.d", "c0/x")}
    then: dict[RepoPath, bytes | None] = {RepoPath("a"): None, RepoPath("c/d/f"): b"\0\xff", RepoPath("ä/ö"): b""}

    def ids(repository: Repository) -> tuple[str, ...]:
        root = repository.write_commit([], first, "root\n\nä", at=AT)
        side = repository.write_commit([root], {}, "", at=AT + dt.timedelta(days=1))
        merge = repository.write_commit([root, side], then, "merge", at=AT)
        return (root, side, merge, repository.write_tag("global@v1.0.0", merge, "t"))

    assert ids(repo) == ids(FakeOrigin().clone())


def test_nobody_to_name_as_author_is_a_configuration_error(
    repo: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name)
    git(repo.path, "config", "user.useConfigOnly", "true")
    with pytest.raises(ConfigError) as caught:
        child(repo)
    assert "user.name" in caught.value.hint


def test_a_nul_in_a_message_is_refused(repo: GitRepository) -> None:
    assert slug_of(lambda: repo.write_commit([], {}, "a\0b", at=AT)) == "git_failed"


def test_the_environment_given_reaches_git(origin: Path, repo: GitRepository) -> None:
    with GitRepository(repo.path, env={"GIT_AUTHOR_NAME": "Env", "GIT_OPTIONAL_LOCKS": "1"}) as other:
        assert other.commit(child(other)).author == "Env <test@example.invalid>"


# --- hooks and configuration of the clone


HOOKS = ("pre-push", "reference-transaction", "post-checkout", "post-merge", "pre-commit", "post-index-change")


def test_hooks_and_monitors_of_the_clone_never_run(repo: GitRepository, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    for name in HOOKS:
        script(repo.path / ".git/hooks" / name, f"echo {name} >> {seen}\nexit 1\n")
    monitor = script(tmp_path / "monitor", f"echo monitor >> {seen}\n")
    git(repo.path, "config", "core.fsmonitor", str(monitor))
    git(repo.path, "config", "gpg.ssh.program", str(monitor))
    seen.unlink(missing_ok=True)
    commit = child(repo)
    assert repo.push([RefUpdate(MAIN, main_of(repo), commit)])
    repo.fetch()
    assert repo.checkout_main() == "fast_forwarded"
    assert not seen.exists()


def test_configuration_that_would_change_a_push_or_a_diff_has_no_effect(repo: GitRepository, origin: Path) -> None:
    git(repo.path, "tag", "-a", "private", "-m", "m")
    before = repo.write_commit([main_of(repo)], {RepoPath("d/b"): None, RepoPath("ä"): b"2\n"}, "ö", at=AT)
    for key, value in {
        "push.followTags": "true",
        "remote.origin.mirror": "true",
        "push.gpgSign": "true",
        "diff.renames": "copies",
        "diff.ignoreSubmodules": "all",
        "diff.noprefix": "true",
        "i18n.commitEncoding": "ISO-8859-1",
        "core.quotePath": "true",
        "core.splitIndex": "true",
    }.items():
        git(repo.path, "config", key, value)
    main = main_of(repo)
    commit = repo.write_commit([main], {RepoPath("d/b"): None, RepoPath("ä"): b"2\n"}, "ö", at=AT)
    assert commit == before
    assert repo.push([RefUpdate(MAIN, main, commit)])
    assert git(origin, "for-each-ref", "--format=%(refname)") == MAIN
    assert [(c.path, c.status) for c in repo.changes(main, commit)] == [("d/b", "D"), ("ä", "A")]
    assert repo.commit(commit).message == "ö"


def test_a_fetch_moves_no_branch_of_the_user_whatever_the_clone_is_set_to(repo: GitRepository, origin: Path) -> None:
    git(repo.path, "checkout", "-q", "--detach")
    git(repo.path, "config", "remote.origin.fetch", "+refs/*:refs/*")
    old = main_of(repo)
    git(origin, "fetch", "-q", str(repo.path), f"{child(repo)}:main")
    repo.fetch()
    assert main_of(repo) != old
    assert git(repo.path, "rev-parse", MAIN) == old


def test_a_clone_remembers_what_main_has_been_newest_first(repo: GitRepository, origin: Path) -> None:
    first = main_of(repo)
    assert repo.seen_main() in ((), (first,))
    second = child(repo)
    assert repo.push([RefUpdate("refs/heads/main", first, second)])
    assert repo.seen_main() == (second, first)
    git(origin, "update-ref", "refs/heads/main", first)
    repo.fetch()
    assert repo.seen_main() == (first, second)
    git(repo.path, "reflog", "expire", "--expire=now", "--all")
    assert repo.seen_main() == ()
    git(repo.path, "config", "core.logAllRefUpdates", "false")
    (repo.path / ".git" / "logs" / "refs" / "remotes" / "origin" / "main").unlink()
    assert repo.seen_main() == ()


def test_a_submodule_that_asks_to_be_ignored_is_still_a_change(repo: GitRepository) -> None:
    ask = b'[submodule "s"]\n\tpath = s\n\turl = x\n\tignore = all\n'
    base = repo.write_commit([main_of(repo)], {RepoPath(".gitmodules"): ask}, "m", at=AT)
    (repo.path / ".gitmodules").write_bytes(ask)
    heads = []
    for digit in "12":
        tree = git(repo.path, "mktree", stdin=f"160000 commit {digit * 40}\ts\n".encode())
        heads.append(CommitId(git(repo.path, "commit-tree", tree, "-p", base, "-m", "m")))
    tree = git(repo.path, "rev-parse", heads[1] + "^{tree}")
    change = CommitId(git(repo.path, "commit-tree", tree, "-p", heads[0], "-m", "m"))
    assert [(c.path, c.status, c.mode, c.blob) for c in repo.changes(heads[0], change)] == [
        ("s", "M", "160000", "2" * 40)
    ]


def test_replaced_objects_and_grafts_do_not_rewrite_what_is_read(repo: GitRepository) -> None:
    main = main_of(repo)
    honest = child(repo)
    forged = repo.write_commit([], {RepoPath("a"): b"forged"}, "forged", at=AT)
    git(repo.path, "update-ref", f"refs/replace/{honest}", forged)
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/grafts").write_text(f"{honest} {forged}\n")
    assert repo.commit(honest).message == "child"
    assert [e.path for e in repo.entries(honest)] == ["a", "d/b", "new"]
    assert repo.is_ancestor(main, honest)
    assert not repo.is_ancestor(forged, honest)
    assert [c.path for c in repo.changes(main, honest)] == ["new"]


# --- the origin's answers


def test_a_push_that_the_origins_hook_declines_is_an_error_and_moves_nothing(repo: GitRepository, origin: Path) -> None:
    script(origin / "hooks/update", 'test "$1" = refs/fedops/x\n')
    main, commit = main_of(repo), child(repo)
    with pytest.raises(GitError, match="hook declined") as caught:
        repo.push([RefUpdate(MAIN, main, commit), RefUpdate("refs/fedops/x", None, commit)])
    assert (caught.value.slug, caught.value.cause) == ("push_refused", "permanent")
    assert "refs/fedops/x" not in git(origin, "for-each-ref")
    assert repo.resolve("main") == main


@pytest.mark.parametrize("why", NO_WORKFLOWS)
def test_an_origin_that_takes_no_workflows_from_this_token_says_so(repo: GitRepository, origin: Path, why: str) -> None:
    refuse(origin, MAIN, why)
    main = main_of(repo)
    with pytest.raises(GitError) as caught:
        repo.push([RefUpdate(MAIN, main, child(repo))])
    assert f"{MAIN}: {why}: " in caught.value.message
    assert caught.value.slug == "git_failed", "no rule: it is not for a pull request to go around it"
    assert "scope `workflow`" in caught.value.hint
    assert git(origin, "rev-parse", "main") == main


def test_an_origin_with_main_checked_out_says_how_to_allow_the_push(repo: GitRepository, tmp_path: Path) -> None:
    with GitRepository.clone(str(repo.path), tmp_path / "second") as second:
        main = main_of(second)
        commit = child(second)
        with pytest.raises(GitError) as caught:
            second.push([RefUpdate(MAIN, main, commit)])
        assert caught.value.cause == "permanent"
        assert caught.value.slug == "git_failed", "no rule: it is not for a pull request to go around it"
        assert "receive.denyCurrentBranch" in caught.value.hint
        git(repo.path, "config", "receive.denyCurrentBranch", "updateInstead")
        assert second.push([RefUpdate(MAIN, main, commit)])
        assert (repo.path / "new").read_bytes() == b"x"


def test_a_lock_in_the_origin_is_a_lost_race_until_it_goes(repo: GitRepository, origin: Path) -> None:
    lock = origin / "refs/heads/main.lock"
    lock.touch()
    main, commit = main_of(repo), child(repo)
    updates = [RefUpdate(MAIN, main, commit), RefUpdate("refs/fedops/x", None, commit)]
    assert repo.push(updates) is False
    assert "refs/fedops/x" not in git(origin, "for-each-ref")
    lock.unlink()
    assert repo.push(updates)


def aged(lock: Path) -> Path:
    """A lock that a git left which was killed an hour ago."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    then = lock.stat().st_mtime - 3600
    os.utime(lock, (then, then))
    return lock


@pytest.mark.parametrize("name", ["refs/heads/main.lock", "packed-refs.lock"])
def test_a_lock_that_a_killed_push_left_in_the_origin_goes_with_the_second_try(
    repo: GitRepository, origin: Path, name: str
) -> None:
    lock, main = aged(origin / name), main_of(repo)
    updates = [RefUpdate(MAIN, main, child(repo)), RefUpdate("refs/fedops/x", None, main)]
    # A lock on all packed refs keeps nothing but deletions from being done.
    assert repo.push(updates) is (name == "packed-refs.lock")
    assert repo.push(updates)
    away = [RefUpdate("refs/fedops/x", main, None)]
    assert repo.push(away) is (name != "packed-refs.lock")
    assert repo.push(away)
    assert not lock.exists()


@pytest.mark.parametrize("name", ["refs/remotes/origin/main.lock", "refs/fedops/x.lock", "packed-refs.lock"])
def test_locks_that_a_killed_fetch_left_stand_in_nobodys_way(
    repo: GitRepository, origin: Path, tmp_path: Path, name: str
) -> None:
    with GitRepository.clone(str(origin), tmp_path / "other") as other:
        assert other.push([RefUpdate("refs/fedops/x", None, main_of(other))])
        repo.fetch()
        commit = child(other)
        assert other.push([RefUpdate(MAIN, main_of(other), commit), RefUpdate("refs/fedops/x", main_of(repo), None)])
    lock = aged(repo.path / ".git" / name)
    repo.fetch()
    assert (main_of(repo), repo.resolve("refs/fedops/x"), lock.exists()) == (commit, None, False)


def test_a_lock_that_may_be_held_is_named_and_left(repo: GitRepository, origin: Path) -> None:
    git(origin, "update-ref", "refs/fedops/x", main_of(repo))
    lock = aged(repo.path / ".git/refs/fedops/x.lock")
    lock.touch()
    with pytest.raises(GitError) as caught:
        repo.fetch()
    assert (caught.value.cause, str(lock) in caught.value.hint, lock.exists()) == ("temporary", True, True)


def test_a_push_that_is_won_is_won_although_it_cannot_be_noted_here(
    repo: GitRepository, origin: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (repo.path / ".git/refs/remotes/origin/main.lock").touch()
    main, commit = main_of(repo), child(repo)
    assert repo.push([RefUpdate(MAIN, main, commit)])
    assert (git(origin, "rev-parse", "main"), main_of(repo)) == (commit, main)
    assert "after the push" in caplog.text
    aged(repo.path / ".git/refs/remotes/origin/main.lock")
    assert repo.push([RefUpdate(MAIN, main, commit)])
    assert main_of(repo) == commit


def test_a_lock_that_cannot_be_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = aged(tmp_path / "refs/a.lock"), aged(tmp_path / "refs/b.lock")

    def refuse(path: Path) -> None:
        raise FileNotFoundError(path) if path == first else PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert remove_stale_locks(tmp_path) == 0
    assert f"{second}: cannot be removed: Permission denied" in caplog.text
    assert str(first) not in caplog.text


def test_a_push_whose_answer_is_lost_has_won_all_the_same(repo: GitRepository, origin: Path) -> None:
    script(origin / "hooks/post-receive", "kill -9 $PPID\n")
    commit = child(repo)
    assert repo.push([RefUpdate(MAIN, main_of(repo), commit)])
    assert git(origin, "rev-parse", "main") == commit == repo.resolve("main")


def test_a_hostile_reason_cannot_steer_a_terminal(repo: GitRepository) -> None:
    error = repo._remote._refusal([(b"refs/heads/main", b"\x1b[2J\xff no")], Output(1, b"", "remote: error: \x07\n"))
    assert error.message == "origin: push refused, refs/heads/main: ?[2J\ufffd no: exit code 1, remote: error: ?"


def test_an_origin_that_can_be_read_but_not_written_is_a_matter_of_rights(repo: GitRepository) -> None:
    git(repo.path, "config", "remote.origin.receivepack", "false")
    with pytest.raises(GitError) as caught:
        repo.push([RefUpdate(MAIN, main_of(repo), child(repo))])
    assert (caught.value.slug, caught.value.cause) == ("auth_failed", "auth")


def test_a_connection_that_breaks_once_is_temporary(repo: GitRepository, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    breaks = script(tmp_path / "receive", f'test -e {flag} && exec git-receive-pack "$@"\ntouch {flag}\nexit 1\n')
    git(repo.path, "config", "remote.origin.receivepack", str(breaks))
    update = RefUpdate(MAIN, main_of(repo), child(repo))
    with pytest.raises(GitError) as caught:
        repo.push([update])
    assert caught.value.cause == "temporary"
    assert repo.push([update])


def test_an_origin_that_is_away_is_named_and_nothing_looks_fresh(
    repo: GitRepository, origin: Path, tmp_path: Path
) -> None:
    main, commit = main_of(repo), child(repo)
    origin.rename(tmp_path / "away")
    for ask in (repo.fetch, lambda: repo.push([RefUpdate(MAIN, main, commit)])):
        with pytest.raises(GitError, match=f"{origin}: no such folder") as caught:
            ask()
        assert (caught.value.cause, caught.value.slug) == ("permanent", "origin_missing")
    (tmp_path / "away").rename(origin)
    repo.fetch()
    assert repo.resolve("main") == main


def test_a_fetch_that_cannot_write_its_refs_fails_although_the_origin_answers(
    repo: GitRepository, origin: Path
) -> None:
    git(origin, "update-ref", "refs/fedops/x", main_of(repo))
    (repo.path / ".git/refs/fedops").mkdir()
    (repo.path / ".git/refs/fedops/x.lock").touch()
    for _ in range(2):
        with pytest.raises(GitError) as caught:
            repo.fetch()
        assert caught.value.cause == "temporary"
        git(origin, "update-ref", "-d", MAIN)
    assert repo.resolve("main") is not None
    (repo.path / ".git/refs/fedops/x.lock").unlink()
    repo.fetch()
    assert repo.resolve("main") is None


def test_a_tag_moved_upstream_arrives_moved(repo: GitRepository, origin: Path) -> None:
    main = main_of(repo)
    git(repo.path, "tag", "global@v1.0.0", child(repo))
    git(origin, "tag", "global@v1.0.0", main)
    git(repo.path, "tag", "global@v2.0.0", main)
    git(repo.path, "tag", "mine", main)
    repo.fetch()
    assert [(t.tag, t.commit) for t in repo.versions()] == [("global@v1.0.0", main)]
    assert repo.resolve("mine") == main


def test_credentials_and_control_characters_do_not_reach_messages(repo: GitRepository) -> None:
    told = words("hint: x\nfatal: unable to access 'https://user:s3cret@h.example/r.git/': \x1b[31mno\n")
    assert told == "fatal: unable to access 'https://h.example/r.git/': ?[31mno"
    assert words("only this\n") == "only this"
    assert words("") == ""
    assert len(words("error: " + "x" * 10_000)) == 300
    git(repo.path, "remote", "set-url", "origin", "bad://user:s3cret@h.example/r.git")
    with pytest.raises(GitError) as caught:
        repo.fetch()
    assert "s3cret" not in caught.value.message


def test_the_address_of_the_remote_is_told_as_git_uses_it(repo: GitRepository, origin: Path) -> None:
    assert repo.remote_url() == str(origin)
    git(repo.path, "remote", "set-url", "origin", "../origin.git")
    assert repo.remote_url() == str(origin)
    git(repo.path, "config", "url.https://h.example/.insteadOf", "h:")
    git(repo.path, "remote", "set-url", "origin", "h:fed.git")
    assert repo.remote_url() == "https://h.example/fed.git"


def test_configuration_is_read_exactly(repo: GitRepository) -> None:
    assert repo.config_get("fedops.site") is None
    git(repo.path, "config", "fedops.site", "two\nlines ")
    git(repo.path, "config", "--add", "fedops.site", "last\n")
    assert repo.config_get("fedops.site") == "last\n"
    (repo.path / ".git/config").write_text("[broken")
    assert slug_of(lambda: repo.config_get("fedops.site")) == "git_failed"


# --- the work tree


def test_the_work_tree_follows_main_only_when_nothing_can_be_lost(repo: GitRepository, origin: Path) -> None:
    assert repo.checkout_main() == "up_to_date"
    first = main_of(repo)
    assert repo.push([RefUpdate(MAIN, first, child(repo))])
    (repo.path / "a").write_text("edited")
    assert repo.checkout_main() == "dirty"
    git(repo.path, "checkout", "-q", "a")
    (repo.path / "new").write_text("untracked, in the way")
    assert repo.checkout_main() == "dirty"
    assert (repo.path / "new").read_text() == "untracked, in the way"
    (repo.path / "new").unlink()
    git(repo.path, "checkout", "-q", "-b", "work")
    assert repo.checkout_main() == "other_branch"
    git(repo.path, "checkout", "-q", "main")
    assert repo.checkout_main() == "fast_forwarded"
    assert (repo.path / "new").read_bytes() == b"x"
    assert git(repo.path, "status", "--porcelain") == ""
    git(repo.path, "commit", "-q", "--allow-empty", "-m", "own")
    assert repo.checkout_main() == "up_to_date"  # ahead of origin: nothing to move forward to
    assert repo.push([RefUpdate(MAIN, main_of(repo), child(repo, b"y", "other"))])
    assert repo.checkout_main() == "diverged"


def test_a_clone_of_an_empty_origin_gets_its_first_work_tree_later(tmp_path: Path) -> None:
    GitRepository.init(tmp_path / "o.git", bare=True).close()
    with GitRepository.clone(str(tmp_path / "o.git"), tmp_path / "c") as repo:
        assert repo.checkout_main() == "no_main"
        commit = repo.write_commit([], {RepoPath("f"): b"1"}, "m", at=AT)
        assert repo.push([RefUpdate(MAIN, None, commit)])
        assert repo.checkout_main() == "fast_forwarded"
        assert (repo.path / "f").read_bytes() == b"1"
    with GitRepository(tmp_path / "o.git") as bare:
        assert bare.checkout_main() == "no_work_tree"


def test_blob_of_gives_regular_files_alone(repo: GitRepository) -> None:
    link = git(repo.path, "hash-object", "-w", "--stdin", stdin=b"a")
    listing = f"120000 blob {link}\tlink\n160000 commit {'1' * 40}\tsub\n100755 blob {link}\trun\n"
    commit = CommitId(git(repo.path, "commit-tree", git(repo.path, "mktree", stdin=listing.encode()), "-m", "m"))
    assert repo.blob_of(commit, "run") == link
    assert [repo.blob_of(commit, path) for path in ("link", "sub", "none", "run/x", "")] == [None] * 5
    main = main_of(repo)
    assert repo.blob_of(main, "d") is None
    assert repo.blob_of(main, "d/b") == git(repo.path, "rev-parse", "main:d/b")


# --- damage


def loose(repo: GitRepository, name: str) -> Path:
    path = repo.path / ".git/objects" / name[:2] / name[2:]
    if path.exists():
        path.chmod(0o644)
    return path


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def substitute(path: Path, kind: str, data: bytes) -> None:
    """An object that inflates without complaint, under the wrong name."""
    path.write_bytes(zlib.compress(f"{kind} {len(data)}\0".encode() + data))


def test_every_damaged_object_is_named_by_whatever_reads_it(repo: GitRepository) -> None:
    main = main_of(repo)
    commit = repo.write_commit([main], {RepoPath("d/b"): b"changed"}, "m", at=AT)
    blob = git(repo.path, "rev-parse", f"{commit}:d/b")
    folder = git(repo.path, "rev-parse", f"{commit}:d")
    root = git(repo.path, "rev-parse", f"{commit}^{{tree}}")
    asks: dict[str, list[Callable[[], object]]] = {
        blob: [lambda: repo.read(BlobId(blob), max_bytes=99)],
        folder: [lambda: repo.entries(commit), lambda: repo.changes(main, commit)],
        root: [lambda: repo.entries(commit), lambda: repo.changes(main, commit)],
        commit: [
            lambda: repo.commit(commit),
            lambda: repo.entries(commit),
            lambda: repo.changes(main, commit),
            lambda: repo.is_ancestor(main, commit),
            lambda: repo.resolve("refs/fedops/x"),
            lambda: repo.signer(commit, []),
        ],
    }
    git(repo.path, "update-ref", "refs/fedops/x", commit)
    for name, readers in asks.items():
        path = loose(repo, name)
        good = path.read_bytes()
        for damage in (partial(flip, path), path.unlink):
            damage()
            for ask in readers:
                with pytest.raises(GitError) as caught:
                    ask()
                assert caught.value.slug == "object_corrupt"
                assert name in caught.value.message
            assert repo.fsck() == [name]
            path.write_bytes(good)
    assert repo.fsck() == []


def test_a_blob_that_is_gone_is_named_by_a_listing_of_sizes(repo: GitRepository) -> None:
    commit = child(repo)
    blob = repo.blob_of(commit, "new")
    assert blob is not None
    loose(repo, blob).unlink()
    with pytest.raises(GitError, match=blob) as caught:
        repo.entries(commit)
    assert caught.value.slug == "object_corrupt"


def test_a_whole_object_under_another_ones_name_is_found_by_its_hash(repo: GitRepository) -> None:
    commit = child(repo)
    blob = repo.blob_of(commit, "new")
    assert blob is not None
    substitute(loose(repo, blob), "blob", b"y")
    raw = subprocess.run(["git", "-C", str(repo.path), "cat-file", "commit", commit], capture_output=True).stdout
    substitute(loose(repo, commit), "commit", raw.replace(b"child", b"chilD"))
    assert slug_of(lambda: repo.read(blob, max_bytes=9)) == "object_corrupt"
    assert slug_of(lambda: repo.commit(commit)) == "object_corrupt"
    assert slug_of(lambda: repo.signer(commit, [])) == "object_corrupt"
    assert set(repo.fsck()) >= {blob, commit}


def test_damage_in_the_middle_of_a_large_object_is_found_and_reading_goes_on(repo: GitRepository) -> None:
    commit = child(repo, os.urandom(3_000_000))
    blob = repo.blob_of(commit, "new")
    assert blob is not None
    flip(loose(repo, blob))
    repo.commit(main_of(repo))
    assert slug_of(lambda: repo.read(blob, max_bytes=3_000_000)) == "object_corrupt"
    assert repo.commit(main_of(repo)).message == "root"
    assert repo.fsck() == [blob]


def test_a_reading_process_that_was_killed_is_replaced(repo: GitRepository) -> None:
    main = main_of(repo)
    repo.commit(main)
    for process in repo._objects._processes.values():
        process.proc.kill()
        process.proc.wait()
    assert repo.commit(main).message == "root"
    assert main_of(repo) == main


def test_a_clone_that_vanished_is_an_error(repo: GitRepository) -> None:
    main = main_of(repo)
    repo.close()
    repo.path.rename(repo.path.with_name("elsewhere"))
    for ask in (partial(repo.commit, main), partial(repo.entries, main), repo.versions, repo.fsck, repo.fetch):
        with pytest.raises(FedopsError):
            ask()


def test_a_clone_that_lost_its_git_folder_is_not_taken_for_the_repository_around_it(repo: GitRepository) -> None:
    main = main_of(repo)
    git(repo.path.parent, "clone", "-q", "--bare", str(repo.path), ".git")
    repo.close()
    (repo.path / ".git").rename(repo.path / "moved")
    for ask in (partial(repo.commit, main), partial(repo.entries, main), repo.versions):
        with pytest.raises(GitError):
            ask()


def test_a_failure_without_damage_keeps_gits_own_words(repo: GitRepository) -> None:
    error = repo._objects.explain("git ls-tree", Output(9, b"", "fatal: odd\n"), [main_of(repo)])
    assert (error.message, error.slug) == ("git ls-tree: exit code 9, fatal: odd", "git_failed")


def test_many_reads_of_damaged_objects_never_block(repo: GitRepository) -> None:
    blob = BlobId(git(repo.path, "hash-object", "-w", "--stdin", stdin=b"some text that can be damaged"))
    flip(loose(repo, blob))
    for _ in range(60):
        assert slug_of(lambda: repo.read(blob, max_bytes=99)) == "object_corrupt"


def test_a_ref_or_tag_that_is_broken_is_not_taken_for_a_missing_one(repo: GitRepository) -> None:
    (repo.path / ".git/refs/fedops").mkdir()
    (repo.path / ".git/refs/fedops/x").write_text("")
    assert slug_of(lambda: repo.resolve("refs/fedops/x")) == "object_corrupt"
    assert repo.resolve("refs/fedops/y") is None
    assert slug_of(repo.fsck) == "object_corrupt"
    (repo.path / ".git/refs/fedops/x").unlink()
    (repo.path / ".git/refs/tags/global@v1.0.0").write_text("1" * 40 + "\n")
    with pytest.raises(GitError, match="1" * 40) as caught:
        repo.versions()
    assert caught.value.slug == "object_corrupt"


def test_ids_are_found_in_what_git_says_but_not_in_names_of_packs() -> None:
    one, two = "1" * 40, "ab" + "2" * 38
    text = f"missing blob {one}\nerror: .git/objects/ab/{'2' * 38}: corrupt {one}\npack-{'3' * 40}.idx {'4' * 64}"
    assert ids_in(text) == (one, two)


# --- hostile objects


def raw_commit(repo: GitRepository, data: bytes) -> CommitId:
    return CommitId(git(repo.path, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=data))


def test_a_commit_is_read_whatever_its_author_wrote(repo: GitRepository) -> None:
    tree = git(repo.path, "rev-parse", "main^{tree}").encode()
    cases: Mapping[bytes, tuple[str, dt.datetime]] = {
        b"committer \xff\xfe <a<b>>c@d> 86400 +0545": (
            "\ufffd\ufffd <a<b>>c@d>",
            dt.datetime(1970, 1, 2, tzinfo=dt.UTC),
        ),
        b"committer A <> 99999999999999999999 +0000": (
            "A <> 99999999999999999999 +0000",
            dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        ),
        b"committer A <a@b> 999999999999 +0000": ("A <a@b>", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        b"committer A <a@b> -5 +0000": ("A <a@b> -5 +0000", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        b"committer A <a@b>": ("A <a@b>", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        b"committer": ("", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        b"nobody": ("", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        b"encoding zlib\ncommitter \x1b]0; <a@b> 253402300799 -9999": (
            "\x1b]0; <a@b>",
            dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
        ),
    }
    for line, expected in cases.items():
        parent = main_of(repo)
        data = b"tree %s\nparent %s\nauthor X <x> 1 +0000\n%s\nparent %s\n\na\0b\xffc\n\n" % (
            tree,
            parent.encode(),
            line,
            b"1" * 40,
        )
        facts = repo.commit(commit := raw_commit(repo, data))
        assert (facts.committer, facts.committed_at) == expected
        assert (facts.parents, facts.author, facts.message) == ((parent,), "X <x>", "a\0b\ufffdc\n")
        assert [c.id for c in repo.commits(parent, commit)] == [commit]
        assert repo.signer(commit, []) is None


def test_a_commit_that_git_itself_could_not_follow_is_called_corrupt(repo: GitRepository) -> None:
    for data in (b"tree %s\nparent xyz\n\nm" % (b"1" * 40), b"tree %s\nparent \xff\n\nm" % (b"1" * 40)):
        commit = raw_commit(repo, data)
        assert slug_of(partial(repo.commit, commit)) == "object_corrupt"
    empty = repo.commit(raw_commit(repo, b""))
    assert (empty.parents, empty.author, empty.message) == ((), "", "")


def test_whole_but_malformed_objects_are_no_damage(repo: GitRepository) -> None:
    tree = git(repo.path, "rev-parse", "main^{tree}")
    raw_commit(repo, f"tree {tree}\nauthor nobody\n\nm".encode())
    assert repo.fsck() == []


def test_a_commit_with_an_endless_message_is_refused_before_reading(
    repo: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedops.adapters.git_objects.METADATA_BYTES", 1000)
    commit = repo.write_commit([], {}, "x" * 1000, at=AT)
    assert slug_of(lambda: repo.commit(commit)) == "file_too_large"


def test_names_that_are_not_utf8_are_shown_with_replacement_characters(repo: GitRepository) -> None:
    blob = git(repo.path, "hash-object", "-w", "--stdin", stdin=b"1")
    tree = git(repo.path, "mktree", "-z", stdin=b"100644 blob %s\t\xff\n\xfe\0" % blob.encode())
    commit = CommitId(git(repo.path, "commit-tree", tree, "-p", main_of(repo), "-m", "m"))
    assert [e.path for e in repo.entries(commit)] == ["\ufffd\n\ufffd"]
    assert ("\ufffd\n\ufffd", "A") in {(c.path, c.status) for c in repo.changes(main_of(repo), commit)}


def test_tags_that_name_no_commit_or_another_tag_are_told_as_they_are(repo: GitRepository) -> None:
    main = main_of(repo)
    blob = git(repo.path, "rev-parse", "main:a")
    git(repo.path, "tag", "global@v1.0.0", blob)
    git(repo.path, "tag", "-a", "-m", "of a blob", "global@v2.0.0", blob)
    git(repo.path, "tag", "-a", "-m", "inner", "inner", main)
    git(repo.path, "tag", "-a", "-m", "outer\n\nbody", "global@v3.0.0", "inner")
    tags = repo.versions()
    assert [(t.version, t.annotated, t.message) for t in tags] == [
        (1, False, ""),
        (2, True, "of a blob"),
        (3, True, "outer\n\nbody"),
    ]
    assert [t.commit for t in tags] == [blob, tags[1].object, main]
    assert repo.resolve("global@v1.0.0") is None
    assert repo.resolve("global@v3.0.0") == main


def test_a_tag_carries_its_commits_committer_and_date_exactly(repo: GitRepository) -> None:
    tree = git(repo.path, "rev-parse", "main^{tree}")
    commit = raw_commit(repo, f"tree {tree}\nauthor A <a> 1 +0000\ncommitter Bé <b@c> 1000000000 +0530\n\nm".encode())
    tag = repo.write_tag("global@v1.0.0", commit, "global: v1")
    assert git(repo.path, "cat-file", "tag", tag) == (
        f"object {commit}\ntype commit\ntag global@v1.0.0\ntagger Bé <b@c> 1000000000 +0530\n\nglobal: v1"
    )
    nobody = raw_commit(repo, f"tree {tree}\nauthor A <a> 1 +0000\ncommitter nobody\n\nm".encode())
    assert slug_of(lambda: repo.write_tag("global@v1.0.0", nobody, "m")) == "git_failed"


def test_a_ref_is_never_looked_up_below_another_folder(repo: GitRepository) -> None:
    git(repo.path, "update-ref", "refs/tags/refs/pull/7/head", main_of(repo))
    git(repo.path, "update-ref", "refs/tags/main", child(repo))
    assert repo.resolve("refs/pull/7/head") is None
    assert repo.resolve("main") == main_of(repo) == git(repo.path, "rev-parse", "refs/remotes/origin/main")


def test_output_of_git_is_kept_apart_from_its_words(repo: GitRepository) -> None:
    process = GitProcess(repo.path)
    output = process.run("rev-parse", "--verify", "nothing")
    assert isinstance(output, Output)
    assert (output.code, output.out) == (128, b"")
    with pytest.raises(GitError, match="git rev-parse: exit code 128, fatal: "):
        process.check("rev-parse", "--verify", "nothing")


@pytest.mark.parametrize(
    ("code", "said", "cause"),
    [
        (128, "fatal: bad object", "permanent"),
        (-9, "", "temporary"),
        (128, "fatal: unable to write file: No space left on device", "temporary"),
        (128, "error: cannot fork() for x: Resource temporarily unavailable", "temporary"),
    ],
)
def test_what_a_full_or_failing_machine_does_to_git_may_pass(code: int, said: str, cause: str) -> None:
    assert failure("git x", Output(code, b"", said)).cause == cause
    assert failure("git x", Output(code, b"", said), cause="auth").cause == "auth"
