"""What is told where a remote cannot be read: the line that names the cause, a hint that fits the address, the exit code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedops.adapters.git_access import access_cause, local_folder, no_access, ssh_host
from fedops.adapters.git_process import GitProcess, Output, failure, words
from fedops.adapters.git_repo import GitRepository, discover
from fedops.adapters.git_send import send_branch
from fedops.adapters.git_setup import is_bare, make_clone, make_origin
from fedops.cli.console import exit_code
from fedops.core.errors import GitError, passes

END = (
    "fatal: Could not read from remote repository.\n\n"
    "Please make sure you have the correct access rights\nand the repository exists.\n"
)
SSH = "git@git.example:acme/heart.git"
HTTPS = "https://git.example/acme/heart.git"
KEY_CHANGED = (
    "@@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@@@\nHost key verification failed.\n"
)
NOT_FOUND = "The project you were looking for could not be found or you don't have permission to view it."
FRAMED = f"remote: \nremote: ====\nremote: \nremote: ERROR: {NOT_FOUND}\nremote: \nremote: ====\nremote: \n"
REFUSED = "ssh: connect to host git.example port 22: Connection refused"


@pytest.mark.parametrize(
    ("url", "said", "told", "code", "hint"),
    [
        (SSH, f"{REFUSED}\n{END}", REFUSED, 5, "check the connection"),
        (SSH, f"Host key verification failed.\n{END}", "Host key verification failed.", 2, "known_hosts"),
        (SSH, KEY_CHANGED + END, "Host key verification failed.", 2, "`ssh git@git.example`"),
        (HTTPS, KEY_CHANGED + END, "Host key verification failed.", 2, "ask its administrator"),
        (SSH, f"{FRAMED}{END}", f"remote: ERROR: {NOT_FOUND}", 4, "ssh -T git@git.example"),
        (SSH, f"ERROR: Repository not found.\n{END}", "ERROR: Repository not found.", 4, "ssh-add -l"),
        (
            "ssh://ci@git.example:2222/heart.git",
            f"Warning: Permanently added 'h' to the list.\nci@git.example: Permission denied (publickey,password).\n{END}",
            "ci@git.example: Permission denied (publickey,password).",
            4,
            "`ssh -T git@git.example`",
        ),
        (
            SSH,
            f"fatal: 'x' does not appear to be a git repository\n{END}",
            "fatal: 'x' does not appear to be a git",
            2,
            "-v`",
        ),
        (
            HTTPS,
            f"fatal: Authentication failed for '{HTTPS}/'\n",
            "fatal: Authentication failed",
            4,
            "set GITHUB_TOKEN",
        ),
        (
            HTTPS,
            f"remote: Repository not found.\nfatal: repository '{HTTPS}/' not found\n",
            "fatal: repo",
            4,
            "GITHUB_TOKEN",
        ),
        (
            HTTPS,
            "fatal: unable to access: Could not resolve host: git.example\n",
            "fatal: unable",
            5,
            "check the connection",
        ),
    ],
)
def test_the_cause_is_told_with_a_hint_that_fits(url: str, said: str, told: str, code: int, hint: str) -> None:
    error = no_access("origin: fetch", Output(128, b"", said), url, start=Path("/"))
    assert error.message.startswith(f"origin: fetch: exit code 128, {told}")
    assert "Could not read" not in error.message
    assert (exit_code(error), hint in error.hint) == (code, True)
    assert ("TOKEN" in error.hint) == (url == HTTPS and code == 4)


def test_words_of_a_server_cannot_steer_a_terminal_and_show_no_password() -> None:
    said = f"ssh: \x1b[2Jhttps://me:s3cret@git.example refused\n{END}"
    assert words(said) == "ssh: ?[2Jhttps://git.example refused"
    assert words(END) == "fatal: Could not read from remote repository."
    assert words(f"Warning: x\n{END}") == "fatal: Could not read from remote repository."


@pytest.mark.parametrize(
    ("url", "host", "folder"),
    [
        ("git@h.example:a/b.git", "h.example", None),
        ("h.example:b.git", "h.example", None),
        ("me@[::1]:b", "::1", None),
        ("ssh://me@h.example:22/b", "h.example", None),
        ("git+ssh://[::1]:22/b", "::1", None),
        ("https://h.example/b", None, None),
        ("https://me:x@h.example/b:c", None, None),
        ("git://h.example/b", None, None),
        ("ext::sh -c x", None, None),
        ("/srv/b.git", None, "/srv/b.git"),
        ("../b.git", None, "/here/../b.git"),
        ("./a:b", None, "/here/a:b"),
        ("/srv/a:b", None, "/srv/a:b"),
        ("file:///srv/b.git", None, "/srv/b.git"),
        ("C:/fed/b.git", None, "/here/C:/fed/b.git"),
        ("C:\\fed", None, "/here/C:\\fed"),
    ],
)
def test_an_address_is_ssh_or_a_folder_or_neither(url: str, host: str | None, folder: str | None) -> None:
    assert ssh_host(url) == host
    assert local_folder(url, Path("/here")) == (Path(folder) if folder is not None else None)


def test_a_host_that_looks_like_a_command_is_quoted() -> None:
    error = no_access("x", Output(128, b"", "Permission denied (publickey)"), "ssh://$(id) x/y", start=Path("/"))
    assert "ssh -T 'git@$(id) x'" in error.hint


def test_a_port_that_nobody_listens_at_is_told_by_ssh_itself(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host h port 22: Connection refused' >&2\nexit 255\n")
    ssh.chmod(0o755)
    with pytest.raises(GitError, match="exit code 128, ssh: connect to host h port 22: Connection refused") as caught:
        GitRepository.clone("ssh://h/x", tmp_path / "c", env={"GIT_SSH_COMMAND": str(ssh)})
    assert (caught.value.cause, caught.value.hint) == ("temporary", "check the connection, then repeat")


@pytest.mark.parametrize("kind", ["", "file://"])
def test_a_folder_that_is_not_there_is_named_and_only_a_service_waits_for_it(kind: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, what in (("none.git", "no such folder"), ("empty", "no git repository")):
        place = tmp_path / name
        for ask in (
            lambda: GitRepository.clone(f"{kind}{place}", tmp_path / "c").close(),  # noqa: B023 called at once
            lambda: make_clone(tmp_path / "d", f"{kind}{place}", "main"),  # noqa: B023
            lambda: send_branch(GitProcess(tmp_path), f"{kind}{place}", None, "x"),  # type: ignore[arg-type]  # noqa: B023
        ):
            with pytest.raises(GitError, match=f"{place}: {what}") as caught:
                ask()
            assert (exit_code(caught.value), passes(caught.value)) == (2, True)
            assert "git remote set-url origin" in caught.value.hint


def test_another_users_repository_is_told_with_gits_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, clone = tmp_path / "fed eration.git", tmp_path / "clone"
    clone.mkdir()
    make_origin(clone, origin, "main")
    with GitRepository(clone) as repository:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        command = "git config --global --add safe.directory "
        asked = {
            f"'{origin}'": (lambda: GitRepository.clone(str(origin), tmp_path / "c"), lambda: is_bare(origin)),
            str(clone): (lambda: GitRepository(clone), lambda: discover(clone)),
        }
        for path, asks in asked.items():
            for ask in asks:
                with pytest.raises(GitError, match="dubious ownership") as caught:
                    ask()
                assert (caught.value.hint, exit_code(caught.value)) == (command + path, 2)
                assert "not a git repository" not in caught.value.message
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(clone))
        with pytest.raises(GitError, match=r"origin: fetch: .*dubious ownership") as caught:
            repository.fetch()
        assert (caught.value.hint, caught.value.slug) == (f"{command}'{origin}'", "foreign_owner")


@pytest.mark.parametrize("path", ["*", "/srv/not here", "."])
def test_a_folder_of_another_machine_is_never_to_be_trusted_on_this_one(path: str) -> None:
    """Over ssh these are the server's words, and git takes `*` for every folder there is."""
    said = Output(128, b"", f"fatal: detected dubious ownership in repository at '{path}'\n")
    hint = failure("git fetch", said).hint
    assert hint == "git config --global --add safe.directory PATH, on the machine that has it"


@pytest.mark.skipif(os.name != "posix", reason="groups of files")
@pytest.mark.parametrize(
    ("mode", "shared"), [(0o2770, True), (0o770, True), (0o2775, True), (0o700, False), (0o755, False), (0o1777, False)]
)
def test_a_new_origin_is_its_groups_where_the_group_may_write_the_folder(
    mode: int, shared: bool, tmp_path: Path
) -> None:
    place = tmp_path / "srv"
    place.mkdir()
    os.chown(place, -1, os.getegid())
    place.chmod(mode)
    for name in ("a.git", "b.git"):
        origin, clone = place / name, tmp_path / f"clone-{name}"
        clone.mkdir()
        if name == "b.git":  # a folder that was made beforehand counts by itself
            origin.mkdir()
            origin.chmod(mode)
        make_origin(clone, origin, "main")
        assert GitProcess(origin).run("config", "core.sharedRepository").out.strip() == (b"1" if shared else b"")
        assert bool((origin / "refs/heads").stat().st_mode & 0o020) == shared
    assert place.stat().st_mode & 0o7777 == mode


def test_only_what_passes_is_tried_again() -> None:
    assert access_cause(Output(128, b"", "anything else")) == "temporary"
    assert not passes(GitError("x"))
    assert passes(GitError("x", cause="temporary"))
