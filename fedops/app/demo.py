"""A whole federation in one folder: a lead, four hospitals and CI as separate processes, on real data.

The story only calls the commands that people call; it knows nothing that a person at a terminal would not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fedops.app import demo_trouble as trouble
from fedops.app.demo_stage import Stage
from fedops.app.demo_workflows import by_workflows, tell_runs
from fedops.core.errors import FedopsError
from fedops.core.ids import GlobalVersion

# Shares of the patients by ascending tumour size, and how many ticks one local training takes.
SHARES = {"hospital-a": 0.45, "hospital-b": 0.30, "clinic-c": 0.17, "clinic-d": 0.08}
DURATION = {"hospital-a": 1, "hospital-b": 2, "clinic-c": 2, "clinic-d": 5}
HYPERPARAMETERS = {"epochs": 20, "learning_rate": 0.1, "l2": 0.01}
NAN_TICK, INTRUDER_TICK = 3, 4
MAX_TICKS = 60
CLIENT = ("--client", "client:LogisticRegression")


@dataclass
class Told:
    """What happened, for the table."""

    versions: list[Mapping[str, Any]] = field(default_factory=list)
    tried: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    refused: list[Mapping[str, Any]] = field(default_factory=list)
    verified: Mapping[str, Any] = field(default_factory=dict)
    troubles: trouble.Troubles = field(default_factory=trouble.Troubles)

    @property
    def current(self) -> int:
        return int(self.versions[-1]["version"]) if self.versions else 0


@dataclass(frozen=True)
class Training:
    """A site's own process that trains in the background.

    Attributes:
        until: the tick at which the site gets to handing it in.
    """

    base: int
    until: int
    done: Future[Any]


def play(stage: Stage, versions: int) -> Told:
    """Play the demo until so many versions are published, then verify them from a clone of its own."""
    told = Told()
    with ThreadPoolExecutor(stage.workers) as pool:
        _found(stage, pool)
        _run_until(stage, pool, told, versions)
        if versions >= trouble.ROLLBACK_FROM and not stage.workflows:
            _approved(stage, told, trouble.roll_back(stage, versions - 2))
            told.troubles.demand_all()
        _check(stage, pool, told)
    return told


def _found(stage: Stage, pool: Executor) -> None:
    """The lead founds the federation and puts the four sites on its roster; each site sets up its clone."""
    run, folder, lead = stage.run, stage.folder, trouble.PROPOSER
    stage.tell("the lead founds the federation: fedops init")
    run.git(folder, "init", "--quiet", "--initial-branch=main", "lead")
    run.fedops(
        folder / "lead",
        *("init", "--origin", "../origin.git", "--name", "breast-cancer", "--store", "ocidir:../store"),
        *("--lead", f"{lead}:{trouble.LEADS[lead]}", "--lead-key", str(stage.keys[lead].with_suffix(".pub"))),
        *("--quorum", "2"),
        *("--generator", "zeros", "--tensor", "coef:F32:1,30", "--tensor", "intercept:F32:1"),
        *(part for name, value in HYPERPARAMETERS.items() for part in ("--hyperparameter", f"{name}={value}")),
    )

    def join(site: str) -> Any:
        run.git(folder, "clone", "--quiet", "origin.git", site)
        stage.prepare(site, folder / site)
        return stage.json(site, "join", site, "--generate-key")

    for number, (site, joined) in enumerate(_together(pool, join, SHARES)):
        stage.tell(f"{site} joins: its own clone, key and data; the lead adds it to the roster")
        run.fedops(
            folder / "lead",
            *("site", "add", site, "--login", f"{site}-data", "--id", str(1001 + number)),
            *("--key", joined["public_key"]),
        )
    trouble.found_leads(stage)
    for ci in trouble.CI:
        run.git(folder, "clone", "--quiet", "origin.git", ci)
    if stage.workflows:
        # As a lead starts it by hand on the forge's page: nothing has happened yet that would.
        tell_runs(stage, stage.json("ci", "local", "run", "workflow_dispatch", "--workflow", "reconcile.yml"))
    else:
        _reconcile(stage, Told())


def _together(pool: Executor, job: Callable[[str], Any], sites: Iterable[str]) -> list[tuple[str, Any]]:
    """Do one thing at several sites at the same time; results in the order of the sites."""
    started = [(site, pool.submit(job, site)) for site in sites]
    return [(site, future.result()) for site, future in started]


def _run_until(stage: Stage, pool: Executor, told: Told, versions: int) -> None:
    """Let time pass: sites that are ready hand in, in the roster's order, so that each demo numbers alike; CI follows."""
    busy: dict[str, Training] = {}
    trained: dict[str, int] = {}
    for tick in range(MAX_TICKS):
        ready = [site for site in SHARES if site in busy and busy[site].until <= tick]
        for site in ready:
            sha256 = _hand_in(stage, site, busy.pop(site))
            due = site == trouble.LOST and not stage.workflows
            if due and told.current == trouble.LOST_AT and told.troubles.once("lost"):
                _reconcile(stage, told)
                trouble.lose_bytes(stage, site, sha256)
        if tick == NAN_TICK:
            _rogue(stage, told, "nan", "clinic-c")
        if tick == INTRUDER_TICK:
            _rogue(stage, told, "intruder", "clinic-d", "hospital-a")
        if ready or tick in (NAN_TICK, INTRUDER_TICK):
            _reconcile(stage, told)
        if told.current >= versions:
            return
        idle = [site for site in SHARES if site not in busy and trained.get(site, -1) < told.current]
        # NOTE: pulled before time goes on, or a site could get a version that is only made in the next tick.
        _together(pool, lambda site: stage.json(site, "pull"), idle)
        for site in idle:
            trained[site] = told.current
            due = site == trouble.KILLED and told.current == trouble.KILLED_AT
            kill = due and told.troubles.once("killed")
            done = pool.submit(_train, stage, site, told.current, kill=kill)
            busy[site] = Training(told.current, tick + DURATION[site], done)
    raise FedopsError(f"demo: v{told.current} after {MAX_TICKS} ticks -> v{versions}")


def _train(stage: Stage, site: str, base: int, *, kill: bool = False) -> Any:
    if kill:
        trouble.killed_in_training(stage, site, base, CLIENT)
        stage.tell(f"{site}: its training is killed (SIGKILL), and started again")
    return stage.json(site, "train", *CLIENT, "--base", GlobalVersion(base).short)


def _hand_in(stage: Stage, site: str, training: Training) -> str:
    """Hand in what was trained; the update's sha256."""
    training.done.result()
    base = GlobalVersion(training.base).short
    result = stage.json(site, "submit", "--base", base)
    stage.tell(f"{site}: trained on {base}, handed in as pull request #{result['pull']}")
    return str(result["record"]["sha256"])


def _rogue(stage: Stage, told: Told, kind: str, *sites: str) -> None:
    """Hand in without fedops' own checks, as somebody with a patched client could."""
    what = {"nan": "an update with NaN", "intruder": f"a change of {sites[-1]}'s folder"}[kind]
    pull = int(stage.run.python(stage.clone_of(sites[0]), "rogue.py", kind, *sites).out)
    stage.tell(f"{sites[0]}: a patched client hands in {what} as pull request #{pull}")
    told.tried[pull] = {"pull": pull, "site": sites[0], "what": what}


def _reconcile(stage: Stage, told: Told) -> None:
    """Let CI do what is missing; a version that waits for a lead gets its approval."""
    if stage.workflows:
        _tell_done(stage, told, by_workflows(stage, told.current, told.tried.values()))
        return
    reviewed = told.current == trouble.REVIEW_AT
    if reviewed and told.troubles.once("review"):
        trouble.set_publish(stage, "review")
    if told.current == trouble.RACE_AT and told.troubles.once("race"):
        stage.tell("CI: from here to the next version, two runners reconcile at the same time")
    done = trouble.race(stage) if told.current == trouble.RACE_AT else stage.json("ci", "ci", "reconcile")
    _tell_done(stage, told, done)
    if (waits := done["decision"] or {}).get("wait") == "review":
        _approved(stage, told, waits["pull"])
        if reviewed:
            trouble.set_publish(stage, "push")


def _approved(stage: Stage, told: Told, pull: int) -> None:
    """The other lead approves the pull request of a version; CI publishes it."""
    trouble.approve(stage, pull)
    _tell_done(stage, told, stage.json("ci", "ci", "reconcile"))


def _tell_done(stage: Stage, told: Told, done: Mapping[str, Any]) -> None:
    """Note what CI did."""
    for pull in done["pulls"]:
        if pull["outcome"] == "rejected":
            stage.tell(f"CI: pull request #{pull['pull']} refused: {pull['reason']}")
            shown = stage.json("ci", "review", str(pull["pull"]))
            tried = told.tried.pop(pull["pull"], {"pull": pull["pull"], "site": pull["site"], "what": "an update"})
            told.refused.append({**tried, "reason": pull["reason"], "comment": shown["comments"][0]})
    for version in done["published"]:
        what = ", ".join(map(_part, version["contributions"])) or f"the model of v{version['source']} again"
        stage.tell(f"CI: v{version['version']} published: {what}")
        told.versions.append(version)
        told.troubles.published(version)


def _part(contribution: Mapping[str, Any]) -> str:
    stale = contribution["staleness"]
    return f"{contribution['site']} {contribution['share']:.0%}" + (f" (stale {stale})" if stale else "")


def _check(stage: Stage, pool: Executor, told: Told) -> None:
    """An auditor recomputes all versions, while the sites fetch all models, as anybody may who can read."""
    stage.tell("an auditor clones the repository and recomputes every version")
    stage.run.git(stage.folder, "clone", "--quiet", "origin.git", "auditor")
    verified = pool.submit(stage.json, "auditor", "verify", "--all")
    stage.model(0).parent.mkdir()
    sites = list(SHARES)

    def fetch(site: str) -> None:
        # Each clone by one process at a time; versions are dealt out to the sites like cards.
        for number in range(sites.index(site), told.current + 1, len(sites)):
            stage.json(site, "pull", GlobalVersion(number).short, "--out", str(stage.model(number)))

    _together(pool, fetch, sites)
    told.verified = verified.result()
