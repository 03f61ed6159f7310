"""`fedops demo --workflows act`: the demo's CI is the federation's own files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli_world import in_process


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_makes_its_first_version_by_the_workflow_files(act: Path, tmp_path: Path) -> None:
    """About 15 s: reconcile by hand, then four runs of validate and two of reconcile, and all that the sites do."""
    ran = in_process(tmp_path, "demo", "--dir", "demo", "--versions", "1", "--workflows", "act", "--format", "json")
    assert ran.code == 0, ran.err
    assert [v["version"] for v in ran.json["versions"]] == [0, 1]
    assert ran.json["verified"] == {"versions": 2, "ok": 2}
    assert "CI: run 1: reconcile.yml on workflow_dispatch: ok" in ran.err
    assert "CI: v1 published: " in ran.err
    log = ["git", "-C", str(tmp_path / "demo" / "origin.git"), "log", "-1", "--format=%cn", "global@v1.0.0"]
    assert subprocess.run(log, capture_output=True, text=True).stdout.strip() == "github-actions[bot]"
    assert (tmp_path / "demo" / "origin.git" / "fedops-local" / "0001" / "log.txt").is_file()
