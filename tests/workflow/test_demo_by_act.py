"""`fedops demo --workflows act`: the demo's CI is the federation's own files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fedops.app import demo
from tests.cli_world import in_process


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_makes_its_first_version_by_the_workflow_files(
    act: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About 20 s: reconcile by hand, then six runs of validate and two of reconcile, and all that the sites do.

    What would come later comes at once: the update with NaN, and the one that changes another site's folder.
    """
    monkeypatch.setattr(demo, "NAN_TICK", 1)
    monkeypatch.setattr(demo, "INTRUDER_TICK", 1)
    ran = in_process(tmp_path, "demo", "--dir", "demo", "--versions", "1", "--workflows", "act", "--format", "json")
    assert ran.code == 0, ran.err
    assert [v["version"] for v in ran.json["versions"]] == [0, 1]
    assert ran.json["verified"] == {"versions": 2, "ok": 2}
    assert "CI: run 1: reconcile.yml on workflow_dispatch: ok" in ran.err
    assert "CI: v1 published: " in ran.err
    refused = [(one["site"], one["what"], one["reason"]) for one in ran.json["refused"]]
    assert refused == [
        ("clinic-c", "an update with NaN", "non_finite"),
        ("clinic-d", "a change of hospital-a's folder", "site_mismatch"),
    ]
    assert all("**Rejected**" in one["comment"] for one in ran.json["refused"])
    assert {c["site"] for c in ran.json["versions"][1]["contributions"]} == {"clinic-c", "hospital-a", "hospital-b"}
    log = ["git", "-C", str(tmp_path / "demo" / "origin.git"), "log", "-1", "--format=%cn", "global@v1.0.0"]
    assert subprocess.run(log, capture_output=True, text=True).stdout.strip() == "github-actions[bot]"
    assert (tmp_path / "demo" / "origin.git" / "fedops-local" / "0001" / "log.txt").is_file()
