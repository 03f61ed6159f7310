"""How a command line ends: exit codes, errors in words and as documents, and what no message may hold."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from fedops.cli import history
from fedops.cli.console import TerminalProgress, format_option, say
from fedops.cli.main import COMMANDS, cli, main, run
from fedops.core.errors import Cause, ConfigError, FedopsError, ForgeError, GitError, StoreError, TrainingError
from tests.cli_world import Ran, in_process

TOKEN = "ghp_0123456789abcdefghij"


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """Run a command that ends by raising something."""

    def call(error: BaseException, *options: str) -> Ran:
        @click.command()
        @format_option
        def command(fmt: str) -> None:
            raise error

        monkeypatch.setattr(history, "show_command", command)
        return in_process(tmp_path, "show", *options)

    return call


# Kinds, causes and exit codes; each test makes errors of its own, since it writes on them.
ERRORS: list[tuple[type[FedopsError], Cause, int]] = [
    (ConfigError, "permanent", 2),
    (ConfigError, "temporary", 2),
    (StoreError, "auth", 4),
    (StoreError, "temporary", 5),
    (ForgeError, "auth", 4),
    (ForgeError, "permanent", 2),
    (GitError, "temporary", 5),
    (GitError, "permanent", 2),
    (TrainingError, "permanent", 2),
]


@pytest.mark.parametrize(("kind", "cause", "code"), ERRORS)
def test_a_broken_machine_has_an_exit_code_and_a_hint(
    kind: type[FedopsError], cause: Cause, code: int, ending: Callable[..., Ran]
) -> None:
    error = kind("a.yaml:3: what", cause=cause)
    ran = ending(error)
    assert ran == Ran(code, "", f"error: {error.message}\n")
    error.hint = "fedops doctor"
    assert ending(error).err == f"error: {error.message}\n  hint: fedops doctor\n"


@pytest.mark.parametrize(("kind", "cause", "code"), ERRORS)
def test_an_error_as_json_is_a_document_like_any_other(
    kind: type[FedopsError], cause: Cause, code: int, ending: Callable[..., Ran]
) -> None:
    error = kind("a.yaml:3: what", cause=cause, hint="fedops doctor")
    for options in (("--format", "json"), ("--format=json",)):
        ran = ending(error, *options)
        assert (ran.code, ran.err) == (code, "")
        assert ran.json == {
            "schema": "fedops.show/v1",
            "ok": False,
            "changed": False,
            "findings": [],
            "error": {"slug": error.slug, "cause": error.cause, "message": error.message, "hint": "fedops doctor"},
        }


def test_a_bug_is_one_line_with_a_way_to_see_more(ending: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    ran = ending(RuntimeError("two\nlines"))
    assert ran == Ran(1, "", "bug: RuntimeError: two lines (set FEDOPS_TRACEBACK=1 for the trace)\n")
    assert ending(EOFError("end")).code == 1
    assert ending(OSError(20, "Not a directory", "/x")).err.startswith("bug: NotADirectoryError: [Errno 20] Not a")
    assert len(ending(ValueError("x" * 10_000)).err) < 400
    ran = ending(KeyError("x"), "--format", "json")
    assert (ran.code, ran.json["error"]["slug"], ran.json["error"]["cause"]) == (1, "bug", "bug")
    assert ran.err.startswith("bug: KeyError: 'x'")
    monkeypatch.setenv("FEDOPS_TRACEBACK", "1")
    lines = ending(RuntimeError("here")).err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "bug: RuntimeError: here"


@pytest.mark.parametrize("trace", ["", "1"])
@pytest.mark.parametrize("error", [RuntimeError, FedopsError])
def test_no_message_repeats_a_secret_or_steers_the_terminal(
    error: Callable[[str], Exception], trace: str, ending: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("MY_PASSWORD", "hunter22")
    monkeypatch.setenv("SECRET_OF_NOTHING", "x")  # too short to be one
    monkeypatch.setenv("FEDOPS_TRACEBACK", trace)
    text = f"https://lena:pw@git.example/x: {TOKEN} hunter22 \x1b[2J"
    for options in ((), ("--format", "json")):
        ran = ending(error(text), *options)
        said = ran.out + ran.err
        assert "https://***@git.example/x: *** *** ?[2J" in said
        assert not any(secret in said for secret in (TOKEN, "hunter22", "lena:pw", "\x1b"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.exceptions.Abort()])
def test_an_interrupt_ends_with_130(error: BaseException, ending: Callable[..., Ran]) -> None:
    ran = ending(error)
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.strip() == "interrupted; run the same command again: it begins anew"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("submit",), "again: it goes on where it stopped"),
        (("ci", "reconcile"), "again: it goes on where it stopped"),
        (("local", "up"), "again: it goes on where it stopped"),
        (("local", "run"), "again: it begins anew"),
        (("train", "--again"), "it trains from the start; the result of an earlier training stays as it was"),
        (("demo",), "again with --replace: it removes what is there, and begins anew"),
    ],
)
def test_what_an_interrupted_command_does_when_it_is_repeated_is_true_of_that_command(
    command: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "invoke", stopped)
    ran = in_process(tmp_path, *command)
    assert ran.code == 130
    assert ran.err.strip().startswith("interrupted; ")
    assert ran.err.strip().endswith(says)


def test_other_ends_of_click_keep_their_exit_code(ending: Callable[..., Ran]) -> None:
    assert ending(click.exceptions.Exit(3)) == Ran(3, "", "")
    ran = ending(click.ClickException("odd"))
    assert (ran.code, ran.err) == (1, "Error: odd\n")


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


def test_a_reader_that_went_away_is_no_bug(closed_pipe: int) -> None:
    """`fedops --help | true`: the pipe's other end is closed before anything is written."""
    command = [sys.executable, "-m", "fedops.cli.main", "--help"]
    done = subprocess.run(command, stdout=closed_pipe, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_nothing_more_is_written_to_a_closed_pipe(closed_pipe: int) -> None:
    with os.fdopen(os.dup(closed_pipe), "w") as out, contextlib.redirect_stdout(out):
        assert run(["--help"]) == 141
        print("something else", flush=True)  # goes nowhere, and breaks nothing


@pytest.fixture
def garbage() -> Iterator[None]:
    """The collector is set up again as it was: the entry point sees its process end."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("garbage")
def test_the_entry_point_ends_with_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code in ((["--version"], 0), (["nothing"], 2)):
        monkeypatch.setattr(sys, "argv", ["fedops", *arguments])
        with pytest.raises(SystemExit) as e:
            main()
        assert e.value.code == code


def test_the_entry_point_answers_a_shell_that_completes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("_FEDOPS_COMPLETE", "bash_complete"), ("COMP_WORDS", "fedops sta"), ("COMP_CWORD", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as e:
        main()
    assert (e.value.code, capsys.readouterr().out) == (0, "plain,status\n")


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["statsu"], "no such command: statsu -> did you mean `fedops status`?"),
        (["verfy"], "did you mean `fedops verify`?"),
        (["merge"], "did you mean `fedops ci merge`?"),
        (["reconcile"], "did you mean `fedops ci reconcile`?"),
        (["suspend"], "did you mean `fedops site suspend`?"),
        (["ci", "recon"], "did you mean `fedops ci reconcile`?"),
        (["site", "actvate"], "did you mean `fedops site activate`?"),
        (["\x1b[2J"], "no such command: \\x1b[2J"),
        (["--nope"], "--nope"),
        (["show", "--format", "xml"], "'xml' is not one of 'text', 'json'"),
        (["review"], "NUMBER"),
        (["ci", "merge"], "--verdicts"),
    ],
)
def test_a_slip_on_the_command_line_is_answered_with_what_is_near(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    ran = in_process(tmp_path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "Usage: fedops" in ran.err


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (["statsu"], "error"),
        (["status"], "status"),
        (["ci", "merge"], "merge"),
        (["ci", "inspect", "--pull", "x"], "verdicts"),
        (["ci", "aggregate"], "propose"),
        (["ci", "audit", "--no"], "audit"),
        (["ci", "nothing"], "nothing"),
        (["site", "list"], "site-list"),
        (["site", "suspend", "x"], "site"),
        ([], "error"),
    ],
)
def test_a_wrong_command_line_as_json_is_a_document_of_that_command(
    arguments: list[str], schema: str, tmp_path: Path
) -> None:
    ran = in_process(tmp_path, *arguments, "--format", "json")
    assert ran.code == 2
    assert (ran.json["schema"], ran.json["ok"]) == (f"fedops.{schema}/v1", False)
    assert ran.json["error"]["message"]


def test_help_and_version_need_no_federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = in_process(tmp_path, "--help").out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert in_process(tmp_path, "-h").out == out
    assert in_process(tmp_path, "--version").out.startswith("fedops, version ")
    assert in_process(tmp_path, "ci", "--help").code == 0
    assert in_process(tmp_path).code == 2


# ---------------------------------------------------------------- where it is run


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


FEDERATION = 'schema: fedops.federation/v1\nname: fed\nfedops: "0.1.0"\nstore: {url: "ocidir:store"}\n'
READERS: Sequence[Sequence[str]] = [
    ["status"],
    ["log"],
    ["show"],
    ["pull"],
    ["submit", "--site", "x"],
    ["review", "1"],
    ["verify"],
    ["site", "list"],
    ["join", "x"],
    ["ci", "reconcile"],
    ["ci", "inspect"],
    ["ci", "signal"],
    ["ci", "aggregate", "--input-commit", "0" * 40, "--decided-at", "2026-03-02T10:00:00Z"],
]


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_outside_a_federation_it_says_so(arguments: list[str], tmp_path: Path) -> None:
    ran = in_process(tmp_path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"error: {tmp_path}: no federation.yaml here or above\n"
        "  hint: change into a federation's clone, or run `fedops init`\n"
    )


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_a_folder_that_is_no_clone_says_so(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "federation.yaml").write_text(FEDERATION)
    ran = in_process(tmp_path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "not a git repository" in ran.err


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_a_clone_without_origin_says_so(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "federation.yaml").write_text(FEDERATION)
    git(tmp_path, "init", "-q", "-b", "main")
    ran = in_process(tmp_path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert "origin" in ran.err


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_an_origin_without_a_main_branch_says_so(arguments: list[str], tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(tmp_path, "clone", "-q", "origin.git", "clone")
    (tmp_path / "clone" / "federation.yaml").write_text(FEDERATION)
    ran = in_process(tmp_path / "clone", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "error: pulls/1: there is none" if arguments[0] == "review" else "error: main: no such branch"
    )


def test_a_broken_federation_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "federation.yaml").write_text("schema: fedops.federation/v1\nname: fed\nname: twice\n")
    ran = in_process(tmp_path, "status")
    hint = "if main has it so, a lead corrects it there and `git pull` brings it; nothing of yours is lost"
    assert (ran.code, ran.err) == (2, f"error: federation.yaml:3: repeated key 'name'\n  hint: {hint}\n")


def without(program: str, tmp_path: Path, folder: Path, *arguments: str) -> Any:
    """Run the installed package with a PATH that has git and ssh-keygen, but for one of them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in {"git", "ssh-keygen"} - {program}:
        found = next(Path(p, name) for p in os.environ["PATH"].split(os.pathsep) if Path(p, name).is_file())
        (programs / name).symlink_to(found)
    env = os.environ | {"PATH": str(programs)}
    command = [sys.executable, "-m", "fedops.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="another system: programs are found in other ways there")
def test_a_missing_git_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "federation.yaml").write_text(FEDERATION)
    done = without("git", tmp_path, tmp_path, "status")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: git: ")
    assert "install git" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="another system: programs are found in other ways there")
def test_a_missing_ssh_keygen_says_what_to_install(tmp_path: Path) -> None:
    lead = tmp_path / "lead"
    lead.mkdir()
    assert in_process(lead, "init", "--origin", "../fed.git", "--generator", "zeros", "--tensor", "w:F32:2").code == 0
    done = without("ssh-keygen", tmp_path, lead, "join", "hospital-a", "--generate-key", "--format", "json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["message"].startswith("ssh-keygen: not found")
    assert error["hint"] == "install openssh-client"


# ---------------------------------------------------------------- progress


def test_progress_is_a_line_per_task_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TerminalProgress()
    first, second = progress.start("updates", 3, "sites"), progress.start("history", None, "commits")
    progress.advance(first, 2)
    progress.advance(second, 5)
    progress.finish(first)
    progress.finish(second)
    progress.finish(progress.start("upload", 10, "bytes"), "was there")
    assert capsys.readouterr() == ("", "updates: 3 sites\nhistory: 5 commits\nupload: was there\n")


def test_progress_is_redrawn_on_a_terminal_and_a_message_stands_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = TerminalProgress()
    task = progress.start("updates", 3, "sites")
    progress.advance(task, 1)
    say("error: the store is away")
    progress.finish(task)
    say("done")
    assert capsys.readouterr().err == (
        "\rupdates: 0/3 sites\x1b[K\rupdates: 1/3 sites\x1b[K\nerror: the store is away\n"
        "\rupdates: 3 sites\x1b[K\ndone\n"
    )


def test_the_group_itself_lists_every_command() -> None:
    assert cli.list_commands(click.Context(cli)) == list(COMMANDS)
    assert run(["--version"]) == 0
