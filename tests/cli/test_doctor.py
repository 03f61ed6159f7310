"""`fedops doctor` as typed, on real git and a store on disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedops import __version__
from fedops.app.site_state import SiteState, write_site_state
from fedops.cli.main import run
from fedops.core.health import Check
from tests.doctor_report import by_name, told_steps
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
        checks = by_name(Check(**check) for check in result["checks"])
        for check in checks.values():
            assert f"{check.state:<7}  {check.name}" in text
        steps = told_steps(text)
        not_ok = [check for check in checks.values() if check.state != "ok"]
        assert list(steps.values()) == [check.next for check in not_ok]
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
    assert list(checks)[:5] == ["git", "ssh-keygen", "python", "distribution", "identity"]
    assert checks["identity"]["got"] == "Test <test@example.invalid>"
    assert checks["key"]["got"] == f"{world.key(A)}, of hospital-a"


def test_outside_of_a_federation_only_the_machine_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor
) -> None:
    monkeypatch.chdir(tmp_path)
    checks = doctor(3)
    assert bad(checks) == {"clone": "broken"}
    assert "no federation.yaml here or above" in checks["clone"]["got"]
    assert "fedops init" in checks["clone"]["next"]


def test_in_a_folder_that_is_gone_there_is_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor
) -> None:
    def gone() -> Path:
        raise FileNotFoundError("gone")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "cwd", gone)
    checks = doctor(3)
    assert bad(checks) == {"clone": "broken"}
    assert "gone" in checks["clone"]["got"]


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


GOLDENS = sorted((Path(__file__).parent.parent / "golden").glob("doctor*.txt"))


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.name)
def test_the_reports_that_people_read_have_a_step_below_each_line_that_is_not_ok(golden: Path) -> None:
    text = golden.read_text(encoding="utf-8")
    assert len(told_steps(text)) > 0
    assert text.count("next: ") == len([line for line in text.splitlines() if line.startswith(("warning", "broken"))])


@pytest.fixture
def nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """From now on git knows nobody and guesses nothing."""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name)
    for name, value in {"COUNT": "1", "KEY_0": "user.useConfigOnly", "VALUE_0": "true"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    return world


@pytest.mark.usefixtures("nobody")
def test_a_site_whose_git_knows_nobody_is_told_both_commands(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = doctor(3)
    assert checks["identity"]["state"] == "broken"
    assert 'git config --global user.name "NAME"; git config --global user.email ADDRESS' in checks["identity"]["next"]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert doctor()["identity"]["got"].startswith("github-actions[bot] <"), "there fedops itself names the author"


def test_who_only_reads_need_not_commit(nobody: World, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(nobody.root("lena"))
    assert doctor()["identity"]["state"] == "warning"


def test_a_lead_sees_whether_the_stores_of_ci_may_be_written(
    world: World, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is archived yet: the folder would be made in the store's."""
    monkeypatch.chdir(world.root("lena"))
    checks = doctor()
    assert [checks[f"store: {name}"]["got"] for name in ("global", "archive")] == ["may be written"] * 2
    place = world.folder / "origin.git/store"
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != place and real(path, mode))
    checks = doctor()
    assert checks["store: archive"]["state"] == "warning"
    assert checks["store: archive"]["got"] == f"read-only here: {place}: no right to write"
    assert checks["store: global"]["state"] == "ok"


def test_a_work_tree_that_is_elsewhere_is_a_warning(world: World, doctor: Doctor) -> None:
    (world.root(A) / "federation.yaml").write_text((world.root(A) / "federation.yaml").read_text() + "\n")
    checks = doctor()
    assert (checks["work tree"]["state"], checks["work tree"]["next"]) == ("warning", "git status")
