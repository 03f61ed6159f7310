"""What takes too long for every change: a million damaged inputs, hundreds of kills, random schedules: `make soak`, or

    python -m tests.soak [--inputs N] [--kills N] [--schedules N] [--guided N] [--seed N] [--results FILE]

A fault ends the run with the input or the story that found it, and with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import os
import platform
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedops import __version__

ROOT = Path(__file__).parent.parent
SPARE_BYTES = 64 << 20  # what a reader may allocate beyond the start; the limits that it obeys are of 1 MiB
HANG_SECONDS = 60


@dataclass(frozen=True)
class Row:
    """One line of the results."""

    what: str
    count: int
    detail: str
    cpu: float  # seconds
    wall: float


@contextmanager
def used() -> Iterator[list[float]]:
    """CPU seconds, children's too, and wall-clock seconds of a block, in this order."""
    took: list[float] = []
    before, begin = os.times(), time.perf_counter()
    yield took
    after = os.times()
    took += [sum(after[:4]) - sum(before[:4]), time.perf_counter() - begin]


@contextmanager
def guarded() -> Iterator[None]:
    """No more memory than SPARE_BYTES, and a traceback and the end where one input takes HANG_SECONDS."""
    import faulthandler

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPARE_BYTES, hard))
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def readers(inputs: int, seed: int) -> Iterator[Row]:
    """Damaged inputs to each reader, as many to each."""
    import faulthandler

    from tests.fuzz.mutation import mutate
    from tests.fuzz.readers import READERS

    for name, reader in READERS.items():
        rng, taken, slowest = random.Random(f"{seed} {name}"), 0, 0.0
        each = -(-inputs // len(READERS))
        with used() as took, guarded():
            for number in range(each):
                data = mutate(rng, reader.corpus, reader.words)
                if number % 1000 == 0:
                    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
                begin = time.perf_counter()
                try:
                    taken += reader.check(data)
                except BaseException as e:
                    e.add_note(f"seed {seed}, {name}, input {number}: {data!r}")
                    raise
                slowest = max(slowest, time.perf_counter() - begin)
        yield Row(f"reader: {name}", each, f"{taken:,} taken; the slowest took {1000 * slowest:.0f} ms", *took)


def guided(runs: int) -> Iterator[Row]:
    """The readers of models and documents under atheris, if it is installed."""
    if runs and importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: no guided fuzzing", flush=True)
        return
    for name in ("safetensors", "npz", "yaml", "record", "manifest") if runs else ():
        command = [sys.executable, "-m", "tests.fuzz.guided", name, f"-runs={runs}"]
        with used() as took:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        yield Row(f"guided by atheris: {name}", runs, "no finding", *took)


def kills(count: int, seed: int) -> Iterator[Row]:
    """Runs and submissions on real git, killed with SIGKILL; a new federation every so often."""
    from tests.scenario.fed import fast_folder
    from tests.scenario.killing import Killer

    killed = submits = ended = versions = federations = 0
    left: list[str] = []
    with used() as took:
        while killed < count:
            with fast_folder() as folder:
                killer = Killer(Path(folder), random.Random(f"{seed} {federations}"))
                try:
                    while killer.killed < min(40, count - killed):
                        killer.kill_some()
                    killer.check()
                except BaseException as e:
                    e.add_note("\n".join([f"seed {seed}, federation {federations}", *killer.log]))
                    raise
                finally:
                    killer.fed.close()
            killed, ended, federations = killed + killer.killed, ended + killer.ended, federations + 1
            submits, versions = submits + killer.submits, versions + killer.versions
            left += [line for line in killer.log if line.startswith("left: ")]
    detail = (
        f"{submits} while they handed in; {federations} federations, {versions} versions; {ended} ended first; "
        f"{len(left)} locks and parts left and cleared"
    )
    if killed:
        yield Row("processes killed with SIGKILL", killed, detail, *took)


def schedules(count: int, seed: int) -> Iterator[Row]:
    """Stories of several runs, sites and leads at once: in memory, and a tenth as many on real git with threads."""
    from tests.scenario import test_schedules, test_schedules_git
    from tests.scenario.fed import fast_folder

    plays = (("in memory", test_schedules.play, count), ("on real git", test_schedules_git.play, count // 10))
    for name, play, number in plays:
        with used() as took:
            for story in range(number):
                with fast_folder() as folder:
                    play(seed * 1_000_000 + story, Path(folder))
        if number:
            yield Row(f"random schedules, {name}", number, "", *took)


def page(rows: Sequence[Row], given: argparse.Namespace) -> str:
    """The results as Markdown, with the numbers that were asked for."""
    names = ("inputs", "kills", "schedules", "guided", "seed")
    command = " ".join(["python -m tests.soak", *(f"--{name} {getattr(given, name)}" for name in names)])
    total = sum(row.count for row in rows if row.what.startswith("reader"))
    lines = [
        "# Soak results",
        "",
        "Written by `make soak`; do not edit. A fault would have ended the run: every line stands for that many without one.",
        "",
        (
            f"- {dt.datetime.now(dt.UTC):%Y-%m-%d}, fedops {__version__}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores, {platform.system()}; shared with other work"
        ),
        f"- `{command}` does the same again",
        (
            f"- {total:,} inputs to the readers, each compared with the reference reader of its format; at most "
            f"{SPARE_BYTES >> 20} MiB of memory beyond the start, {HANG_SECONDS} s for a thousand inputs"
        ),
        "",
        "| what | count | | CPU s | wall s |",
        "| --- | ---: | --- | ---: | ---: |",
        *(f"| {row.what} | {row.count:,} | {row.detail} | {row.cpu:.0f} | {row.wall:.0f} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_100_000, help="to all readers together")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--schedules", type=int, default=500)
    parser.add_argument("--guided", type=int, default=100_000, help="inputs to each reader under atheris")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "soak.md")
    given = parser.parse_args()
    isolate()
    rows: list[Row] = []
    stages = (
        readers(given.inputs, given.seed),
        guided(given.guided),
        kills(given.kills, given.seed),
        schedules(given.schedules, given.seed),
    )
    for stage in stages:
        for row in stage:
            rows.append(row)
            print(f"{row.what}: {row.count:,} {row.detail} ({row.cpu:.0f} s CPU)", flush=True)
            given.results.write_text(page(rows, given), "utf-8")


def isolate() -> None:
    """As the tests do: no configuration of git, and no credentials, from this machine."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "FEDOPS_", "GITHUB_", "SSH_AUTH_SOCK", "XDG_")):
            del os.environ[name]
    os.environ |= {
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Soak",
        "GIT_AUTHOR_EMAIL": "soak@example.invalid",
        "GIT_COMMITTER_NAME": "Soak",
        "GIT_COMMITTER_EMAIL": "soak@example.invalid",
    }


if __name__ == "__main__":
    main()
