"""Does the cost of a look grow with history? `fedops status` and a run of CI that waits, after a short and a long one.

    python bench/scale.py [--sites 1000] [--commits 1000,10000] [--repeats 7] [--work DIR] [--results FILE]

Also the time from a site's submission to the tag of the version that it completes, in a federation that `fedops demo`
has made.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pages
from histories import OPEN, PER_VERSION, History
from measure import Command, Row, measure
from quiet import Waiter

from fedops.app.demo import CLIENT

HERE = Path(__file__).parent
LOOKS = {
    "fedops status": ("status",),
    "fedops status --no-fetch": ("status", "--no-fetch"),
    "fedops ci reconcile, nothing to do": ("ci", "reconcile"),
}
LIMIT = 1.2
# How a checkout can be asked for; CI uses the second (docs/decisions.md 32).
CHECKOUTS: Mapping[str, Sequence[str]] = {
    "everything": (),
    "all commits, no old blobs (CI)": ("--filter=blob:none",),
    f"the last {PER_VERSION} commits, no old blobs": ("--filter=blob:none", f"--depth={PER_VERSION}"),
}


def checkout_bytes(origin: Path, folder: Path) -> Mapping[str, int]:
    """How many bytes of packs a new clone with its checked-out files has received, by the way it was asked for."""
    subprocess.run(["git", "-C", str(origin), "config", "uploadpack.allowFilter", "true"], check=True)
    sizes = {}
    for name, options in CHECKOUTS.items():
        words = ["clone", "--quiet", "--no-tags", "--single-branch", *options, f"file://{origin}", str(folder)]
        subprocess.run(["git", "-c", "protocol.file.allow=always", *words], check=True)
        sizes[name] = sum(pack.stat().st_size for pack in folder.glob(".git/objects/pack/*.pack"))
        shutil.rmtree(folder)
    return sizes


def looks(
    fedops: Path, sites: int, commits: Sequence[int], work: Path, repeats: int
) -> tuple[Mapping[tuple[str, int], Row], Mapping[int, Mapping[str, int]]]:
    """CPU and wall clock of each look, and what a checkout receives, by the number of commits on main."""
    commands, received = {}, {}
    for number in commits:
        folder = work / f"history-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"writing {number:,} commits of {sites:,} sites", flush=True)
        origin, clone = History(sites, number, folder).write(), folder / "clone"
        received[number] = checkout_bytes(origin, folder / "checkout")
        subprocess.run(["git", "clone", "--quiet", str(origin), str(clone)], check=True)
        for _ in range(2):  # reports on the open pull requests; the second finds nothing to do
            subprocess.run([str(fedops), "ci", "reconcile"], cwd=clone, check=True, capture_output=True)
        for name, words in LOOKS.items():
            commands[name, number] = Command(f"{name} @ {number}", [str(fedops), *words], folder=clone)
    rows = measure(list(commands.values()), repeats, Waiter(120.0))
    for number in commits:
        shutil.rmtree(work / f"history-{number}")
    return {key: rows[command.name] for key, command in commands.items()}, received


def submit_to_tag(fedops: Path, work: Path, repeats: int) -> list[tuple[float, float]]:
    """(wall, CPU) seconds from the beginning of the submission that completes the quorum until its version is tagged."""
    folder, times = work / "demo", []
    run = ["demo", "--dir", str(folder), "--versions", "1", "--replace"]
    subprocess.run([str(fedops), *run], check=True, capture_output=True)
    sites = ("hospital-a", "hospital-b")

    def call(where: str, *words: str) -> None:
        subprocess.run([str(fedops), *words], cwd=folder / where, check=True, capture_output=True)

    for _ in range(repeats):
        for site in sites:
            call(site, "pull")
            call(site, "train", *CLIENT)
        call(sites[0], "submit")
        before, begin = os.times(), time.perf_counter()
        call(sites[1], "submit")
        call("ci", "ci", "reconcile")
        wall, after = time.perf_counter() - begin, os.times()
        times.append((wall, sum(after[2:4]) - sum(before[2:4])))
    shutil.rmtree(folder)
    return sorted(times)


def page(
    rows: Mapping[tuple[str, int], Row],
    received: Mapping[int, Mapping[str, int]],
    tags: Sequence[tuple[float, float]],
    sites: int,
) -> str:
    """The results as Markdown."""
    commits = sorted({number for _, number in rows})
    short, long = commits[0], commits[-1]
    wall, cpu = tags[len(tags) // 2]
    lines = [
        "# Scale",
        "",
        "Written by `python bench/scale.py`; do not edit.",
        "",
        f"- {dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        (
            f"- {sites:,} sites; on main's first-parent line so many commits, one version for each {PER_VERSION - 1} merges, with"
            f" the pull requests, comments, statuses and signals that they leave behind; {OPEN} pull requests are open"
        ),
        (
            "- CPU seconds of the command and of every git that it starts, that which serves the fetch included; the median of"
            f" the runs that others disturbed least; limit for the ratio: {LIMIT:g}"
        ),
        "",
        "| | " + " | ".join(f"{number:,} commits" for number in commits) + " | ratio |",
        "| --- |" + " ---: |" * (len(commits) + 1),
    ]
    head = len(lines) - 2
    for name in LOOKS:
        ratio = rows[name, long].cpu / rows[name, short].cpu
        shown = " | ".join(f"{rows[name, number].cpu:.2f}" for number in commits)
        lines.append(f"| {name} | {shown} | {ratio:.2f}{'' if ratio <= LIMIT else ' **above**'} |")
    lines += ["", "What a checkout of main receives, in MB:", "", *lines[head : head + 2]]
    for name in CHECKOUTS:
        shown = " | ".join(f"{received[number][name] / 1e6:.1f}" for number in commits)
        lines.append(f"| {name} | {shown} | {received[long][name] / received[short][name]:.2f} |")
    lines += [
        "",
        (
            f"From the start of `fedops submit` by the site that completes the quorum, until `fedops ci reconcile` has tagged the"
            f" version, in a federation of `fedops demo`: {wall:.2f} s, {cpu:.2f} s of CPU (median of {len(tags)})."
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--commits", default="1000,10000", help=f"multiples of {PER_VERSION}")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--work", type=Path, default=HERE / "scratch")
    parser.add_argument("--results", type=Path, default=HERE / "scale.md")
    parser.add_argument("--fedops", type=Path, default=Path(sys.executable).with_name("fedops"), help="command to time")
    given = parser.parse_args()
    fedops = given.fedops.absolute()
    commits = [int(number) for number in given.commits.split(",")]
    given.work.mkdir(parents=True, exist_ok=True)
    rows, received = looks(fedops, given.sites, commits, given.work.absolute(), given.repeats)
    tags = submit_to_tag(fedops, given.work.absolute(), given.repeats)
    text = page(rows, received, tags, given.sites)
    given.results.write_text(text, "utf-8")
    pages.refresh()
    print(text)


if __name__ == "__main__":
    main()
