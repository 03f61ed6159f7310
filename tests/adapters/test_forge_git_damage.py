"""Anybody who may push can edit refs/fedops/forge by hand: what is damaged is named, and stands in nobody's way."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fedops.adapters import forge_git_chain
from fedops.adapters.forge_git import GitForge
from fedops.core.errors import FedopsError, ForgeError
from fedops.core.facts import Marker, RefUpdate
from fedops.core.ids import CommitId, RepoPath, SiteId
from fedops.ports import Forge
from tests.fakes_repository import FakeRepository
from tests.forge_worlds import START, MemoryGitWorld, files_of, forge, main_of, push_main, ref_of, submission
from tests.sshkeys import SshKey

FORGE = "refs/fedops/forge"
SIGNAL = Marker("signal", "train/hospital-a/v9")
VERDICT = Marker("submission", "hospital-a")
FEDOPS = frozenset({"fedops"})
PULL = "pulls/open/1.json"


@pytest.fixture
def world(keys: Mapping[str, SshKey]) -> MemoryGitWorld:
    """Two open pulls, an issue and a comment."""
    world = MemoryGitWorld(keys)
    for who, site in [("alice", "hospital-a"), ("bob", "hospital-b")]:
        forge(world, who).submit_pull(submission(world, who), f"submit/{site}", "t", "")
    forge(world, "lena").ensure_issue(SIGNAL, "t", "b", FEDOPS)
    forge(world, "lena").upsert_comment(1, VERDICT, "verdict")
    return world


def tamper(world: MemoryGitWorld, files: Mapping[str, bytes | None], ref: str = FORGE) -> None:
    """Change files of the forge as somebody with an editor would."""
    repository = world.repository("bob")
    tip = ref_of(repository, ref)
    paths = {RepoPath(path): data for path, data in files.items()}
    commit = repository.write_commit((tip,) if tip else (), paths, "by hand", at=START)
    assert repository.push([RefUpdate(ref, tip, commit)])


def plant(world: MemoryGitWorld, path: str, mode: str, data: bytes) -> None:
    """Change a file of the forge to one of another mode."""
    repository = world.repository("bob")
    assert isinstance(repository, FakeRepository)
    tip = ref_of(repository, FORGE)
    assert tip is not None
    files: dict[str, tuple[str, bytes]] = {
        e.path: (e.mode, repository.read(e.blob, max_bytes=2**20)) for e in repository.entries(tip)
    }
    commit = repository.plant((tip,), files | {path: (mode, data)}, at=START)
    assert repository.push([RefUpdate(FORGE, tip, commit)])


def stored(world: MemoryGitWorld, path: str) -> dict[str, Any]:
    """A JSON file of the forge."""
    repository = world.repository("bob")
    tip = ref_of(repository, FORGE)
    assert tip is not None
    document: dict[str, Any] = json.loads(files_of(repository, tip)[path])
    return document


def edited(world: MemoryGitWorld, path: str, **fields: object) -> bytes:
    return json.dumps(stored(world, path) | fields).encode()


BAD_BYTES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b"<<<<<<< HEAD\n{}\n=======\n",
    b"[" * 100_000,
    b'{"number": 1, "number": 2}',
    b'{"number": NaN}',
    b'{"number": ' + b"9" * 5000 + b"}",
    b"x" * 1_048_577,
]
BAD_FIELDS: list[dict[str, object]] = [
    {"schema": "fedops.pull/v2"},
    {"number": "1"},
    {"number": 2},
    {"number": 1.0},
    {"number": True},
    {"state": "merged"},
    {"state": "opened"},
    {"head": "main"},
    {"head": "A" * 40},
    {"branch": 7},
    {"branch": ""},
    {"title": "x" * 257},
    {"title": None},
    {"body": "é" * 32_769},
    {"body": "\ud800"},
    {"body": ["x"]},
    {"opened_at": "yesterday"},
    {"opened_at": "2026-03-02T09:30:00"},
    {"opened_at": "2026-03-02T09:30:00+14:00"},
    {"opened_at": "0001-01-01T00:00:00Z"},
    {"opened_at": "9999-12-31T23:59:59Z"},
    {"opened_at": 1772443800},
    {"unknown": 1},
]


def assert_named_and_not_in_the_way(world: MemoryGitWorld, caplog: pytest.LogCaptureFixture) -> None:
    lena = forge(world, "lena")
    head = lena.pull(2).head
    calls: list[Callable[[], object]] = [
        lambda: lena.pull(1),
        lambda: lena.merge(1, head, "m"),
        lambda: lena.close_pull(1),
        lambda: lena.reviews(1),
        lambda: lena.review(1, head, "approved", ""),
    ]
    for call in calls:
        with pytest.raises(ForgeError) as caught:
            call()
        assert caught.value.message.startswith(f"{FORGE}:{PULL}: ")
        assert len(caught.value.message) < 400
        assert f"git log -p {FORGE} -- {PULL}" in caught.value.hint
        assert (caught.value.slug, caught.value.cause) == ("object_corrupt", "permanent")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fedops"):
        assert [p.number for p in lena.open_pulls()] == [2]
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert PULL in caplog.text


@pytest.mark.parametrize("data", BAD_BYTES, ids=range(len(BAD_BYTES)))
def test_a_pull_of_bad_bytes_is_named_and_not_in_the_way(
    world: MemoryGitWorld, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tamper(world, {PULL: data})
    assert_named_and_not_in_the_way(world, caplog)


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=lambda fields: str(fields)[:40].encode("ascii", "replace").decode())
def test_a_pull_of_bad_fields_is_named_and_not_in_the_way(
    world: MemoryGitWorld, fields: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    tamper(world, {PULL: edited(world, PULL, **fields)})
    assert_named_and_not_in_the_way(world, caplog)


@pytest.mark.parametrize("mode", ["120000", "100755", "160000"])
def test_a_pull_that_is_no_plain_file_is_named_and_not_in_the_way(
    world: MemoryGitWorld, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    plant(world, PULL, mode, b"a" * 40)
    assert_named_and_not_in_the_way(world, caplog)


def test_an_untouched_copy_of_the_file_is_good(world: MemoryGitWorld) -> None:
    tamper(world, {PULL: edited(world, PULL)})  # the control of the tests above: other white space, same content
    assert [p.number for p in forge(world, "lena").open_pulls()] == [1, 2]


def test_a_damaged_pull_can_be_handed_in_again_under_another_number(world: MemoryGitWorld) -> None:
    tamper(world, {PULL: b"{"})
    head = submission(world, "alice")
    assert forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "").number == 4


def test_files_of_other_names_are_nothing(world: MemoryGitWorld) -> None:
    copy = json.dumps(stored(world, PULL)).encode()
    names = ["pulls/open/01.json", "pulls/open/9.txt", "pulls/open/x.json", "pulls/open/0.json", "pulls/open/-3.json"]
    tamper(world, dict.fromkeys([*names, "pulls/open/7.json/x", "pulls/open/1.json.orig", "README"], copy))
    lena = forge(world, "lena")
    assert [p.number for p in lena.open_pulls()] == [1, 2]
    assert lena.ensure_issue(Marker("a", "b"), "t", "b", FEDOPS).number == 4


def test_a_number_that_is_open_and_closed_counts_as_open_once(world: MemoryGitWorld) -> None:
    copy = edited(world, PULL, state="closed")
    issue = edited(world, "issues/open/3.json", state="closed")
    tamper(world, {"pulls/closed/0/1.json": copy, "issues/closed/0/3.json": issue})
    lena = forge(world, "lena")
    assert [p.number for p in lena.open_pulls()] == [1, 2]
    assert [i.number for i in lena.issues(FEDOPS)] == [3]
    assert list(lena.issues(FEDOPS, open=False)) == []


def test_a_closed_pull_that_says_open_is_named(world: MemoryGitWorld) -> None:
    data = json.dumps(stored(world, PULL)).encode()
    tamper(world, {PULL: None, "pulls/closed/0/1.json": data})
    with pytest.raises(ForgeError, match=r"pulls/closed/0/1\.json: says number 1, state open -> number 1, not open"):
        forge(world, "lena").pull(1)


def test_the_last_number_is_not_passed(world: MemoryGitWorld) -> None:
    tamper(world, {"issues/open/999999999.json": b"{}"})
    with pytest.raises(ForgeError, match="999999999 is taken"):
        forge(world, "lena").ensure_issue(Marker("a", "b"), "t", "b", FEDOPS)


# ---------------------------------------------------------------- refs


def test_a_ref_without_a_file_is_ignored_and_its_number_left_alone(world: MemoryGitWorld) -> None:
    repository = world.repository("bob")
    stray = submission(world, "bob", "stray")
    assert repository.push([RefUpdate(f"refs/pull/{n}/head", None, stray) for n in (4, 5, 9)])
    assert [p.number for p in forge(world, "lena").open_pulls()] == [1, 2]
    pull = forge(world, "alice").submit_pull(submission(world, "alice"), "other", "t", "")
    assert pull.number == 6
    assert ref_of(repository, "refs/pull/4/head") == stray


def test_the_ref_decides_what_the_head_is(world: MemoryGitWorld) -> None:
    repository, lena = world.repository("bob"), forge(world, "lena")
    old = lena.pull(1).head
    new = submission(world, "bob", "planted")
    assert repository.push([RefUpdate("refs/pull/1/head", old, new)])
    assert (lena.pull(1).head, lena.pull(1).author.login) == (new, "bob-b")
    assert [p.head for p in lena.open_pulls()][:1] == [new]
    assert lena.merge(1, old, "m") == "head_moved"
    assert lena.merge(1, new, "m") == "merged"
    assert lena.pull(1).head == new


def test_submitting_repairs_a_ref_that_was_moved_by_hand(world: MemoryGitWorld) -> None:
    repository, alice = world.repository("bob"), forge(world, "alice")
    head = alice.pull(1).head
    assert repository.push([RefUpdate("refs/pull/1/head", head, submission(world, "bob", "planted"))])
    assert alice.submit_pull(head, "submit/hospital-a", "t", "").head == head
    assert ref_of(repository, "refs/pull/1/head") == head


def test_an_open_pull_whose_ref_is_gone_is_named_and_can_be_closed_or_handed_in_again(
    world: MemoryGitWorld, caplog: pytest.LogCaptureFixture
) -> None:
    repository, lena = world.repository("bob"), forge(world, "lena")
    heads = [lena.pull(n).head for n in (1, 2)]
    assert repository.push([RefUpdate(f"refs/pull/{n}/head", heads[n - 1], None) for n in (1, 2)])
    with pytest.raises(ForgeError, match="refs/pull/1/head: is not there"):
        lena.pull(1)
    assert list(lena.open_pulls()) == []
    assert "pull 1" in caplog.text
    assert forge(world, "alice").submit_pull(heads[0], "submit/hospital-a", "t", "").number == 1
    assert lena.pull(1).head == heads[0]
    lena.close_pull(2)
    assert (lena.pull(2).state, lena.pull(2).head) == ("closed", heads[1])


def test_a_head_whose_objects_are_missing_stands_in_nobody_s_way(
    world: MemoryGitWorld, caplog: pytest.LogCaptureFixture
) -> None:
    lena = forge(world, "lena")
    head = lena.pull(1).head
    for objects in (world.origin.objects, *(world.repository(w).objects for w in ("lena", "bob"))):  # type: ignore[attr-defined]  # the fake's
        objects.pop(head, None)
    with pytest.raises(FedopsError):
        lena.pull(1)
    assert [p.number for p in lena.open_pulls()] == [2]


def test_the_chain_may_be_rewound_by_a_lead(world: MemoryGitWorld) -> None:
    repository, lena = world.repository("bob"), forge(world, "lena")
    tip = ref_of(repository, FORGE)
    assert tip is not None
    before = repository.commit(tip).parents[0]
    assert len(lena.comments(1)) == 1
    assert repository.push([RefUpdate(FORGE, tip, before)])
    assert list(lena.comments(1)) == []
    assert lena.upsert_comment(1, VERDICT, "verdict") is True


def test_without_the_chain_the_forge_is_empty(world: MemoryGitWorld) -> None:
    repository, lena = world.repository("bob"), forge(world, "lena")
    assert repository.push([RefUpdate(FORGE, ref_of(repository, FORGE), None)])
    assert list(lena.open_pulls()) == []
    # refs/pull/1/head and 2 are still there, so these numbers are not given again
    assert forge(world, "alice").submit_pull(submission(world, "alice"), "b", "t", "").number == 3


# ---------------------------------------------------------------- issues, comments, statuses


def test_a_damaged_issue_is_named_and_not_in_the_way(world: MemoryGitWorld, caplog: pytest.LogCaptureFixture) -> None:
    lena = forge(world, "lena")
    lena.ensure_issue(Marker("a", "b"), "other", "b", FEDOPS)
    tamper(world, {"issues/open/3.json": b"{}"})
    assert [i.title for i in lena.issues(FEDOPS)] == ["other"]
    assert "issues/open/3.json" in caplog.text
    calls: list[Callable[[Forge], object]] = [
        lambda f: f.close_issue(3),
        lambda f: f.ensure_issue(SIGNAL, "t", "b", FEDOPS),  # never a second one
    ]
    for call in calls:
        with pytest.raises(ForgeError, match=r"issues/open/3\.json: "):
            call(lena)


def test_a_marker_that_leads_astray_is_named(world: MemoryGitWorld) -> None:
    lena = forge(world, "lena")
    lena.ensure_issue(Marker("a", "b"), "other", "b", FEDOPS)
    repository = world.repository("bob")
    tip = ref_of(repository, FORGE)
    assert tip is not None
    path = next(p for p, data in files_of(repository, tip).items() if p.startswith("markers/") and b"3" in data)
    tamper(world, {path: edited(world, path, number=4)})
    with pytest.raises(ForgeError, match=r"markers/.*leads to issue 4, which has another marker"):
        lena.ensure_issue(SIGNAL, "t", "b", FEDOPS)


def test_an_open_issue_is_found_also_if_the_way_to_it_was_removed(world: MemoryGitWorld) -> None:
    repository = world.repository("bob")
    tip = ref_of(repository, FORGE)
    assert tip is not None
    tamper(world, {p: None for p in files_of(repository, tip) if p.startswith("markers/")})
    assert forge(world, "lena").ensure_issue(SIGNAL, "t", "b", FEDOPS).number == 3


@pytest.mark.parametrize("data", [b"{", b'{"schema": "fedops.comment/v1"}', b"x" * 1_048_577])
def test_a_damaged_comment_is_left_out_and_written_anew(
    world: MemoryGitWorld, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    lena = forge(world, "lena")
    lena.upsert_comment(1, Marker("other", "x"), "good")
    tamper(world, {"comments/0/1/000001.json": data, "comments/0/1/notes.txt": b"x"})
    assert list(lena.comments(1)) == ["<!-- fedops:other x -->\ngood"]
    assert "comments/0/1/000001.json" in caplog.text
    assert lena.upsert_comment(1, VERDICT, "verdict") is True
    assert list(lena.comments(1)) == ["<!-- fedops:other x -->\ngood", f"{VERDICT.text}\nverdict"]
    assert lena.upsert_comment(1, VERDICT, "verdict") is False


def test_a_comment_of_more_than_64_kib_is_not_shown(world: MemoryGitWorld) -> None:
    path = "comments/0/1/000001.json"
    tamper(world, {path: edited(world, path, body="x" * 65_537)})
    assert list(forge(world, "lena").comments(1)) == []


def test_damaged_statuses_are_named_and_replaced(world: MemoryGitWorld) -> None:
    lena = forge(world, "lena")
    head = lena.pull(1).head
    lena.set_status(head, "success", "fedops/verdict", "ok")
    tamper(world, {f"statuses/{head[:2]}/{head}.json": b'{"schema": "fedops.status/v1", "statuses": {"c": "good"}}'})
    with pytest.raises(ForgeError, match=rf"statuses/{head[:2]}/{head}\.json: "):
        lena.status(head, "fedops/verdict")
    lena.set_status(head, "failure", "fedops/verdict", "no")
    assert lena.status(head, "fedops/verdict") == ("failure", "no")


# ---------------------------------------------------------------- heartbeats


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"beat.json": b"{"},
        {"beat.json": b"x" * 8193},
        {"beat.txt": b"{}"},
        {"beat.json": b'{"schema": "fedops.beat/v1", "site": "hospital-b", "version": 1, "state": "x", "at": "2026-03-02T09:30:00Z"}'},
        {"beat.json": b'{"schema": "fedops.beat/v1", "site": "hospital-a", "version": 1, "state": "x", "at": "now"}'},
        {"beat.json": b'{"schema": "fedops.beat/v1", "site": "hospital-a", "version": -7, "state": "x", "at": "2026-03-02T09:30:00Z"}'},
    ],
)  # fmt: skip
def test_a_foreign_heartbeat_is_left_out_and_overwritten(
    world: MemoryGitWorld, files: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = SiteId("hospital-a"), SiteId("hospital-b")
    forge(world, "bob").beat(b, 3, "idle", START)
    tamper(world, files, ref=f"refs/fedops/heartbeat/{a}")
    assert forge(world, "lena").beats() == {b: (3, "idle", START)}
    assert "heartbeat/hospital-a" in caplog.text
    forge(world, "alice").beat(a, 4, "training", START)
    assert forge(world, "lena").beats() == {a: (4, "training", START), b: (3, "idle", START)}


def test_heartbeats_of_strangers_are_not_shown(world: MemoryGitWorld) -> None:
    tamper(world, {"beat.json": b"{"}, ref="refs/fedops/heartbeat/clinic-x")
    assert forge(world, "lena").beats() == {}


# ---------------------------------------------------------------- roster


def test_a_roster_that_cannot_be_used_stops_what_needs_authors_with_its_line(world: MemoryGitWorld) -> None:
    push_main(world.repository("lena"), {RepoPath("policies/sites.yaml"): b"schema: fedops.sites/v1\nsites: 7\n"})
    lena = forge(world, "lena")
    for call in (lena.open_pulls, lambda: lena.pull(1), lena.beats, lena.whoami):
        with pytest.raises(FedopsError, match=r"^policies/sites\.yaml:2: sites: "):
            call()
    assert [i.number for i in lena.issues(FEDOPS)] == [3]
    assert len(lena.comments(1)) == 1


def test_without_a_roster_everybody_only_claims(world: MemoryGitWorld) -> None:
    push_main(world.repository("lena"), {RepoPath("policies/sites.yaml"): None})
    lena = forge(world, "lena")
    assert [(p.author.login, p.author.id) for p in lena.open_pulls()] == [("claimed:alice", -1), ("claimed:bob", -1)]
    assert lena.whoami().login == "claimed:lena"
    assert lena.beats() == {}


def test_without_main_pulls_are_still_listed(world: MemoryGitWorld) -> None:
    repository = world.repository("lena")
    main: CommitId = main_of(repository)
    assert repository.push([RefUpdate("refs/heads/main", main, None)])
    lena = forge(world, "lena")
    assert [p.author.id for p in lena.open_pulls()] == [-1, -1]
    assert lena.pull(1).state == "open"


def test_what_is_kept_in_memory_is_bounded(world: MemoryGitWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forge_git_chain, "_KNOWN_DOCUMENTS", 5)
    lena = forge(world, "lena")
    assert isinstance(lena, GitForge)
    for n in range(20):
        lena.ensure_issue(Marker("m", str(n)), "t", "b", FEDOPS)
    assert len(lena.issues(FEDOPS)) == 21
    lena.close_issue(3)
    lena.pull(1)
    assert len(lena._chain._known) < 5
