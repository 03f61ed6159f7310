"""Run the benchmark and write its results: `make bench`, or

    python bench/run.py [--quick] [--stages aggregation,digests,memory,startup] [--work DIR]

See README.md beside this file.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pages
import report
import stages
from measure import QUIET_CORES
from quiet import Waiter

HERE = Path(__file__).parent
STAGES = ("aggregation", "digests", "memory", "startup")
PEERS = ("flwr", "nvflare")


def peer_pythons(setup: stages.Setup) -> Mapping[str, Path]:
    """A virtual environment for each peer, made once; a peer that cannot be installed is left out, with a note."""
    found = {}
    for peer in PEERS:
        folder = setup.work / f"venv-{peer}"
        python = folder / "bin" / "python"
        done = folder / ".installed"
        wanted = (HERE / "peers" / f"{peer}.txt").read_text()
        if not done.exists() or done.read_text() != wanted:
            print(f"installing {peer}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(HERE / "peers" / f"{peer}.txt")]
            tried = subprocess.run(install, capture_output=True, text=True)
            if tried.returncode:
                last = (tried.stderr.strip().splitlines() or ["no message"])[-1]
                setup.notes.append(f"{peer} was not measured: pip could not install it ({last}).")
                continue
            done.write_text(wanted)
        found[peer] = python
    return found


def conditions(given: argparse.Namespace, setup: stages.Setup, load: float) -> Mapping[str, str]:
    """What a reader must know to compare: nothing that names this machine."""
    count, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    lines = (line for peer in PEERS for line in (HERE / "peers" / f"{peer}.txt").read_text().splitlines())
    pinned = sorted({line for line in lines if "==" in line})
    command = "make bench" if not given.quick else "python bench/run.py --quick"
    nice = os.nice(0)
    priority = f"; all of it at nice {nice}" if nice else ""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({_processor()}), {count * size / 2**30:.0f} GiB, {platform.system()}",
        "software": f"Python {platform.python_version()}, numpy {version('numpy')}, fedops {version('fedops-git')}",
        "peers": "not measured" if given.no_peers else ", ".join(pinned),
        "runs": f"median of {setup.repeats}, whole processes, in turn, after one that is not counted; files in the page cache",
        "load before the run": f"{load:.2f} cores used by others{priority}; a run counts as disturbed above {QUIET_CORES}",
        "repeat": f"`{command}`",
    }


def _processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def run(given: argparse.Namespace) -> report.Results:
    """All stages that were asked for; writes the page."""
    setup = stages.Setup(
        fedops=given.fedops.resolve(),
        work=given.work.resolve(),
        sites=10,
        mb=50.0 if given.quick else 500.0,
        repeats=given.repeats,
        waiter=Waiter(given.patience),
    )
    setup.work.mkdir(parents=True, exist_ok=True)
    if shutil.which("gcc") is None:
        raise SystemExit("gcc: not found; the floor is a C program")
    load = Waiter.now()
    results = report.Results()
    if {"aggregation", "digests"} & given.stages:
        peers = peer_pythons(setup) if "aggregation" in given.stages and not given.no_peers else {}
        with stages.data(setup, setup.sites, setup.mb, keep=given.keep) as folder:
            if "aggregation" in given.stages:
                results.aggregation = stages.aggregation(setup, folder, peers)
            if "digests" in given.stages:
                results.digests = stages.digests(setup, folder)
    if "memory" in given.stages:
        results.memory = stages.memory(setup, [(10, setup.mb / 5), (30, setup.mb / 5), (3, setup.mb * 4)])
    if "startup" in given.stages:
        results.startup = stages.startup(setup)
    page = report.markdown(results, setup, conditions(given, setup, load))
    given.results.write_text(page, "utf-8")
    pages.refresh(given.results)
    print(page)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="updates of 50 MB instead of 500")
    parser.add_argument("--stages", default=",".join(STAGES), help="some of %(default)s")
    parser.add_argument("--no-peers", action="store_true", help="fedops and the floor alone")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds to wait for a quiet machine, in all")
    parser.add_argument("--work", type=Path, default=HERE / "scratch", help="folder for data and peers")
    parser.add_argument("--keep", action="store_true", help="keep the updates, for the next run")
    parser.add_argument(
        "--results", type=Path, help="page to write; default: results.md, with --quick in the work folder"
    )
    parser.add_argument("--fedops", type=Path, default=Path(sys.executable).with_name("fedops"), help="command to time")
    given = parser.parse_args()
    given.stages = set(given.stages.split(","))
    if unknown := given.stages - set(STAGES):
        parser.error(f"--stages: {', '.join(sorted(unknown))}: not one of {', '.join(STAGES)}")
    given.results = given.results or (given.work if given.quick else HERE) / "results.md"
    run(given)


if __name__ == "__main__":
    main()
