from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.app.history import log, show
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import RefUpdate
from tests.core.samples import version
from tests.site_world import World, git_world, memory_world, moved

A = "hospital-a"


@pytest.fixture(params=["memory", "git"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = memory_world(tmp_path) if request.param == "memory" else git_world(tmp_path)
    yield world
    world.close()


def test_versions_come_newest_first_with_the_commits_that_made_them(world: World) -> None:
    v1 = world.publish(version(1), moved(1))
    world.change({"note": b"between"})
    world.clock.sleep(3600)
    v2 = world.publish(version(2), moved(2))
    world.repositories[A].fetch()
    made = log(world.repositories[A], limit=None)
    assert [m.record.version for m in made] == [2, 1, 0]
    assert [m.commit for m in made[:2]] == [v2, v1]
    assert (made[0].at - made[1].at).total_seconds() == 3600
    assert all(m.tagged and m.current == 2 for m in made)
    assert [m.record.version for m in log(world.repositories[A], limit=2)] == [2, 1]


def test_a_version_without_its_tag_is_found_and_told_apart(world: World) -> None:
    world.publish(version(1), moved(1), tag=False)
    world.publish(version(2), moved(2))
    world.repositories[A].fetch()
    assert [(m.record.version, m.tagged) for m in log(world.repositories[A], limit=None)] == [
        (2, True),
        (1, False),
        (0, True),
    ]


def test_one_version_is_shown_by_number_or_the_current_one(world: World) -> None:
    v1 = world.publish(version(1), moved(1))
    world.repositories[A].fetch()
    assert (show(world.repositories[A], number=None).commit, show(world.repositories[A], number=1).commit) == (v1, v1)
    assert show(world.repositories[A], number=0).record.kind == "init"
    with pytest.raises(ConfigError, match="v7: no such version"):
        show(world.repositories[A], number=7)


def test_a_version_whose_commit_is_not_on_main_is_a_broken_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = memory_world(tmp_path)
    world.publish(version(2), moved(2))  # nothing ever was v1
    world.repositories[A].fetch()
    with pytest.raises(GitError) as e:
        log(world.repositories[A], limit=None)
    assert e.value.slug == "lineage_broken"
    assert [m.record.version for m in log(world.repositories[A], limit=1)] == [2]


def test_a_moved_tag_does_not_hide_the_commit_that_made_the_version(tmp_path: Path) -> None:
    world = memory_world(tmp_path)
    v1 = world.publish(version(1), moved(1))
    world.change({"note": b"later"})
    repository = world.repositories["lena"]
    later, old = repository.resolve("main"), repository.versions()[-1]
    assert later is not None
    tag = repository.write_tag("global@v1.0.0", later, "global: v1")
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", old.object, tag)])
    world.repositories[A].fetch()
    made = show(world.repositories[A], number=1)
    assert (made.commit, made.tagged) == (v1, False)


def test_a_first_version_in_the_repositorys_first_commit_needs_no_tag(tmp_path: Path) -> None:
    world = memory_world(tmp_path)
    repository = world.repositories["lena"]
    tag = repository.versions()[0]
    assert repository.push([RefUpdate("refs/tags/global@v0.0.0", tag.object, None)])
    world.repositories[A].fetch()
    made = show(world.repositories[A], number=0)
    assert (made.commit, made.tagged) == (tag.commit, False)
