"""`ci signal` as a job of its own: it writes what the jobs before it leave to it, and says if that was not enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_world import SITES, build


def test_what_one_job_may_not_tell_is_left_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sites wait for their signal of v0; two issues may be opened."""
    world = build(tmp_path / "world")
    monkeypatch.setattr("fedops.app.signals.KEPT", 2)
    output = tmp_path / "output"
    signal = ("ci", "signal", "--github-output", str(output))
    first = world.json("ci", *signal)
    assert [line.partition(": ")[2] for line in first["signals"]] == [f"Train on v0: {site}" for site in SITES[:2]]
    assert (first["changed"], first["left"]) == (True, True)
    said = world("ci", *signal).out.splitlines()
    assert [line.partition(": ")[2] for line in said] == [f"Train on v0: {SITES[2]}"]
    assert world("ci", *signal).out == "nothing to do\n"
    assert output.read_text().splitlines() == ["left=true", "left=false", "left=false"]


def test_the_text_says_that_something_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = build(tmp_path / "world")
    monkeypatch.setattr("fedops.app.signals.KEPT", 1)
    assert world("ci", "ci", "signal").out.splitlines()[1:] == ["something is left: run it again"]
