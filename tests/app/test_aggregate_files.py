"""What `fedops aggregate` writes: both files or none, whole after any kill, and nothing twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from fedops.app.work import move_durably
from fedops.core.errors import ConfigError, StoreError
from tests.aggregate_world import World, good


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_record_says_what_went_in_and_depends_on_no_clock_or_machine(world: World) -> None:
    a, b = good(world)
    world.run(a, b, world.item("c", [np.nan, 0]))
    record = world.record()
    assert list(record) == [
        "schema",
        "outcome",
        "version",
        "base_version",
        "model",
        "rule",
        "denominator",
        "contributions",
        "chosen",
        "metrics",
        "excluded",
    ]
    assert record["model"]["sha256"] == world.sha256("out/model.safetensors")
    assert record["model"]["tensors"] == {"w": {"dtype": "F32", "shape": [2]}}
    assert str(world.path).encode() not in world.files()["version.json"]
    moved = World(world.path / "elsewhere")
    moved.run(*good(moved), moved.item("c", [np.nan, 0]))
    assert moved.files() == world.files()


def test_a_second_run_changes_nothing(world: World) -> None:
    assert world.run(*good(world)).changed is True
    before = {p: p.stat().st_mtime_ns for p in world.out.iterdir()}
    assert world.run(*good(world)).changed is False
    assert {p: p.stat().st_mtime_ns for p in world.out.iterdir()} == before


@pytest.mark.parametrize("name", ["model.safetensors", "version.json"])
def test_a_second_run_mends_what_was_damaged(world: World, name: str) -> None:
    world.run(*good(world))
    whole = world.files()
    (world.out / name).write_bytes(whole[name][:-1] + b"x")
    assert world.run(*good(world)).changed is True
    assert world.files() == whole
    (world.out / name).unlink()
    assert world.run(*good(world)).changed is True
    assert world.files() == whole


def test_a_dry_run_computes_everything_and_writes_nothing(world: World) -> None:
    dry = world.run(*good(world), dry_run=True)
    assert (dry.word, dry.changed) == ("complete", True)
    assert not world.out.exists()
    assert world.run(*good(world)).made == dry.made
    assert world.run(*good(world), dry_run=True).changed is False


def test_folders_are_made_and_only_if_there_is_a_version(world: World) -> None:
    deep = world.path / "a" / "b"
    world.run(out=deep)
    assert not (world.path / "a").exists()
    world.run(*good(world), out=deep)
    assert sorted(p.name for p in deep.iterdir()) == ["model.safetensors", "version.json"]


def test_a_refusal_leaves_an_earlier_result_alone(world: World) -> None:
    world.run(*good(world))
    before = world.files()
    assert world.run().made is None
    assert world.files() == before


def test_a_federations_own_record_is_not_overwritten(world: World) -> None:
    world.write("out/version.json", b'{"schema": "fedops.version/v1"}')
    with pytest.raises(ConfigError, match=r"version\.json: a document of another kind"):
        world.run(*good(world))
    assert world.files() == {"version.json": b'{"schema": "fedops.version/v1"}'}


def test_a_folder_that_cannot_be_used_is_an_error(world: World) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        world.run(*good(world), out=world.path / "plan.json")
    with pytest.raises(StoreError, match="cannot be written to"):
        world.run(*good(world), out=world.path / "v7.safetensors" / "out")


class Killed(BaseException):
    """Stands for the end of the process at one place."""


@pytest.mark.parametrize("renamed", [0, 1])
def test_whenever_it_is_killed_a_record_that_is_there_belongs_to_its_model(
    world: World, monkeypatch: pytest.MonkeyPatch, renamed: int
) -> None:
    world.run(world.item("a", [9, 9]))
    calls = iter(range(9))

    def killed(source: Path, target: Path) -> None:
        if next(calls) == renamed:
            raise Killed
        move_durably(source, target)

    monkeypatch.setattr("fedops.app.aggregate.move_durably", killed)
    with pytest.raises(Killed):
        world.run(*good(world))
    assert list(world.files()) == ["model.safetensors"]
    assert world.values() == ([9.0, 9.0] if renamed == 0 else [4.0, 4.0])
    monkeypatch.undo()
    assert world.run(*good(world)).changed is True
    assert world.record()["model"]["sha256"] == world.sha256("out/model.safetensors")


def test_a_failed_rename_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedops.app.aggregate.move_durably", full)
    with pytest.raises(StoreError, match=r"out: cannot be written to, got No space left on device"):
        world.run(*good(world))
    assert not world.out.exists()


def test_what_a_killed_run_left_is_removed_after_a_day(world: World) -> None:
    for name, age in (("old", 90_000), ("new", 60)):
        left = world.out / f".fedops-aggregate-{name}"
        left.mkdir(parents=True)
        (left / "model.safetensors").write_bytes(b"half")
        os.utime(left, (time.time() - age,) * 2)
    world.run(*good(world))
    assert sorted(p.name for p in world.out.iterdir()) == [
        ".fedops-aggregate-new",
        "model.safetensors",
        "version.json",
    ]
