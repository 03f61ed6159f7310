"""Runs git through GitPython, each time in the same guarded environment; exit codes go to the caller, prose to people."""

from __future__ import annotations

import logging
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
_MAY_PASS = re.compile(
    r"No space left on device|Disk quota exceeded|Cannot allocate memory|Too many open files|Input/output error"
    r"|Resource temporarily unavailable"
)


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
        with tempfile.TemporaryFile() as source:
            if stdin is not None:
                source.write(stdin)
                source.seek(0)
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
