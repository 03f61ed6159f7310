"""Goldens of what a site and a reader of history sees: file name -> how it is made; `python -m tests.render.goldens_site` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fedops.core.facts import Aggregate, Decision, Stop, Wait
from fedops.core.findings import finding
from fedops.core.forge_settings import ForkRuns, JobRights, Package, Publisher, Rule
from fedops.core.health import Check, cannot
from fedops.core.health_forge import check_forge
from fedops.core.ids import CommitId, SiteId
from fedops.core.made import Made
from fedops.core.records import Source, TensorEntry, Unavailable, Witness
from fedops.core.settings import Trigger
from fedops.core.site_loop import (
    HandedIn,
    Offline,
    Online,
    Pause,
    PulledModel,
    Refusal,
    Replaced,
    Told,
    Trained,
    Unusable,
    Usable,
)
from fedops.core.status import Blocked, Heartbeat, LocalWork, OpenPull, Silence, SiteLine, StatusReport
from fedops.render.health import health_text
from fedops.render.history import log_text, show_text
from fedops.render.run import ran_text, told_lines
from fedops.render.site import pull_text, train_text
from fedops.render.status import status_text
from fedops.render.submission import pull_body, pull_title, submit_text
from tests.core.forge_samples import ALICE, AUTO, EVE, KEPT, LENA, NO, PAGE, REVIEW, TWO_LEADS, WELL, WELL_2
from tests.core.forge_samples import SITES as FORGE_SITES
from tests.core.samples import blob, contribution, excluded_entry, hex64, minutes, record, submission, version
from tests.render.goldens import HOSTILE

NOW = minutes(180)
A, B, C, D, E, F = (SiteId(s) for s in ("hospital-a", "hospital-b", "clinic-c", "lab-d", "clinic-e", "lab-f"))


def pull(number: int, verdict: str | None, text: str = "", *, owned: bool = True) -> OpenPull:
    return OpenPull(number, verdict, text, minutes(5), owned)


SITES = (
    SiteLine(A, "ready", 8, 0, minutes(30)),
    SiteLine(C, "due", 7, claimed_at=minutes(-3000)),
    SiteLine(E, "new"),
    SiteLine(B, "open", 7, None, None, pull(12, "failure", "rejected: non_finite")),
    SiteLine(D, "suspended", 3, claimed_at=minutes(400)),
    SiteLine(F, "refused", 2, 6, None, None, finding("too_stale", "sites/lab-f/submission.json")),
)


def report(decision: Decision | Blocked, **fields: Any) -> StatusReport:
    values: dict[str, Any] = {
        "name": "breast-cancer",
        "version": 8,
        "model": hex64("model v8"),
        "made_at": minutes(0),
        "final": False,
        "ready": (A,),
        "trigger": Trigger(quorum=3),
        "decision": decision,
        "sites": SITES,
        "own": A,
        "work": LocalWork(8, 8),
        "pulls": 1,
        "next_command": "",
        "faults": (),
    }
    return StatusReport(**values | fields)


def status_running() -> str:
    return status_text(report(Wait("quorum", (C, E, B, F))), NOW) + "\n"


def status_due() -> str:
    lines = (SiteLine(A, "ready", 8, 0, minutes(30)), SiteLine(B, "ready", 7, 1, minutes(170)))
    due = report(Aggregate((), (), "max_wait"), ready=(A, B), sites=lines, own=None)
    return status_text(due, NOW) + "\n"


def status_windows() -> str:
    """The sentence of the federation in all its other forms, one below the other."""
    wait = Trigger(quorum=3, max_wait_hours=6.0, quorum_after_wait=2)
    until = minutes(390)
    strays = [finding("tag_moved", f"global@v{number}.0.0") for number in (8, 9, 10, 11, 12)]
    untagged = (finding("tag_missing", "global@v8.0.0"),)
    reports = [
        report(Wait("nothing_new"), ready=(), trigger=wait),
        report(Wait("quorum", until=until), trigger=wait),
        report(Wait("grace", until=until), ready=(A, B, C)),
        report(Wait("review")),
        report(Wait("unavailable"), ready=(A, C), unavailable=(B,)),
        report(Wait("unavailable", until=until), trigger=wait, unavailable=(B, C, D, E)),
        report(Wait("rejected"), ready=(A, B, C), held_by=13),
        report(Wait("rejected"), ready=(A,)),
        report(Aggregate((), ()), ready=(A, B, C)),
        report(Aggregate((), ()), ready=(A, B, C), faults=untagged),
        report(Blocked(tuple(strays[1:2]))),
        report(Blocked(tuple(strays[1:]))),
        report(Blocked(tuple(strays[:1]))),
        report(Blocked(tuple(strays[:2]))),
        report(Stop("plateau")),
        report(Stop("max_version"), final=True),
    ]
    return "".join(status_text(r, NOW).splitlines()[1] + "\n" for r in reports)


def status_pulls() -> str:
    """Every state that an open pull request can have; CI's text comes from outside."""
    pulls = [
        pull(11, None),
        pull(12, "pending", "waits for 1 more approval of this commit by a lead"),
        pull(13, "success", "accepted"),
        pull(14, "failure", f"rejected: {HOSTILE}\x1b[2J"),
        pull(15, "pending", "", owned=False),
    ]
    lines = tuple(SiteLine(SiteId(f"site-{p.number}"), "open", pull=p) for p in pulls)
    shown = report(Wait("nothing_new"), ready=(), sites=lines, own=SiteId("site-11"), work=LocalWork(None, None))
    return status_text(shown, NOW) + "\n"


def status_final() -> str:
    lines = (SiteLine(A, "done", 7), SiteLine(B, "done", 7))
    return status_text(report(Stop("max_version"), final=True, sites=lines, pulls=None), NOW) + "\n"


def status_strangers() -> str:
    """A clone whose site is not on the roster, no sites at all, and a record that cannot be used."""
    fault = finding("record_unreadable", "sites/clinic-e/submission.json", detail={"site": "clinic-e"})
    unknown = report(Wait("nothing_new"), ready=(), own=SiteId("lab-x"), faults=(fault,))
    empty = report(Wait("nothing_new"), ready=(), sites=(), own=None)
    return status_text(unknown, NOW) + "\n\n" + status_text(empty, NOW) + "\n"


def status_beats() -> str:
    """Heartbeats are the sites' own words: from just now, stalled, of a clock that is ahead, and hostile ones."""
    beats = {
        A: Heartbeat(8, "waiting", minutes(179.5), stalled=False),
        C: Heartbeat(8, "training", minutes(60), stalled=False),
        B: Heartbeat(7, "submitting", minutes(-4000), stalled=True),
        D: Heartbeat(-1, "pulling", minutes(500), stalled=False),
        F: Heartbeat(8, f"{HOSTILE}\x1b[2J", minutes(100), stalled=False),
    }
    lines = tuple(replace(line, beat=beats.get(line.site)) for line in SITES)
    return status_text(report(Wait("quorum", (C, E, B, F)), sites=lines), NOW) + "\n"


def status_silent() -> str:
    """Sites that never sent a heartbeat, and one whose bytes are gone; nobody else was heard of either."""
    lost = finding("object_missing", "sites/hospital-b/submission.json")
    v6, v8 = Silence(6, minutes(-4000)), Silence(8, minutes(0))
    silences = {C: v8, E: v6, F: v8}
    lines = [replace(line, silence=silences.get(line.site)) for line in SITES if line.site != B]
    lines.append(SiteLine(B, "ready", 8, 0, minutes(20), reason=lost, claimed_at=minutes(19)))
    shown = report(Wait("unavailable", (C, E, B, F)), sites=tuple(lines), unavailable=(B,))
    return status_text(shown, NOW) + "\n"


# ---------------------------------------------------------------- a site's loop


def run_told() -> str:
    """Everything that `fedops run` tells on its way."""
    refused = finding("norm_exceeded", "update.safetensors", got=12.5, expected=10.0)
    many = finding("num_examples_invalid", "sites/hospital-a/submission.json", got=150, expected=[1, 100])
    told: list[Told] = [
        PulledModel(8, hex64("model v8"), 260),
        Trained(8, 150, {"loss": 0.3141592653}, newest=8),
        Trained(8, 1, {}, newest=10),
        *(
            HandedIn(8, outcome, n)
            for outcome, n in (("opened", 12), ("moved", 12), ("open", 12), ("merged", None), ("used", None))
        ),
        Refusal(8, (refused,)),
        Replaced(8),
        Offline("origin: fetch: exit code 128, fatal: no route\x1b[2J to host"),
        Online(),
        Unusable(
            "policies/aggregation.yaml:5: trigger.quorun: unknown key, did you mean quorum?", "a lead corrects it"
        ),
        Usable(),
        Pause("suspended", 8),
        Pause("quorum", 8),
        Pause("closed", 8),
        Pause("open", 8),
        Pause("open", 8, pull(12, None)),
        Pause("open", 8, pull(12, "pending", "waits for 1 more approval of this commit by a lead")),
        Pause("rejected", 8),
        Pause("rejected", 8, pull(12, "failure")),
        Pause("rejected", 8, pull(12, "failure", f"rejected: {HOSTILE}\x1b[2J")),
        Pause("refused", 8, findings=(refused,)),
        Pause("unusable", 8, findings=(many,)),
    ]
    return "\n".join(line for one in told for line in told_lines(one, A)) + "\n"


def run_ended() -> str:
    """The result of a run, by how it ended."""
    done = [HandedIn(7, "opened", 11), HandedIn(8, "opened", 12)]
    results = [
        ran_text("final", 9, [], None, A),
        ran_text("enough", 8, done, None, A),
        ran_text("once", 8, done[1:], Pause("open", 8, pull(12, None)), A),
    ]
    assert ran_text("unknown", 8, [], None, A) == ""
    return "\n\n".join(results) + "\n"


def doctor() -> str:
    checks = [
        Check("git", "ok", "git version 2.43.0"),
        Check("site", "ok", "no site's clone: it reads", next="fedops join SITE, if it is one's"),
        Check("work tree", "warning", "on topic", "on main", "git switch main"),
        Check(
            "policies/sites.yaml",
            "broken",
            "policies/sites.yaml:3: sites: bad\x1b[2J",
            next="a lead corrects it on main",
        ),
        cannot("store", "store: not mounted"),
    ]
    return "\n\n".join([health_text(checks), health_text(checks[:1]), health_text([])]) + "\n"


def doctor_github() -> str:
    """Set up in haste, a token that may read little, a site's look, level 1, level 2 in half, level 2 unseen, and whole."""
    strict = Rule("pull_request", "ruleset 'careful'", f"{PAGE}/rules/7")
    nothing = Publisher(environment=False, secret=False, repository_secret=False, keys=())
    hasty = replace(
        WELL, publisher=nothing, other_merges=True, rules=(strict,), tag_rules=(), writers=(LENA, ALICE, EVE),
        job_rights=JobRights("write", pulls=False), first_runs="first_time_contributors_new_to_github",
        packages=(("heart/global", "https://github.com/p", Package("private", None)),),
    )  # fmt: skip
    blind = replace(
        WELL, may_write=False, merge_commits=None, protection=NO, tag_rules=NO, writers=NO, workflows=NO, job_rights=NO,
        first_runs=NO, packages=(("heart/global", "https://github.com/p", NO),),
    )  # fmt: skip
    of_site = replace(WELL, account=ALICE, may_write=False)
    green = Rule("required_status_checks", "ruleset 'main'", f"{PAGE}/rules/1", ("DeployKey",), statuses=("build",))
    pulls = Rule("pull_request", "ruleset 'main'", f"{PAGE}/rules/1", ("DeployKey",), approvals=1, dismisses=True)
    open_to_all = Publisher(environment=True, secret=False, repository_secret=False, keys=("publish", "old"))
    half = replace(WELL, rules=(*KEPT, pulls, green), publisher=open_to_all)
    unseen = replace(
        WELL_2, private=True, may_fork=False, fork_runs=ForkRuns(on=True, write_tokens=False, secrets=True)
    )
    unseen = replace(unseen, publisher=Publisher(NO, NO, NO, NO, NO))
    looks = (
        (hasty, None, FORGE_SITES, AUTO), (blind, None, FORGE_SITES, AUTO),
        (of_site, SiteId("hospital-a"), FORGE_SITES, AUTO), (WELL, None, FORGE_SITES, AUTO),
        (half, None, FORGE_SITES, AUTO),
        (unseen, None, TWO_LEADS, REVIEW), (WELL_2, None, TWO_LEADS, REVIEW),
    )  # fmt: skip
    texts = [health_text([*check_forge(seen, "main", sites, site, policy)]) for seen, site, sites, policy in looks]
    return "\n\n".join(texts) + "\n"


# ---------------------------------------------------------------- history


def witness(**fields: Any) -> Witness:
    values: dict[str, Any] = {
        "input_commit": blob("input"),
        "decided_at": "2026-03-02T10:00:00Z",
        "trigger": "quorum",
        "software": {"fedops": "0.1.0", "numpy": "2.4.6"},
    }
    return Witness(**values | fields)


def made(number: int = 9, *, tagged: bool = True, current: int = 9, **fields: Any) -> Made:
    one = version(
        number,
        contributions=[
            contribution(submission(A, 8, 150), weight=150.0, share=0.375),
            contribution(submission(B, 5, 1000), staleness=3, weight=250.0, share=0.625),
        ],
        metrics={"accuracy": 0.9123456789, "loss": 0.35},
    ).model_copy(update={"witness": witness()} | fields)
    return Made(one, CommitId(blob(f"commit v{number}")), minutes(60 * number), tagged, current)


def first() -> Made:
    one = version(0, kind="init").model_copy(
        update={
            "source": Source(generator="normal", seed=3),
            "witness": witness(input_commit=None, trigger="init", software={}),
        }
    )
    return Made(one, CommitId(blob("commit v0")), minutes(0), True, 9)


def busy() -> Made:
    """A version with everything: norms, exclusions, a lost artifact, many tensors, a run's address."""
    tensors = {f"layer.{n:02}.weight": TensorEntry(dtype="F32", shape=(64, n + 1)) for n in range(23)}
    tensors["step\x1b[2J"] = TensorEntry(dtype="I64", shape=())
    base = made(7).record
    norms = tuple(
        c.model_copy(update={"delta_norm": n}) for c, n in zip(base.contributions, (0.42131, None), strict=True)
    )
    lost = Unavailable(site="lab-d", record_blob=blob("record"), slug="object_missing")
    return made(
        7,
        tagged=False,
        contributions=norms,
        excluded=(excluded_entry(submission(C, 2)), excluded_entry(submission(F), "a_later_rule", "FO-299")),
        status="final",
        model=base.model.model_copy(update={"tensors": dict(list(tensors.items())[-1:] + list(tensors.items())[:-1])}),
        witness=witness(trigger="max_wait", unavailable=(lost,), run_url="https://ci.example.org/runs/7"),
    )


def back(kind: str, number: int) -> Made:
    one = version(number, kind=kind, source=5)  # type: ignore[arg-type]  # rollback or revert
    return Made(one.model_copy(update={"witness": witness(trigger="lead")}), CommitId(blob("c")), minutes(500), True, 9)


def log() -> str:
    return log_text([made(), back("rollback", 8), busy(), first()]) + "\n"


def show() -> str:
    return show_text(made()) + "\n"


def show_busy() -> str:
    return show_text(busy()) + "\n"


def show_first() -> str:
    return show_text(first()) + "\n"


def show_rollback() -> str:
    opaque = version(8).model.model_copy(update={"format": "opaque", "tensors": {}})
    return show_text(made_of(back("revert", 8), opaque)) + "\n"


def made_of(one: Made, model: Any) -> Made:
    return Made(one.record.model_copy(update={"model": model}), one.commit, one.at, one.tagged, one.current)


# ---------------------------------------------------------------- what a site runs


def pulled() -> str:
    now, old = version(9), version(4)
    return "\n\n".join(
        [
            pull_text(now, 9, ".fedops/versions/v9/model.safetensors", final=False, changed=True),
            pull_text(now, 9, ".fedops/versions/v9/model.safetensors", final=False, changed=False),
            pull_text(old, 9, "models/v4.safetensors", final=False, changed=True),
            pull_text(now, 9, ".fedops/versions/v9/model.safetensors", final=True, changed=True),
            "",
        ]
    )


def trained() -> str:
    where = ".fedops/versions/v8/update.safetensors"
    return "\n\n".join(
        [
            train_text(A, 8, 150, {"loss": 0.3141592653, "accuracy": 0.9}, hex64("model"), where, changed=True),
            train_text(A, 8, 1, {}, hex64("model"), where, changed=False),
            "",
        ]
    )


def submitted() -> str:
    one = record(num_examples=1500)
    outcomes = [
        ("opened", 12, True),
        ("opened", 12, False),
        ("moved", 12, True),
        ("open", 12, False),
        ("merged", None, False),
    ]
    outcomes += [("used", None, False), ("planned", None, False)]
    told = [submit_text(one, name, number, current=8, uploaded=up) for name, number, up in outcomes]
    told += [submit_text(one, name, None, current=8, uploaded=False, final=True) for name in ("final", "used")]
    return "\n\n".join([*told, ""])


def pull_page() -> str:
    return f"{pull_title(record())}\n\n{pull_body(record())}"


def pull_page_hostile() -> str:
    return pull_body(record(metrics={HOSTILE: 1.0, "loss": 1e-9}))


SITE_GOLDENS: Mapping[str, Callable[[], str]] = {
    "status_running.txt": status_running,
    "status_due.txt": status_due,
    "status_windows.txt": status_windows,
    "status_pulls.txt": status_pulls,
    "status_final.txt": status_final,
    "status_strangers.txt": status_strangers,
    "status_beats.txt": status_beats,
    "status_silent.txt": status_silent,
    "run_told.txt": run_told,
    "run_ended.txt": run_ended,
    "doctor.txt": doctor,
    "doctor_github.txt": doctor_github,
    "log.txt": log,
    "show.txt": show,
    "show_busy.txt": show_busy,
    "show_first.txt": show_first,
    "show_revert_opaque.txt": show_rollback,
    "pull.txt": pulled,
    "train.txt": trained,
    "submit.txt": submitted,
    "submission_pull.md": pull_page,
    "submission_pull_hostile.md": pull_page_hostile,
}
