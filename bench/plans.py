"""The plans of `fedops aggregate` that are timed, over the files of make_data.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

Scenario = Literal["one base", "four bases", "norms", "digests"]
VERSIONS = 4
CURRENT = VERSIONS - 1
LIMIT = 10**12  # bytes: the bench sets sizes itself


def base_of(site: int, scenario: Scenario) -> int:
    """The version that a site's update counts as trained on."""
    return site % VERSIONS if scenario == "four bases" else CURRENT


def write_plan(folder: Path, scenario: Scenario) -> Path:
    """Write a plan beside the data and return its path.

    Args:
        folder: of the data.
        scenario: "norms": a limit on the deltas' norms, which nobody exceeds, so that each is measured;
            "digests": the plan states the sha256 of every file, and the command checks it.
    """
    data = json.loads((folder / "data.json").read_text())
    digests = data["sha256"] if scenario == "digests" else {}

    def stated(name: str) -> dict[str, str]:
        return {"sha256": digests[name]} if name in digests else {}

    submissions: list[dict[str, Any]] = []
    for i, (name, count) in enumerate(sorted(data["num_examples"].items())):
        record = {"site": name, "base_version": base_of(i, scenario), "num_examples": count, **stated(name)}
        submissions.append({"update": f"{name}.safetensors", "record": record})
    used = {CURRENT, *(s["record"]["base_version"] for s in submissions)}
    limits: dict[str, Any] = {"limits": {"update_bytes": LIMIT, "expanded_bytes": LIMIT}}
    plan = {
        "schema": "fedops.aggregate-plan/v1",
        "current_version": CURRENT,
        "globals": {str(v): {"path": f"global-{v}.safetensors", **stated(f"global-{v}")} for v in sorted(used)},
        "submissions": submissions,
        "policy": {"trigger": {"quorum": 1}, "strategy": {"name": "fedavg"}},
        "submission_policy": limits | ({"update_norm_max": 1e9} if scenario == "norms" else {}),
    }
    path = folder / f"{scenario.replace(' ', '-')}.plan.json"
    path.write_text(json.dumps(plan, indent=1))
    return path


def files_of(folder: Path, scenario: Scenario, *, bases: bool) -> list[Path]:
    """The updates of a plan, and with `bases` the global versions that it reads too."""
    data = json.loads((folder / "data.json").read_text())
    sites = sorted(data["num_examples"])
    versions = sorted({CURRENT, *(base_of(i, scenario) for i in range(len(sites)))}) if bases else []
    return [folder / f"{name}.safetensors" for name in [*sites, *(f"global-{v}" for v in versions)]]
