"""The same on real git and a store on disk: runs in threads, each with its own clone, really at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedops.app.reconcile import Reconciled
from fedops.core.errors import FedopsError
from fedops.ports import Repository
from tests.forge_worlds import ManualClock
from tests.scenario.fed import Fed, GitFed, fast_folder
from tests.scenario.oracle import check_all
from tests.scenario.story import Story

SCHEDULES = 20
BATCHES = 4
SITES = ("clinic-c", "hospital-a", "hospital-b")
ACTIONS = [
    *[Story.submit, Story.resubmit, Story.review] * 2,
    Story.lose,
    Story.submit_unsigned,
    Story.merge_by_hand,
    Story.unrelated,
    Story.change_policy,
    Story.restore,
    Story.suspend_or_activate,
]
MUST = (Story.resubmit, Story.lose, Story.review)  # one of them is the first thing that happens in each story


class Run(threading.Thread):
    """One reconcile, with a clone and a clock of its own."""

    def __init__(self, fed: Fed, clone: Repository) -> None:
        super().__init__()
        self.ctx = fed.context(repository=clone, clock=ManualClock(fed.clock.now()))
        self.fed = fed
        self.result: Reconciled | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.fed.reconcile(self.ctx)
        except BaseException as e:  # noqa: BLE001 handed to the test
            self.error = e


def play(seed: int, folder: Path) -> tuple[int, frozenset[str]]:
    """Play one story; how many versions came of it, and which actions there were that did something."""
    rng, must = random.Random(seed), MUST[seed // BATCHES % len(MUST)]
    reviewed = rng.random() < 0.2 or must is Story.review
    merge = {"mode": "review", "approvals": 1} if reviewed else {"mode": "auto"}
    happened = set[str]()

    def act(action: Callable[[Story], None]) -> None:
        before = len(story.log)
        action(story)
        happened.update([action.__name__] * (len(story.log) - before))

    sites = SITES[: 2 + seed % 2]
    people = ("lena", "leo", *sites)
    fed = GitFed(
        folder, rules={"trigger": {"quorum": rng.choice([1, 1, 2])}, "merge": merge}, people=people, sites=sites
    )
    story = Story(fed, rng)
    try:
        clones = [fed.new_clone("bot") for _ in range(3 if seed % 5 == 0 else 2)]
        for _ in range(2 if seed % 5 == 3 else 1):
            story.everybody_submits()
            if merge["mode"] == "review":
                for _ in sites:
                    act(Story.review)
            runs = [Run(fed, clone) for clone in clones]
            for run in runs:
                run.start()
            for action in (must, *rng.choices(ACTIONS, k=rng.randint(0, 1))):
                act(action)
            for run in runs:
                run.join()
                if run.error is not None and not (
                    isinstance(run.error, FedopsError) and run.error.cause == "temporary"
                ):
                    raise run.error
            story.note(f"{len(runs)} runs made {[v.version for r in runs if r.result for v in r.result.published]}")
        story.finish()
        check_all(fed, rerun=lambda: fed.reconcile().changed, damaged=story.damaged)
        return fed.version.version, frozenset(happened)
    except BaseException as e:
        e.add_note("\n".join([f"seed {seed}", *story.log]))
        raise
    finally:
        fed.close()


@pytest.fixture
def fast() -> Iterator[Path]:
    with fast_folder() as name:
        yield Path(name)


@pytest.mark.long
@pytest.mark.parametrize("batch", range(BATCHES))
def test_runs_at_the_same_time_on_real_git_give_one_version_of_each_number(batch: int, fast: Path) -> None:
    versions, happened = 0, set[str]()
    for seed in range(batch, SCHEDULES, BATCHES):
        folder = fast / str(seed)
        folder.mkdir()
        made, what = play(seed, folder)
        versions, happened = versions + made, happened | what
    assert versions >= 3, "stories in which nothing happens prove nothing"
    assert {action.__name__ for action in MUST} <= happened
