"""What every Forge must do, run on each implementation."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from fedops.core.errors import ForgeError
from fedops.core.facts import Marker, RefUpdate, Review
from fedops.core.ids import RepoPath, SiteId
from fedops.ports import Forge
from tests.forge_worlds import (
    ACCOUNTS,
    KINDS,
    START,
    Meddled,
    World,
    files_of,
    forge,
    main_of,
    push_main,
    ref_of,
    submission,
    worlds,
)
from tests.sshkeys import SshKey

T = TypeVar("T")
SIGNAL = Marker("signal", "train/hospital-a/v9")
VERDICT = Marker("submission", "hospital-a")
FEDOPS = frozenset({"fedops"})


@pytest.fixture(params=KINDS)
def world(
    request: pytest.FixtureRequest, keys: Mapping[str, SshKey], template: Path, tmp_path: Path
) -> Iterator[World]:
    yield from worlds(request.param, keys, template, tmp_path)


def at_once(number: int, task: Callable[[int], T]) -> list[T]:
    """Run task(0) … task(number - 1) in as many threads, which start together."""
    barrier = threading.Barrier(number)

    def run(i: int) -> T:
        barrier.wait(60)
        return task(i)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def forges(world: World, number: int) -> list[Forge]:
    """Forges that share nothing but the origin."""
    return [world.forge_of("lena", world.new_clone("lena")) for _ in range(number)]


# ---------------------------------------------------------------- pulls


def test_each_person_is_the_account_of_the_roster(world: World) -> None:
    for who, account in ACCOUNTS.items():
        assert forge(world, who).whoami() == account


def test_a_new_forge_has_nothing(world: World) -> None:
    lena = forge(world, "lena")
    assert list(lena.open_pulls()) == []
    assert list(lena.issues(frozenset())) == []
    assert list(lena.issues(frozenset(), open=False)) == []
    assert lena.beats() == {}


def test_a_submitted_pull_is_seen_by_everybody_with_its_author_and_head(world: World) -> None:
    head = submission(world, "alice")
    pull = forge(world, "alice").submit_pull(head, "submit/hospital-a", "update on v8", "a body")
    assert (pull.number, pull.author, pull.head) == (1, ACCOUNTS["alice"], head)
    assert (pull.branch, pull.title, pull.state, pull.opened_at) == ("submit/hospital-a", "update on v8", "open", START)
    for who in ACCOUNTS:
        assert list(forge(world, who).open_pulls()) == [pull]
        assert forge(world, who).pull(1) == pull
    assert ref_of(world.repository("bob"), "refs/pull/1/head") == head


def test_a_pull_is_published_as_no_branch(world: World) -> None:
    forge(world, "alice").submit_pull(submission(world, "alice"), "submit/hospital-a", "t", "")
    assert ref_of(world.repository("bob"), "refs/heads/submit/hospital-a") is None


def test_the_same_branch_moves_its_open_pull(world: World) -> None:
    alice = forge(world, "alice")
    first = alice.submit_pull(submission(world, "alice", "1"), "submit/hospital-a", "old", "")
    second = alice.submit_pull(submission(world, "alice", "2"), "submit/hospital-a", "new", "")
    assert (second.number, second.title, second.opened_at) == (first.number, "new", first.opened_at)
    assert second.head != first.head
    assert list(forge(world, "lena").open_pulls()) == [second]
    assert ref_of(world.repository("bob"), "refs/pull/1/head") == second.head


def test_other_branches_get_other_numbers_and_pulls_are_listed_oldest_first(world: World) -> None:
    alice = forge(world, "alice").submit_pull(submission(world, "alice"), "submit/hospital-a", "a", "")
    issue = forge(world, "lena").ensure_issue(SIGNAL, "t", "b", FEDOPS)
    bob = forge(world, "bob").submit_pull(submission(world, "bob"), "submit/hospital-b", "b", "")
    assert [alice.number, issue.number, bob.number] == [1, 2, 3]
    assert list(forge(world, "lena").open_pulls()) == [alice, bob]


def test_a_closed_pull_is_not_listed_and_its_branch_gets_a_new_number(world: World) -> None:
    alice = forge(world, "alice")
    head = submission(world, "alice")
    first = alice.submit_pull(head, "submit/hospital-a", "t", "")
    forge(world, "lena").close_pull(first.number)
    assert list(alice.open_pulls()) == []
    assert (alice.pull(1).state, alice.pull(1).head) == ("closed", head)
    assert alice.submit_pull(head, "submit/hospital-a", "t", "").number == 2
    assert [p.number for p in alice.open_pulls()] == [2]


def test_numbers_that_do_not_exist_are_errors(world: World) -> None:
    lena = forge(world, "lena")
    head = main_of(world.repository("lena"))
    for call in (
        lambda: lena.pull(7),
        lambda: lena.merge(7, head, "m"),
        lambda: lena.close_pull(7),
        lambda: lena.reviews(7),
        lambda: lena.review(7, head, "approved", ""),
        lambda: lena.comments(7),
        lambda: lena.upsert_comment(7, VERDICT, "b"),
        lambda: lena.close_issue(7),
    ):
        with pytest.raises(ForgeError, match="7"):
            call()


def test_an_issue_is_no_pull_and_a_pull_no_issue(world: World) -> None:
    lena = forge(world, "lena")
    issue = lena.ensure_issue(SIGNAL, "t", "b", FEDOPS)
    pull = forge(world, "alice").submit_pull(submission(world, "alice"), "submit/hospital-a", "t", "")
    assert [i.number for i in lena.issues(frozenset())] == [issue.number]
    with pytest.raises(ForgeError):
        lena.pull(issue.number)
    with pytest.raises(ForgeError):
        lena.close_issue(pull.number)


# ---------------------------------------------------------------- merging


def test_a_merge_puts_one_commit_on_main_whose_tree_differs_in_the_head_s_blobs_alone(world: World) -> None:
    old = submission(world, "alice", "alice's")
    repository = world.repository("lena")
    before = push_main(repository, {RepoPath("sites/hospital-b/submission.json"): b"bob's\n"})
    forge(world, "alice").submit_pull(old, "submit/hospital-a", "t", "")
    message = "merge(hospital-a): update on v8 (#1)\n\nFedops-Head: x"
    assert forge(world, "lena").merge(1, old, message) == "merged"
    main = main_of(repository)
    commit = repository.commit(main)
    assert (commit.parents, commit.message, commit.committed_at) == ((before, old), message, START)
    expected = files_of(repository, before) | {"sites/hospital-a/submission.json": b"alice's"}
    assert files_of(repository, main) == expected
    assert forge(world, "alice").pull(1).state == "merged"
    assert forge(world, "alice").pull(1).head == old
    assert list(forge(world, "alice").open_pulls()) == []


def test_a_merge_deletes_what_the_head_deletes(world: World) -> None:
    repository = world.repository("lena")
    path = RepoPath("sites/hospital-b/submission.json")
    base = main_of(repository)
    head = repository.write_commit((base,), {path: None}, "leave", at=START, key=world.keys["lena"].private)
    forge(world, "lena").submit_pull(head, "leave/hospital-b", "t", "")
    assert forge(world, "lena").merge(1, head, "m") == "merged"
    assert path not in files_of(repository, main_of(repository))


def test_merging_again_says_so_and_changes_nothing(world: World) -> None:
    head = submission(world, "alice")
    forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    assert forge(world, "lena").merge(1, head, "m") == "merged"
    before = world.state()
    assert forge(world, "lena").merge(1, head, "m") == "already_merged"
    assert world.state() == before


def test_a_head_that_moved_is_not_merged(world: World) -> None:
    seen = submission(world, "alice", "1")
    alice = forge(world, "alice")
    alice.submit_pull(seen, "submit/hospital-a", "t", "")
    alice.submit_pull(submission(world, "alice", "2"), "submit/hospital-a", "t", "")
    before = world.state()
    assert forge(world, "lena").merge(1, seen, "m") == "head_moved"
    assert world.state() == before


def test_a_closed_pull_is_not_merged(world: World) -> None:
    head = submission(world, "alice")
    forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    forge(world, "lena").close_pull(1)
    before = world.state()
    assert forge(world, "lena").merge(1, head, "m") not in ("merged", "already_merged")
    assert world.state() == before


def test_both_sides_changing_a_path_to_different_content_is_a_conflict(world: World) -> None:
    head = submission(world, "alice", "mine")
    forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    push_main(world.repository("lena"), {RepoPath("sites/hospital-a/submission.json"): b"theirs"})
    before = world.state()
    assert forge(world, "lena").merge(1, head, "m") == "conflict"
    assert world.state() == before


def test_both_sides_changing_a_path_to_the_same_content_is_none(world: World) -> None:
    head = submission(world, "alice", "same")
    forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    push_main(world.repository("lena"), {RepoPath("sites/hospital-a/submission.json"): b"same"})
    assert forge(world, "lena").merge(1, head, "m") == "merged"


def test_a_merge_by_hand_is_noticed(world: World) -> None:
    head = submission(world, "alice")
    alice, repository = forge(world, "alice"), world.repository("lena")
    alice.submit_pull(head, "submit/hospital-a", "t", "")
    files = {RepoPath("sites/hospital-a/submission.json"): b"1"}
    repository.fetch()
    main = main_of(repository)
    merge = repository.write_commit((main, head), files, "git merge", at=START)
    assert repository.push((RefUpdate("refs/heads/main", main, merge),))
    assert list(alice.open_pulls()) == []
    assert alice.pull(1).state == "merged"
    assert forge(world, "lena").merge(1, head, "m") == "already_merged"
    assert main_of(repository) == merge
    assert alice.pull(1).state == "merged"


def test_a_branch_whose_pull_was_merged_by_hand_gets_a_new_number(world: World) -> None:
    head = submission(world, "alice", "1")
    alice = forge(world, "alice")
    alice.submit_pull(head, "submit/hospital-a", "t", "")
    repository = world.repository("lena")
    repository.fetch()
    assert repository.push((RefUpdate("refs/heads/main", main_of(repository), head),))  # fast-forward
    second = alice.submit_pull(submission(world, "alice", "2"), "submit/hospital-a", "t", "")
    assert second.number == 2
    assert (alice.pull(1).state, alice.pull(1).head) == ("merged", head)
    assert list(alice.open_pulls()) == [second]


def test_handing_in_a_merged_head_again_gives_the_merged_pull(world: World) -> None:
    head = submission(world, "alice")
    alice = forge(world, "alice")
    alice.submit_pull(head, "submit/hospital-a", "t", "")
    forge(world, "lena").merge(1, head, "m")
    before = world.state()
    again = alice.submit_pull(head, "submit/hospital-a", "t", "")
    assert (again.number, again.state) == (1, "merged")
    assert world.state() == before


# ---------------------------------------------------------------- reviews, statuses, comments


def test_reviews_are_the_latest_of_each_account_and_bound_to_their_head(world: World) -> None:
    alice, lena = forge(world, "alice"), forge(world, "lena")
    first, second = submission(world, "alice", "1"), submission(world, "alice", "2")
    alice.submit_pull(first, "submit/hospital-a", "t", "")
    assert list(lena.reviews(1)) == []
    lena.review(1, first, "approved", "looks right")
    assert list(alice.reviews(1)) == [Review(ACCOUNTS["lena"], first, "approved")]
    lena.review(1, first, "changes_requested", "wait")
    assert list(alice.reviews(1)) == [Review(ACCOUNTS["lena"], first, "changes_requested")]
    alice.submit_pull(second, "submit/hospital-a", "t", "")
    assert [r.head for r in alice.reviews(1)] == [first]
    lena.review(1, second, "approved", "")
    assert list(alice.reviews(1)) == [Review(ACCOUNTS["lena"], second, "approved")]


def test_reviews_belong_to_one_pull(world: World) -> None:
    head = submission(world, "alice")
    forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    forge(world, "bob").submit_pull(submission(world, "bob"), "submit/hospital-b", "t", "")
    forge(world, "lena").review(1, head, "approved", "")
    assert list(forge(world, "lena").reviews(2)) == []


def test_a_status_is_what_was_last_set_for_a_commit_and_context(world: World) -> None:
    lena = forge(world, "lena")
    one, two = submission(world, "alice", "1"), submission(world, "alice", "2")
    forge(world, "alice").submit_pull(one, "submit/hospital-a", "t", "")
    assert lena.status(one, "fedops/verdict") is None
    lena.set_status(one, "pending", "fedops/verdict", "looking")
    lena.set_status(one, "success", "other", "fine")
    lena.set_status(one, "failure", "fedops/verdict", "no: ☂")
    assert forge(world, "bob").status(one, "fedops/verdict") == ("failure", "no: ☂")
    assert lena.status(one, "other") == ("success", "fine")
    assert lena.status(two, "fedops/verdict") is None
    assert dict(lena.statuses({one, two}, "fedops/verdict")) == {one: ("failure", "no: ☂")}


def test_a_comment_is_written_once_per_marker_and_then_edited(world: World) -> None:
    lena = forge(world, "lena")
    forge(world, "alice").submit_pull(submission(world, "alice"), "submit/hospital-a", "t", "")
    assert list(lena.comments(1)) == []
    assert lena.upsert_comment(1, VERDICT, "first | `x`\r\n\n<b>") is True
    assert lena.upsert_comment(1, Marker("signal", "x"), "another") is True
    assert lena.upsert_comment(1, VERDICT, "second ✓") is True
    assert lena.upsert_comment(1, VERDICT, "second ✓") is False
    assert list(forge(world, "bob").comments(1)) == [f"{VERDICT.text}\nsecond ✓", "<!-- fedops:signal x -->\nanother"]


def test_many_comments_stay_in_the_order_in_which_they_were_written(world: World) -> None:
    lena = forge(world, "lena")
    number = lena.ensure_issue(SIGNAL, "t", "b", FEDOPS).number
    for i in range(12):
        lena.upsert_comment(number, Marker("note", str(i)), str(i))
    assert [body.split("\n")[1] for body in lena.comments(number)] == [str(i) for i in range(12)]


def test_a_marker_that_somebody_quotes_is_not_taken_for_the_comment(world: World) -> None:
    lena = forge(world, "lena")
    lena.ensure_issue(SIGNAL, "t", "b", FEDOPS)
    quoting = f"a site wrote: {VERDICT.text}\n{VERDICT.text}"
    assert lena.upsert_comment(1, Marker("other", "y"), quoting) is True
    assert lena.upsert_comment(1, VERDICT, "verdict") is True
    assert len(lena.comments(1)) == 2
    assert lena.comments(1)[0].endswith(quoting)


# ---------------------------------------------------------------- issues


def test_an_issue_is_opened_once_per_marker_and_found_again_when_closed(world: World) -> None:
    lena = forge(world, "lena")
    labels = frozenset({"fedops", "signal:train", "site:hospital-a"})
    issue = lena.ensure_issue(SIGNAL, "train on v9 | é", "please\n\n- [x]", labels)
    assert (issue.number, issue.title, issue.labels, issue.open) == (1, "train on v9 | é", labels, True)
    assert issue.body == f"{SIGNAL.text}\nplease\n\n- [x]"
    assert forge(world, "bob").ensure_issue(SIGNAL, "other", "text", FEDOPS) == issue
    lena.close_issue(1)
    found = lena.ensure_issue(SIGNAL, "other", "text", FEDOPS)
    assert (found.number, found.title, found.open) == (1, issue.title, False)
    assert lena.ensure_issue(Marker("signal", "train/hospital-a/v10"), "t", "b", labels).number == 2


def test_issues_are_listed_by_labels_and_state(world: World) -> None:
    lena = forge(world, "lena")
    for n, site in enumerate(["a", "b", "c"], 1):
        lena.ensure_issue(Marker("signal", site), site, "", frozenset({"fedops", f"site:{site}"}))
        assert n == len(lena.issues(FEDOPS))
    lena.close_issue(2)
    assert [i.title for i in lena.issues(FEDOPS)] == ["a", "c"]
    assert [i.title for i in lena.issues(FEDOPS, open=False)] == ["b"]
    assert [i.title for i in lena.issues(frozenset({"fedops", "site:c"}))] == ["c"]
    assert list(lena.issues(frozenset({"fedops", "site:b"}))) == []
    assert list(lena.issues(frozenset({"nothing"}))) == []


# ---------------------------------------------------------------- heartbeats


def test_a_heartbeat_is_overwritten(world: World) -> None:
    a, b = SiteId("hospital-a"), SiteId("hospital-b")
    later = START + dt.timedelta(hours=1)
    forge(world, "alice").beat(a, 8, "training", START)
    forge(world, "bob").beat(b, 7, "idle", START)
    assert forge(world, "lena").beats() == {a: (8, "training", START), b: (7, "idle", START)}
    forge(world, "alice").beat(a, 9, "submitted", later)
    assert forge(world, "lena").beats() == {a: (9, "submitted", later), b: (7, "idle", START)}


# ---------------------------------------------------------------- repeating


def test_every_change_made_twice_is_made_once(world: World) -> None:
    alice, lena = forge(world, "alice"), forge(world, "lena")
    head, other = submission(world, "alice", "1"), submission(world, "alice", "2")
    changes: list[Callable[[], object]] = [
        lambda: alice.submit_pull(head, "submit/hospital-a", "t", "b"),
        lambda: alice.submit_pull(other, "other", "t", "b"),
        lambda: lena.review(1, head, "approved", "fine"),
        lambda: lena.set_status(head, "success", "fedops/verdict", "accepted"),
        lambda: lena.upsert_comment(1, VERDICT, "body"),
        lambda: lena.ensure_issue(SIGNAL, "t", "b", FEDOPS),
        lambda: lena.upsert_comment(3, VERDICT, "body"),
        lambda: lena.close_issue(3),
        lambda: lena.merge(1, head, "m"),
        lambda: lena.close_pull(2),
        lambda: lena.close_pull(1),  # merged: stays so
        lambda: alice.beat(SiteId("hospital-a"), 8, "training", START),
        lena.whoami,
    ]
    for change in changes:
        change()
        before = world.state()
        change()
        assert world.state() == before
    assert (lena.pull(1).state, lena.pull(2).state) == ("merged", "closed")


# ---------------------------------------------------------------- races


def test_sixteen_who_open_the_same_issue_open_one(world: World) -> None:
    them = forges(world, 16)
    issues = at_once(16, lambda i: them[i].ensure_issue(SIGNAL, f"title {i}", "b", FEDOPS))
    assert {i.number for i in issues} == {1}
    assert len({i.title for i in issues}) == 1
    assert list(forge(world, "lena").issues(frozenset())) == issues[:1]


def test_eight_who_submit_at_once_get_eight_numbers(world: World) -> None:
    clones = [world.new_clone("alice") for _ in range(8)]
    heads = [submission(world, "alice", str(i), clone=clone) for i, clone in enumerate(clones)]
    them = [world.forge_of("alice", clone) for clone in clones]
    pulls = at_once(8, lambda i: them[i].submit_pull(heads[i], f"submit/{i}", str(i), ""))
    assert sorted(p.number for p in pulls) == list(range(1, 9))
    for pull in pulls:
        assert ref_of(world.repository("bob"), f"refs/pull/{pull.number}/head") == pull.head == heads[int(pull.title)]
    assert [p.number for p in forge(world, "bob").open_pulls()] == list(range(1, 9))


def test_two_who_merge_the_same_pull_make_one_merge(world: World) -> None:
    head = submission(world, "alice")
    base = main_of(world.repository("lena"))
    forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    them = forges(world, 2)
    outcomes = at_once(2, lambda i: them[i].merge(1, head, f"merge by {i}"))
    assert sorted(outcomes) == ["already_merged", "merged"]
    repository = world.repository("lena")
    made = list(repository.commits(base, main_of(repository)))
    assert [c.parents for c in made] == [(base, head)]
    assert made[0].message == f"merge by {outcomes.index('merged')}"


def test_merges_of_different_pulls_at_once_all_land(world: World) -> None:
    sites = ["alice", "bob"]
    heads = [submission(world, who, "new") for who in sites]
    for who, head in zip(sites, heads, strict=True):
        forge(world, who).submit_pull(head, f"submit/{who}", who, "")
    base = main_of(world.repository("lena"))
    them = forges(world, 2)
    assert at_once(2, lambda i: them[i].merge(i + 1, heads[i], str(i))) == ["merged", "merged"]
    repository = world.repository("lena")
    main = main_of(repository)
    assert sorted(c.parents[1] for c in repository.commits(base, main)) == sorted(heads)
    files = files_of(repository, main)
    assert files["sites/hospital-a/submission.json"] == files["sites/hospital-b/submission.json"] == b"new"


def test_a_merge_that_loses_to_an_unrelated_push_lands_on_top_of_it(world: World) -> None:
    head = submission(world, "alice")
    forge(world, "alice").submit_pull(head, "submit/hospital-a", "t", "")
    other = world.repository("bob")
    push = lambda: push_main(other, {RepoPath("docs/x.md"): b"x"})  # noqa: E731
    meddled = Meddled(world.repository("lena"), [push, lambda: push_main(other, {RepoPath("docs/y.md"): b"y"})])
    assert world.forge_of("lena", meddled).merge(1, head, "m") == "merged"
    main = main_of(other)
    files = files_of(other, main)
    assert files["docs/x.md"] == b"x"
    assert files["docs/y.md"] == b"y"
    assert files["sites/hospital-a/submission.json"] == b"1"
    assert other.commit(main).parents[1] == head
