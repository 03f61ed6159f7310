"""Runs git through GitPython, each time in the same guarded environment; exit codes go to the caller, prose to people."""

from __future__ import annotations

import logging
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from fedops.core.disk import about, no_room
from fedops.core.errors import Cause, ConfigError, GitError

try:
    from git.cmd import Git
    from git.exc import GitCommandNotFound
except ImportError as e:  # the library runs `git version` while it is imported
    raise ConfigError("git: cannot be run", hint="install git 2.34 or newer and GitPython") from e

_log = logging.getLogger(__name__)

_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # NOTE: refs/replace and grafts show another history than the one that the ids name.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": "/dev/null",
    "LC_ALL": "C",
}
# A hostile or merely unusual configuration of the repository must not change what our own calls do.
_OPTIONS = (
    "--no-pager",
    "--literal-pathspecs",
    *("-c", "core.quotePath=off"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.splitIndex=false"),
    *("-c", "protocol.ext.allow=never"),
    *("-c", "i18n.commitEncoding=UTF-8"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.autoDetach=false"),  # no process outlives the call that started it
    *("-c", "http.lowSpeedLimit=1000"),  # bytes/s; a dead connection ends after lowSpeedTime seconds
    *("-c", "http.lowSpeedTime=60"),
)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")  # up to the last `@`: a password may hold one
_SHOWN = 300  # characters of git's own words in a message
# Lines of git that name no cause; what ssh or the server said stands above them.
_EMPTY_WORDS = ("fatal: Could not read from remote repository", "fatal: the remote end hung up unexpectedly")
_NO_CAUSE = re.compile(
    r"Warning: |Cloning into |[@\s]*\Z|(remote:\s*)?[=\s]*\Z|Please make sure|and the repository exists"
)
FOREIGN_OWNER = "foreign_owner"  # slug: git does not use the repository of another user
_OWNER = re.compile(r"detected dubious ownership in repository at '([^'\n]+)'")

# The system's own words, in English too.
# Git itself could not write, and does not tell the system's reason.
_UNSAID = r"unable to create directory for|couldn't write '|unable to write (file|new index|loose object)"
_MAY_PASS = re.compile(
    r"No space left on device|Disk quota exceeded|Cannot allocate memory|Too many open files|Input/output error"
    rf"|Resource temporarily unavailable|{_UNSAID}"
)
_MAY_NOT = re.compile(
    r"insufficient permission for adding an object"
    r"|([Uu]nable to (create|write)|cannot (create|lock|mkdir)).*: (Permission denied|Read-only file system)"
)

# What a person does about a disk that is full: here, and where the remote is.
_ROOM = "make room on the disk of this clone, or of temporary files, then run the same command again; nothing was lost"
_ROOM_THERE = "ask whoever keeps origin to make room there, then run the same command again; nothing was lost"
_RIGHTS = "give this account the right to write all of this clone's .git, or work in a clone of your own: git clone"
_ROOM_OR_RIGHTS = (
    "see that the disk of this clone has room, and that this account may write all of its .git; then repeat"
)
_OF_REMOTE = re.compile(r"^remote: .*$", re.MULTILINE)


@dataclass(frozen=True)
class Output:
    code: int
    out: bytes
    err: str  # for people, and as a place to look for object ids; never decides anything by its words


class GitProcess:
    """Starts git processes in one directory.

    Args:
        directory: where git runs; None for commands that need no repository.
        env: added to the environment of each process.
    """

    def __init__(self, directory: Path | None, env: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._git = Git()
        self._git.update_environment(**{**_ENVIRONMENT, **(env or {})})
        # NOTE: never GitPython's working_dir: where that directory is missing it runs git in the current one.
        self._where: tuple[str, ...] = ("-C", str(directory)) if directory is not None else ()

    def run(self, *args: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> Output:
        """Run git to its end, whatever its exit code."""
        with _spooled(stdin) as source:
            try:
                code, out, err = self._git.execute(
                    self._command(args),
                    istream=source,
                    with_extended_output=True,
                    with_exceptions=False,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                    env=env,
                )
            except GitCommandNotFound as e:
                raise ConfigError("git: not found", hint="install git 2.34 or newer") from e
        _log.debug("git %s -> %d", args[0], code)
        return Output(code, out, err)

    def check(self, *args: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> bytes:
        """Run git and return its standard output.

        Raises:
            GitError: any exit code but 0.
        """
        output = self.run(*args, stdin=stdin, env=env)
        if output.code != 0:
            raise failure(f"git {args[0]}", output)
        return output.out

    def start(self, *args: str) -> Git.AutoInterrupt:
        """Start git with open pipes; the process ends at the latest when the returned object goes."""
        return self._git.execute(self._command(args), istream=subprocess.PIPE, as_process=True)

    def _command(self, args: tuple[str, ...]) -> list[str]:
        return [str(self._git.GIT_PYTHON_GIT_EXECUTABLE), *self._where, *_OPTIONS, *args]


@contextmanager
def _spooled(data: bytes | None) -> Iterator[BinaryIO | None]:
    """A file to read these bytes from."""
    if data is None:
        yield None
        return
    with tempfile.TemporaryFile() as source:
        with about(tempfile.gettempdir()):
            source.write(data)
            source.seek(0)
        yield cast("BinaryIO", source)


def of_another_user(output: Output) -> bool:
    """True if git refuses a repository because another user owns it, so that it says nothing of what it is."""
    return _OWNER.search(output.err) is not None


def words(err: str) -> str:
    """What git said, in one line for a person: no credentials, no control characters, not long."""
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    told = [line for line in lines if line.lower().startswith(("fatal:", "error:", "remote: error:"))] or lines[-1:]
    named = [line for line in told if not line.startswith(_EMPTY_WORDS)]
    if told and not named:
        above = lines[: lines.index(told[0])]
        named = [line for line in above if not _NO_CAUSE.match(line)][-1:]
    told = named or told
    return printable(_CREDENTIALS.sub("", "; ".join(told))[:_SHOWN])


def printable(text: str) -> str:
    """The text without anything that could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def failure(
    what: str, output: Output, *, hint: str = "", slug: str | None = None, cause: Cause = "permanent"
) -> GitError:
    """The error for a git process that ended badly; what a full or failing machine does to it may pass."""
    said = words(output.err)
    if cause == "permanent" and (output.code < 0 or _MAY_PASS.search(output.err)):
        cause = "temporary"
    own = _OF_REMOTE.sub("", output.err)  # what git says of this clone
    if cause == "temporary" and no_room(output.err):
        hint = _ROOM if no_room(own) else _ROOM_THERE
    elif cause != "auth" and _MAY_NOT.search(own):
        cause, hint = "permanent", _RIGHTS
    elif cause == "temporary" and re.search(_UNSAID, own):
        hint = _ROOM_OR_RIGHTS
    foreign = _OWNER.search(output.err)
    if foreign is not None:
        # NOTE: where ssh is between, the words come from another machine; and "*" would stand for every folder of this one.
        here = Path(foreign[1]).is_dir() and Path(foreign[1]).is_absolute()
        named = shlex.quote(printable(foreign[1])) if here else "PATH"
        hint = f"git config --global --add safe.directory {named}" + ("" if here else ", on the machine that has it")
        cause, slug = "permanent", FOREIGN_OWNER
    return GitError(
        f"{what}: exit code {output.code}" + (f", {said}" if said else ""), hint=hint, slug=slug, cause=cause
    )
