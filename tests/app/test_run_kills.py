"""A site's loop that is killed at every port call and at every change of a file, and then started again."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path

import pytest

from fedops.app.run import Ran
from fedops.app.work import Work
from fedops.core.ids import Digest, record_path
from tests.core.samples import version
from tests.fakes_store import FakeStore
from tests.site_loop_world import A, Code, Doom, Killed, doomed_context, doomed_files, loop
from tests.site_world import memory_world, moved


class Story:
    """One clone and its trainings over several runs, each of which may be killed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.world = memory_world(folder)
        self.work = Work(self.world.root(A))
        self.begun: list[int] = []  # versions of the trainings that were begun

    def run(self, at: int | None = None, *, again: bool = False) -> int:
        """Run once, killed at a point; returns the number of points that it came to. A later run is a minute later."""
        self._later()
        doom = Doom(at)
        code = Code(doom.point)
        code.begun = self.begun
        try:
            with doomed_files(doom):
                loop(self.world, code, ctx=doomed_context(self.world, doom), again=again)
        except Killed:
            assert at is not None
        return doom.count

    def go_on(self) -> Ran:
        """The run after the kills, which none disturbs; a minute later."""
        self._later()
        code = Code()
        code.begun = self.begun
        return loop(self.world, code)

    def _later(self) -> None:
        self.world.clock.at += dt.timedelta(minutes=1)

    def noted(self, step: str, number: int) -> int:
        return sum((line["step"], line["version"]) == (step, number) for line in self.work.noted())

    def handed_in(self, pull: int) -> dict[str, object]:
        """The record at the head of a pull request."""
        repository, head = self.world.repositories["lena"], self.world.forges["lena"].pull(pull).head
        repository.fetch()
        entry = next(e for e in repository.entries(head) if e.path == record_path(A))
        record: dict[str, object] = json.loads(repository.read(entry.blob, max_bytes=20_000))
        return record

    def check_one_update(self, number: int, pull: int) -> None:
        """Exactly one pull request, of the one training on a version, with its bytes in the store."""
        assert [p.number for p in self.world.forges["lena"].open_pulls()] == [pull]
        record, trained = self.handed_in(pull), self.work.trained(number)
        assert trained is not None
        assert (record["base_version"], record["sha256"], record["num_examples"]) == (number, trained.sha256, 150)
        artifact = self.world.store.manifest(f"sites/{A}", Digest(str(record["manifest"])))
        assert artifact.layer.sha256 == trained.sha256
        assert isinstance(self.world.store, FakeStore)
        uploads = [tag for tag in self.world.store._tags[f"sites/{A}"] if tag.startswith("m-")]
        assert len(uploads) == number + 1, "one upload for each version: the record is the one that was drafted"
        assert (self.noted("trained", number), self.noted("stored", number)) == (1, 1)
        assert self.noted("submitted", number) <= 1

    def next_version(self) -> None:
        self.world.merge(1)
        one = version(1, contributions=[self.world.contribution_of(A)], consumed={A: 0})
        self.world.publish(one, moved(1))


def points(folder: Path) -> int:
    return Story(folder).run()


def test_there_are_many_points_of_each_kind(tmp_path: Path) -> None:
    """Else the test below would prove little."""
    assert points(tmp_path / "count") > 60


@pytest.mark.parametrize("part", range(4))
def test_wherever_one_version_is_killed_it_is_trained_once_and_handed_in_once(part: int, tmp_path: Path) -> None:
    count = points(tmp_path / "count")
    for at in range(1 + part, count + 1, 4):
        story = Story(tmp_path / str(at))
        assert story.run(at) == at
        # A result that is written counts, though the kill came before its line in the journal.
        finished, begun = story.work.trained(0) is not None, len(story.begun)
        assert finished or not story.noted("trained", 0)
        story.go_on()
        assert len(story.begun) == begun + (0 if finished else 1), at
        story.check_one_update(0, 1)
        story.next_version()
        story.go_on()
        assert story.begun.count(1) == 1
        story.check_one_update(1, 2)


@pytest.mark.parametrize("point", [1, 2, 3])
def test_a_kill_inside_fit_repeats_that_fit(point: int, tmp_path: Path) -> None:
    """Before it has begun, with an update but no result, and just before it ends."""
    story = Story(tmp_path / "story")
    code = Code(Doom(point).point)
    code.begun = story.begun
    with pytest.raises(Killed):
        loop(story.world, code)
    story.go_on()
    assert story.begun == ([0] if point == 1 else [0, 0])
    story.check_one_update(0, 1)


def test_kill_after_kill_still_ends_well(tmp_path: Path) -> None:
    dice = random.Random(7)
    count = points(tmp_path / "count")
    for n in range(12):
        story = Story(tmp_path / str(n))
        for _ in range(4):
            story.run(dice.randint(1, count // 2))
        story.go_on()
        story.check_one_update(0, 1)


def rejected(folder: Path) -> Story:
    """The update on v0 was rejected."""
    story = Story(folder)
    story.run()
    lena = story.world.forges["lena"]
    lena.set_status(lena.pull(1).head, "failure", "fedops/verdict", "rejected: norm_exceeded")
    return story


def test_a_second_training_after_a_rejection_is_not_lost_either(tmp_path: Path) -> None:
    count = rejected(tmp_path / "count").run(again=True)
    handed: list[bool] = []
    for at in range(1, count + 1, 3):
        story = rejected(tmp_path / str(at))
        first = story.handed_in(1)["sha256"]
        story.run(at, again=True)
        second = story.work.trained(0)
        story.go_on()
        assert [p.number for p in story.world.forges["lena"].open_pulls()] == [1]
        if second is not None and second.sha256 != first:  # it was finished: handed in, and not trained again
            assert story.handed_in(1)["sha256"] == second.sha256, at
            assert len(story.begun) == 2, at
        handed.append(story.handed_in(1)["sha256"] != first)
    assert handed == sorted(handed), "from some point on, every kill leaves a finished training"
    assert handed[-1]


def test_nothing_half_written_bears_a_final_name(tmp_path: Path) -> None:
    """Models, updates, results and drafts are whole or absent after each kill."""
    count = points(tmp_path / "count")
    for at in range(1, count + 1, 6):
        story = Story(tmp_path / str(at))
        story.run(at)
        for path in (story.work.result(0), story.work.draft(0)):
            if path.exists():
                json.loads(path.read_bytes())
        for path in story.work.folder.glob("cache/sha256/*"):
            if len(path.name) == 64:
                assert story.world.ctx(A).models.digests(path)[0] == path.name
