"""Runs a site's own training code in a process of its own: whatever it does, fedops' state stays whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fedops.adapters import training_guard
from fedops.core.disk import about
from fedops.core.documents import Json
from fedops.core.errors import ConfigError, TrainingError
from fedops.ports import TrainingJob

POLL_SECONDS = 0.1
STOP_SECONDS = 10.0
_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 4096
_PROBE_BYTES = 1 << 16
_CLIENT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
# Tokens that hand in or publish are fedops' and CI's business; the site's code has no use for them.
_WITHHELD = re.compile(
    r"FEDOPS_|(GITHUB|GH|GH_ENTERPRISE|GITHUB_ENTERPRISE|ACTIONS_RUNTIME|ACTIONS_ID_TOKEN_REQUEST)_TOKEN\Z"
)


class CommandTrainer:
    """The command hook: any program, told by environment variables what to read and where to write.

    Args:
        command: program and arguments; no shell is involved.
        folder: the folder it starts in.
        environment: the caller's; FEDOPS_* and forge tokens are not handed on.
        echo: takes what the program prints, as it appears.
    """

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], echo: Callable[[bytes], None]
    ) -> None:
        if not command:
            raise ConfigError("--command: empty -> a program and its arguments")
        self.name = command[0]
        self._command = tuple(command)
        self._folder = folder
        self._environment = environment
        self._echo = echo

    def run(self, job: TrainingJob) -> None:
        """Run the command.

        Raises:
            TrainingError: it could not be started, failed or was killed.
        """
        given = job_environment(job)
        _run(self.name, self._command, job, self._folder, inherited(self._environment) | given, self._echo)


class ClientTrainer:
    """The Python hook: a class that follows `fedops.Client`, made and called by a small wrapper process.

    Args:
        client: "package.module:Class".
        folder: the folder it starts in, first on the module search path.
        environment, echo: as for CommandTrainer.
        python: interpreter of the site's environment; fedops must be importable there.
    """

    def __init__(
        self,
        client: str,
        *,
        folder: Path,
        environment: Mapping[str, str],
        echo: Callable[[bytes], None],
        python: str = sys.executable,
    ) -> None:
        if not _CLIENT.match(client):
            raise ConfigError(f"--client: {client[:100]!r} -> package.module:Class")
        self.name = client
        self._folder = folder
        self._environment = environment
        self._echo = echo
        self._python = python

    def run(self, job: TrainingJob) -> None:
        """Make the client and call its `fit`.

        Raises:
            TrainingError: it could not be imported, raised, ended, was killed, or returned something else.
        """
        request = job.update.parent / "request.json"
        with about(request):
            request.write_text(json.dumps(client_request(self.name, job)), encoding="utf-8")
        # NOTE: -P keeps a module of the site's folder from standing in for one of fedops' own.
        command = (self._python, "-P", "-m", "fedops.adapters.training_child", str(request))
        _run(self.name, command, job, self._folder, inherited(self._environment), self._echo)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What the site's code sees of the caller's environment: all but fedops' own settings and forge tokens."""
    return {k: v for k, v in environment.items() if not _WITHHELD.match(k)} | {"PYTHONUNBUFFERED": "1"}


def job_environment(job: TrainingJob) -> dict[str, str]:
    """The variables of the command hook."""
    return {
        "FEDOPS_SITE": job.site,
        "FEDOPS_VERSION": str(job.version),
        "FEDOPS_MODEL": str(job.model),
        "FEDOPS_UPDATE": str(job.update),
        "FEDOPS_RESULT": str(job.result),
        "FEDOPS_CONFIG": json.dumps(job.config, ensure_ascii=False),
    }


def client_request(client: str, job: TrainingJob) -> dict[str, Json]:
    """What the wrapper process is told; read by `training_child`."""
    paths = {name: str(getattr(job, name)) for name in ("model", "update", "result", "fault")}
    return {"client": client, "config": dict(job.config), **paths}


def _run(
    name: str,
    command: Sequence[str],
    job: TrainingJob,
    folder: Path,
    environment: Mapping[str, str],
    echo: Callable[[bytes], None],
) -> None:
    """Run a program to its end with its output in the job's log, and say clearly how it failed."""
    with job.log.open("wb") as log, job.log.open("rb") as tail, _life() as life:
        with _start(name, command, folder, environment, log, life) as process:
            try:
                while _still_running(process):
                    _copy(tail, echo)
            except BaseException:
                _stop(process)
                raise
            finally:
                _copy(tail, echo)
        last = _last_line(tail)
    if process.returncode != 0:
        _demand_room(job.update.parent)
    if job.fault.is_file():
        raise TrainingError(
            f"{name}: {job.fault.read_text(encoding='utf-8', errors='replace').strip()}", hint=_see(job)
        )
    if process.returncode != 0:
        raise TrainingError(f"{name}: {_how(process.returncode)}{f': {last}' if last else ''}", hint=_see(job))


def _demand_room(folder: Path) -> None:
    """Raise what the system says if nothing more can be written there: then it is not the code that failed."""
    probe = folder / "room"
    try:
        with about(probe), probe.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)


@contextmanager
def _life() -> Iterator[int]:
    """The reading end of a pipe that ends when this process does, whatever ends it."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _start(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str], log: BinaryIO, life: int
) -> subprocess.Popen[bytes]:
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise TrainingError(
            f"{name}: cannot be started: no such program", hint="check its path, and that it may be run"
        )
    try:
        return subprocess.Popen(
            _guarded([program, *command[1:]], life),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            # NOTE: a file, not a pipe: the log is whole even if we die, and a program that left a child behind
            # which still holds its output open does not make us wait for that child.
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(life,) if sys.platform != "win32" else (),
        )
    except OSError as e:
        raise TrainingError(
            f"{name}: cannot be started, got {e.strerror or e}", hint="check the path of the program"
        ) from e


def _guarded(command: Sequence[str], life: int) -> list[str]:
    """The command, which ends when we do."""
    if sys.platform == "win32":
        return [*command]
    return [sys.executable, "-I", "-S", training_guard.__file__, str(life), *command]


def _still_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _copy(source: BinaryIO, echo: Callable[[bytes], None]) -> None:
    while data := source.read(_CHUNK_BYTES):
        echo(data)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the program and what it started: politely, and after ten seconds, or for what is left over, by force."""
    if sys.platform == "win32":
        process.kill()
        return
    # The program leads a process group of its own; a group that has ended is no fault.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


def _how(code: int) -> str:
    """How a program ended, in words."""
    # 128 + n is what a shell reports when its own child was killed by signal n.
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"ended with exit code {code}"
    if name == "SIGKILL":
        return "was killed by SIGKILL, which is how a machine out of memory ends programs"
    return f"was killed by {name}"


def _last_line(log: BinaryIO) -> str:
    """The last line that was printed, safe for a terminal, at most 200 characters."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _TAIL_BYTES))
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    last = lines[-1].strip()[:200] if lines else ""
    return "".join(c if c.isprintable() else "?" for c in last)


def _see(job: TrainingJob) -> str:
    return f"all output is in {job.log}"
