"""Runs a federation's workflow files, unedited, on this machine: act in host mode, on a local bare repository.

act runs steps; what GitHub does around a run (which workflow, which event, concurrency) is the caller's. Host mode is
no sandbox: steps run as the user. So a file is only ever taken from a commit of main, and nothing of the user's
environment reaches it but PATH.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedops.adapters.act_actions import demand_runnable, place_stand_ins
from fedops.adapters.act_api import LocalApi, local_api
from fedops.adapters.act_output import Told, read_messages
from fedops.adapters.act_settings import Settings, place_settings
from fedops.adapters.git_process import GitProcess
from fedops.core.errors import ConfigError
from fedops.core.workflows import FOLDER, RUNNER
from fedops.ports import Conclusion, Dispatch, WorkflowRequest, WorkflowResult

# A name that never resolves: a run's address in a record must not look like one of github.com.
SERVER = "http://fedops-local.invalid"
STOP_SECONDS = 10.0
TIMEOUT_SECONDS = 6 * 3600.0  # as long as GitHub lets a job run


@dataclass(frozen=True)
class Server:
    """A forge that answers over HTTP, in place of the bare folder.

    Args:
        url, api_url: GITHUB_SERVER_URL and GITHUB_API_URL.
        token: GITHUB_TOKEN of every run.
    """

    url: str
    api_url: str
    token: str


@dataclass(frozen=True)
class ActRunner:
    """Implements WorkflowRunner.

    Args:
        origin: bare repository.
        repository: `github.repository`; the guard of the workflows compares it.
        logs: folder; each run gets one below it.
        act: the program.
        path: PATH of the steps; git, ssh-keygen and bash are looked for there.
        kept: variables that steps get besides, such as TMPDIR.
        server: only for a forge of kind github that answers on this machine.
        settings: the repository's secrets and variables.
    """

    origin: Path
    repository: str
    logs: Path
    act: Path
    path: str
    kept: Mapping[str, str]
    python: str = sys.executable
    server: Server | None = None
    settings: Settings = field(default_factory=Settings)
    timeout_seconds: float = TIMEOUT_SECONDS

    def run(self, request: WorkflowRequest) -> WorkflowResult:
        """Run one file to its end.

        Raises:
            ConfigError: the file asks for what a local run cannot do.
        """
        demand_runnable(request.workflow)
        number, place = _new_place(self.logs)
        # NOTE: the tokens of two runs differ, so that one cannot start workflows in the name of the other.
        token = self.server.token if self.server is not None else secrets.token_hex(20)
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fedops-act-", ignore_cleanup_errors=True) as folder:
            room = Path(folder)
            with self._api(token) as (api_url, taken):
                command = self._command(request, room, api_url, token, number)
                told, code = self._run(command, room, place)
        jobs = {job: told.jobs.get(job, "skipped") for job in request.workflow.jobs}
        return WorkflowResult(
            number=number,
            conclusion=_conclusion(code, jobs),
            jobs=jobs,
            outputs=told.outputs,
            seconds=time.monotonic() - started,
            log=place / "log.txt",
            dispatches=tuple(taken),
        )

    @contextmanager
    def _api(self, token: str) -> Iterator[tuple[str, list[Dispatch]]]:
        if self.server is not None:
            yield self.server.api_url, []
            return
        api: LocalApi
        with local_api(self.repository, token) as api:
            yield api.url, api.taken

    def _command(self, request: WorkflowRequest, room: Path, api_url: str, token: str, number: int) -> list[str]:
        """Everything that the run needs, in its own folder; returns the command line."""
        tree = room / "tree"
        for name in ("home", "cache", "config", "bin"):
            (room / name).mkdir()
        git = GitProcess(None)
        git.check("clone", "--quiet", "--no-checkout", "--shared", "--template=", str(self.origin), str(tree))
        GitProcess(tree).check("checkout", "--quiet", "--detach", request.commit)
        (room / "event.json").write_text(json.dumps(request.event.payload), encoding="utf-8")
        _place_programs(room / "bin", self.python)
        command = [str(self.act), request.event.name, "-W", f"{FOLDER}/{request.workflow.file}"]
        command += ["-e", str(room / "event.json"), "-P", f"{RUNNER}=-self-hosted"]
        command += place_settings(self.settings.for_event(request.event.name), token, room)
        command += ["--json", "--rm", "--no-cache-server", "--no-skip-checkout"]
        # Files of these names in the repository are not ours to read.
        for option in ("--env-file", "--input-file"):
            command += [option, os.devnull]
        for pin, folder in place_stand_ins(request.workflow, room / "actions"):
            command += ["--local-repository", f"{pin}={folder}"]
        for name, value in self._step_environment(request, room, api_url, number).items():
            command += ["--env", f"{name}={value}"]
        return command

    def _step_environment(self, request: WorkflowRequest, room: Path, api_url: str, number: int) -> dict[str, str]:
        server = self.server.url if self.server is not None else SERVER
        return {
            "GITHUB_REPOSITORY": self.repository,
            "GITHUB_REF": request.event.ref,
            "SHA_REF": request.event.sha,  # act's name for GITHUB_SHA
            "GITHUB_RUN_ID": str(number),
            "GITHUB_SERVER_URL": server,
            "GITHUB_API_URL": api_url,
            "FEDOPS_LOCAL_ORIGIN": f"{server}/{self.repository}" if self.server is not None else str(self.origin),
            "FEDOPS_LOCAL_BIN": str(room / "bin"),
            # NOTE: steps have a terminal under act, where git would start a pager or an editor, and wait for ever.
            "PAGER": "cat",
            "GIT_PAGER": "cat",
            "GIT_EDITOR": "true",
            "TERM": "dumb",
            "NO_COLOR": "1",
            **self.kept,
        }

    def _environment(self, room: Path) -> dict[str, str]:
        """The environment of act, which hands it on to the steps: nothing of the user's but PATH."""
        return {
            "PATH": self.path,
            "HOME": str(room / "home"),
            "XDG_CACHE_HOME": str(room / "cache"),
            "XDG_CONFIG_HOME": str(room / "config"),
            "LANG": "C.UTF-8",
            "PYTHONUTF8": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "ACT_DISABLE_VERSION_CHECK": "1",
            **self.kept,
        }

    def _run(self, command: list[str], room: Path, place: Path) -> tuple[Told, int | None]:
        """Run act; its exit code is None where the time was over."""
        messages = place / "act.jsonl"
        with messages.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=room / "tree",
                env=self._environment(room),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                # A session of its own: Ctrl-C comes to us, and we end act in order.
                start_new_session=True,
            )
            code: int | None
            try:
                code = process.wait(self.timeout_seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _stop(process)
        with (
            messages.open(encoding="utf-8", errors="replace") as lines,
            (place / "log.txt").open("w", encoding="utf-8") as log,
        ):
            return read_messages(lines, log), code


def _new_place(logs: Path) -> tuple[int, Path]:
    """The next number, and its folder; several processes may ask at once."""
    logs.mkdir(parents=True, exist_ok=True)
    number = max((int(p.name) for p in logs.iterdir() if p.name.isdigit()), default=0)
    while True:
        number += 1
        with suppress(FileExistsError):
            place = logs / f"{number:04d}"
            place.mkdir()
            return number, place


def _conclusion(code: int | None, jobs: Mapping[str, str]) -> Conclusion:
    if code is None:
        return "timed_out"
    if code != 0 or "failure" in jobs.values():
        return "failure"
    return "success" if "success" in jobs.values() else "skipped"


def _place_programs(folder: Path, python: str) -> None:
    """`fedops` and `python` as the steps find them: those that run now, whatever is installed elsewhere."""
    for name, arguments in (("fedops", "-P -m fedops.cli.main"), ("python", ""), ("python3", "")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} {arguments} "$@"\n', encoding="utf-8")
        program.chmod(0o755)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End act if it still runs: in order, so that steps of `if: always()` run, after ten seconds by force."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def find_act(path: str) -> Path:
    """The program `act`: beside this Python, else on PATH.

    Raises:
        ConfigError: it is not there.
    """
    beside = Path(sys.executable).with_name("act")
    found = str(beside) if beside.is_file() else shutil.which("act", path=path)
    if found is None:
        raise ConfigError("act: not found -> the program that runs workflows", hint="pip install 'fedops-git[local]'")
    return Path(found)
