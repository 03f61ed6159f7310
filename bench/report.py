"""The results as Markdown: targets first, then every figure, then how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from measure import QUIET_CORES, Row, own_peak_mb
from plans import VERSIONS
from stages import FEDOPS, FLOOR, FLOOR_ALL, FLOWER, HASHES, NVFLARE, Setup

TARGETS_MB = 500.0


@dataclass(frozen=True)
class Target:
    """One promise: a measured figure and its limit."""

    what: str
    value: float
    sign: str  # "<=", "<" or ">="
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        if self.sign == ">=":
            return self.value >= self.limit
        return self.value <= self.limit if self.sign == "<=" else self.value < self.limit


@dataclass
class Results:
    """What the stages gave; an empty mapping: that stage did not run.

    Attributes:
        memory: (sites, MB of the model) -> its row.
    """

    aggregation: Mapping[str, Row] = field(default_factory=dict)
    digests: Mapping[str, Row] = field(default_factory=dict)
    memory: Mapping[tuple[int, float], Row] = field(default_factory=dict)
    startup: Mapping[str, Row] = field(default_factory=dict)

    def peaks(self, setup: Setup) -> Mapping[str, Row]:
        """All of `fedops aggregate` of which memory was measured."""
        rows = {**self.aggregation, **self.digests}
        named = {f"{setup.sites} x {setup.mb:g} MB, {n}": rows[n] for n in FEDOPS.values() if n in rows}
        return named | {f"{sites} x {mb:g} MB, one base": row for (sites, mb), row in self.memory.items()}


def targets(results: Results, setup: Setup) -> list[Target]:
    """Every promise that this run can judge."""
    found = []
    rows = results.aggregation
    if rows:
        floor, ours = rows[FLOOR].wall, rows[FEDOPS["one base"]].wall
        work = f"{setup.sites} updates of {setup.mb:g} MB"
        found.append(Target(f"{work}, one base, against C reading them once", ours / floor, "<=", 3, "x"))
        found.append(Target("the same on four bases", rows[FEDOPS["four bases"]].wall / floor, "<=", 5, "x"))
        found.append(Target("the same with norms", rows[FEDOPS["norms"]].wall / floor, "<=", 6, "x"))
        if FLOWER in rows:
            found.append(Target("Flower's message API against fedops", rows[FLOWER].wall / ours, ">=", 8, "x"))
        if ways := {rows[name].wall: name for name in NVFLARE if name in rows}:
            fastest = min(ways)
            found.append(
                Target(f"NVFlare's fastest way ({ways[fastest]}) against fedops", fastest / ours, ">=", 2, "x")
            )
    if results.digests:
        checked, floor = results.digests[FEDOPS["digests"]].wall, results.digests[HASHES].wall
        found.append(Target("every input's sha256 checked, against hashing alone", checked / floor, "<=", 1.2, "x"))
    if peaks := results.peaks(setup):
        most = max(max(row.rss_mb, row.together_mb) for row in peaks.values())
        found.append(Target("peak resident memory, the highest of all runs", most, "<", 100, " MB"))
    if results.startup:
        found.append(Target("`fedops --help`, CPU time", results.startup["fedops --help"].cpu, "<", 0.15, " s"))
        found.append(Target("`fedops status`, CPU time", results.startup["fedops status"].cpu, "<", 0.3, " s"))
    return found


def markdown(results: Results, setup: Setup, conditions: Mapping[str, str]) -> str:
    """The whole page."""
    parts = [
        "# Benchmark results",
        "Written by `make bench`; do not edit. What is measured and how: [README.md](README.md).",
        _table(("", ""), list(conditions.items())),
        "## Targets",
        _table(
            ("what", "measured", "target", "met"),
            [
                (t.what, f"{t.value:.2f}{t.unit}", f"{t.sign} {t.limit:g}{t.unit}", "yes" if t.met else "**no**")
                for t in targets(results, setup)
            ],
        ),
    ]
    if results.aggregation:
        parts += _aggregation(results.aggregation, setup)
    if results.digests:
        parts += _digests(results.digests, results.aggregation, setup)
    if peaks := results.peaks(setup):
        rows = [(name, f"{row.rss_mb:.0f}", f"{row.together_mb:.0f}") for name, row in peaks.items()]
        columns = ("updates", "largest process, MB", "all processes together, MB")
        parts += ["## Peak resident memory of `fedops aggregate`", _table(columns, rows)]
    if results.startup:
        timed = [(name, f"{row.cpu:.3f}", *_times(row), _megabytes(row)) for name, row in results.startup.items()]
        head = ("command", "CPU s", "wall s", "range", "peak MB")
        parts += ["## Start-up", _table(head, timed)]
    disturbed = [row.name for group in (results.aggregation, results.digests, results.startup)
                 for row in group.values() if row.noise > QUIET_CORES]  # fmt: skip
    if setup.mb < TARGETS_MB:
        setup.notes.append(
            f"The targets are for {TARGETS_MB:g} MB. At {setup.mb:g} MB start-up is most of every figure."
        )
    if disturbed:
        setup.notes.append(f"Others used the machine during most of the kept runs of: {'; '.join(disturbed)}.")
    if setup.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in setup.notes)]
    return "\n\n".join(parts) + "\n"


def _aggregation(rows: Mapping[str, Row], setup: Setup) -> list[str]:
    floor, ours = rows[FLOOR].wall, rows[FEDOPS["one base"]].wall
    lines = []
    for name, row in rows.items():
        elements, wrong = setup.exact.get(name, (0, 0))
        exact = "" if not elements else f"{wrong} of {elements}" if wrong < 1000 else f"{100 * wrong / elements:.0f} %"
        times = (*_times(row), f"{row.cpu:.2f}", _megabytes(row))
        ratios = (row.wall / floor, row.cpu / rows[FLOOR].cpu, row.wall / ours)
        lines.append((name, *times, *(f"{ratio:.2f}" for ratio in ratios), exact, f"{row.noise:.2f}"))
    head = ("", "wall s", "range", "CPU s", "peak MB", "x C", "x C, CPU", "x fedops", "inexact", "others")
    all_read = rows[FEDOPS["four bases"]].wall / rows[FLOOR_ALL].wall
    said = (
        f"Against C reading the same {setup.sites + VERSIONS} files, the four bases take {all_read:.2f} x. fedops also "
        "hashes what it writes and waits until it is on the disk (fsync); nobody else here does."
    )
    title = f"## Aggregation of {setup.sites} updates of {setup.mb:g} MB, file to file"
    return [title, _table(head, lines), said]


def _digests(rows: Mapping[str, Row], aggregation: Mapping[str, Row], setup: Setup) -> list[str]:
    floor = rows[HASHES].wall
    lines = [
        (name, *_times(row), f"{row.cpu:.2f}", f"{row.wall / floor:.2f}", f"{row.noise:.2f}")
        for name, row in rows.items()
    ]
    title = f"## Every input's sha256 checked, {setup.sites + 1} files of {setup.mb:g} MB"
    parts = [title, _table(("", "wall s", "range", "CPU s", "x hashing", "others"), lines)]
    if aggregation:
        added = rows[FEDOPS["digests"]].wall - aggregation[FEDOPS["one base"]].wall
        parts.append(
            f"The whole aggregation is in that time; checking the digests added {added:.2f} s to it, "
            f"{added / floor:.2f} x of hashing alone."
        )
    return parts


def _megabytes(row: Row) -> str:
    """Peak MB; a process smaller than this one, which started it, is counted with this one's peak."""
    return f"{row.rss_mb:.0f}" if row.rss_mb > own_peak_mb() else f"<= {row.rss_mb:.0f}"


def _times(row: Row) -> tuple[str, str]:
    low, high = row.span
    return f"{row.wall:.3f}", f"{low:.3f} - {high:.3f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; figures to the right, columns aligned in the source too."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    figures = [
        i > 0 and all(not line[i] or line[i].removeprefix("<= ")[0].isdigit() for line in rows)
        for i in range(len(head))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if f else c.ljust(w) for c, w, f in zip(cells, widths, figures, strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * (w - 1) + ":") if f else "-" * w for w, f in zip([max(3, w) for w in widths], figures, strict=True)]
    return "\n".join([line(head), f"| {' | '.join(rule)} |", *map(line, rows)])
