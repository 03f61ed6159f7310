"""The demo's CI as the federation's own workflow files, run by act."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedops.app.demo_stage import Stage
from fedops.core.errors import FedopsError
from fedops.render.local import run_line


def by_workflows(stage: Stage, current: int, tried: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Let the workflows run that the forge would start now; what they did is read from the federation itself.

    Args:
        current: number of the newest version that the demo knows.
        tried: pull requests that are not judged yet: {"pull": 13, "site": "clinic-c"}.

    Raises:
        FedopsError: a workflow failed that only fails where something is broken.
    """
    ran = stage.json("ci", "local", "up", "--once", expect=(0, 3))
    tell_runs(stage, ran)
    for run in ran["runs"]:
        # A validation fails where a pull request is bad: that is what it is for.
        if run["result"] in ("failure", "timed_out") and run["workflow"] != "validate.yml":
            raise FedopsError(f"demo: {run_line(run)}", hint=f"see {run['log']}")
    refused = []
    for one in tried:
        verdict = stage.json("ci", "review", str(one["pull"]))["verdict"] or ""
        if verdict.startswith("rejected: "):
            reason = verdict.removeprefix("rejected: ").split(" and ")[0]
            refused.append({"pull": one["pull"], "site": one["site"], "outcome": "rejected", "reason": reason})
    versions = stage.json("ci", "log", "--all")["versions"]
    new = [v for v in reversed(versions) if v["version"] > current]
    return {
        "pulls": refused,
        "published": [
            {"version": v["version"], "kind": "aggregate", "contributions": v["record"]["contributions"]} for v in new
        ],
    }


def tell_runs(stage: Stage, ran: Mapping[str, Any]) -> None:
    for run in ran["runs"]:
        stage.tell(f"CI: {run_line(run)}")
