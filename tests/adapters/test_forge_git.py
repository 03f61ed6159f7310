"""What is particular to the forge inside the origin: its chain, its races, its retries. See tests/contract/test_forge.py."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_repo import GitRepository
from fedops.core.errors import FedopsError, ForgeError
from fedops.core.facts import Marker, RefUpdate
from fedops.core.ids import CommitId, RepoPath, SiteId
from fedops.ports import Repository
from tests.fakes_repository import FakeOrigin
from tests.forge_worlds import (
    START,
    GitWorld,
    ManualClock,
    Meddled,
    MemoryGitWorld,
    World,
    files_of,
    forge,
    git_template,
    main_of,
    push_main,
    ref_of,
    roster,
    submission,
    worlds,
)
from tests.sshkeys import SshKey

FORGE = "refs/fedops/forge"
SIGNAL = Marker("signal", "train/hospital-a/v9")
FEDOPS = frozenset({"fedops"})


@pytest.fixture
def world(keys: Mapping[str, SshKey]) -> MemoryGitWorld:
    return MemoryGitWorld(keys)


@pytest.fixture(params=["git", "git in memory"])
def both(request: pytest.FixtureRequest, keys: Mapping[str, SshKey], tmp_path: Path) -> Iterator[World]:
    template = git_template(keys, tmp_path / "template") if request.param == "git" else tmp_path
    yield from worlds(request.param, keys, template, tmp_path)


def chain(repository: Repository) -> list[str]:
    """Messages of the forge's own commits, oldest first."""
    tip = ref_of(repository, FORGE)
    return [c.message for c in repository.commits(None, tip)][::-1] if tip is not None else []


def git_forge(world: World, who: str, hooks: list[Callable[[], object]], clock: ManualClock | None = None) -> GitForge:
    """A forge in whose pushes somebody else comes first."""
    repository = Meddled(world.repository(who), hooks)
    return GitForge(repository, clock=clock or ManualClock(), key=world.keys[who].private, jitter=lambda: 0.5)


def opened(world: World, who: str = "alice", content: str = "1") -> CommitId:
    """Submit a pull; its head."""
    head = submission(world, who, content)
    forge(world, who).submit_pull(head, f"submit/{who}", "t", "")
    return head


# ---------------------------------------------------------------- the chain


def test_each_change_is_one_readable_commit_of_the_chain(both: World) -> None:
    alice, lena = forge(both, "alice"), forge(both, "lena")
    one, two = submission(both, "alice", "1"), submission(both, "alice", "2")
    alice.submit_pull(one, "submit/hospital-a", "t", "")
    alice.submit_pull(two, "submit/hospital-a", "t", "")
    lena.review(1, two, "approved", "fine")
    lena.set_status(two, "success", "fedops/verdict", "ok")
    lena.upsert_comment(1, Marker("submission", "hospital-a"), "body")
    lena.merge(1, two, "merge(hospital-a): update on v8 (#1)")
    lena.ensure_issue(SIGNAL, "train on v9", "b", FEDOPS)
    lena.close_issue(2)
    third = submission(both, "bob")
    forge(both, "bob").submit_pull(third, "submit/hospital-b", "t", "")
    lena.close_pull(3)
    alice.beat(SiteId("hospital-a"), 9, "training", START)
    repository = both.repository("lena")
    assert chain(repository) == [
        f"pull 1: opened from submit/hospital-a at {one[:12]}",
        f"pull 1: moved to {two[:12]}",
        f"pull 1: approved at {two[:12]}",
        f"status of {two[:12]}: fedops/verdict success",
        "comment on 1: submission hospital-a",
        f"pull 1: merged as {main_of(repository)[:12]}",
        "issue 2: train on v9",
        "issue 2: closed",
        f"pull 3: opened from submit/hospital-b at {third[:12]}",
        "pull 3: closed",
    ]


def test_what_people_write_cannot_add_lines_to_the_log(world: MemoryGitWorld) -> None:
    head = submission(world, "alice")
    forge(world, "alice").submit_pull(head, "x\n\nFedops-Policy: \x1b[2J", "t", "")
    forge(world, "lena").ensure_issue(SIGNAL, "a\r\nb" + "c" * 200, "b", FEDOPS)
    assert chain(world.repository("lena")) == [
        f"pull 1: opened from x??Fedops-Policy: ?[2J at {head[:12]}",
        "issue 2: a??b" + "c" * 96,
    ]


def test_files_are_canonical_json_at_their_places(world: MemoryGitWorld) -> None:
    head = submission(world, "alice")
    forge(world, "alice").submit_pull(head, "submit/hospital-a", "update ✓", "body\n")
    lena = forge(world, "lena")
    lena.set_status(head, "pending", "fedops/verdict", "looking")
    lena.ensure_issue(SIGNAL, "t", "b", frozenset({"z", "a"}))
    lena.upsert_comment(2, SIGNAL, "c")
    repository = world.repository("lena")
    files = files_of(repository, ref_of(repository, FORGE) or head)
    assert files["pulls/open/1.json"].decode() == (
        '{\n  "schema": "fedops.pull/v1",\n  "number": 1,\n  "state": "open",\n  "branch": "submit/hospital-a",\n'
        f'  "title": "update ✓",\n  "body": "body\\n",\n  "head": "{head}",\n'
        '  "opened_at": "2026-03-02T09:30:00Z"\n}\n'
    )
    assert files["issues/open/2.json"].decode() == (
        '{\n  "schema": "fedops.issue/v1",\n  "number": 2,\n  "state": "open",\n'
        '  "marker": "<!-- fedops:signal train/hospital-a/v9 -->",\n  "title": "t",\n'
        '  "body": "<!-- fedops:signal train/hospital-a/v9 -->\\nb",\n  "labels": [\n    "a",\n    "z"\n  ],\n'
        '  "opened_at": "2026-03-02T09:30:00Z"\n}\n'
    )
    assert files[f"statuses/{head[:2]}/{head}.json"].decode() == (
        '{\n  "schema": "fedops.status/v1",\n  "statuses": {\n    "fedops/verdict": {\n'
        '      "state": "pending",\n      "text": "looking"\n    }\n  }\n}\n'
    )
    assert files["comments/0/2/000001.json"].decode() == (
        '{\n  "schema": "fedops.comment/v1",\n  "marker": "<!-- fedops:signal train/hospital-a/v9 -->",\n'
        '  "body": "<!-- fedops:signal train/hospital-a/v9 -->\\nc",\n  "at": "2026-03-02T09:30:00Z"\n}\n'
    )
    lena.close_issue(2)
    lena.close_pull(1)
    closed = files_of(repository, ref_of(repository, FORGE) or head)
    assert closed["pulls/closed/0/1.json"] == files["pulls/open/1.json"].replace(b'"open"', b'"closed"')
    assert closed["issues/closed/0/2.json"] == files["issues/open/2.json"].replace(b'"open"', b'"closed"')
    assert not [path for path in closed if "/open/" in path]


def test_a_merge_moves_main_and_the_forge_in_one_push(world: MemoryGitWorld) -> None:
    head = opened(world)
    pushes: list[set[str]] = []

    class Watched(Meddled):
        def push(self, updates: Sequence[RefUpdate]) -> bool:
            pushes.append({update.ref for update in updates})
            return super().push(updates)

    lena = GitForge(Watched(world.repository("lena"), []), clock=ManualClock())
    assert lena.merge(1, head, "m") == "merged"
    assert pushes == [{FORGE, "refs/heads/main", "refs/pull/1/head"}]


def test_origin_is_sound_after_everything(keys: Mapping[str, SshKey], tmp_path: Path) -> None:
    world = GitWorld(keys, git_template(keys, tmp_path / "template"), tmp_path)
    head = opened(world)
    lena = forge(world, "lena")
    lena.review(1, head, "approved", "")
    lena.merge(1, head, "m")
    forge(world, "alice").beat(SiteId("hospital-a"), 1, "idle", START)
    assert world.origin.fsck() == []
    fresh = world.new_clone("bob")
    assert [r.state for r in world.forge_of("bob", fresh).reviews(1)] == ["approved"]
    world.close()


# ---------------------------------------------------------------- races and retries


def test_a_lost_race_is_tried_again_with_growing_pauses_and_jitter(world: MemoryGitWorld) -> None:
    numbers = iter(range(100))
    bob = forge(world, "bob")
    steal = lambda: bob.ensure_issue(Marker("other", str(next(numbers))), "t", "b", FEDOPS)  # noqa: E731
    clock = ManualClock()
    issue = git_forge(world, "lena", [steal] * 4, clock).ensure_issue(SIGNAL, "t", "b", FEDOPS)
    assert issue.number == 5
    assert clock.slept == [0.05, 0.1, 0.2, 0.4]


def test_a_change_gives_up_after_a_minute_of_lost_races_and_has_changed_nothing(world: MemoryGitWorld) -> None:
    numbers = iter(range(1000))
    bob = forge(world, "bob")
    steal = lambda: bob.ensure_issue(Marker("other", str(next(numbers))), "t", "b", FEDOPS)  # noqa: E731
    clock = ManualClock()
    with pytest.raises(ForgeError, match=r"^issue train/hospital-a/v9: other writers were faster for 60 s") as caught:
        git_forge(world, "lena", [steal] * 1000, clock).ensure_issue(SIGNAL, "t", "b", FEDOPS)
    assert (caught.value.slug, caught.value.cause) == ("rate_limited", "temporary")
    assert "run the command again" in caught.value.hint
    assert 60 <= (clock.at - START).total_seconds() < 62
    assert SIGNAL.text not in {i.body.split("\n")[0] for i in bob.issues(frozenset())}


def test_a_clock_that_stands_still_does_not_make_it_wait_for_ever(world: MemoryGitWorld) -> None:
    class Frozen(ManualClock):
        def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)

    numbers = iter(range(1000))
    bob = forge(world, "bob")
    steal = lambda: bob.ensure_issue(Marker("other", str(next(numbers))), "t", "b", FEDOPS)  # noqa: E731
    clock = Frozen()
    with pytest.raises(ForgeError, match="other writers were faster"):
        git_forge(world, "lena", [steal] * 1000, clock).ensure_issue(SIGNAL, "t", "b", FEDOPS)
    assert 60 <= sum(clock.slept) < 62


def test_a_head_that_moves_between_reading_and_pushing_is_not_merged(both: World) -> None:
    seen = opened(both)
    moved = submission(both, "alice", "2")
    base = main_of(both.repository("bob"))
    move = lambda: forge(both, "alice").submit_pull(moved, "submit/alice", "t", "")  # noqa: E731
    assert git_forge(both, "lena", [move]).merge(1, seen, "m") == "head_moved"
    assert main_of(both.repository("bob")) == base
    assert forge(both, "bob").pull(1).state == "open"
    assert forge(both, "bob").pull(1).head == moved


def test_a_head_that_somebody_pushes_without_the_forge_is_not_merged_unseen(both: World) -> None:
    seen = opened(both)
    moved = submission(both, "alice", "2")
    base = main_of(both.repository("bob"))
    push = lambda: both.repository("alice").push([RefUpdate("refs/pull/1/head", seen, moved)])  # noqa: E731
    assert git_forge(both, "lena", [push]).merge(1, seen, "m") == "head_moved"
    assert main_of(both.repository("bob")) == base


def test_who_is_beaten_by_another_merger_says_already_merged(both: World) -> None:
    head = opened(both)
    win = lambda: forge(both, "bob").merge(1, head, "by bob")  # noqa: E731
    assert git_forge(both, "lena", [win]).merge(1, head, "by lena") == "already_merged"
    repository = both.repository("lena")
    assert repository.commit(main_of(repository)).message == "by bob"


def test_a_pull_that_is_closed_in_between_is_not_merged(world: MemoryGitWorld) -> None:
    head = opened(world)
    base = main_of(world.repository("bob"))
    close = lambda: forge(world, "bob").close_pull(1)  # noqa: E731
    assert git_forge(world, "lena", [close]).merge(1, head, "m") == "head_moved"
    assert main_of(world.repository("bob")) == base


def test_who_loses_the_race_to_the_same_change_changes_nothing_more(world: MemoryGitWorld) -> None:
    opened(world)
    marker = Marker("submission", "hospital-a")
    win = lambda: forge(world, "bob").upsert_comment(1, marker, "body")  # noqa: E731
    assert git_forge(world, "lena", [win]).upsert_comment(1, marker, "body") is False
    assert len(forge(world, "lena").comments(1)) == 1


def test_a_pull_submitted_in_between_gets_its_own_number(world: MemoryGitWorld) -> None:
    head, other = submission(world, "alice"), submission(world, "bob")
    first = lambda: forge(world, "bob").submit_pull(other, "submit/hospital-b", "t", "")  # noqa: E731
    assert git_forge(world, "alice", [first]).submit_pull(head, "submit/hospital-a", "t", "").number == 2
    assert ref_of(world.repository("lena"), "refs/pull/1/head") == other


def test_a_heartbeat_that_loses_the_race_is_written_again(world: MemoryGitWorld) -> None:
    site = SiteId("hospital-a")
    other = lambda: forge(world, "bob").beat(site, 1, "by another machine", START)  # noqa: E731
    git_forge(world, "alice", [other]).beat(site, 2, "training", START)
    assert forge(world, "lena").beats() == {site: (2, "training", START)}


@pytest.mark.parametrize(("kind", "people", "rounds"), [("git", 3, 3), ("git in memory", 8, 12)])
def test_under_many_writers_main_and_the_forge_agree(
    keys: Mapping[str, SshKey], tmp_path: Path, kind: str, people: int, rounds: int
) -> None:
    template = git_template(keys, tmp_path / "template") if kind == "git" else tmp_path
    for world in worlds(kind, keys, template, tmp_path):
        base = main_of(world.repository("lena"))

        def work(i: int, world: World = world) -> None:
            clone = world.new_clone("alice")
            mine = world.forge_of("alice", clone)
            for n in range(rounds):
                path = RepoPath(f"sites/site-{i}/submission.json")
                head = clone.write_commit((main_of(clone),), {path: b"%d" % n}, "submit", at=START)
                pull = mine.submit_pull(head, f"submit/{i}", str(n), "")
                mine.ensure_issue(Marker("signal", f"{n}"), "t", "b", FEDOPS)
                if (i + n) % 3 == 0:
                    assert mine.merge(pull.number, head, f"merge {pull.number}") == "merged"
                elif (i + n) % 3 == 1:
                    mine.close_pull(pull.number)

        with ThreadPoolExecutor(people) as pool:
            list(pool.map(work, range(people)))
        lena, repository = forge(world, "lena"), world.repository("lena")
        assert len(lena.issues(FEDOPS)) == rounds
        numbers = sorted(set(range(1, len(chain(repository)) + 1)) - {i.number for i in lena.issues(FEDOPS)})
        merges = {c.message: c.parents[1] for c in repository.commits(base, main_of(repository))}
        merged, others = {}, 0
        for number in numbers:
            try:
                pull = lena.pull(number)
            except ForgeError:
                break  # the first number that is not taken
            others += pull.state != "merged"
            if pull.state == "merged":
                merged[f"merge {number}"] = pull.head
        assert merges == merged
        assert len(merges) > 1
        assert others > 0


class Waiting(ManualClock):
    """Sleeps as long as it is told: only then do writers give way to each other."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.mark.long
def test_fifty_writers_at_once_on_real_git_all_get_their_turn(
    keys: Mapping[str, SshKey], template: Path, tmp_path: Path
) -> None:
    """Each in a clone of its own. About 20 s of git."""
    with closing(GitWorld(keys, template, tmp_path)) as world:
        clones = [world.new_clone("bob") for _ in range(50)]
        start = threading.Barrier(len(clones))

        def write(number: int) -> int:
            mine = GitForge(clones[number], clock=Waiting(), key=keys["bob"].private)
            start.wait()
            return mine.ensure_issue(Marker("signal", f"x/{number}"), f"title {number}", "b", FEDOPS).number

        with ThreadPoolExecutor(len(clones)) as pool:
            numbers = list(pool.map(write, range(len(clones))))
        assert sorted(numbers) == list(range(1, 51))
        issues = forge(world, "lena").issues(FEDOPS)
        assert {i.number: i.title for i in issues} == {n: f"title {writer}" for writer, n in enumerate(numbers)}
        assert len(chain(world.repository("lena"))) == 50, "one commit for each, on top of the one before"
        assert world.origin._git.check("fsck", "--strict", "--no-dangling") == b""


# ---------------------------------------------------------------- merging


def test_closing_a_pull_that_was_merged_by_hand_says_merged(world: MemoryGitWorld) -> None:
    head = opened(world)
    repository = world.repository("lena")
    main = main_of(repository)
    assert repository.push([RefUpdate("refs/heads/main", main, head)])
    forge(world, "lena").close_pull(1)
    assert forge(world, "bob").pull(1).state == "merged"
    assert "pulls/closed/0/1.json" in files_of(repository, ref_of(repository, FORGE) or head)


@pytest.mark.parametrize("days", [-400, 0, 400])
def test_a_pull_that_was_merged_by_hand_is_not_open_whatever_clock_it_was_opened_by(
    world: MemoryGitWorld, days: int
) -> None:
    repository = world.repository("lena")
    head = submission(world, "alice", "1")
    clock = ManualClock(START + dt.timedelta(days=days))
    git_forge(world, "alice", [], clock).submit_pull(head, "submit/alice", "t", "")
    main = main_of(repository)
    merge = repository.write_commit([main, head], {RepoPath("merged"): b"1"}, "Merge by hand", at=START)
    assert repository.push([RefUpdate("refs/heads/main", main, merge)])
    push_main(repository, {RepoPath("log"): b"later"}, at=START)
    assert list(forge(world, "bob").open_pulls()) == []


def test_listing_walks_no_line(world: MemoryGitWorld) -> None:
    opened(world)
    noted = Noted(world.repository("lena"))
    assert len(GitForge(noted, clock=ManualClock()).open_pulls()) == 1
    assert not {"commits", "touched", "changes"} & set(noted.asked)


def test_a_signature_is_checked_once_as_long_as_the_roster_stays(world: MemoryGitWorld) -> None:
    opened(world)
    checked: list[CommitId] = []

    class Counted(Meddled):
        def signer(self, commit: CommitId, keys: Sequence[str]) -> str | None:
            checked.append(commit)
            found: str | None = super().__getattr__("signer")(commit, keys)
            return found

    lena = GitForge(Counted(world.repository("lena"), []), clock=ManualClock())
    for n in range(3):
        assert lena.open_pulls()[0].author.login == "alice-a"
        push_main(world.repository("bob"), {RepoPath("docs/x"): b"%d" % n})
    assert len(checked) == 1


def test_a_file_in_the_place_of_a_folder_is_a_conflict(world: MemoryGitWorld) -> None:
    repository = world.repository("lena")
    main = main_of(repository)
    heads = [
        repository.write_commit((main,), {RepoPath("docs/a"): b"x"}, "folder", at=START),
        repository.write_commit((main,), {RepoPath("notes"): b"x"}, "file", at=START),
    ]
    push_main(repository, {RepoPath("docs"): b"a file", RepoPath("notes/a"): b"in a folder"})
    lena = forge(world, "lena")
    for number, head in enumerate(heads, 1):
        lena.submit_pull(head, f"b{number}", "t", "")
        assert lena.merge(number, head, "m") == "conflict"


def test_a_folder_next_to_a_file_is_none(world: MemoryGitWorld) -> None:
    repository = world.repository("lena")
    main = main_of(repository)
    head = repository.write_commit((main,), {RepoPath("docs/a/b"): b"x"}, "folder", at=START)
    push_main(repository, {RepoPath("docs/ab"): b"a file", RepoPath("docs/c"): b"y"})
    lena = forge(world, "lena")
    lena.submit_pull(head, "b", "t", "")
    assert lena.merge(1, head, "m") == "merged"


@pytest.mark.parametrize("mode", ["100755", "120000"])
def test_what_is_no_plain_file_is_left_to_people(world: MemoryGitWorld, mode: str) -> None:
    repository = world.origin.clone()
    main = main_of(repository)
    files = {e.path: (e.mode, repository.read(e.blob, max_bytes=2**20)) for e in repository.entries(main)}
    head = repository.plant((main,), files | {"run.sh": (mode, b"x")}, at=START)
    lena = world.forge_of("lena", repository)
    lena.submit_pull(head, "b", "t", "")
    before = world.state()
    with pytest.raises(ForgeError, match=rf"run\.sh: mode {mode} -> 100644") as caught:
        lena.merge(1, head, "m")
    assert caught.value.cause == "permanent"
    assert world.state() == before


def test_without_main_nothing_is_merged(world: MemoryGitWorld) -> None:
    head = opened(world)
    repository = world.repository("lena")
    assert repository.push([RefUpdate("refs/heads/main", main_of(repository), None)])
    with pytest.raises(ForgeError, match="refs/heads/main: no such branch"):
        forge(world, "lena").merge(1, head, "m")
    assert [p.number for p in forge(world, "lena").open_pulls()] == [1]


@pytest.mark.parametrize("kind", ["git", "git in memory"])
def test_the_main_branch_may_have_another_name(keys: Mapping[str, SshKey], kind: str, tmp_path: Path) -> None:
    repository: Repository = FakeOrigin(main="trunk").clone()
    if kind == "git":
        GitRepository.init(tmp_path / "o.git", "trunk", bare=True).close()
        repository = GitRepository.clone(str(tmp_path / "o.git"), tmp_path / "c", main="trunk")
    files: dict[RepoPath, bytes | None] = {RepoPath("policies/sites.yaml"): roster(keys)}
    base = repository.write_commit((), files, "start", at=START)
    assert repository.push([RefUpdate("refs/heads/trunk", None, base)])
    head = repository.write_commit((base,), {RepoPath("b"): b"2"}, "more", at=START, key=keys["alice"].private)
    someone = GitForge(repository, clock=ManualClock(), main="trunk")
    assert someone.submit_pull(head, "b", "t", "").author.login == "alice-a"
    assert someone.merge(1, head, "m") == "merged"
    assert files_of(repository, repository.resolve("trunk") or base).keys() == {"b", "policies/sites.yaml"}
    if isinstance(repository, GitRepository):
        repository.close()


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    "change",
    [
        lambda forge, head: forge.submit_pull(head, "", "t", ""),
        lambda forge, head: forge.submit_pull(head, "b" * 257, "t", ""),
        lambda forge, head: forge.submit_pull(head, "b", "", ""),
        lambda forge, head: forge.submit_pull(head, "b", "t", "é" * 32_769),
        lambda forge, head: forge.submit_pull("main", "b", "t", ""),
        lambda forge, head: forge.ensure_issue(SIGNAL, "t", "b", frozenset({""})),
        lambda forge, head: forge.ensure_issue(SIGNAL, "t", "b", frozenset(str(i) for i in range(101))),
        lambda forge, head: forge.ensure_issue(Marker("x", "y" * 300), "t", "b", FEDOPS),
        lambda forge, head: forge.ensure_issue(SIGNAL, "t", "\ud800", FEDOPS),
        lambda forge, head: forge.upsert_comment(1, SIGNAL, "x" * 65_536),
        lambda forge, head: forge.review(1, head, "approved", "x" * 65_537),
        lambda forge, head: forge.set_status(head, "success", "c", "x" * 1025),
        lambda forge, head: forge.beat(SiteId("hospital-a"), 1, "x" * 1025, START),
        lambda forge, head: forge.beat(SiteId("../main"), 1, "x", START),
    ],
)
def test_what_could_not_be_read_again_is_not_written(
    world: MemoryGitWorld, change: Callable[[GitForge, CommitId], object]
) -> None:
    head = opened(world)
    lena = forge(world, "lena")
    assert isinstance(lena, GitForge)
    before = world.state()
    with pytest.raises(FedopsError):
        change(lena, head)
    assert world.state() == before


def test_the_largest_comment_survives(world: MemoryGitWorld) -> None:
    opened(world)
    lena = forge(world, "lena")
    marker = Marker("n", "1")
    body = "\x00" * (65_536 - len(marker.text) - 1)
    assert lena.upsert_comment(1, marker, body)
    assert list(lena.comments(1)) == [f"{marker.text}\n{body}"]


def test_heartbeats_leave_no_history_and_no_trace_in_the_chain(world: MemoryGitWorld) -> None:
    alice = forge(world, "alice")
    for version in range(3):
        alice.beat(SiteId("hospital-a"), version, "training", START + dt.timedelta(microseconds=version))
    repository = world.repository("alice")
    tip = ref_of(repository, "refs/fedops/heartbeat/hospital-a")
    assert tip is not None
    assert repository.commit(tip).parents == ()
    assert chain(repository) == []
    assert alice.beats()[SiteId("hospital-a")] == (2, "training", START + dt.timedelta(microseconds=2))


def test_items_by_the_hundred_are_filed_and_found(world: MemoryGitWorld) -> None:
    lena = forge(world, "lena")
    for n in range(1, 103):
        lena.ensure_issue(Marker("m", str(n)), str(n), "", FEDOPS)
    for n in range(1, 103):
        lena.close_issue(n)
    assert [i.number for i in lena.issues(FEDOPS, open=False)] == list(range(1, 103))
    assert lena.ensure_issue(Marker("m", "101"), "t", "", FEDOPS).number == 101
    assert lena.ensure_issue(Marker("m", "103"), "t", "", FEDOPS).number == 103
    repository = world.repository("lena")
    paths = files_of(repository, ref_of(repository, FORGE) or CommitId(""))
    assert {"issues/closed/0/99.json", "issues/closed/1/100.json", "issues/open/103.json"} <= paths.keys()


def test_two_hundred_open_pulls_are_listed_in_well_under_a_second(world: MemoryGitWorld) -> None:
    alice = forge(world, "alice")
    for n in range(200):
        alice.submit_pull(submission(world, "alice", str(n)), f"submit/{n}", "t", "")
    fresh = world.forge_of("bob", world.new_clone("bob"))
    start = time.perf_counter()
    pulls = fresh.open_pulls()
    assert time.perf_counter() - start < 0.5
    assert [p.number for p in pulls] == list(range(1, 201))
    assert all(re.fullmatch(r"alice-a", p.author.login) for p in pulls)


class Noted(Meddled):
    """A repository that notes what it is asked."""

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository, [])
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return super().__getattr__(name)


def test_statuses_of_many_commits_are_read_by_one_listing(world: MemoryGitWorld) -> None:
    repository = world.repository("lena")
    lena = forge(world, "lena")
    commits = [repository.write_commit([], {RepoPath("n"): b"%d" % n}, "m", at=START) for n in range(60)]
    for commit in commits[:55]:
        lena.set_status(commit, "success", "c", commit)
    noted = Noted(world.repository("bob"))
    found = GitForge(noted, clock=ManualClock()).statuses(commits, "c")
    assert found == {commit: ("success", commit) for commit in commits[:55]}
    assert noted.asked.count("entries") <= 1 + 5  # one more for each folder that is not there
    assert GitForge(noted, clock=ManualClock()).statuses(commits[53:], "c") == dict(list(found.items())[53:])


def test_issues_that_were_closed_long_ago_are_not_read(world: MemoryGitWorld) -> None:
    clock = ManualClock()
    lena = git_forge(world, "lena", [], clock)
    for number in range(1, 204):
        if number == 201:
            clock.sleep(10 * 86_400)
        lena.close_issue(lena.ensure_issue(Marker("x", str(number)), "t", "b", FEDOPS).number)
    noted = Noted(world.repository("bob"))
    since = clock.now() - dt.timedelta(days=1)
    recent = GitForge(noted, clock=clock).issues(FEDOPS, open=False, since=since)
    # By whole hundreds, down to one that is all older.
    assert [i.number for i in recent] == list(range(100, 204))
    assert noted.asked.count("read") == len(recent)
    assert len(GitForge(noted, clock=clock).issues(FEDOPS, open=False)) == 203
