"""A disk that is full, a store that is slow or away, a forge that always loses: the next run ends what this one began."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.forge_git import GitForge
from fedops.adapters.store_layout import LayoutStore
from fedops.core.errors import FedopsError, GitError, StoreError
from fedops.core.facts import Marker, RefUpdate
from fedops.core.ids import Digest, RepoPath
from fedops.ports import Store
from tests.forge_worlds import ManualClock, MemoryGitWorld, make_keys, push_main
from tests.scenario.fed import Fed, MemoryFed, fast_folder, watched
from tests.scenario.oracle import check_all

A, B, C, D = "hospital-a", "hospital-b", "clinic-c", "bank-d"


class DiskFed(MemoryFed):
    """git and forge in memory, the store in a folder."""

    def _make_store(self) -> Store:
        self.disk = self.folder / "store"
        self.disk.mkdir()
        return LayoutStore(self.disk)

    def lose(self, repository: str, digest: Digest, *, damage: bool) -> bool:
        raise NotImplementedError

    def state(self) -> object:
        files = {str(p.relative_to(self.disk)): p.read_bytes() for p in self.disk.rglob("*") if p.is_file()}
        hub = self.hub
        return dict(self.origin.refs), repr((hub.pulls, hub.issues, hub.statuses, hub.comments)), files


def rerun(fed: Fed) -> bool:
    return fed.reconcile().changed


# ---------------------------------------------------------------- the disk


class Disk:
    """Writes until its room is used up; then every write fails, as long as it is full.

    Args:
        room: how many changes of files still work; None: all.
        code: the system's error.
    """

    def __init__(self, room: int | None, code: int) -> None:
        self.changes = 0
        self._room, self._code = room, code

    def point(self) -> None:
        self.changes += 1
        if self._room is not None and self.changes > self._room:
            raise OSError(self._code, os.strerror(self._code))


@contextmanager
def disk(room: int | None, code: int = errno.ENOSPC) -> Iterator[Disk]:
    """Files are changed through a disk with so much room."""
    here = Disk(room, code)

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            here.point()
            return real(*args, **more)

        return call

    # NOTE: not what removes files: that works on a full disk, and fedops cleans up by it.
    changes = ((os, "fsync"), (Path, "replace"), (Path, "hardlink_to"), (Path, "write_bytes"), (shutil, "copyfile"))
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in changes:
            patch.setattr(owner, name, guarded(getattr(owner, name)))
        yield here


def due(folder: Path) -> DiskFed:
    """A federation in which a run merges two submissions and makes a version."""
    folder.mkdir()
    fed = DiskFed(folder, rules={"trigger": {"quorum": 2}})
    fed.submit(A, 1.0)
    fed.submit(B, 2.0)
    return fed


def test_a_disk_that_is_full_at_any_moment_of_a_run_leaves_nothing_half_made() -> None:
    with fast_folder() as name:
        folder = Path(name)
        with_room = due(folder / "whole")
        with disk(None) as whole:
            assert [v.version for v in with_room.reconcile().published] == [1]
        failed: list[FedopsError] = []
        for room in range(whole.changes):
            fed = due(folder / str(room))
            with disk(room):
                try:
                    fed.reconcile()
                except FedopsError as e:
                    failed.append(e)
            assert list(fed.disk.rglob("*.part-*")) == []
            fed.reconcile()
            assert fed.version.version == 1
            check_all(fed, rerun=partial(rerun, fed))
        assert {e.cause for e in failed} == {"temporary"}
        assert all("No space left" in e.message for e in failed)
        assert len(failed) > whole.changes / 2


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EIO])
def test_a_store_that_cannot_be_written_is_told_and_later_the_run_goes_on(tmp_path: Path, code: int) -> None:
    fed = due(tmp_path / "fed")
    with disk(0, code), pytest.raises(StoreError, match=os.strerror(code)):
        fed.reconcile()
    assert fed.version.version == 0
    assert [v.version for v in fed.reconcile().published] == [1]
    check_all(fed, rerun=partial(rerun, fed))


def test_a_store_that_is_away_is_not_taken_for_an_empty_one_and_what_waits_is_done_later(tmp_path: Path) -> None:
    fed = due(tmp_path / "fed")
    fed.disk.rename(tmp_path / "away")
    with pytest.raises(StoreError):
        fed.reconcile()
    assert not fed.disk.exists()
    told = [fed.forge("lena").status(p.head, "fedops/verdict") for p in fed.forge("lena").open_pulls()]
    assert len(told) == 2
    assert {state for state, _ in filter(None, told)} <= {"pending"}
    assert fed.version.version == 0
    (tmp_path / "away").rename(fed.disk)
    assert [v.version for v in fed.reconcile().published] == [1]
    check_all(fed, rerun=partial(rerun, fed))


def test_a_store_of_one_site_that_is_away_stops_no_other_site(tmp_path: Path) -> None:
    """The site's own store answers every call with an error; it is tried again by every run."""
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    fed.site_stores[C] = "ocidir:far-away"
    fed.push_policies()

    class Away:
        def __getattr__(self, name: str) -> Any:
            def call(*_: Any, **__: Any) -> Any:
                raise StoreError("far-away: no route", cause="temporary")

            return call

    good = fed.store
    pulls = [fed.submit(site, 1.0 + i) for i, site in enumerate((C, A, B))]
    ctx = fed.context()
    stores: dict[str, Any] = {"ocidir:far-away": Away()}
    object.__setattr__(ctx, "stores", lambda url: stores.get(url, good))
    done = fed.reconcile(ctx)
    assert [v.version for v in done.published] == [1]
    assert {c.site for c in fed.version.contributions} == {A, B}
    state, text = fed.forge("lena").status(pulls[0].head, "fedops/verdict") or ("", "")
    assert (state, "no route" in text) == ("pending", True)
    fed.reconcile()
    assert fed.forge("lena").pull(pulls[0].number).state == "merged"
    check_all(fed, rerun=partial(rerun, fed))


def test_a_store_that_takes_an_hour_for_every_answer_makes_the_same_version(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 3, "max_wait_hours": 1000.0}})
    for number, site in enumerate((A, B, C)):
        fed.submit(site, 1.0 + number)

    def slow(call: str) -> None:
        if call.startswith("store."):
            fed.clock.sleep(3600)

    for _ in range(4):  # a pass ends in time, and the next run goes on
        fed.reconcile(watched(fed, slow))
    assert fed.version.version == 1
    assert len(fed.version.contributions) == 3
    check_all(fed, rerun=partial(rerun, fed))


# ---------------------------------------------------------------- the forge


def test_twenty_lost_races_in_a_row_are_put_up_with(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    fed.submit(A, 1.0)
    fed.submit(B, 2.0)
    plain = fed.new_clone("bot")
    lost: list[object] = []

    class Unlucky:
        """Somebody else pushes to main before the version does, twenty times."""

        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def push(self, updates: list[RefUpdate]) -> bool:
            if any(u.ref == "refs/tags/global@v1.0.0" for u in updates) and len(lost) < 20:
                lost.append(fed.commit({"docs/log.md": b"%d\n" % len(lost)}))
            return plain.push(updates)

    ctx = fed.context(repository=Unlucky(), forge=fed.forge("bot", plain), clock=ManualClock(fed.clock.now()))  # type: ignore[arg-type]
    done = fed.reconcile(ctx)
    assert (len(lost), [v.version for v in done.published]) == (20, [1])
    check_all(fed, rerun=partial(rerun, fed))


def test_twenty_changes_of_the_forge_in_a_row_are_put_up_with(tmp_path: Path) -> None:
    world = MemoryGitWorld(make_keys(tmp_path))
    other = GitForge(world.repository("bob"), clock=ManualClock(), key=world.keys["bob"].private, jitter=lambda: 0.5)
    plain, lost = world.repository("alice"), list[object]()

    class Unlucky:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def push(self, updates: list[RefUpdate]) -> bool:
            if len(lost) < 20:
                lost.append(other.ensure_issue(Marker("signal", f"x/{len(lost)}"), "t", "b", frozenset()))
            return plain.push(updates)

    forge = GitForge(Unlucky(), clock=ManualClock(), key=world.keys["alice"].private, jitter=lambda: 0.5)  # type: ignore[arg-type]
    issue = forge.ensure_issue(Marker("signal", "mine"), "t", "b", frozenset())
    assert (len(lost), issue.number) == (20, 21)


def test_fifty_writers_at_once_all_get_their_turn(tmp_path: Path) -> None:
    world = MemoryGitWorld(make_keys(tmp_path))
    start, numbers, errors = threading.Barrier(50), [], []

    def write(number: int) -> None:
        clone = world.new_clone("bob")
        forge = GitForge(clone, clock=ManualClock(), key=world.keys["bob"].private)
        try:
            start.wait()
            if number % 5 == 0:
                push_main(clone, {RepoPath(f"docs/{number}"): b"x"})
            numbers.append(forge.ensure_issue(Marker("signal", f"x/{number}"), "t", "b", frozenset()).number)
        except BaseException as e:  # noqa: BLE001 handed to the test
            errors.append(e)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(numbers) == list(range(1, 51))


def test_two_hundred_open_pulls_of_which_four_are_good_make_a_version(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 4}})
    broken = [
        fed.open_pull(
            (A, B, C, D)[n % 4],
            {RepoPath(f"sites/{(A, B, C, D)[n % 4]}/submission.json"): b"{%d" % n},
            branch=f"attack/{n}",
            signed=n % 3 > 0,
        )
        for n in range(196)
    ]
    good = [fed.submit(site, 1.0 + n) for n, site in enumerate((A, B, C, D))]
    runs = 0
    while fed.version.version == 0:
        runs += 1
        with suppress(FedopsError):
            fed.reconcile()
        assert runs <= 5
    forge = fed.forge("lena")
    assert {forge.pull(p.number).state for p in good} == {"merged"}
    while fed.reconcile().changed:
        runs += 1
        assert runs <= 20
    assert {(forge.status(p.head, "fedops/verdict") or ("none", ""))[0] for p in broken} == {"failure"}
    check_all(fed, rerun=partial(rerun, fed))


def test_a_machine_that_cannot_read_git_is_no_fault_of_the_pull_request(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})
    pull = fed.submit(A, 1.0)
    plain = fed.new_clone("bot")

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def changes(self, *_: Any) -> Any:
            raise GitError("git diff-tree: exit code -9")

    ctx = fed.context(repository=Broken(), forge=fed.forge("bot", plain))
    fed.reconcile(ctx)
    state, _ = fed.forge("lena").status(pull.head, "fedops/verdict") or ("none", "")
    assert state == "pending"
    assert [v.version for v in fed.reconcile().published] == [1]
