"""What `fedops verify` costs beside what it must do at least: read and hash the bytes, and aggregate them.

    python bench/verify.py [--versions 20] [--sites 10] [--mb 20] [--runs 3] [--folder DIR] [--keep]

Builds a federation with these many versions, each made of one update per site, in a folder (default: a temporary one,
removed afterwards), by the real `ci reconcile`; then times whole processes:

    hash        two threads that read and hash (sha256) every model file of the store, and do nothing else
    md5         the same with md5, which the sites' records state too, of one copy of each input
    aggregate   each version once more from files at hand, written to a file, nothing checked
    verify      `fedops verify --all`, and again with --remembered

The floor of `verify` is hash + md5 + aggregate. Files are in the page cache in all rows. Writes verify.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
import pages

from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_repo import GitRepository
from fedops.adapters.model_files import ModelFiles
from fedops.adapters.model_writer import save_arrays
from fedops.adapters.store_layout import LayoutStore
from fedops.app.context import Context
from fedops.app.first_model import Generated
from fedops.app.founding import Ground, Wanted
from fedops.app.init import init
from fedops.app.reconcile import reconcile
from fedops.app.scaffold import Scaffold
from fedops.app.snapshot import main_snapshot
from fedops.core.artifacts import update_annotations
from fedops.core.documents import dump_json
from fedops.core.facts import RefUpdate, TensorSpec
from fedops.core.ids import CommitId, SiteId, record_path, repository_of, update_path
from fedops.core.plan import merge_message
from fedops.core.records import Record, render_pointer, update_pointer
from fedops.core.settings import Lead, Person, Site

HERE = Path(__file__).parent
TENSORS = 8
# What must be done at least, beside aggregating: the strictest reading of the bar last.
FLOORS = (
    ("hash, every copy", "md5, each input once"),
    ("hash, every copy",),
    ("hash, each input once",),
)


class Quiet:
    """Progress that nobody looks at."""

    def start(self, *_: object) -> int:
        return 0

    def advance(self, *_: object) -> None: ...

    def finish(self, *_: object) -> None: ...


class Clock:
    """Moves only when somebody works."""

    def __init__(self) -> None:
        self.at = dt.datetime(2026, 1, 5, 8, 0, tzinfo=dt.UTC)

    def now(self) -> dt.datetime:
        self.at += dt.timedelta(seconds=1)
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += dt.timedelta(seconds=seconds)


class Past:
    """A federation of `sites` in `folder`, whose versions are made one by one."""

    def __init__(self, folder: Path, sites: int, megabytes: int, stack: ExitStack) -> None:
        self.folder, self.clock = folder, Clock()
        self.sites = [f"site-{n:02d}" for n in range(sites)]
        self.keys = {who: self._key(who) for who in ("lead", *self.sites)}
        self.origin = folder / "origin.git"
        GitRepository.init(self.origin, bare=True).close()
        (self.origin / "store").mkdir()
        self.store = LayoutStore(self.origin / "store")
        author = ("lead", "lead@example.invalid")
        self.root = folder / "clone"
        self.repository = stack.enter_context(GitRepository.clone(str(self.origin), self.root, author=author))
        shape = (megabytes * 1_000_000 // 4 // TENSORS,)
        self.specs = {f"layer{i}.weight": TensorSpec("F32", shape) for i in range(TENSORS)}
        scratch = folder / "scratch"
        scratch.mkdir()
        forge = GitForge(self.repository, clock=self.clock, key=self.keys["lead"], jitter=lambda: 0.0)
        software = {"fedops": "0.1.0"}
        self.ctx = Context(
            self.repository, forge, lambda _: self.store, ModelFiles(), self.clock, Quiet(), scratch, software
        )
        ground = Ground(self.repository, self.ctx.stores, ModelFiles(), self.clock, scratch, software, self.root)
        init(ground, Wanted(self._scaffold(), Generated("normal", 5, self.specs), key=self.keys["lead"]))
        self.repository.fetch()
        self.repository.checkout_main()

    def _key(self, who: str) -> Path:
        path = self.folder / "keys" / who
        path.parent.mkdir(exist_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", str(path)], check=True)
        return path

    def _public(self, who: str) -> str:
        return self.keys[who].with_suffix(".pub").read_text().strip()

    def _scaffold(self) -> Scaffold:
        sites = {
            s: Site(accounts=(Person(login=s, id=100 + n),), keys=(self._public(s),)) for n, s in enumerate(self.sites)
        }
        lead = Lead(login="lead", id=1, keys=(self._public("lead"),))
        return Scaffold(
            name="bench", store="ocidir:store", fedops="0.1.0", leads=(lead,), sites=sites, quorum=len(self.sites)
        )

    def version(self) -> None:
        """One update of every site on the current version, merged; then CI."""
        main = main_snapshot(self.repository)
        base = main.version.version
        for place, site in enumerate(self.sites):
            self._merge(SiteId(site), base, place)
        made = reconcile(self.ctx, jitter=lambda: 0.0).published
        assert [record.version for record in made] == [base + 1]
        for file in self.ctx.scratch.iterdir():
            file.unlink()

    def _merge(self, site: SiteId, base: int, place: int) -> None:
        rng = np.random.default_rng([base, place])
        arrays = {n: rng.standard_normal(s.shape, np.float32) for n, s in self.specs.items()}
        file = self.folder / "update.safetensors"
        sha256, md5, size = save_arrays(file, arrays)
        created = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        said = update_annotations(site=site, base_version=base, num_examples=100 + place, created_at=created)
        stored = self.store.put(repository_of(site), file, said)
        record = Record(
            site=site,
            base_version=base,
            num_examples=100 + place,
            format="safetensors",
            payload="full",
            sha256=sha256,
            md5=md5,
            size=size,
            manifest=stored.manifest,
            metrics={"loss": 0.5},
            created_at=created,
        )
        files = {
            record_path(site): dump_json(record),
            update_path(site, "safetensors"): render_pointer(update_pointer(record, "safetensors")),
        }
        repository, tip = self.repository, self.repository.resolve("main")
        assert tip is not None
        at = self.clock.now()
        head = repository.write_commit([tip], files, f"submit({site}): update on v{base}", at=at, key=self.keys[site])
        policy = main_snapshot(repository).policy
        account = Person(login=site, id=100 + place)
        message = merge_message(site, base, 1, account, head, policy)  # type: ignore[arg-type]  # has login and id
        merge: CommitId = repository.write_commit([tip, head], files, message, at=at)
        assert repository.push([RefUpdate("refs/heads/main", tip, merge)])


def build(folder: Path, versions: int, sites: int, megabytes: int) -> None:
    """Make the federation; the clone to verify in is `folder`/clone."""
    with ExitStack() as stack:
        past = Past(folder, sites, megabytes, stack)
        for number in range(versions):
            past.version()
            print(f"v{number + 1} made", file=sys.stderr)


def layers(folder: Path, *, once: bool) -> list[str]:
    """Paths of the model files in the store; `once`: without the sites' own copies, equal to the archive's."""
    store = folder / "origin.git" / "store"
    repositories = [store / "global", store / "archive", *(() if once else (store / "sites").iterdir())]
    blobs = (p for r in repositories for p in (r / "blobs" / "sha256").iterdir())
    return sorted(str(p) for p in blobs if p.stat().st_size > 1_000_000)


AGGREGATE = """
import sys, json
from contextlib import nullcontext
from pathlib import Path
from fedops.adapters.model_files import ModelFiles
from fedops.app.engine import Base, Input, Rule, aggregate
from fedops.core.facts import Submission, Weighted
from fedops.core.settings import Integers, Limits, StrategySettings
from fedops.core.strategies import make_strategy
files, target = ModelFiles(), Path(sys.argv[2])
for version in json.loads(Path(sys.argv[1]).read_text()):
    base = files.open(Path(version["base"]), Limits(), "base")[0]
    inputs = []
    for site, path, n in version["updates"]:
        model = files.open(Path(path), Limits(), site)[0]
        one = Submission(site, version["number"], n, "full", "", "", 1, "", "", "", "", None)
        inputs.append(Input(Weighted(one, 0, float(n), 0.0), model, site))
    total = float(sum(n for _, _, n in version["updates"]))
    rule = Rule(make_strategy(StrategySettings()), total, Integers())
    with files.create(target, base.specs) as sink:
        made = aggregate(version["number"], {version["number"]: Base(base, "base")}, inputs, rule, sink)
    assert made.sha256 == version["sha256"], (version["number"], made)
    for model in (base, *(i.model for i in inputs)):
        model.close()
"""


MD5 = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from fedops.app.read_ahead import digests_of
with ThreadPoolExecutor(2) as pool:
    list(pool.map(lambda path: digests_of(Path(path), ["md5"]), sys.argv[1:]))
"""


def plan(folder: Path) -> Path:
    """What was aggregated, for the program above."""
    store = folder / "origin.git" / "store"
    out = []
    with GitRepository(folder / "clone") as repository:
        records = []
        for tag in repository.versions():
            entry = next(e for e in repository.entries(tag.commit, "global") if e.path == "global/version.json")
            records.append(json.loads(repository.read(entry.blob, max_bytes=1 << 24)))
    for before, record in pairwise(records):
        base = store / "global" / "blobs" / "sha256" / before["model"]["sha256"]
        updates = [
            (c["site"], str(store / "archive" / "blobs" / "sha256" / c["sha256"]), c["num_examples"])
            for c in record["contributions"]
        ]
        number, sha256 = before["version"], record["model"]["sha256"]
        out.append({"number": number, "base": str(base), "updates": updates, "sha256": sha256})
    path = folder / "plan.json"
    path.write_text(json.dumps(out))
    return path


def timed(command: Sequence[str | Path], cwd: Path) -> tuple[float, float, str]:
    """Wall and CPU seconds of one process, and what it printed."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, done.stdout


def measure(folder: Path, runs: int) -> list[str]:
    """Time everything in turn; the lines of the page."""
    clone, python = folder / "clone", sys.executable
    plan_file = plan(folder)
    fedops = [python, "-m", "fedops.cli.main"]
    rows: dict[str, Sequence[str | Path]] = {
        "hash, each input once": [python, HERE / "hash_files.py", *layers(folder, once=True)],
        "hash, every copy": [python, HERE / "hash_files.py", *layers(folder, once=False)],
        "md5, each input once": [python, "-c", MD5, *layers(folder, once=True)],
        "aggregate": [python, "-c", AGGREGATE, plan_file, folder / "again.safetensors"],
        "verify --all": [*fedops, "verify", "--all"],
        "verify --all --remembered": [*fedops, "verify", "--all", "--remembered"],
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    text = {}
    for turn in range(runs + 1):
        for name, command in rows.items():
            *one, text[name] = timed(command, clone)
            if turn:  # the first round fills the page cache
                times[name].append((one[0], one[1]))
    wall = {name: statistics.median(w for w, _ in t) for name, t in times.items()}
    cpu = {name: statistics.median(c for _, c in t) for name, t in times.items()}
    lines = [f"| {'':27} | wall s | CPU s |", f"| {'-' * 27} | -----: | ----: |"]
    lines += [f"| {name:27} | {wall[name]:6.2f} | {cpu[name]:5.2f} |" for name in rows]
    lines += ["", "| `verify --all` against | wall | CPU |", "| --- | ---: | ---: |"]
    for floor in FLOORS:
        least, least_cpu = (sum(t[name] for name in (*floor, "aggregate")) for t in (wall, cpu))
        ratios = f"{wall['verify --all'] / least:.2f}x | {cpu['verify --all'] / least_cpu:.2f}x"
        lines.append(f"| {' + '.join(floor)} + aggregate | {ratios} |")
    again = wall["verify --all --remembered"] / wall["verify --all"]
    said = text["verify --all --remembered"].splitlines()[-1]
    return [*lines, "", f"`--remembered` takes {again:.3f} of it and ends with: {said}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--mb", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="use it again if it is there")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="fedops-bench-"))).resolve()
    try:
        if not (folder / "clone").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            build(folder, given.versions, given.sites, given.mb)
        head = (
            f"# What `verify` costs\n\nWritten by `python bench/verify.py`; do not edit. {given.versions} versions of {given.sites} sites,"
            f" models of {given.mb} MB; medians of {given.runs} runs in turn, files in the page cache. Bars: 1.5x of hashing every"
            " copy and aggregating; `--remembered` a tenth.\n"
        )
        page = "\n".join([head, *measure(folder, given.runs)]) + "\n"
        print(page)
        (HERE / "verify.md").write_text(page, "utf-8")
        pages.refresh()
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
