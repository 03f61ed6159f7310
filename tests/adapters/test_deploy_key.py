"""Pushes with a deploy key: by the real ssh to a server of the test, and what is left behind when they end badly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedops.adapters.deploy_key import _OPTIONS, told_host_keys
from fedops.adapters.git_repo import GitRepository
from fedops.cli.deploy_ssh import main
from fedops.cli.scratch import scratch_folder
from fedops.cli.tokens import git_environment
from fedops.core.errors import ForgeError, GitError
from fedops.core.facts import RefUpdate
from fedops.core.ids import CommitId
from fedops.core.settings import Forge
from tests.cli_world import environment
from tests.forge_worlds import main_of
from tests.github_face.hub import NAME, OWNER
from tests.github_face.level2 import Level2, SshServer, level_2, ssh_server
from tests.github_face.world import FaceWorld, github_world, token_of
from tests.sshkeys import SshKey, make_key

# What an ssh of the tests notes: its arguments, its environment, and the files that it was given, with their modes.
FAKE_SSH = """#!{python}
import json, os, pathlib, sys, time
note = {{"argv": sys.argv[1:], "environ": dict(os.environ), "folder": os.getcwd()}}
note["modes"] = {{p: oct(os.stat(p).st_mode & 0o777) for p in (".", "key", "known_hosts")}}
note["files"] = {{p: pathlib.Path(p).read_text() for p in ("key", "known_hosts")}}
pathlib.Path({note!r}).write_text(json.dumps(note))
time.sleep({seconds})
sys.exit({code})
"""
GIT_ASKS = ("-o", "SendEnv=GIT_PROTOCOL", "git@127.0.0.1", "git-receive-pack '/fed-org/demo.git'")


@dataclass(frozen=True)
class Place:
    """A GitHub whose main takes pushes of the deploy key alone."""

    world: FaceWorld
    ssh: SshServer
    key: SshKey
    face: Level2
    folder: Path

    def environ(self, **more: str) -> dict[str, str]:
        """What a job's step has."""
        given = {"FEDOPS_TOKEN": token_of("lena"), "FEDOPS_DEPLOY_KEY": self.key.private.read_text(), **more}
        return {name: value for name, value in given.items() if value}

    def push(self, **more: str) -> tuple[bool, CommitId]:
        """A clone by HTTPS, a commit, a push of it to main."""
        forge = Forge(kind="github", repository=f"{OWNER}/{NAME}", api_url=self.world.server.api)
        environ = self.environ(**more)
        url = f"{self.world.server.web}/{OWNER}/{NAME}.git"
        path = self.ssh.client(self.folder / "bin")
        with (
            environment(PATH=path, **environ),
            GitRepository.clone(
                url,
                self.folder / f"clone-{len(list(self.folder.iterdir()))}",
                author=("x", "x@example.invalid"),
                env=git_environment(forge, environ),
            ) as clone,
        ):
            before = main_of(clone)
            commit = clone.write_commit((before,), {}, "m", at=clone.commit(before).committed_at)
            return clone.push([RefUpdate("refs/heads/main", before, commit)]), commit

    def main(self) -> str:
        return str(self.world.hub.ref(self.world.hub.upstream, "refs/heads/main"))


@pytest.fixture
def place(keys: Mapping[str, SshKey], template: Path, tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "place"
    folder.mkdir()
    (tmp_path / "world").mkdir()
    made = github_world(keys, template, tmp_path / "world")
    world = next(made)
    key = make_key(folder, "deploy-key")
    with ssh_server(world.hub, key.public) as ssh:
        face = level_2(world.server, [ssh.host_key])
        face.require_pull_request()
        yield Place(world, ssh, key, face, folder)
    next(made, None)


def left_behind() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).iterdir())


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    assert left_behind() == []


# ---------------------------------------------------------------- the whole way, by the real ssh


def test_with_the_key_main_is_pushed_by_ssh_and_everything_else_goes_by_https(place: Place) -> None:
    won, commit = place.push()
    assert (won, place.main()) == (True, commit)
    assert place.ssh.commands == [f"git-receive-pack '/{OWNER}/{NAME}.git'"]
    assert not [path for _, path, _ in place.world.hub.requests if "receive-pack" in path]
    assert [path for _, path, _ in place.world.hub.requests if "upload-pack" in path]
    assert place.face.asked == [f"Bearer {token_of('lena')}"]


def test_without_the_key_the_rule_refuses_the_job_and_says_where_to_look(place: Place) -> None:
    before = place.main()
    with pytest.raises(GitError, match="push refused") as caught:
        place.push(FEDOPS_DEPLOY_KEY="")
    assert (caught.value.slug, "fedops doctor" in caught.value.hint) == ("push_refused", True)
    assert (place.main(), place.ssh.commands, place.face.asked) == (before, [], [])


def test_a_server_with_another_host_key_than_github_tells_gets_nothing(place: Place, tmp_path: Path) -> None:
    other = " ".join(make_key(tmp_path, "other").public.split()[:2])
    place.face.host_keys = [other]
    before = place.main()
    with pytest.raises(GitError, match="Host key verification failed"):
        place.push()
    assert (place.main(), place.ssh.commands) == (before, [])


def test_a_key_that_the_repository_does_not_know_is_refused(place: Place, tmp_path: Path) -> None:
    before = place.main()
    with pytest.raises(GitError, match="Permission denied") as caught:
        place.push(FEDOPS_DEPLOY_KEY=make_key(tmp_path, "stray").private.read_text())
    assert (caught.value.cause, place.main()) == ("auth", before)


def test_a_server_that_does_not_tell_its_host_keys_is_known_by_those_of_the_lead(place: Place) -> None:
    place.face.host_keys = None
    with pytest.raises(GitError, match="does not tell its ssh host keys") as caught:
        place.push()
    assert "FEDOPS_DEPLOY_HOST_KEYS" in caught.value.message
    place.face.asked.clear()
    won, commit = place.push(FEDOPS_DEPLOY_HOST_KEYS=f"# of the administrator\n127.0.0.1 {place.ssh.host_key}\n")
    assert (won, place.main(), place.face.asked) == (True, commit, [])


def test_ssh_understands_the_options_and_takes_nothing_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    command = ["ssh", "-G", *_OPTIONS, "-o", "HostKeyAlias=github.com", "git@github.com"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    told = dict(line.split(" ", 1) for line in shown.stdout.splitlines() if " " in line)
    assert {
        name: told[name]
        for name in ("identityfile", "identitiesonly", "identityagent", "batchmode", "stricthostkeychecking",
                     "userknownhostsfile", "globalknownhostsfile", "hostkeyalias", "updatehostkeys", "checkhostip")
    } == {
        "identityfile": "key", "identitiesonly": "yes", "identityagent": "none", "batchmode": "yes",
        "stricthostkeychecking": "true", "userknownhostsfile": "known_hosts", "globalknownhostsfile": "/dev/null",
        "hostkeyalias": "github.com", "updatehostkeys": "false", "checkhostip": "no",
    }  # fmt: skip
    assert shown.stdout.count("identityfile ") == 1


# ---------------------------------------------------------------- the files, with an ssh that only notes


@dataclass(frozen=True)
class Noted:
    """What the ssh of the test saw."""

    argv: list[str]
    environ: Mapping[str, str]
    folder: Path
    modes: Mapping[str, str]
    files: Mapping[str, str]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], Noted]]:
    """Puts an ssh first on PATH; gives what reads its note."""

    def put(code: int = 0, seconds: float = 0) -> Callable[[], Noted]:
        note, program = tmp_path / "note.json", tmp_path / "fake" / "ssh"
        program.parent.mkdir(exist_ok=True)
        program.write_text(FAKE_SSH.format(python=sys.executable, note=str(note), seconds=seconds, code=code))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

        def read() -> Noted:
            found = json.loads(note.read_text())
            return Noted(found["argv"], found["environ"], Path(found["folder"]), found["modes"], found["files"])

        return read

    return put


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment in which git starts what stands for ssh."""
    key = make_key(tmp_path, "deploy-key")
    host_key = " ".join(make_key(tmp_path, "host").public.split()[:2])
    secrets = {"FEDOPS_DEPLOY_KEY": key.private.read_text(), "FEDOPS_GIT_PASSWORD": "canary", "GITHUB_TOKEN": "canary"}
    return {**secrets, "FEDOPS_DEPLOY_HOST_KEYS": host_key, "GIT_PROTOCOL": "version=2"}


def test_the_key_is_in_a_private_file_and_in_nothing_else(
    fake: Callable[..., Callable[[], Noted]], job: dict[str, str]
) -> None:
    read = fake(code=3)
    before = os.umask(0)
    try:
        assert main(["http://127.0.0.1:1", *GIT_ASKS], {**os.environ, **job}) == 3
    finally:
        os.umask(before)
    noted = read()
    assert noted.modes == {".": "0o700", "key": "0o600", "known_hosts": "0o600"}
    assert noted.files == {
        "key": job["FEDOPS_DEPLOY_KEY"],
        "known_hosts": f"127.0.0.1 {job['FEDOPS_DEPLOY_HOST_KEYS']}\n",
    }
    assert noted.argv[-len(GIT_ASKS) :] == list(GIT_ASKS)
    shown = " ".join([*noted.argv, *noted.environ.values()])
    assert "canary" not in shown
    assert "PRIVATE KEY" not in shown
    assert noted.environ["GIT_PROTOCOL"] == "version=2"
    assert not noted.folder.exists()


@contextmanager
def connected(job: Mapping[str, str], note: Path) -> Iterator[subprocess.Popen[bytes]]:
    """What stands for ssh, once its ssh has noted what it got."""
    command = [sys.executable, "-P", "-m", "fedops.cli.deploy_ssh", "http://127.0.0.1:1", *GIT_ASKS]
    process = subprocess.Popen(command, env={**os.environ, **job}, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: note.is_file() and bool(note.read_text()))
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_key_is_gone_after_a_signal_and_ssh_too(
    number: signal.Signals, fake: Callable[..., Callable[[], Noted]], job: dict[str, str], tmp_path: Path
) -> None:
    read = fake(seconds=600)
    with connected(job, tmp_path / "note.json") as process:
        folder = read().folder
        assert (folder / "key").is_file()
        for _ in range(3):  # whoever stops a job sends more than one
            process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert not folder.exists()
    assert not working_in(folder)


def test_a_key_that_a_killed_process_left_is_removed_by_the_next_command(
    fake: Callable[..., Callable[[], Noted]], job: dict[str, str], tmp_path: Path
) -> None:
    read = fake(seconds=3)  # nobody ends it, so it must end by itself
    with connected(job, tmp_path / "note.json") as process:
        folder = read().folder
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert (folder / "key").is_file()
    with scratch_folder():
        assert not folder.exists()


def test_the_key_is_gone_when_git_was_killed_in_the_middle_of_a_push(place: Place, tmp_path: Path) -> None:
    """git's end closes the pipes of the real ssh, and with ssh the file goes."""
    path = place.ssh.client(tmp_path / "bin")
    command = [sys.executable, "-P", "-m", "fedops.cli.deploy_ssh", place.world.server.api, *GIT_ASKS]
    env = {**os.environ, **place.environ(), "PATH": path}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.read(4), "the server has begun to answer"
        assert len(left_behind()) == 1
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


def working_in(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += [entry.name] if (entry / "cwd").readlink().is_relative_to(folder) else []
            except OSError:
                continue
    return found


def wait_for(holds: Callable[[], bool], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("arguments", "change", "says"),
    [
        (["git@evil.example", "git-receive-pack 'x'"], {}, "is for git@127.0.0.1"),
        (GIT_ASKS, {"FEDOPS_DEPLOY_KEY": "no key"}, "not a private key"),
        (GIT_ASKS, {"FEDOPS_DEPLOY_HOST_KEYS": ""}, "no answer (ConnectionError)"),
        (GIT_ASKS, {"PATH": "/nowhere"}, "ssh: not found"),
    ],
)
def test_why_there_was_no_connection_is_told_as_git_passes_it_on(
    arguments: list[str], change: dict[str, str], says: str, job: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    environ = {**os.environ, **job, **change}
    with environment(PATH=environ["PATH"]):
        code = main(["http://127.0.0.1:1", *arguments], environ)
    err = capfd.readouterr().err
    assert (err.startswith("error: "), says in err, err.count("\n")) == (True, True, 1)
    assert code == (127 if "not found" in says else 255)


# ---------------------------------------------------------------- GET /meta


def test_what_github_tells_of_its_host_keys_is_taken_line_by_line(place: Place) -> None:
    api, key = place.world.server.api, place.ssh.host_key
    place.face.host_keys = [key, "ssh-ed25519 AAAA", "ecdsa-sha2-nistp256"]
    assert told_host_keys(api, None) == (key,)
    place.face.host_keys = None
    assert told_host_keys(api, "t") == ()
    assert place.face.asked == ["", "Bearer t"]


@pytest.mark.parametrize("status", [304, 401, 500])
def test_another_answer_is_no_list_of_keys(status: int, place: Place) -> None:
    place.face.status = status
    with pytest.raises(ForgeError, match=f"/meta: .*HTTP {status}") as caught:
        told_host_keys(place.world.server.api, None)
    assert caught.value.cause == "temporary"
