"""The tutorial's commands do what the page says, typed one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT, shell


def test_the_tutorial_runs_from_its_first_command_to_its_last(tmp_path: Path) -> None:
    script = shell((ROOT / "docs" / "tutorial.md").read_text("utf-8"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "waits for 1 more submission: 1 of 2" in said, "after the first hospital"
    assert "published v1: hospital-a 50%, hospital-b 50%" in said, "after the second"
    assert said.count("2 versions verified, 0 failed") == 2, "before the damage and after its repair"
    assert "2 versions verified, 1 failed\n" in said
    assert "exit code 3\n" in said
    assert "\nv1: " in done.stderr, "the cause, and the version it is in"
