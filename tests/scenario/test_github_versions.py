"""Whole versions on a GitHub: forks, reviews bound to heads, jobs with the job's token, and verify from a fresh clone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cli_world import EXAMPLES, SITES, STEPS, git
from tests.github_face.cli_world import JOB, GitHubWorld, github_cli

VERSIONS = 3


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubWorld]:
    with github_cli(tmp_path / "world", monkeypatch, review=True) as made:
        yield made


def expected(current: float, sites: tuple[str, ...]) -> np.float32:
    """FedAvg by hand, all on the current version; a site trains in float32."""
    deltas = [float(np.float32(current + STEPS[s])) - current for s in sites]
    weights = [EXAMPLES[s] for s in sites]
    return np.float32(current + sum(w * d for w, d in zip(weights, deltas, strict=True)) / sum(weights))


def model(world: GitHubWorld, version: int) -> dict[str, Any]:
    out = world.folder / f"v{version}.safetensors"
    world("ci", "pull", f"v{version}", "--out", str(out))
    return dict(load_file(out))


def open_signals(world: GitHubWorld) -> list[str]:
    return sorted(i.title for i in world.hub.items.values() if i.state == "open" and "signal:train" in i.labels)


def test_three_fork_sites_make_versions_that_anybody_verifies(world: GitHubWorld) -> None:
    value = 0.0
    for version in range(1, VERSIONS + 1):
        numbers = world.hand_in(*SITES)
        assert world.jobs()["due"] == "false", "nothing is merged without an approval"
        world.approve(*numbers)
        if version == 2:  # a push after the approval: it is void
            world.edit("README.md", lambda text: text + "\n")
            (world.clone(SITES[0]) / "own.json").write_text(f'{{"step": {STEPS[SITES[0]]}, "examples": 31}}')
            world(SITES[0], "train", "--client", "ours:Ours", "--again")
            assert world.json(SITES[0], "submit")["pull"] == numbers[0]
            assert world.jobs()["due"] == "true", "the two others make the quorum"
            weights = {SITES[1]: 100, SITES[2]: 50}
            value = float(np.float32(value + sum(w * STEPS[s] for s, w in weights.items()) / 150))
            assert world.hub.items[numbers[0]].state == "open"
            (world.clone(SITES[0]) / "own.json").write_text(f'{{"step": {STEPS[SITES[0]]}, "examples": 30}}')
        else:
            assert world.jobs()["due"] == "true"
            value = float(expected(value, SITES))
        assert world.version()["version"] == version
        np.testing.assert_array_equal(model(world, version)["w"], np.float32(value))
        told = dict.fromkeys(SITES, version) | ({SITES[0]: 1} if version == 2 else {})
        assert open_signals(world) == sorted(f"Train on v{number}: {site}" for site, number in told.items())
    assert [r.tag for r in world.hub.releases] == [f"global@v{n}.0.0" for n in range(VERSIONS + 1)]
    page = world.hub.releases[-1].body
    record = world.version()
    for text in (record["model"]["sha256"], "fedops pull v3", "--rev global@v3.0.0", *SITES):
        assert text in page
    before = world.hub.snapshot()
    world.jobs()
    assert world.hub.snapshot() == before, "run again, the jobs change nothing"
    world.new_clone("auditor")
    verified = world.json("auditor", "verify", "--all")
    assert verified["ok"] is True
    assert len(verified["versions"]) == VERSIONS + 1
    merges = git(
        world.origin, "log", "--first-parent", "--merges", "--format=%an %(trailers:key=Fedops-Author)", "main"
    )
    assert len(merges.splitlines()) >= VERSIONS * len(SITES) - 1
    assert JOB not in "".join(path.read_text(errors="replace") for path in world.folder.rglob("config"))
