"""Any number of runs at once, at any moment, with anything in between: exactly one version of each number comes of it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.scenario.fed import MemoryFed, fast_folder
from tests.scenario.oracle import check_all
from tests.scenario.story import Story, tell

SCHEDULES = 500
BATCHES = 10
STEPS = 40


def play(seed: int, folder: Path) -> int:
    """Versions that one schedule made."""
    rng = random.Random(seed)
    modes = [{"mode": "push"}, {"mode": "push"}, {"mode": "review"}]
    fed = MemoryFed(folder, rules={"trigger": {"quorum": rng.choice([1, 2, 3])}, "publish": rng.choice(modes)})
    story = Story(fed, rng)
    try:
        tell(story, STEPS)
        check_all(fed, rerun=lambda: fed.reconcile().changed, damaged=story.damaged)
        return fed.version.version
    except BaseException as e:
        e.add_note("\n".join([f"seed {seed}", *story.log]))
        raise
    finally:
        story.close()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_any_schedule_of_runs_sites_and_leads_gives_one_version_of_each_number(batch: int) -> None:
    made = 0
    with fast_folder() as name:
        for seed in range(batch, SCHEDULES, BATCHES):
            folder = Path(name) / str(seed)
            folder.mkdir()
            made += play(seed, folder)
            shutil.rmtree(folder)
    assert made > SCHEDULES // BATCHES // 2, "schedules that come to nothing would show nothing"
