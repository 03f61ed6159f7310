"""This repository is also a federation: its zone is what `fedops init --example` writes, and other tools read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.model_files import ModelFiles
from fedops.app.example import EXAMPLE_TIME, example_files
from fedops.app.scaffold import GITATTRIBUTES_PATH, GITIGNORE_PATH, README_PATH
from fedops.app.snapshot import time_text
from fedops.cli.main import run
from fedops.cli.wire import open_context
from fedops.core.ids import site_of_path
from fedops.core.records import Record

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = "python -m tests.generate"
# Where product and zone need one file, this repository's holds the zone's lines and its own.
SHARED = (GITIGNORE_PATH, GITATTRIBUTES_PATH)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which `fedops init --example` ran."""
    folder = tmp_path_factory.mktemp("example") / "clone"
    folder.mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert run(["init", "--origin", "../origin.git", "--example"]) == 0
    finally:
        os.chdir(before)
    return folder


def test_the_zone_at_the_top_level_is_what_init_writes(example: Path) -> None:
    for path in git(example, "ls-files").splitlines():
        if path not in (README_PATH, *SHARED):
            assert (ROOT / path).is_file(), f"{path} is missing; run: {COMMAND}"
            assert (ROOT / path).read_bytes() == (example / path).read_bytes(), f"{path} differs; run: {COMMAND}"


@pytest.mark.parametrize("path", SHARED)
def test_shared_files_hold_the_zones_lines(example: Path, path: str) -> None:
    ours = (ROOT / path).read_text().splitlines()
    for line in (example / path).read_text().splitlines():
        assert line in ours, f"{path}: add the line {line!r}"


def test_the_zone_has_no_files_that_init_does_not_write(example: Path) -> None:
    written = set(git(example, "ls-files").splitlines())
    for folder in ("policies", "sites", "global", "schemas", ".dvc"):
        there = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if p.is_file()}
        # DVC's own cache and a pulled model are git-ignored.
        there = {p for p in there if not p.startswith((".dvc/tmp", ".dvc/cache")) and not p.endswith(".safetensors")}
        assert there <= written, folder


def test_the_example_is_the_same_without_git_and_without_a_store(example: Path, tmp_path: Path) -> None:
    files = example_files(ModelFiles(), tmp_path)
    assert sorted(files) == git(example, "ls-files").splitlines()
    for path, data in files.items():
        assert (example / path).read_bytes() == data, path


def test_the_example_is_made_at_a_fixed_time(example: Path) -> None:
    record = json.loads((example / "global" / "version.json").read_text())
    assert record["witness"]["decided_at"] == time_text(EXAMPLE_TIME) == "2026-01-01T00:00:00Z"
    assert git(example, "log", "-1", "--format=%cd", "--date=unix") == str(int(EXAMPLE_TIME.timestamp()))


def test_the_readme_among_the_sites_is_not_a_site(example: Path) -> None:
    assert (example / "sites" / "README.md").is_file()
    assert site_of_path("sites/README.md") is None


def test_a_command_in_the_clone_finds_the_federation(example: Path) -> None:
    with open_context(example / "policies") as (root, ctx):
        ctx.repository.fetch()
        assert root == example
        assert sorted(t.version for t in ctx.repository.versions()) == [0]


def test_the_schema_of_records_is_that_of_submissions(example: Path) -> None:
    schema = json.loads((example / "schemas" / "submission.schema.json").read_text())
    assert set(schema["properties"]) == {info.alias or name for name, info in Record.model_fields.items()}


# ---------------------------------------------------------------- DVC and gto


def tool(folder: Path, name: str, *arguments: str) -> str:
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(folder.parent / "site-cache")}
    command = [str(Path(sys.executable).with_name(name)), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def two_versions(example: Path) -> Path:
    """The example's files with a made-up v1, and remotes that DVC knows without fedops, in all of the history."""
    folder = example.parent / "two"
    git(example.parent, "init", "-q", "-b", "main", "two")
    for path in git(example, "ls-files").splitlines():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((example / path).read_bytes())
    config = (folder / ".dvc" / "config").read_text()
    (folder / ".dvc" / "config").write_text(config.replace("ocidir://", f"{folder.parent}/"))
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "v0")
    git(folder, "tag", "-a", "-m", "v0", "global@v0.0.0")
    record: dict[str, Any] = json.loads((folder / "global" / "version.json").read_text())
    record["version"] = 1
    (folder / "global" / "version.json").write_text(json.dumps(record))
    (folder / "global" / "metrics.json").write_text('{"loss": 0.25}')
    git(folder, "commit", "-q", "-a", "-m", "v1")
    git(folder, "tag", "-a", "-m", "v1", "global@v1.0.0")
    return folder


def test_dvc_shows_the_metrics_of_the_tags(two_versions: Path) -> None:
    shown = json.loads(tool(two_versions, "dvc", "metrics", "show", "--all-tags", "--json"))
    assert shown["global@v0.0.0"]["data"]["global/metrics.json"]["data"] == {}
    assert shown["global@v1.0.0"]["data"]["global/metrics.json"]["data"] == {"loss": 0.25}


def test_dvc_finds_the_artifact_by_its_tag(two_versions: Path) -> None:
    md5 = json.loads((two_versions / "global" / "version.json").read_text())["model"]["md5"]
    url = tool(two_versions, "dvc", "artifacts", "get", "--show-url", "--rev", "v0.0.0", ".", "global")
    assert url.strip().endswith(f"/{md5[:2]}/{md5[2:]}")


def test_gto_reads_the_versions(two_versions: Path) -> None:
    shown = json.loads(tool(two_versions, "gto", "show", "--json"))
    assert shown["global"]["version"] == "v1.0.0"


def test_git_ignores_model_bytes_and_a_sites_own_state(two_versions: Path) -> None:
    for path in ("global/model.safetensors", "sites/hospital-a/update.safetensors", ".fedops/id_ed25519"):
        (two_versions / path).parent.mkdir(parents=True, exist_ok=True)
        (two_versions / path).touch()
    assert git(two_versions, "status", "--porcelain") == ""
