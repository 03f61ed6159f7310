"""Shared helpers of the case tests: the handed cases on disk, and the command that judges them.

Numbers are the cases'; nothing here works one out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from fedops.cli.main import cli
from tests.cases.tensors import Tensor, read_tensors

HERE = Path(__file__).parent


def generate(out: Path) -> Path:
    """Write all handed cases below out, by the script beside this file; returns out.

    In a process of its own: the script leaves files open, which is an error in a test.
    """
    subprocess.run([sys.executable, str(HERE / "gen_handed.py"), str(out)], check=True, stdout=subprocess.DEVNULL)
    return out


@dataclass(frozen=True)
class Case:
    """One case of the manifest; paths in `files` start from `root`."""

    root: Path
    name: str
    document: Mapping[str, Any]

    @property
    def files(self) -> Any:
        return self.document["files"]

    @property
    def expected(self) -> Any:
        return self.document["expected"]

    @property
    def policy(self) -> Any:
        return self.document["policy"]

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def json(self, path: str) -> Any:
        return json.loads(self.read(path))


@dataclass(frozen=True)
class Cases:
    root: Path
    documents: Mapping[str, Mapping[str, Any]]

    def __getitem__(self, number: str) -> Case:
        """The case of a number such as "H04"."""
        [name] = [name for name in self.documents if name.startswith(number + "-")]
        return Case(self.root, name, self.documents[name])


def load(root: Path) -> Cases:
    return Cases(root, json.loads((root / "manifest.json").read_bytes())["cases"])


def fedops(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Run one command in this process with --format json; returns its exit code and the document on stdout."""
    result = CliRunner(catch_exceptions=False).invoke(cli, [*arguments, "--format", "json"])
    return result.exit_code, json.loads(result.stdout)


def fedops_process(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run one command in a process of its own, in which every warning is an error; exit code, document, stderr."""
    command = [sys.executable, "-W", "error", "-m", "fedops.cli.main", *arguments, "--format", "json"]
    done = subprocess.run(command, capture_output=True, timeout=120)
    return done.returncode, json.loads(done.stdout), done.stderr.decode()


# ------------------------------------------------------------------ from a case to a plan


def rules(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """A case's policy in the words of aggregation.yaml and submission.yaml; what it leaves out is left out here too."""
    given = case.policy
    policy: dict[str, Any] = {}
    submission: dict[str, Any] = {}
    strategy = {"name": given["aggregator"]} if "aggregator" in given else {}
    if "clip" in given:
        strategy = {"name": "fedavg"}
        policy["privacy"] = {"clip_norm": given["clip"], "noise_multiplier": given["noise_multiplier"]}
    strategy |= {key: given[key] for key in ("beta", "f") if key in given}
    staleness = dict(given.get("staleness", {}))
    if "max_staleness" in given:
        staleness["max"] = given["max_staleness"]
    policy |= {key: value for key, value in (("strategy", strategy), ("staleness", staleness)) if value}
    if "min_updates" in given:
        policy["trigger"] = {"quorum": given["min_updates"]}
    if "duplicates" in given:
        submission["resubmit"] = {"first": "reject", "latest": "supersede"}[given["duplicates"]]
    if "max_expanded_bytes" in given:
        submission["limits"] = {"expanded_bytes": given["max_expanded_bytes"]}
    return policy, submission


def base_plan(case: Case, command: str = "check") -> dict[str, Any]:
    """globals, current version and policies of a case, in the words of a plan; its items or submissions are added."""
    policy, submission = rules(case)
    plan: dict[str, Any] = {
        "schema": f"fedops.{command}-plan/v1",
        "globals": {v: {"path": path} for v, path in case.files.get("globals", {}).items()},
        "submission_policy": submission,
        "policy": policy,
    }
    if "current_version" in case.policy:
        plan["current_version"] = case.policy["current_version"]
    return plan


def submission_items(case: Case) -> list[dict[str, Any]]:
    """One item for each site of a case."""
    return [
        {"name": site, "kind": "submission", "update": files["update"], "record": files["metadata"]}
        for site, files in case.files["updates"].items()
    ]


def write_plan(case: Case, plan: Mapping[str, Any], name: str = "check.json") -> Path:
    """Write a plan beside the case's folders, so that the manifest's paths are right in it."""
    path = case.root / f"{case.name}.{name}"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return path


def check(case: Case, items: Sequence[Mapping[str, Any]], **changes: Any) -> dict[str, dict[str, Any]]:
    """Check items of a case; returns the result of each by name, and asserts what holds for every result."""
    plan = base_plan(case) | {"items": list(items)} | changes
    code, result = fedops("check", "--plan", str(write_plan(case, plan)))
    assert (result["schema"], result["changed"], result["findings"]) == ("fedops.check/v1", False, [])
    assert result["ok"] == all(item["ok"] for item in result["items"])
    assert code == (0 if result["ok"] else 3)
    assert [item["name"] for item in result["items"]] == [item["name"] for item in items]
    return {item["name"]: item for item in result["items"]}


def slugs(item: Mapping[str, Any]) -> list[str]:
    """Error kinds of one item, in order."""
    return [f["slug"] for f in item["findings"] if f["severity"] == "error"]


def first(item: Mapping[str, Any], slug: str) -> dict[str, Any]:
    """The first finding of a kind."""
    found: dict[str, Any] = next(f for f in item["findings"] if f["slug"] == slug)
    return found


def assert_outcome(item: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """An item is ok, or all that it is refused for is among the case's words for it."""
    if expected.get("ok"):
        assert item["ok"], item["findings"]
        return
    assert not item["ok"]
    accepted = {expected["error"], *expected.get("also_ok", [])}
    assert set(slugs(item)) <= accepted, (slugs(item), accepted)
    assert slugs(item)


# ------------------------------------------------------------------ pointers, stores, repositories


def adapted_pointer(text: str, site: str, manifest: str, sha256: str) -> str:
    """A case's pointer with what fedops adds: `remote` after `path`, then the block `meta`."""
    eol = "\r\n" if "\r\n" in text else "\n"
    with_remote = re.sub(r"(?m)^(  path: [^\r\n]*)(\r?\n)", rf"\g<1>{eol}  remote: sites-{site}{eol}", text)
    assert with_remote != text
    meta = ["meta:", "  fedops:", f"    repository: sites/{site}", f"    manifest: {manifest}", f"    sha256: {sha256}"]
    return with_remote + eol.join([*meta, ""])


def import_stream(case: Case, folder: Path) -> Path:
    """A bare repository with the history of a case."""
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(folder)], check=True)
    stream = case.read(case.files["repo"])
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet", "--done"], input=stream, check=True)
    return folder


ROSTER = {
    "hospital-a": ("alice-a", 1001),
    "hospital-a-v2": ("amir-a", 1002),
    "hospital-b": ("bo-b", 1003),
    "clinic-c": ("cy-c", 1004),
}


def roster() -> dict[str, Any]:
    """The sites of the cases' policies/sites.yml, with invented account numbers."""
    return {
        "schema": "fedops.sites/v1",
        "sites": {site: {"accounts": [{"login": login, "id": number}]} for site, (login, number) in ROSTER.items()},
    }


def account(login: str) -> dict[str, Any]:
    numbers = dict(ROSTER.values())
    return {"login": login, "id": numbers.get(login, 9999)}


# ------------------------------------------------------------------ from a plan to a model


def submissions(case: Case, *sites: str) -> list[dict[str, Any]]:
    """A plan's submissions: of these sites, else of all sites of a case."""
    updates = case.files["updates"]
    return [{"update": updates[s]["update"], "record": updates[s]["metadata"]} for s in sites or updates]


@dataclass(frozen=True)
class Aggregated:
    """What one `fedops aggregate` said, and the folder that it was given."""

    code: int
    result: dict[str, Any]
    folder: Path

    @property
    def tensors(self) -> dict[str, Tensor]:
        return read_tensors(self.folder / "model.safetensors")

    def refused(self) -> dict[str | None, list[str]]:
        """Site -> kinds of its errors, in order."""
        found: dict[str | None, list[str]] = {}
        for f in self.result["findings"]:
            if f["severity"] == "error":
                found.setdefault((f["detail"] or {}).get("site"), []).append(f["slug"])
        return found


def aggregate_plan(case: Case, items: Sequence[Mapping[str, Any]] | None = None, **changes: Any) -> Path:
    """Write a plan that aggregates a case; its policies may be changed key by key.

    Args:
        items: the plan's submissions; None: one of each site.
    """
    plan = base_plan(case, "aggregate")
    plan["submissions"] = submissions(case) if items is None else list(items)
    for key, value in changes.items():
        plan[key] = plan[key] | value if key in ("policy", "submission_policy") else value
    return write_plan(case, plan, "aggregate.json")


def aggregate(case: Case, folder: Path, items: Sequence[Mapping[str, Any]] | None = None, **changes: Any) -> Aggregated:
    """Aggregate a case into `folder`; asserts what holds for every result."""
    plan = aggregate_plan(case, items, **changes)
    code, result = fedops("aggregate", "--plan", str(plan), "--out", str(folder))
    assert (result["schema"], result["ok"]) == ("fedops.aggregate/v1", code == 0)
    assert (code, result["outcome"] == "refused") in ((0, False), (3, True))
    assert result["changed"] == (code == 0)
    names = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    assert names == (["model.safetensors", "version.json"] if code == 0 else [])
    return Aggregated(code, result, folder)
