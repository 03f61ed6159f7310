"""Real runs of the workflow files by act, on a small federation; each run costs 0.4 to 4 seconds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedops.adapters.act_runner import find_act
from fedops.core.errors import ConfigError
from tests.cli_world import World, begun, found, fresh


@pytest.fixture(scope="session")
def act() -> Path:
    try:
        return find_act(os.environ.get("PATH", os.defpath))
    except ConfigError:
        pytest.skip("act is not installed")


@pytest.fixture(autouse=True)
def clockless(no_schedule: None) -> None:
    """Only the events that a test makes start a run."""


@pytest.fixture
def world(act: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """At v0: hospital-a (#1) and hospital-b (#2) have handed in, clinic-c has trained and is slow."""
    return fresh(begun, tmp_path_factory.getbasetemp(), tmp_path / "world")


@pytest.fixture
def quiet(act: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """At v0, with a lead and nothing else."""
    return fresh(found, tmp_path_factory.getbasetemp(), tmp_path / "quiet")
