"""`fedops doctor` as typed, on real git and a store on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedops import __version__
from fedops.app.site_state import SiteState, write_site_state
from fedops.cli.main import run
from tests.site_world import World, git_world

A = "hospital-a"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = git_world(tmp_path)
    monkeypatch.chdir(world.root(A))
    write_site_state(world.root(A), SiteState(A, str(world.key(A))))
    yield world
    world.close()


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The checks by name, once the exit code and the text are as they should be."""

    def call(code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert run(["doctor"]) == code
        text = capsys.readouterr().out
        assert run(["doctor", "--format", "json"]) == code
        result = json.loads(capsys.readouterr().out)
        assert (result["schema"], result["ok"], result["changed"]) == ("fedops.doctor/v1", code == 0, False)
        for check in result["checks"]:
            assert f"{check['state']:<7}  {check['name']}" in text
            assert check["state"] == "ok" or check["next"] in text
        return {check["name"]: check for check in result["checks"]}

    return call


Doctor = Callable[..., dict[str, Any]]


def bad(checks: dict[str, Any]) -> dict[str, str]:
    return {name: c["state"] for name, c in checks.items() if c["state"] != "ok"}


def test_a_clone_that_works_is_well(world: World, doctor: Doctor) -> None:
    checks = doctor()
    # The federation of these tests pins its own version, and commits everything that it needs.
    assert set(bad(checks)) <= {"fedops"}
    assert checks["fedops"]["got"] == __version__
    assert list(checks)[:4] == ["git", "ssh-keygen", "python", "distribution"]
    assert checks["key"]["got"] == f"{world.key(A)}, of hospital-a"


def test_outside_of_a_federation_only_the_machine_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor
) -> None:
    monkeypatch.chdir(tmp_path)
    checks = doctor(3)
    assert bad(checks) == {"clone": "broken"}
    assert "no federation.yaml here or above" in checks["clone"]["got"]
    assert "fedops init" in checks["clone"]["next"]


@pytest.mark.parametrize(
    ("break_it", "name"),
    [
        (lambda root: (root / "federation.yaml").write_text("schema: x\n"), "clone"),
        (lambda root: (root / ".fedops/site.yaml").write_text("site: [\n"), "clone"),
        (lambda root: shutil.rmtree(root / ".git"), "clone"),
        (lambda root: shutil.rmtree(root.parent / "origin.git"), "origin"),
        (lambda root: shutil.rmtree(root.parent / "origin.git/store"), "store"),
        (lambda root: (root.parent / "keys" / A).chmod(0o644), "key"),
        (lambda root: (root.parent / "keys" / A).unlink(), "key"),
        (lambda root: (root / ".gitignore").write_text("\n"), ".fedops/"),
        (lambda root: (root / ".gitattributes").write_text("*.dvc merge=union\n"), "git settings"),
    ],
)
def test_whatever_is_broken_is_named_and_nothing_raises(
    break_it: Callable[[Path], object], name: str, world: World, doctor: Doctor
) -> None:
    break_it(world.root(A))
    assert doctor(3)[name]["state"] == "broken"


def test_a_work_tree_that_is_elsewhere_is_a_warning(world: World, doctor: Doctor) -> None:
    (world.root(A) / "federation.yaml").write_text((world.root(A) / "federation.yaml").read_text() + "\n")
    checks = doctor()
    assert (checks["work tree"]["state"], checks["work tree"]["next"]) == ("warning", "git status")
