"""What the commands that people wait for may import: start-up is most of their time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedops.adapters.model_writer import save_arrays
from fedops.app.offer import Wanted
from fedops.app.submit import Submitted, submit
from fedops.core.ids import SiteId
from tests.site_world import SITES, World, git_world, moved

HELP_NEEDS_NONE = {"numpy", "pydantic", "git", "github", "oras", "dvc", "requests", "yaml", "ruamel"}
STATUS_NEEDS_NONE = {"numpy", "dvc", "oras", "github", "requests", "sklearn", "matplotlib", "ruamel"}
# Runs a command as its own process does, then tells on stderr what was imported.
RUN = """
import json, sys
from fedops.cli.main import run
code = run(sys.argv[1:])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def imported_by(arguments: Sequence[str], folder: Path) -> set[str]:
    """The names of all modules that a command has imported when it ends; it must end well."""
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    names = set(json.loads(done.stderr.splitlines()[-1]))
    print(len(names), "modules:", *sorted({name.partition(".")[0] for name in names}))
    return names


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A federation in which one site's pull request is merged and the other's is open: status looks at all of it."""
    world = git_world(tmp_path)
    for step, site in enumerate(SITES, 1):
        file = tmp_path / f"{site}.safetensors"
        save_arrays(file, moved(step))
        wanted = Wanted(site=SiteId(site), file=file, num_examples=100, metrics={"loss": 0.5})
        handed_in = submit(world.ctx(site), world.root(site), wanted, key=world.key(site))
        assert isinstance(handed_in, Submitted)
    world.merge(1)
    world.close()
    return world


def test_help_imports_no_library_but_click(tmp_path: Path) -> None:
    names = imported_by(["--help"], tmp_path)
    assert not names & HELP_NEEDS_NONE
    assert "click" in names


@pytest.mark.parametrize("arguments", [["status"], ["status", "--no-fetch", "--format", "json"]])
def test_status_imports_no_numbers_and_no_store(world: World, arguments: list[str]) -> None:
    names = imported_by(arguments, world.root("hospital-a"))
    assert not names & STATUS_NEEDS_NONE
    assert "fedops.adapters.git_repo" in names  # it did look
