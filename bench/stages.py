"""The stages of the benchmark: each makes its data, times commands in turn, checks their results, and cleans up."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import Command, Row, measure
from plans import VERSIONS, Scenario, files_of, write_plan
from quiet import Waiter

HERE = Path(__file__).parent
FLOWER = "Flower, message API"
NVFLARE = {
    "NVFlare, helper, numpy": "numpy",
    "NVFlare, helper, torch": "torch",
    "NVFlare, helper, offload": "offload",
    "NVFlare, InTime aggregator": "intime",
}
FLOOR, FLOOR_ALL = "C: reads the updates", "C: reads the updates, 4 bases"
FEDOPS: Mapping[Scenario, str] = {
    "one base": "fedops, one base",
    "four bases": "fedops, four bases",
    "norms": "fedops, with norms",
    "digests": "fedops, digests checked",
}
HASHES = "two threads of sha256"
NORM_ERROR = 1e-12  # relative


@dataclass
class Setup:
    """What to measure and where.

    Attributes:
        fedops: path of the command.
        work: folder for everything that is large.
        mb: size of a model, 10**6 bytes.
        notes: what a reader of the results must know, such as what could not be measured.
        exact: row -> (elements, those that are not the float32 nearest to the exact value).
    """

    fedops: Path
    work: Path
    sites: int
    mb: float
    repeats: int
    waiter: Waiter
    notes: list[str] = field(default_factory=list)
    exact: dict[str, tuple[int, int]] = field(default_factory=dict)


@contextmanager
def data(setup: Setup, sites: int, mb: float, *, versions: int = VERSIONS, keep: bool = False) -> Iterator[Path]:
    """A folder of updates and versions, removed at the end unless it is to be kept; room for them is looked for first.

    Args:
        versions: VERSIONS, or 1: the current one alone.
    """
    folder = setup.work / f"updates-{sites}x{mb:g}-{versions}"
    need = (sites + versions + 2) * mb * 1e6
    if not (folder / "data.json").exists():
        if (free := shutil.disk_usage(setup.work).free) < need:
            raise SystemExit(f"{setup.work}: {free / 1e9:.1f} GB free -> {need / 1e9:.1f} GB; see --work and --quick")
        print(f"making {sites} updates and {versions} versions of {mb:g} MB", flush=True)
        arguments = [sys.executable, str(HERE / "make_data.py"), str(folder), "--sites", str(sites), "--mb", f"{mb:g}"]
        subprocess.run([*arguments, *([] if versions == VERSIONS else ["--one-base"])], check=True)
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder)


def fedops_command(setup: Setup, folder: Path, scenario: Scenario, *, check: bool = True) -> Command:
    """`fedops aggregate` of a plan, and the check of what it made."""
    out = folder / "out" / scenario.replace(" ", "-")
    model = out / "model.safetensors"
    plan = write_plan(folder, scenario)

    def inspect(text: str) -> None:
        result = json.loads(text)
        with model.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if not result["ok"] or result["outcome"] != "complete" or result["model"]["sha256"] != digest:
            raise SystemExit(f"{FEDOPS[scenario]}: wrong result {text}")
        if not check:
            return
        right = compare(folder, scenario, model)
        setup.exact[FEDOPS[scenario]] = right["elements"], right["wrong"]
        measured = {c["site"]: c["delta_norm"] for c in result["contributions"]}
        for site, norm in right["norms"].items():
            if measured[site] is None or not math.isclose(measured[site], norm, rel_tol=NORM_ERROR):
                raise SystemExit(f"{FEDOPS[scenario]}: norm of {site}: {measured[site]} -> {norm}")

    arguments = [str(setup.fedops), "aggregate", "--plan", str(plan), "--out", str(out), "--format", "json"]
    return Command(FEDOPS[scenario], arguments, folder=folder, outputs=out, inspect=inspect)


def compare(folder: Path, scenario: Scenario, output: Path) -> Any:
    """What reference.py says of an output, in a process of its own: this one must stay small (see measure.py)."""
    arguments = [sys.executable, str(HERE / "reference.py"), str(folder), scenario, str(output)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def aggregation(setup: Setup, folder: Path, peers: Mapping[str, Path]) -> Mapping[str, Row]:
    """The mean, file to file: the floor, fedops, and the peers whose Python is given."""
    floor = setup.work / "limit_read"
    subprocess.run(["gcc", "-O2", "-pthread", HERE / "limit_read.c", "-o", floor], check=True)
    raw = folder / "out.raw"

    def reader(name: str, scenario: Scenario, *, bases: bool) -> Command:
        files = map(str, files_of(folder, scenario, bases=bases))
        return Command(name, [str(floor), str(raw), "2", "256", *files], outputs=raw)

    commands = [reader(FLOOR, "one base", bases=False), reader(FLOOR_ALL, "four bases", bases=True)]
    scenarios: tuple[Scenario, ...] = ("one base", "four bases", "norms")
    commands += [fedops_command(setup, folder, scenario) for scenario in scenarios]
    if "flwr" in peers:
        commands.append(_peer(setup, folder, FLOWER, peers["flwr"], "flwr_fedavg.py"))
    if "nvflare" in peers:
        commands += [_peer(setup, folder, n, peers["nvflare"], "nvflare_fedavg.py", way) for n, way in NVFLARE.items()]
    return measure(commands, setup.repeats, setup.waiter)


def _peer(setup: Setup, folder: Path, name: str, python: Path, script: str, *arguments: str) -> Command:
    output = folder / "peer.safetensors"

    def inspect(_: str) -> None:
        right = compare(folder, "one base", output)
        setup.exact[name] = right["elements"], right["wrong"]
        # float32 sums of weights around 0.1; anything larger means that it computed something else.
        if not right["worst"] < 1e-6:
            raise SystemExit(f"{name}: off by {right['worst']}")

    words = [str(python), str(HERE / "peers" / script), str(folder), str(output), *arguments]
    return Command(name, words, outputs=output, inspect=inspect)


def digests(setup: Setup, folder: Path) -> Mapping[str, Row]:
    """Re-checking the sha256 of everything that goes in, against doing nothing but that."""
    files = files_of(folder, "digests", bases=True)
    stated = json.loads((folder / "data.json").read_text())["sha256"]

    def inspect(text: str) -> None:
        if {line.split()[0] for line in text.splitlines()} != {stated[path.stem] for path in files}:
            raise SystemExit(f"{HASHES}: wrong digests")

    floor = Command(HASHES, [sys.executable, str(HERE / "hash_files.py"), *map(str, files)], inspect=inspect)
    return measure([floor, fedops_command(setup, folder, "digests")], setup.repeats, setup.waiter)


def memory(setup: Setup, sets: Sequence[tuple[int, float]]) -> Mapping[tuple[int, float], Row]:
    """(sites, MB of the model) -> what an aggregation on one base took."""
    peaks: dict[tuple[int, float], Row] = {}
    for sites, mb in sets:
        with data(setup, sites, mb, versions=1) as folder:
            command = fedops_command(setup, folder, "one base", check=False)
            peaks[sites, mb] = measure([command], 2, setup.waiter, extra=0)[command.name]
    return peaks


def startup(setup: Setup) -> Mapping[str, Row]:
    """Commands that a person waits for, in a federation that `fedops demo` has just made."""
    folder = setup.work / "demo"
    print("making a federation", flush=True)
    arguments = [str(setup.fedops), "demo", "--dir", str(folder), "--versions", "2", "--replace"]
    made = subprocess.run(arguments, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"fedops demo: exit code {made.returncode}\n{made.stdout}{made.stderr}")
    at = folder / "auditor"
    python = Command("python -c pass", [sys.executable, "-c", "pass"])
    helped = Command("fedops --help", [str(setup.fedops), "--help"])
    status = Command("fedops status", [str(setup.fedops), "status"], folder=at)
    offline = Command("fedops status --no-fetch", [str(setup.fedops), "status", "--no-fetch"], folder=at)
    try:
        return measure([python, helped, status, offline], 3 * setup.repeats, setup.waiter)
    finally:
        shutil.rmtree(folder)
