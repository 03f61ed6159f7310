"""git over HTTP with a token: who is asked for it, who is refused, and what comes of a push to a fork."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from fedops.adapters.git_credentials import git_credentials
from fedops.adapters.git_repo import GitRepository
from fedops.core.errors import GitError
from fedops.core.facts import RefUpdate
from tests.adapters.refusing import NO_WORKFLOWS, refuse
from tests.forge_worlds import main_of, submission
from tests.github_face.world import FaceWorld, github_world, token_of
from tests.sshkeys import SshKey


@pytest.fixture
def world(keys: Mapping[str, SshKey], template: Path, tmp_path: Path) -> Iterator[FaceWorld]:
    yield from github_world(keys, template, tmp_path)


def url(world: FaceWorld, owner: str = "fed-org") -> str:
    return f"{world.server.web}/{owner}/demo.git"


def cloned(world: FaceWorld, folder: Path, token: str | None) -> GitRepository:
    return GitRepository.clone(
        url(world), folder / "clone", author=("x", "x@example.invalid"), env=git_credentials(world.server.web, token)
    )


def test_with_the_token_a_lead_pushes_and_the_token_is_written_nowhere(world: FaceWorld, tmp_path: Path) -> None:
    with cloned(world, tmp_path, token_of("lena")) as clone:
        main = main_of(clone)
        commit = clone.write_commit((main,), {}, "m", at=clone.commit(main).committed_at)
        assert clone.push((RefUpdate("refs/heads/main", main, commit),))
    assert token_of("lena") not in "".join(
        path.read_text(errors="replace") for path in (tmp_path / "clone").rglob("*") if path.is_file()
    )


def test_a_token_is_not_offered_where_nobody_asks_for_it(world: FaceWorld, tmp_path: Path) -> None:
    cloned(world, tmp_path, token_of("lena")).close()
    assert {said for _, path, said in world.hub.requests if "git-upload-pack" in path} == {""}


def test_a_token_goes_to_its_own_host_alone(world: FaceWorld, tmp_path: Path) -> None:
    env = git_credentials("https://github.com", "token-for-github")
    with GitRepository.clone(url(world), tmp_path / "clone", author=("x", "x@x.invalid"), env=env) as clone:
        main = main_of(clone)
        commit = clone.write_commit((main,), {}, "m", at=clone.commit(main).committed_at)
        with pytest.raises(GitError) as raised:
            clone.push((RefUpdate("refs/heads/main", main, commit),))
    assert raised.value.cause == "auth"
    assert {said for _, _, said in world.hub.requests} == {""}


@pytest.mark.parametrize("token", ["stale", None])
def test_who_may_not_write_is_told_so(world: FaceWorld, tmp_path: Path, token: str | None) -> None:
    with cloned(world, tmp_path, None) as clone:
        main = main_of(clone)
        commit = clone.write_commit((main,), {}, "m", at=clone.commit(main).committed_at)
    with GitRepository(tmp_path / "clone", env=git_credentials(world.server.web, token)) as clone:
        for call in (
            lambda: clone.push((RefUpdate("refs/heads/main", main, commit),)),
            lambda: clone.send(url(world), commit, "topic"),
        ):
            with pytest.raises(GitError) as raised:
                call()
            assert (raised.value.slug, raised.value.cause) == ("auth_failed", "auth")
            assert "stale" not in raised.value.message


def test_an_account_without_the_right_is_told_so(world: FaceWorld) -> None:
    head = submission(world, "alice")
    with pytest.raises(GitError) as raised:
        cast("Any", world.repository("alice")).send(url(world), head, "topic")
    assert raised.value.cause == "auth"


def test_an_address_that_is_none_for_this_account_is_told_so(world: FaceWorld, tmp_path: Path) -> None:
    with pytest.raises(GitError) as raised:
        GitRepository.clone(url(world, "nobody"), tmp_path / "none")
    assert (raised.value.slug, raised.value.cause) == ("auth_failed", "auth")
    with cloned(world, tmp_path, None) as clone:
        clone._git.check("remote", "set-url", "origin", url(world, "nobody"))
        calls: tuple[Callable[[], object], ...] = (clone.fetch, lambda: clone._remote.refs(["refs/heads/main"]))
        for call in calls:
            with pytest.raises(GitError) as raised:
                call()
            assert (raised.value.slug, raised.value.cause) == ("auth_failed", "auth")


def test_a_server_that_is_away_is_temporary(world: FaceWorld, tmp_path: Path) -> None:
    with cloned(world, tmp_path, None) as clone:
        main = main_of(clone)
        away = "http://127.0.0.1:1/fed-org/demo.git"
        clone._git.check("remote", "set-url", "origin", away)
        calls: tuple[Callable[[], object], ...] = (clone.fetch, lambda: clone.send(away, main, "topic"))
        for call in calls:
            with pytest.raises(GitError) as raised:
                call()
            assert raised.value.cause == "temporary"


def test_a_branch_of_a_fork_is_moved_and_moving_it_again_sends_nothing(world: FaceWorld) -> None:
    alice = cast("Any", world.repository("alice"))
    fork = world.hub.repos["alice-a/demo"]
    first, second = submission(world, "alice", "1"), submission(world, "alice", "2")
    for head in (first, second, second):
        alice.send(url(world, "alice-a"), head, "submit/hospital-a")
        assert world.hub.ref(fork, "refs/heads/submit/hospital-a") == head
    assert sum(m == "POST" and p.endswith("git-receive-pack") for m, p, _ in world.hub.requests) == 2


def test_a_branch_that_somebody_moves_meanwhile_is_not_overwritten(world: FaceWorld) -> None:
    alice = cast("Any", world.repository("alice"))
    fork = world.hub.repos["alice-a/demo"]
    mine, theirs = submission(world, "alice", "1"), submission(world, "alice", "2")
    alice.send(url(world, "alice-a"), theirs, "other")
    run = alice._git.run

    def meddled(*args: str, **more: Any) -> Any:
        if args[0] == "push":
            world.hub.git(fork, "update-ref", "refs/heads/topic", theirs)
        return run(*args, **more)

    alice._git.run = meddled
    with pytest.raises(GitError) as raised:
        alice.send(url(world, "alice-a"), mine, "topic")
    assert raised.value.cause == "temporary"
    assert world.hub.ref(fork, "refs/heads/topic") == theirs


def refused(world: FaceWorld) -> GitError:
    with pytest.raises(GitError) as raised:
        cast("Any", world.repository("alice")).send(url(world, "alice-a"), submission(world, "alice"), "topic")
    return raised.value


def test_a_rule_of_the_fork_is_told_in_the_forks_words(world: FaceWorld) -> None:
    refuse(world.hub.repos["alice-a/demo"].path, "refs/heads/topic", "push declined due to repository rule violations")
    error = refused(world)
    assert (error.slug, error.cause) == ("push_refused", "permanent")
    assert "push refused, refs/heads/topic: push declined due to repository rule violations: " in error.message
    assert "rule" in error.hint


@pytest.mark.parametrize("why", NO_WORKFLOWS)
def test_a_token_that_may_not_bring_newer_workflows_to_the_fork_is_told_what_to_do(world: FaceWorld, why: str) -> None:
    refuse(world.hub.repos["alice-a/demo"].path, "refs/heads/topic", why)
    error = refused(world)
    assert (error.slug, error.cause) == ("git_failed", "permanent"), "no rule of the fork"
    assert f"refs/heads/topic: {why}: " in error.message
    assert error.hint == "sync the fork with main, or use a token with the scope workflow"


def test_a_lock_in_the_fork_is_no_rule_and_passes(world: FaceWorld) -> None:
    lock = world.hub.repos["alice-a/demo"].path / "refs" / "heads" / "topic.lock"
    lock.touch()
    error = refused(world)
    assert (error.cause, error.hint) == ("temporary", "repeat the command")


def test_git_reads_the_helper_as_it_is_meant(world: FaceWorld) -> None:
    """What git's own `credential fill` makes of the environment, for the host and for another one."""
    env = {**git_credentials("https://github.com", "s3cr3t%s\\n"), "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"}

    def filled(host: str) -> str:
        asked = f"protocol=https\nhost={host}\n\n"
        command = ["git", "credential", "fill"]
        return subprocess.run(command, input=asked, capture_output=True, text=True, env={**os.environ, **env}).stdout

    assert "username=x-access-token\npassword=s3cr3t%s\\n\n" in filled("github.com")
    assert "s3cr3t" not in filled("github.com.evil.example")
    assert "s3cr3t" not in filled("evil.example")
