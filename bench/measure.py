"""Whole processes, timed in turn: A B C, A B C, …, so that a noisy machine moves all of them alike."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

from quiet import Meter, Waiter
from together import Sampler

QUIET_CORES = 0.25  # a run during which others used more counts as disturbed


@dataclass(frozen=True)
class Command:
    """One thing to time.

    Attributes:
        name: of the row.
        arguments: program and arguments.
        outputs: file or folder that it writes, removed after each run; None: none.
        folder: to run it in; None: the current one.
        inspect: called with the text on stdout after the first run, before the output is removed.
    """

    name: str
    arguments: Sequence[str]
    outputs: Path | None = None
    folder: Path | None = None
    inspect: Callable[[str], None] | None = None


@dataclass(frozen=True)
class Run:
    """What one process used: seconds of wall clock and CPU (its children's too), peak resident MB, others' cores.

    Attributes:
        rss_mb: of the largest process.
        together_mb: of all processes, what they share counted once; 0: nobody looked.
    """

    wall: float
    cpu: float
    rss_mb: float
    noise: float
    together_mb: float = 0.0


@dataclass
class Row:
    """All runs of one command; `kept` are the least disturbed ones, the figures are their medians."""

    name: str
    wanted: int
    runs: list[Run] = field(default_factory=list)
    together_mb: float = 0.0  # peak of all its processes together, of the run that is not counted

    @property
    def kept(self) -> Sequence[Run]:
        return sorted(self.runs, key=lambda run: run.noise)[: self.wanted]

    @property
    def undisturbed(self) -> int:
        return sum(run.noise <= QUIET_CORES for run in self.runs)

    @property
    def wall(self) -> float:
        return statistics.median(run.wall for run in self.kept)

    @property
    def span(self) -> tuple[float, float]:
        return min(run.wall for run in self.kept), max(run.wall for run in self.kept)

    @property
    def cpu(self) -> float:
        return statistics.median(run.cpu for run in self.kept)

    @property
    def rss_mb(self) -> float:
        """Peak over all runs: memory is a promise, not a typical value."""
        return max(run.rss_mb for run in self.runs)

    @property
    def noise(self) -> float:
        return statistics.median(run.noise for run in self.kept)


def measure(commands: Sequence[Command], repeats: int, waiter: Waiter, *, extra: int = 3) -> Mapping[str, Row]:
    """Time commands in turn, after one run of each that is not counted (it warms the page cache).

    Args:
        repeats: runs that are kept of each.
        waiter: asked before every run.
        extra: further rounds, as long as a command has fewer than `repeats` undisturbed runs.

    Raises:
        SystemExit: a command failed; its output is shown.
    """
    rows = {command.name: Row(command.name, repeats) for command in commands}
    for number in range(1 + repeats + extra):
        short = [c for c in commands if number <= repeats or rows[c.name].undisturbed < repeats]
        for command in short:
            waiter.wait()
            run, text = _run(command, sampled=not number)
            if number:
                rows[command.name].runs.append(run)
            else:
                rows[command.name].together_mb = run.together_mb
                if command.inspect is not None:
                    command.inspect(text)
            if command.outputs is not None:
                _remove(command.outputs)
            print(
                f"round {number} {command.name:28} {run.wall:8.3f} s wall {run.cpu:8.3f} s CPU "
                f"{run.rss_mb:7.0f} MB, others {run.noise:.2f} cores",
                flush=True,
            )
    return rows


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _run(command: Command, *, sampled: bool) -> tuple[Run, str]:
    """One process: wait4 tells its own and its waited-for children's use, and the peak of the largest of them."""
    # PYTHONDONTWRITEBYTECODE: an installed program is compiled once, by whoever runs it first.
    unwanted = ("OPENBLAS_", "OMP_", "FEDOPS_", "PYTHONDONTWRITEBYTECODE")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    environment |= {"FLWR_TELEMETRY_ENABLED": "0"}
    with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
        with Meter() as meter:
            process = subprocess.Popen(
                command.arguments, cwd=command.folder, env=environment, stdout=out, stderr=errors, text=True
            )
            with Sampler(process.pid) if sampled else nullcontext() as sampler:
                _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        text = out.read()
        if process.returncode:
            raise SystemExit(f"{command.name}: exit code {process.returncode}\n{text}{errors.read()}")
    together = 0.0 if sampler is None else sampler.peak_mb
    return Run(meter.wall, used.ru_utime + used.ru_stime, _peak_mb(used), meter.noise, together), text


def own_peak_mb() -> float:
    """Peak resident MB of this process: the kernel counts it into the peak of those that it starts."""
    return _peak_mb(resource.getrusage(resource.RUSAGE_SELF))


def _peak_mb(used: resource.struct_rusage) -> float:
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6  # bytes there, KiB elsewhere
