"""Goldens of the loop's and the demo's result: file name -> how it is made; `python -m tests.render.goldens_run` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedops.core.facts import Aggregate, Decision, Marker, Stop, Wait
from fedops.core.findings import finding
from fedops.core.ids import SiteId
from fedops.core.report import pull_report
from fedops.render.demo import demo_text
from fedops.render.markdown import pull_comment
from fedops.render.reconcile import reconcile_document, reconcile_text
from tests.core.samples import contribution, excluded_entry, minutes, record, submission, verdict, version
from tests.render.goldens import HOSTILE, NOW

A, B, C = (SiteId(s) for s in ("hospital-a", "hospital-b", "clinic-c"))


def reconciled(decision: Decision | None, **fields: Any) -> str:
    values: dict[str, Any] = {"merged": [], "published": [], "signals": [], "again": False}
    return reconcile_text(reconcile_document(decision=decision, **values | fields))


def busy() -> str:
    made = version(
        9,
        contributions=[
            contribution(submission(A, 8, 150), weight=150.0, share=0.375),
            contribution(submission(B, 5, 1000), staleness=3, weight=250.0, share=0.625),
        ],
        excluded=[excluded_entry(submission(C, 2))],
    )
    pulls = [
        {"pull": 11, "site": A, "head": "1" * 40, "outcome": "merged", "reason": ""},
        {"pull": 12, "site": B, "head": "2" * 40, "outcome": "rejected", "reason": "non_finite, shape_mismatch"},
        {"pull": 13, "site": None, "head": "3" * 40, "outcome": "waiting", "reason": f"a lead looks\x1b[2J {HOSTILE}"},
    ]
    last = made.model_copy(update={"version": 10, "status": "final", "excluded": ()})
    signals = ["#14: Train on v9: hospital-a", "#3: closed"]
    return reconciled(Stop("max_version"), merged=pulls, published=[made, last], signals=signals, again=True) + "\n"


def decisions() -> str:
    """The last line in all its forms."""
    until = minutes(390)
    waits = [Wait(reason) for reason in ("nothing_new", "review", "unavailable")]
    windows = [Wait("quorum", (C,), until), Wait("grace", until=until)]
    stops = [Stop(reason) for reason in ("max_version", "plateau", "budget")]
    due = Aggregate((submission(A, 8, 150), submission(B, 8, 10)), (), "quorum")
    return "".join(reconciled(one) + "\n" for one in [None, *waits, *windows, *stops, due])


def refused(pull: int, slug: str, what: str) -> dict[str, Any]:
    findings = {
        "non_finite": finding("non_finite", "sites/clinic-c/update.safetensors.dvc", got="nan", detail={"tensor": "coef", "index": 0}),
        "path_not_allowed": finding("path_not_allowed", "sites/hospital-a/x", got="<sites & more>", expected=["update"]),
    }  # fmt: skip
    comment = pull_comment(
        pull_report(C, record(), verdict("rejected", findings[slug]), NOW), Marker("submission", "clinic-c")
    )  # fmt: skip
    return {"pull": pull, "site": "clinic-c", "what": what, "reason": slug, "comment": comment}


def demo_result(**fields: Any) -> dict[str, Any]:
    def part(site: str, share: float, staleness: int = 0) -> dict[str, Any]:
        return {"site": site, "share": share, "staleness": staleness}

    def made(
        version: int, accuracy: float, *parts: dict[str, Any], kind: str = "aggregate", source: int | None = None
    ) -> dict[str, Any]:
        return {"version": version, "kind": kind, "source": source, "accuracy": accuracy, "contributions": list(parts)}

    result: dict[str, Any] = {
        "sites": ["hospital-a", "hospital-b", "clinic-c", "d"],
        "versions": [
            made(0, 0.3509, kind="init"),
            made(1, 0.9298, part("clinic-c", 0.19), part("hospital-a", 0.81)),
            made(2, 0.974, part("d", 0.06, 2), part("hospital-b", 0.94, 1)),
            made(10, 1.0, part("hospital-a", 1.0)),
            made(11, 0.974, kind="rollback", source=2),
        ],
        "troubles": [
            {"version": 2, "what": "hospital-b's training was killed (SIGKILL) in the middle, and started again"},
            {"version": 11, "what": "the model of v2 again: proposed by lena, approved by mia"},
        ],
        "held_out_rows": 114,
        "compared": [
            {"name": "federation, v11", "accuracy": 1.0, "rows": 455},
            {"name": "d alone", "accuracy": 0.921, "rows": 1},
            {"name": "pooled: all data in one place", "accuracy": 0.974, "rows": 1455},
        ],
        "refused": [
            refused(13, "non_finite", "an update with NaN"),
            refused(15, "path_not_allowed", "a change of hospital-a's folder"),
        ],
        "verified": {"versions": 12, "ok": 12},
    }
    return result | fields


def demo() -> str:
    return demo_text(demo_result(), "demo-federation") + "\n"


def demo_short() -> str:
    """One version, nothing refused, and a version that is not what it says."""
    versions = demo_result()["versions"][:2]
    return (
        demo_text(demo_result(versions=versions, troubles=[], refused=[], verified={"versions": 2, "ok": 1}), "../demo")
        + "\n"
    )


RUN_GOLDENS: Mapping[str, Callable[[], str]] = {
    "reconcile.txt": busy,
    "reconcile_decisions.txt": decisions,
    "demo.txt": demo,
    "demo_short.txt": demo_short,
}
