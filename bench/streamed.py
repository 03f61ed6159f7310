"""What CI's aggregation takes when the models come from a registry over a link of limited bandwidth.

    python bench/streamed.py [--sites 10] [--mb 500] [--rate 300] [--runs 3] [--work DIR]

needs docker-registry. Makes a federation whose sites have all handed in, in a real registry on this machine behind
`throttle.py`, and times whole processes that do what the job `aggregate` does: decide, read the manifests, read all
models, aggregate, upload the new one with its proposal. `streams` is how it is done; `files` downloads first.

Bars: streams at most 1.2 times the bytes that cross the link / its bandwidth; peak memory less than 100 MB.
Writes streamed.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pages
from registry import own_peak_mb

if TYPE_CHECKING:
    import numpy as np

    from fedops.adapters.store_registry import RegistryStore

HERE = Path(__file__).parent
BAR, MEMORY_MB = 1.2, 100.0


def open_store(host: str) -> RegistryStore:
    """The federation's store, by way of some port of this machine."""
    from fedops.adapters.store_registry import RegistryStore
    from fedops.cli.wire import SystemClock
    from fedops.core.registry_address import RegistryAddress

    return RegistryStore(RegistryAddress(host, "bench/fed"), clock=SystemClock(), lookup=lambda _: None)


# ---------------------------------------------------------------- the process that is timed


class Silent:
    """Progress that nobody looks at."""

    def start(self, *_: object) -> int:
        return 0

    def advance(self, *_: object) -> None: ...

    def finish(self, *_: object) -> None: ...


def job(host: str, clone: Path, *, files: bool) -> None:
    """What `fedops ci aggregate` does; prints the manifest and the peak of its memory in MB."""
    import datetime as dt

    from fedops.adapters.forge_git import GitForge
    from fedops.adapters.git_repo import GitRepository
    from fedops.adapters.model_files import ModelFiles
    from fedops.app import model_streams
    from fedops.app.context import Context
    from fedops.app.merged import merged_state
    from fedops.app.propose import propose
    from fedops.app.snapshot import main_snapshot
    from fedops.cli.wire import SystemClock

    if files:
        model_streams.MOST = 0
    clock, store = SystemClock(), open_store(host)
    with TemporaryDirectory(dir=clone.parent) as scratch, GitRepository(clone) as repository:
        ctx = Context(
            repository=repository,
            forge=GitForge(repository, clock=clock),
            stores=lambda _: store,
            models=ModelFiles(Path(scratch)),
            clock=clock,
            progress=Silent(),
            scratch=Path(scratch),
            software={"fedops": "bench"},
        )
        main = main_snapshot(repository)
        plan = propose(ctx, main, merged_state(repository, main), dt.datetime.now(dt.UTC), unavailable={})
    store.close()
    assert plan.manifest is not None, plan.decision
    print(plan.manifest, own_peak_mb())


# ---------------------------------------------------------------- around it


@dataclass(frozen=True)
class Made:
    wall: float
    cpu: float
    peak_mb: float
    manifest: str


def run(host: str, clone: Path, *, files: bool) -> Made:
    arguments = [sys.executable, str(Path(__file__)), "--job", host, str(clone), *(["--files"] if files else [])]
    began = time.monotonic()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the job failed with exit code {process.returncode}")
    manifest, peak = said.split()
    return Made(wall, used.ru_utime + used.ru_stime, float(peak), manifest)


@contextmanager
def link(host: str, rate: float) -> Iterator[str]:
    """The same registry, behind a link."""
    arguments = [sys.executable, str(HERE / "throttle.py"), host, str(rate)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def found(folder: Path, host: str, sites: int, mb: float) -> tuple[Path, int]:
    """A federation in which everybody has handed in; its clone, and the bytes of one model."""
    from make_data import shapes, values

    from fedops.core.facts import Account
    from fedops.ports import Store
    from tests.scenario import fed as scenario

    names = tuple(f"site-{i:03d}" for i in range(sites))
    specs = shapes(mb)

    class RegistryFed(scenario.GitFed):
        def _make_store(self) -> Store:
            return open_store(host)

    def model(number: int) -> dict[str, np.ndarray]:
        return {n: values(i, s.shape, number, 0.001) for i, (n, s) in enumerate(sorted(specs.items()))}

    scenario.ACCOUNTS.update({name: Account(name, 1000 + i) for i, name in enumerate(names)})
    fed = RegistryFed(folder, base=model(0), people=("lena", "leo", *names), sites=names)
    for number, name in enumerate(names, 1):
        fed.merge_by_hand(fed.submit(name, model(number), num_examples=100 + 13 * number).number)
        fed.uploads.clear()
    size = fed.version.model.size
    clone = fed.new_clone("lena")
    path = clone.path
    fed.close()
    return path, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--mb", type=float, default=500.0)
    parser.add_argument("--rate", type=float, default=300.0, help="MB per second and direction")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, help="folder for the data; default: the system's for temporary files")
    parser.add_argument("--job", nargs=2, metavar=("HOST", "CLONE"), help=argparse.SUPPRESS)
    parser.add_argument("--files", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        job(given.job[0], Path(given.job[1]), files=given.files)
        return
    sys.path.insert(0, str(HERE.parent))
    with TemporaryDirectory(prefix="fedops-bench-", dir=given.work) as folder:
        sys.exit(0 if compare(Path(folder), given) else 1)


def compare(folder: Path, given: argparse.Namespace) -> bool:
    """Time both ways in turn and write the page; True if the bars hold."""
    from fedops.core.ids import Digest
    from tests.registry.server import registry_server

    ways: dict[str, list[Made]] = {"streams": [], "files": []}
    (folder / "fed").mkdir()
    with registry_server(folder / "registry") as server, link(server.host, given.rate) as host:
        clone, size = found(folder / "fed", server.host, given.sites, given.mb)
        store = open_store(server.host)
        for number in range(given.runs + 1):
            for way, kept in ways.items():
                made = run(host, clone, files=way == "files")
                # What the registry has is not sent again, so it must go.
                assert store.drop("global", Digest(made.manifest))
                print(
                    f"round {number} {way:8} {made.wall:7.2f} s wall {made.cpu:7.2f} s CPU {made.peak_mb:5.0f} MB",
                    flush=True,
                )
                if number:  # the first warms the page cache
                    kept.append(made)
        store.close()
    assert len({made.manifest for kept in ways.values() for made in kept}) == 1, "both ways give the same proposal"
    return report(ways, given, size)


def report(ways: dict[str, list[Made]], given: argparse.Namespace, size: int) -> bool:
    """Write streamed.md; True if the bars hold."""
    models = given.sites + 1
    down, up = models * size / (given.rate * 1e6), size / (given.rate * 1e6)
    rows, ratios, peaks = "", {}, {}
    for way, kept in ways.items():
        wall, cpu = statistics.median(m.wall for m in kept), statistics.median(m.cpu for m in kept)
        ratios[way], peaks[way] = wall / (down + up), max(m.peak_mb for m in kept)
        rows += f"| {way} | {wall:.2f} | {cpu:.2f} | {peaks[way]:.0f} | {ratios[way]:.2f}x |\n"
    kept_bars = ratios["streams"] <= BAR and peaks["streams"] < MEMORY_MB
    text = f"""# Aggregation straight from a registry

Written by `python bench/streamed.py`; do not edit. What the job `aggregate` does, as a whole process: {given.sites} updates and
one global model of {given.mb:.0f} MB from a real registry (distribution) on this machine, over a link of {given.rate:.0f} MB/s in each
direction; sha256 and md5 of every byte checked, the new model hashed and uploaded over the same link.
Medians of {given.runs} runs, in turn. The registry and the link work on the same two processors.

| | |
| --- | ---: |
| read over the link | {models * size / 1e6:,.0f} MB = {down:.2f} s |
| sent over the link | {size / 1e6:,.0f} MB = {up:.2f} s |

| | wall s | CPU s | peak MB | x bytes / bandwidth |
| --- | ---: | ---: | ---: | ---: |
{rows}
Bars: streams at most {BAR}x of bytes / bandwidth, peak below {MEMORY_MB:.0f} MB: {"met" if kept_bars else "**not met**"}.
"""
    (HERE / "streamed.md").write_text(text)
    pages.refresh()
    print(text)
    return kept_bars


if __name__ == "__main__":
    main()
