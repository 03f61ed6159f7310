"""A whole federation in one folder: a lead, four hospitals and CI as separate processes, on real data.

The story only calls the commands that people call; it knows nothing that a person at a terminal would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fedops.core.errors import FedopsError

# Shares of the patients by ascending tumour size, and how many ticks one local training takes.
SHARES = {"hospital-a": 0.45, "hospital-b": 0.30, "clinic-c": 0.17, "clinic-d": 0.08}
DURATION = {"hospital-a": 1, "hospital-b": 2, "clinic-c": 2, "clinic-d": 5}
HYPERPARAMETERS = {"epochs": 20, "learning_rate": 0.1, "l2": 0.01}
LEAD = "lena"
NAN_TICK, INTRUDER_TICK = 3, 4
MAX_TICKS = 60


@dataclass(frozen=True)
class Ran:
    """One finished process."""

    code: int
    out: str
    err: str


class Runner(Protocol):
    """Runs a program in a folder and waits for its end."""

    def fedops(self, folder: Path, *arguments: str, expect: Sequence[int] = (0,)) -> Ran: ...

    def git(self, folder: Path, *arguments: str) -> Ran: ...

    def python(self, folder: Path, *arguments: str) -> Ran: ...


@dataclass(frozen=True)
class Stage:
    """Where everything lies.

    Args:
        prepare: puts a site's own data and code into its clone.
        tell: progress for people.
        parse: reads a command's JSON result.
    """

    folder: Path
    run: Runner
    prepare: Callable[[str, Path], None]
    tell: Callable[[str], None]
    parse: Callable[[str], Any]

    def clone_of(self, who: str) -> Path:
        return self.folder / who

    def json(self, who: str, *arguments: str, expect: Sequence[int] = (0,)) -> Any:
        """Run a command that prints a JSON document."""
        return self.parse(self.run.fedops(self.clone_of(who), *arguments, "--format", "json", expect=expect).out)


@dataclass
class Told:
    """What happened, for the table."""

    versions: list[Mapping[str, Any]] = field(default_factory=list)
    tried: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    refused: list[Mapping[str, Any]] = field(default_factory=list)
    verified: Mapping[str, Any] = field(default_factory=dict)


def play(stage: Stage, versions: int) -> Told:
    """Play the demo until so many versions are published, then verify them from a clone of its own."""
    _found(stage)
    told = Told()
    busy: dict[str, int] = {}
    trained: dict[str, int] = {}
    current = 0
    for tick in range(MAX_TICKS):
        for site in [s for s, until in busy.items() if until <= tick]:
            del busy[site]
            _hand_in(stage, site, trained[site])
        if tick == NAN_TICK:
            _rogue(stage, told, "nan", "clinic-c")
        if tick == INTRUDER_TICK:
            _rogue(stage, told, "intruder", "clinic-d", "hospital-a")
        current = _reconcile(stage, told, current)
        if current >= versions:
            break
        for site in SHARES:
            if site not in busy and trained.get(site, -1) < current:
                stage.json(site, "pull")
                trained[site], busy[site] = current, tick + DURATION[site]
    else:
        raise FedopsError(f"demo: v{current} after {MAX_TICKS} ticks -> v{versions}")
    stage.tell("an auditor clones the repository and recomputes every version")
    stage.run.git(stage.folder, "clone", "--quiet", "origin.git", "auditor")
    told.verified = stage.json("auditor", "verify", "--all")
    return told


def _found(stage: Stage) -> None:
    """The lead founds the federation and puts the four sites on its roster; each site sets up its clone."""
    run, folder = stage.run, stage.folder
    stage.tell("the lead founds the federation: fedops init")
    run.git(folder, "init", "--quiet", "--initial-branch=main", "lead")
    run.fedops(
        folder / "lead",
        *("init", "--origin", "../origin.git", "--name", "breast-cancer", "--store", "ocidir:../store"),
        *("--lead", f"{LEAD}:1", "--quorum", "2"),
        *("--generator", "zeros", "--tensor", "coef:F32:1,30", "--tensor", "intercept:F32:1"),
        *(part for name, value in HYPERPARAMETERS.items() for part in ("--hyperparameter", f"{name}={value}")),
    )
    for number, site in enumerate(SHARES):
        stage.tell(f"{site} joins: its own clone, key and data; the lead adds it to the roster")
        run.git(folder, "clone", "--quiet", "origin.git", site)
        joined = stage.json(site, "join", site, "--generate-key")
        run.fedops(
            folder / "lead",
            *("site", "add", site, "--login", f"{site}-data", "--id", str(1001 + number)),
            *("--key", joined["public_key"]),
        )
        stage.prepare(site, folder / site)
    run.git(folder, "clone", "--quiet", "origin.git", "ci")
    _reconcile(stage, Told(), 0)


def _hand_in(stage: Stage, site: str, base: int) -> None:
    stage.json(site, "train", "--client", "client:LogisticRegression", "--base", f"v{base}")
    result = stage.json(site, "submit", "--base", f"v{base}")
    stage.tell(f"{site}: trained on v{base}, handed in as pull request #{result['pull']}")


def _rogue(stage: Stage, told: Told, kind: str, *sites: str) -> None:
    """Hand in without fedops' own checks, as somebody with a patched client could."""
    what = {"nan": "an update with NaN", "intruder": f"a change of {sites[-1]}'s folder"}[kind]
    pull = int(stage.run.python(stage.clone_of(sites[0]), "rogue.py", kind, *sites).out)
    stage.tell(f"{sites[0]}: a patched client hands in {what} as pull request #{pull}")
    told.tried[pull] = {"pull": pull, "site": sites[0], "what": what}


def _reconcile(stage: Stage, told: Told, current: int) -> int:
    """Let CI do what is missing; returns the current version."""
    done = stage.json("ci", "ci", "reconcile")
    for pull in done["pulls"]:
        if pull["outcome"] == "rejected":
            stage.tell(f"CI: pull request #{pull['pull']} refused: {pull['reason']}")
            shown = stage.json("ci", "review", str(pull["pull"]))
            tried = told.tried.pop(pull["pull"], {"pull": pull["pull"], "site": pull["site"], "what": "an update"})
            told.refused.append({**tried, "reason": pull["reason"], "comment": shown["comments"][0]})
    for version in done["published"]:
        parts = ", ".join(
            f"{c['site']} {c['share']:.0%} (staleness {c['staleness']})" for c in version["contributions"]
        )
        stage.tell(f"CI: v{version['version']} published: {parts}")
        told.versions.append(version)
        current = version["version"]
    return int(current)
