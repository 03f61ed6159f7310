"""The federation that auditors look at, made once, and a copy of it for each test that damages something."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.scenario.auditing import Auditor, copied
from tests.verify_world import isolated, make_past


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bare origin of `tests/verify_world.py`, packed; never to be changed. Workers of one run share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "past"
    with folder.with_suffix(".lock").open("w") as lock, pytest.MonkeyPatch.context() as monkeypatch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        origin = folder / "origin.git"
        if not (folder / "done").exists():
            folder.mkdir()
            isolated(monkeypatch, folder)
            make_past(folder)
            subprocess.run(["git", "-C", str(origin), "gc", "--quiet", "--prune=now"], check=True)
            (folder / "done").touch()
    return origin


@pytest.fixture
def auditor(past: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Auditor:
    copied(past, tmp_path)
    return Auditor(tmp_path, past.parent / "kept", monkeypatch, capsys)
