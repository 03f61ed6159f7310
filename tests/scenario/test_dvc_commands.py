"""DVC's own commands, as processes, from fresh clones of a federation with a past of five versions.

Of the past (`tests/verify_world.py`): v4 is current, the store lies in the origin's folder, clinic-c's bytes are gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.dvc_hook import LINE, NAME
from tests.scenario.auditing import copied, flip

GLOBAL = "global/model.safetensors"
UPDATES = ["sites/hospital-a/update.safetensors", "sites/hospital-b/update.safetensors"]
# What a plain `dvc` does in an environment that has the hook; `site` reads .pth files of folders that it is told of.
PLAIN = "import site, sys; site.addsitedir(sys.argv[1]); from dvc.cli import main; sys.exit(main(sys.argv[2:]))"


@dataclass(frozen=True)
class Place:
    """An origin with its store, a fresh clone, and the environment of commands: no name or key of the user's own."""

    folder: Path

    @property
    def origin(self) -> Path:
        return self.folder / "origin.git"

    @property
    def clone(self) -> Path:
        return self.folder / "clone"

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"COLUMNS": "200", "DVC_SITE_CACHE_DIR": str(self.folder / "site-cache")}
        return subprocess.run(command, cwd=cwd or self.clone, env=env, capture_output=True, text=True)

    def dvc(self, *arguments: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = self.run(sys.executable, "-m", "fedops.cli.main", "dvc", *arguments, cwd=cwd)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def record(self, version: int) -> Any:
        """A version's record, as git has it."""
        done = self.run("git", "show", f"global@v{version}.0.0:global/version.json")
        return json.loads(done.stdout)

    def models(self) -> list[str]:
        """The models in the work tree."""
        return sorted(str(p.relative_to(self.clone)) for p in self.clone.rglob("*.safetensors"))

    def blob(self, repository: str, sha256: str) -> Path:
        return self.origin / "store" / repository / "blobs" / "sha256" / sha256

    def sha256(self, path: Path | str) -> str:
        return hashlib.sha256((self.clone / path).read_bytes()).hexdigest()

    def recorded(self, site: str) -> str:
        """The sha256 that a site's record names."""
        sha256: str = json.loads((self.clone / "sites" / site / "submission.json").read_text())["sha256"]
        return sha256


@pytest.fixture
def place(past: Path, tmp_path: Path) -> Place:
    place = Place(tmp_path)
    copied(past, tmp_path)
    done = place.run("git", "clone", "--quiet", "origin.git", "clone", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return place


def test_pull_brings_all_that_there_is_and_says_what_there_is_not(place: Place) -> None:
    done = place.dvc("pull", code=1)
    assert place.models() == [GLOBAL, *UPDATES]
    assert place.sha256(GLOBAL) == place.record(4)["model"]["sha256"]
    for site in ("hospital-a", "hospital-b"):
        assert place.sha256(f"sites/{site}/update.safetensors") == place.recorded(site)
    assert "sites/clinic-c/update.safetensors" in done.stderr
    assert place.run("git", "status", "--porcelain").stdout == ""
    # What was asked for by name is all there, and nothing is wrong.
    done = place.dvc("pull", GLOBAL, *UPDATES)
    assert (done.stdout.strip(), done.stderr) == ("Everything is up to date.", "")


def test_status_and_push_of_what_is_in_sync_do_nothing(place: Place) -> None:
    place.dvc("pull", GLOBAL)
    before = {p: p.stat().st_mtime_ns for p in (place.origin / "store").rglob("*")}
    assert "in sync" in place.dvc("status", "-c").stdout
    assert "up to date" in place.dvc("push", GLOBAL).stdout
    assert {p: p.stat().st_mtime_ns for p in (place.origin / "store").rglob("*")} == before


def test_a_model_is_had_by_its_address_and_tag_from_anywhere(place: Place) -> None:
    outside = place.folder / "outside"
    outside.mkdir()
    place.dvc("get", str(place.origin), GLOBAL, "--rev", "global@v2.0.0", "-o", "two", cwd=outside)
    assert place.sha256(outside / "two") == place.record(2)["model"]["sha256"]
    # A clone stands for its origin, where the store is.
    place.dvc("artifacts", "get", str(place.clone), "global", "--rev", "v3.0.0", "-o", "three", cwd=outside)
    assert place.sha256(outside / "three") == place.record(3)["model"]["sha256"]
    assert sorted(p.name for p in outside.iterdir()) == ["three", "two"]


def test_a_project_above_a_bare_origin_is_not_taken_for_it(place: Place) -> None:
    """As in a copy of a source repository that is a DVC project itself, with the demo's folder in it."""
    outer = place.folder / "outer"
    (outer / ".dvc").mkdir(parents=True)
    (outer / ".dvc" / "config").write_text("['remote \"global\"']\n    url = ocidir://nowhere/global\n")
    subprocess.run(["git", "init", "-q", str(outer)], check=True)
    origin = outer / "origin.git"
    shutil.copytree(place.origin, origin, symlinks=True)
    place.dvc("get", str(origin), GLOBAL, "--rev", "global@v2.0.0", "-o", "two", cwd=outer)
    assert place.sha256(outer / "two") == place.record(2)["model"]["sha256"]


def test_metrics_and_plots_compare_two_versions(place: Place) -> None:
    done = place.dvc("metrics", "diff", "global@v1.0.0", "global@v4.0.0", "--json")
    loss = json.loads(done.stdout)["global/metrics.json"]["loss"]
    old, new = (place.record(n)["metrics"]["loss"] for n in (1, 4))
    assert (loss["old"], loss["new"]) == (old, new)
    done = place.dvc("plots", "diff", "global@v2.0.0", "global@v4.0.0", "--json")
    (plot,) = json.loads(done.stdout)["data"]["shares"]
    rows = plot["content"]["data"]["values"]
    got = {(row["rev"], row["site"], row["share"]) for row in rows}
    assert got == {
        (f"global@v{n}.0.0", c["site"], c["share"]) for n in (2, 4) for c in place.record(n)["contributions"]
    }


def test_gto_lists_the_versions(place: Place) -> None:
    gto = shutil.which("gto", path=sysconfig.get_path("scripts"))
    assert gto is not None
    done = place.run(gto, "show", "global", "--json")
    assert [row["version"] for row in json.loads(done.stdout)] == [f"v{n}.0.0" for n in (4, 3, 2, 1, 0)]


def test_wrong_bytes_never_come_into_the_work_tree(place: Place) -> None:
    flip(place.blob("global", place.record(4)["model"]["sha256"]), -1)
    done = place.dvc("pull", GLOBAL, code=1)
    assert "the store's copy is damaged" in done.stderr
    assert place.models() == []
    assert not [p for p in (place.clone / ".dvc/cache").rglob("*") if p.is_file()]


def test_push_gives_a_store_back_what_a_record_describes_and_nothing_else(place: Place) -> None:
    place.dvc("pull", GLOBAL, *UPDATES)
    index = place.origin / "store/sites/hospital-a/index.json"
    kept = json.loads(index.read_text())["manifests"]
    shutil.rmtree(index.parent)
    (place.clone / "own.csv").write_text("1\n")
    place.dvc("add", "own.csv")
    done = place.dvc("push", code=1)
    assert "fedops dvc remote add mine" in done.stderr
    back = json.loads(index.read_text())["manifests"]
    assert len(back) == 2
    assert all(entry in kept for entry in back)
    assert place.sha256(place.blob("sites/hospital-a", place.recorded("hospital-a"))) == place.recorded("hospital-a")


def test_with_the_hook_the_plain_command_knows_the_stores(place: Place) -> None:
    packages = place.folder / "packages"
    packages.mkdir()

    def plain(*arguments: str) -> subprocess.CompletedProcess[str]:
        return place.run(sys.executable, "-c", PLAIN, str(packages), *arguments)

    assert "Unsupported URL type ocidir://" in plain("pull", GLOBAL).stderr
    (packages / NAME).write_text(LINE)
    done = plain("pull", GLOBAL)
    assert (done.returncode, done.stderr) == (0, "")
    assert place.sha256(GLOBAL) == place.record(4)["model"]["sha256"]
