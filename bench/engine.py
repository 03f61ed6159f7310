"""Time the engine against the floor: reading the same files once and writing one, in C.

    python bench/engine.py [--mb 500] [--sites 10] [--repeats 3] [--folder DIR]

Every run is a process of its own, in turn with the floor, so that a noisy machine moves both; the best of each is printed.
The columns "cpu" count the time of all processors: on a busy machine their ratio says more than that of the wall clock.
The data (sites + 5 files of --mb) lie in a temporary folder that is removed at the end.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).parent
BASES = 4
SCENARIOS = ("mean", "4 bases", "norms", "md5", "sha256 of inputs")


def make_data(folder: Path, mb: int, sites: int) -> None:
    """GPT-like tensors: one large table, matrices and many small vectors; deltas small beside the weights."""
    import numpy as np

    from fedops.adapters.model_writer import save_arrays

    width = 768
    rows = max(1, mb * 1_000_000 // 4 // width)
    shapes: dict[str, tuple[int, ...]] = {"table": (rows // 3, width)}
    left = rows - rows // 3
    for i in range(12):
        shapes[f"h.{i}.matrix"] = (left // 12, width)
        shapes |= {f"h.{i}.{name}": (width,) for name in ("ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias")}
    rng = np.random.Generator(np.random.SFC64(0))
    base = {k: rng.standard_normal(s, dtype=np.float32) * np.float32(0.02) for k, s in shapes.items()}
    for name in [f"base-{b}" for b in range(BASES)] + [f"site-{i:03d}" for i in range(sites)]:
        noise = {k: v + rng.standard_normal(v.shape, dtype=np.float32) * np.float32(0.001) for k, v in base.items()}
        save_arrays(folder / f"{name}.safetensors", noise)


def run_engine(folder: Path, scenario: str, sites: int) -> None:
    """One aggregation; prints seconds without start-up, by the clock and of all processors, and the peak of memory in MB."""
    from fedops.adapters.model_files import ModelFiles
    from fedops.app.engine import Aggregated, Base, Input, Rule, aggregate
    from fedops.core.facts import Submission, Weighted
    from fedops.core.ids import BlobId, CommitId, Digest, SiteId
    from fedops.core.settings import Integers, Limits, StrategySettings
    from fedops.core.strategies import make_strategy

    limits = Limits(update_bytes=10**11, expanded_bytes=10**11)
    files = ModelFiles()
    digests = json.loads((folder / "sha256.json").read_text()) if scenario == "sha256 of inputs" else {}
    begin, cpu = time.perf_counter(), _cpu()
    with ExitStack() as stack:

        def open_model(name: str):  # type: ignore[no-untyped-def]  # a script
            model, found = files.open(folder / f"{name}.safetensors", limits, name)
            assert model is not None, found
            return stack.enter_context(model)

        bases = {b: Base(open_model(f"base-{b}"), f"v{b}", digests.get(f"base-{b}")) for b in range(BASES)}
        if scenario != "4 bases":
            bases = {3: bases[3]}
        inputs = []
        for i in range(sites):
            name = f"site-{i:03d}"
            base = i % BASES if scenario == "4 bases" else 3
            submission = Submission(
                SiteId(name), base, 100 + 37 * i, "full", "", "", 0, Digest(""), BlobId(""), BlobId(""), CommitId(""),
                dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            )  # fmt: skip
            weighted = Weighted(submission, 3 - base, (100.0 + 37 * i) / (4 - base), 0.0)
            inputs.append(Input(weighted, open_model(name), name, digests.get(name)))
        denominator = sum(i.weighted.weight for i in inputs)
        rule = Rule(make_strategy(StrategySettings()), denominator, Integers(), want_norms=scenario == "norms")
        target = folder / "out.safetensors"
        with files.create(target, bases[3].model.specs, md5=scenario == "md5") as sink:
            made = aggregate(3, bases, inputs, rule, sink)
        assert isinstance(made, Aggregated), made
    seconds, cpu = time.perf_counter() - begin, _cpu() - cpu
    # Not ru_maxrss: it remembers the process that started this one. The second process is smaller.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(f"{seconds:.4f} {cpu:.4f} {int(peak.split()[1]) / 1024:.0f}")


def _cpu() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def hash_floor(names: list[Path]) -> tuple[float, float]:
    """Seconds to hash files with two threads and nothing else, by the clock and of all processors."""
    line = iter(names)
    lock = threading.Lock()

    def lane() -> None:
        while True:
            with lock:
                path = next(line, None)
            if path is None:
                return
            with path.open("rb") as stream:
                hashlib.file_digest(stream, "sha256")

    begin, cpu = time.perf_counter(), time.process_time()
    lanes = [threading.Thread(target=lane) for _ in range(2)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    return time.perf_counter() - begin, time.process_time() - cpu


def measure(folder: Path, sites: int, repeats: int) -> None:
    floor = folder / "limit_read"
    subprocess.run(["gcc", "-O2", "-pthread", str(HERE / "limit_read.c"), "-o", str(floor)], check=True)
    site_files = sorted(folder.glob("site-*.safetensors"))
    base_files = sorted(folder.glob("base-*.safetensors"))
    digests = {}
    for path in site_files + base_files:
        with path.open("rb") as stream:
            digests[path.stem] = hashlib.file_digest(stream, "sha256").hexdigest()
    (folder / "sha256.json").write_text(json.dumps(digests))
    print(f"{'scenario':18} {'engine':>7} {'floor':>7} {'ratio':>6} {'cpu':>7} {'floor':>7} {'ratio':>6} {'RSS MB':>7}")
    for scenario in SCENARIOS:
        read = [*site_files, *(base_files if scenario == "4 bases" else base_files[-1:])]
        ours: list[tuple[float, ...]] = []
        floors: list[tuple[float, ...]] = []
        for _ in range(repeats):
            if scenario == "sha256 of inputs":
                floors.append(hash_floor(read))
            else:
                done = subprocess.run([floor, folder / "out.raw", "2", "512", *read], check=True, capture_output=True)
                floors.append(tuple(map(float, done.stdout.split())))
            command = [sys.executable, __file__, "--one", scenario, "--folder", str(folder), "--sites", str(sites)]
            env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(command, check=True, capture_output=True, env=env)
            ours.append(tuple(map(float, done.stdout.split())))
        wall, cpu, memory = map(min, zip(*ours, strict=True))
        floor_wall, floor_cpu = map(min, zip(*floors, strict=True))
        print(
            f"{scenario:18} {wall:7.3f} {floor_wall:7.3f} {wall / floor_wall:6.2f}"
            f" {cpu:7.3f} {floor_cpu:7.3f} {cpu / floor_cpu:6.2f} {memory:7.0f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_engine(given.folder, given.one, given.sites)
        return
    if shutil.which("gcc") is None:
        raise SystemExit("gcc is needed for the floor")
    with tempfile.TemporaryDirectory(prefix="fedops-bench-", dir=given.folder) as name:
        make_data(Path(name), given.mb, given.sites)
        measure(Path(name), given.sites, given.repeats)


if __name__ == "__main__":
    main()
