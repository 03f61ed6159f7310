"""What every Repository does: the one over real git (work tree and bare clones) and the one in memory."""

from __future__ import annotations

import datetime as dt
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedops.adapters.git_repo import GitRepository
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import RefUpdate
from fedops.core.ids import BlobId, CommitId, RepoPath
from fedops.ports import Repository
from tests.fakes_repository import FakeOrigin, FakeRepository
from tests.sshkeys import SshKey, make_key

AT = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
MAIN = "refs/heads/main"
Plant = Callable[[Repository, list[CommitId], Mapping[str, tuple[str, bytes]]], CommitId]


@dataclass(frozen=True)
class World:
    """One origin, as many clones as asked for, and a way to write commits that fedops never would."""

    clone: Callable[[], Repository]
    plant: Plant


def git(where: Path, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
    command = ["git", "-C", str(where), *args]
    prefix = ["env", *(f"{k}={v}" for k, v in (env or {}).items())]
    return subprocess.run([*prefix, *command], input=stdin, capture_output=True, check=True).stdout.decode().strip()


def plant_in_git(repository: Repository, parents: list[CommitId], entries: Mapping[str, tuple[str, bytes]]) -> CommitId:
    assert isinstance(repository, GitRepository)
    where = repository.path
    env = {"GIT_INDEX_FILE": str(where / "planted-index"), "GIT_AUTHOR_DATE": "@0 +0000"}
    lines = []
    for path, (mode, data) in entries.items():
        name = data.decode() if mode == "160000" else git(where, "hash-object", "-w", "--stdin", stdin=data)
        lines.append(f"{mode} {name}\t{path}\0".encode())
    git(where, "read-tree", "--empty", env=env)
    git(where, "update-index", "-z", "--index-info", stdin=b"".join(lines), env=env)
    tree = git(where, "write-tree", env=env)
    parent_args = [arg for parent in parents for arg in ("-p", parent)]
    return CommitId(git(where, "commit-tree", tree, *parent_args, "-m", "planted"))


def plant_in_fake(
    repository: Repository, parents: list[CommitId], entries: Mapping[str, tuple[str, bytes]]
) -> CommitId:
    assert isinstance(repository, FakeRepository)
    return repository.plant(parents, entries, at=AT)


@pytest.fixture(params=["git", "git-bare", "fake"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "fake":
        fake = FakeOrigin()
        yield World(fake.clone, plant_in_fake)
        return
    origin = tmp_path / "origin.git"
    GitRepository.init(origin, bare=True).close()
    git(origin, "config", "receive.denyDeleteCurrent", "ignore")
    count = iter(range(100))
    with ExitStack() as stack:

        def clone() -> Repository:
            path = tmp_path / f"clone{next(count)}"
            if request.param == "git":
                return stack.enter_context(GitRepository.clone(str(origin), path))
            repository = stack.enter_context(GitRepository.init(path, bare=True))
            git(path, "remote", "add", "origin", str(origin))
            repository.fetch()
            return repository

        yield World(clone, plant_in_git)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, SshKey]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: make_key(folder, name) for name in ("alice", "bob")}


def files(**contents: bytes | None) -> dict[RepoPath, bytes | None]:
    """Keyword a__b=… is the path a/b."""
    return {RepoPath(name.replace("__", "/")): data for name, data in contents.items()}


def tree(repository: Repository, commit: CommitId, under: str = "") -> dict[str, bytes]:
    return {e.path: repository.read(e.blob, max_bytes=1000) for e in repository.entries(commit, under)}


def publish(repository: Repository, contents: dict[RepoPath, bytes | None], message: str = "m") -> CommitId:
    """Commit on top of main and push."""
    main = repository.resolve("main")
    commit = repository.write_commit([main] if main else [], contents, message, at=AT)
    assert repository.push([RefUpdate(MAIN, main, commit)])
    return commit


# --- reading and writing objects


def test_an_empty_origin_has_no_main_and_no_versions(world: World) -> None:
    repository = world.clone()
    repository.fetch()
    assert repository.resolve("main") is None
    assert repository.versions() == ()


def test_a_root_commit_has_exactly_its_files_with_mode_100644_sorted_by_path(world: World) -> None:
    repository = world.clone()
    commit = repository.write_commit([], files(b=b"2", a__x=b"1", a0=b""), "root", at=AT)
    entries = repository.entries(commit)
    assert [(e.path, e.mode, e.size) for e in entries] == [
        ("a/x", "100644", 1),
        ("a0", "100644", 0),
        ("b", "100644", 1),
    ]
    # The id of an empty blob is a fixed point of git.
    assert entries[1].blob == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def test_a_commit_without_files_has_gits_empty_tree(world: World) -> None:
    repository = world.clone()
    assert repository.entries(repository.write_commit([], {}, "empty", at=AT)) == ()


def test_a_commit_says_who_when_and_what_in_utc_and_whole_seconds(world: World) -> None:
    repository = world.clone()
    zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
    parent = repository.write_commit([], {}, "root", at=AT)
    commit = repository.write_commit(
        [parent], {}, "title\n\nKey: value", at=AT.astimezone(zone) + dt.timedelta(0, 0, 9)
    )
    facts = repository.commit(commit)
    assert (facts.id, facts.parents) == (commit, (parent,))
    assert facts.author == facts.committer == "Test <test@example.invalid>"
    assert facts.committed_at == AT
    assert facts.committed_at.utcoffset() == dt.timedelta(0)
    assert facts.message == "title\n\nKey: value"


def test_a_message_comes_back_as_it_was(world: World) -> None:
    repository = world.clone()
    for n, message in enumerate(["m", "m\n", "m\n\n", "", "\n\nm", "ä\u202e\x1b[0m <!-- \r", "tree 1\nparent 2\n\nx"]):
        commit = repository.write_commit([], {}, message, at=AT)
        assert repository.commit(commit).message == message
        tag = repository.write_tag(f"global@v{n}.0.0", commit, message)
        assert repository.push([RefUpdate(f"refs/tags/global@v{n}.0.0", None, tag)])
        assert repository.versions()[n].message == message


def test_the_same_inputs_give_the_same_commit_in_another_clone(world: World) -> None:
    one, two = world.clone(), world.clone()
    ids = {r.write_commit([], files(a=b"1", b__c=b"2"), "m", at=AT) for r in (one, two)}
    assert len(ids) == 1
    assert one.write_commit([], files(a=b"1", b__c=b"2"), "m", at=AT + dt.timedelta(seconds=1)) not in ids


def test_writing_a_commit_moves_no_ref(world: World) -> None:
    repository = world.clone()
    main = publish(repository, files(a=b"1"))
    repository.write_commit([main], files(a=b"2"), "m", at=AT)
    repository.write_tag("global@v0.0.0", main, "m")
    assert repository.resolve("main") == main
    assert repository.versions() == ()


def test_a_child_replaces_adds_and_deletes_only_what_is_given(world: World) -> None:
    repository = world.clone()
    first = repository.write_commit([], files(a=b"1", b__c=b"2", b__d=b"3"), "m", at=AT)
    second = repository.write_commit([first], files(a=b"9", b__c=None, e__f=b"4", no__such=None), "m", at=AT)
    assert tree(repository, second) == {"a": b"9", "b/d": b"3", "e/f": b"4"}
    assert tree(repository, first) == {"a": b"1", "b/c": b"2", "b/d": b"3"}


def test_a_merges_tree_is_the_first_parents_with_exactly_the_given_files_replaced(world: World) -> None:
    repository = world.clone()
    base = repository.write_commit([], files(a=b"1", s__x=b"0"), "base", at=AT)
    main = repository.write_commit([base], files(a=b"2"), "main", at=AT)
    head = repository.write_commit([base], files(s__x=b"5", evil=b"!"), "head", at=AT)
    merge = repository.write_commit([main, head], files(s__x=b"5"), "merge", at=AT)
    assert repository.commit(merge).parents == (main, head)
    assert tree(repository, merge) == {"a": b"2", "s/x": b"5"}


def test_a_folder_may_become_a_file_when_its_files_go_in_the_same_commit(world: World) -> None:
    repository = world.clone()
    first = repository.write_commit([], files(a__x=b"1"), "m", at=AT)
    second = repository.write_commit([first], {RepoPath("a"): b"2", RepoPath("a/x"): None}, "m", at=AT)
    assert tree(repository, second) == {"a": b"2"}


def test_a_path_that_git_refuses_or_that_is_file_and_folder_is_an_error(world: World) -> None:
    repository = world.clone()
    parent = repository.write_commit([], files(a__x=b"1", f=b"2"), "m", at=AT)
    for path in ["a", "f/g", "../up", "/abs", "", "x/", "x//y", ".git/config", "x/.GIT/y", "n\0l", "./a"]:
        with pytest.raises(GitError):
            repository.write_commit([parent], {RepoPath(path): b"3", RepoPath("fine"): b"4"}, "m", at=AT)


def test_a_date_without_time_zone_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="time zone"):
        world.clone().write_commit([], {}, "m", at=AT.replace(tzinfo=None))


def test_an_unknown_or_malformed_parent_is_refused(world: World) -> None:
    repository = world.clone()
    for parent in ("0" * 39 + "1", "--all", "main"):
        with pytest.raises(GitError):
            repository.write_commit([CommitId(parent)], {}, "m", at=AT)


NAMES = [
    "-x",
    "--all",
    "new\nline",
    'quo"te',
    "back\\slash",
    "tab\tx",
    "ä",
    "a\u0308",
    "A/ä",
    "*",
    "l" * 255,
    "sp ace/ .x",
]


def test_every_name_that_git_allows_is_stored_found_and_compared(world: World) -> None:
    repository = world.clone()
    names: dict[RepoPath, bytes | None] = {RepoPath(name): name.encode() for name in NAMES}
    base = repository.write_commit([], files(b=b"1") | {RepoPath("*"): b"0"}, "m", at=AT)
    commit = repository.write_commit([base], names, "m", at=AT)
    assert tree(repository, commit) == {name: name.encode() for name in NAMES} | {"b": b"1"}
    found = {change.path: change.status for change in repository.changes(base, commit)}
    assert found == {name: "M" if name == "*" else "A" for name in NAMES}
    assert tree(repository, commit, "-x") == {"-x": b"-x"}
    assert tree(repository, commit, "*") == {"*": b"*"}


def test_entries_under_a_folder_are_those_below_it_alone(world: World) -> None:
    repository = world.clone()
    commit = repository.write_commit([], files(s__a__x=b"1", s__a__y__z=b"2", s__ab=b"3", s__a0=b"4"), "m", at=AT)
    for under in ("s/a", "s/a/"):
        assert tree(repository, commit, under) == {"s/a/x": b"1", "s/a/y/z": b"2"}
    assert tree(repository, commit, "s/ab") == {"s/ab": b"3"}
    assert repository.entries(commit, "none") == ()


def test_folders_are_those_directly_below_a_folder(world: World) -> None:
    repository = world.clone()
    commit = repository.write_commit(
        [], files(s__a__x=b"1", s__b__y__z=b"2", s__file=b"3", s0__c__x=b"4", t__x=b"5"), "m", at=AT
    )
    assert (repository.folders(commit, "s"), repository.folders(commit, "s/")) == (("a", "b"), ("a", "b"))
    assert [list(repository.folders(commit, under)) for under in ("s/b", "t", "none", "t/x")] == [["y"], [], [], []]


def test_modes_other_than_100644_are_told_as_they_are(world: World) -> None:
    repository = world.clone()
    commit_of_submodule = b"1" * 40
    base = world.plant(
        repository, [], {"run": ("100644", b"#!"), "link": ("100644", b"/etc/passwd"), "k": ("100644", b"k")}
    )
    odd = {"run": ("100755", b"#!"), "link": ("120000", b"/etc/passwd"), "sub": ("160000", commit_of_submodule)}
    head = world.plant(repository, [base], odd)
    assert {e.path: (e.mode, e.size) for e in repository.entries(head)} == {
        "run": ("100755", 2),
        "link": ("120000", 11),
        "sub": ("160000", 0),
    }
    assert [(c.path, c.status, c.mode, c.blob is None) for c in repository.changes(base, head)] == [
        ("k", "D", "000000", True),
        ("link", "T", "120000", False),
        ("run", "M", "100755", False),
        ("sub", "A", "160000", False),
    ]
    child = repository.write_commit([head], files(new=b"1"), "m", at=AT)
    assert {e.path: e.mode for e in repository.entries(child)} == {
        "link": "120000",
        "new": "100644",
        "run": "100755",
        "sub": "160000",
    }


def test_a_blob_larger_than_allowed_is_refused_and_the_next_one_is_read(world: World) -> None:
    repository = world.clone()
    commit = repository.write_commit([], files(big=b"x" * 1001, fits=b"y" * 1000), "m", at=AT)
    big, fits = (e.blob for e in repository.entries(commit))
    with pytest.raises(GitError) as caught:
        repository.read(big, max_bytes=1000)
    assert caught.value.slug == "file_too_large"
    assert repository.read(fits, max_bytes=1000) == b"y" * 1000


def test_a_missing_object_or_one_of_another_kind_is_named(world: World) -> None:
    repository = world.clone()
    commit = repository.write_commit([], files(a=b"1"), "m", at=AT)
    blob = repository.entries(commit)[0].blob
    missing = "1" * 40
    asks: dict[str, Callable[[], object]] = {
        missing: lambda: repository.read(BlobId(missing), max_bytes=9),
        commit: lambda: repository.read(BlobId(commit), max_bytes=999),
        blob: lambda: repository.commit(CommitId(blob)),
        "2" * 40: lambda: repository.entries(CommitId("2" * 40)),
        "3" * 40: lambda: repository.changes(commit, CommitId("3" * 40)),
        "4" * 40: lambda: repository.is_ancestor(CommitId("4" * 40), commit),
        "5" * 40: lambda: list(repository.commits(None, CommitId("5" * 40))),
        "6" * 40: lambda: repository.signer(CommitId("6" * 40), []),
        "7" * 40: lambda: repository.write_tag("t", CommitId("7" * 40), "m"),
    }
    for name, ask in asks.items():
        with pytest.raises(GitError) as caught:
            ask()
        assert caught.value.slug == "object_corrupt", name
        assert name in caught.value.message


def test_what_is_no_object_id_is_never_passed_on(world: World) -> None:
    repository = world.clone()
    commit = publish(repository, files(a=b"1"))
    for name in ["", "main", "--help", "HEAD", "A" * 40, "1" * 40 + "\n" + "1" * 40]:
        asks: list[Callable[[str], object]] = [
            lambda name: repository.read(BlobId(name), max_bytes=9),
            lambda name: repository.entries(CommitId(name)),
            lambda name: repository.changes(commit, CommitId(name)),
            lambda name: repository.is_ancestor(CommitId(name), commit),
            lambda name: repository.push([RefUpdate(MAIN, commit, name)]),
        ]
        for ask in asks:
            with pytest.raises(GitError):
                ask(name)


# --- history


def test_changes_are_those_since_the_merge_base_and_a_rename_is_two(world: World) -> None:
    repository = world.clone()
    base = repository.write_commit([], files(a=b"1", old__name=b"same bytes", k=b"k"), "m", at=AT)
    main = repository.write_commit([base], files(a=b"2", later=b"x"), "m", at=AT)
    head = repository.write_commit([base], files(old__name=None, new__name=b"same bytes", k=b"K"), "m", at=AT)
    changes = repository.changes(main, head)
    assert [(c.path, c.status, c.mode) for c in changes] == [
        ("k", "M", "100644"),
        ("new/name", "A", "100644"),
        ("old/name", "D", "000000"),
    ]
    assert [c.blob and repository.read(c.blob, max_bytes=99) for c in changes] == [b"K", b"same bytes", None]
    assert repository.changes(main, base) == ()


def test_a_criss_cross_of_merges_hides_no_change(world: World) -> None:
    """The head has merged what main has merged, and kept one side: to merge it would undo the other."""
    repository = world.clone()
    root = repository.write_commit([], files(k=b"k"), "m", at=AT)
    one = repository.write_commit([root], files(a=b"1"), "m", at=AT)
    two = repository.write_commit([root], files(b=b"2"), "m", at=AT)
    main = repository.write_commit([one, two], files(b=b"2"), "m", at=AT)
    head = repository.write_commit([two, one], files(p=b"3"), "m", at=AT)
    changes = repository.changes(main, head)
    assert [(c.path, c.status) for c in changes] == [("a", "D"), ("b", "A"), ("p", "A")]


def test_more_merge_bases_than_people_leave_break_the_lineage(world: World) -> None:
    repository = world.clone()
    root = repository.write_commit([], files(k=b"k"), "m", at=AT)
    sides = [repository.write_commit([root], {RepoPath(f"s{n}"): b"s"}, "m", at=AT) for n in range(9)]
    main, head = (repository.write_commit(parents, {}, "m", at=AT) for parents in (sides, sides[::-1]))
    with pytest.raises(GitError) as caught:
        repository.changes(main, head)
    assert caught.value.slug == "lineage_broken"


def test_histories_without_common_ancestor_break_the_lineage(world: World) -> None:
    repository = world.clone()
    one = repository.write_commit([], files(a=b"1"), "m", at=AT)
    two = repository.write_commit([], files(a=b"2"), "m", at=AT)
    with pytest.raises(GitError) as caught:
        repository.changes(one, two)
    assert caught.value.slug == "lineage_broken"
    assert not repository.is_ancestor(one, two)


def line(repository: Repository, length: int) -> list[CommitId]:
    """Merges on top of each other, each of a side commit; oldest first. Dates run backwards, as a bad clock's would."""
    commits = [repository.write_commit([], {}, "root", at=AT)]
    for number in range(1, length):
        at = AT - dt.timedelta(days=number)
        side = repository.write_commit([commits[-1]], {}, f"side {number}", at=AT + dt.timedelta(days=900))
        commits.append(repository.write_commit([commits[-1], side], {}, f"merge {number}", at=at))
    return commits


def test_commits_walk_the_first_parents_newest_first_and_stop_before_after(world: World) -> None:
    repository = world.clone()
    commits = line(repository, 5)
    assert [c.id for c in repository.commits(None, commits[4])] == commits[::-1]
    assert [c.id for c in repository.commits(commits[1], commits[4])] == commits[4:1:-1]
    assert list(repository.commits(commits[4], commits[4])) == []


def test_a_walk_may_be_left_early_and_other_reading_may_go_between(world: World) -> None:
    repository = world.clone()
    commits = line(repository, 4)
    walk = repository.commits(None, commits[3])
    assert next(walk).id == commits[3]
    assert repository.commit(commits[0]).id == commits[0]
    assert next(walk).id == commits[2]
    del walk


def test_a_walk_that_never_meets_after_says_that_the_lineage_is_broken(world: World) -> None:
    repository = world.clone()
    commits = line(repository, 3)
    side = repository.commit(commits[1]).parents[1]
    with pytest.raises(GitError) as caught:
        list(repository.commits(side, commits[2]))
    assert caught.value.slug == "lineage_broken"


def test_ancestry_follows_every_parent(world: World) -> None:
    repository = world.clone()
    commits = line(repository, 3)
    side = repository.commit(commits[1]).parents[1]
    assert repository.is_ancestor(side, commits[2])
    assert repository.is_ancestor(commits[2], commits[2])
    assert not repository.is_ancestor(commits[2], side)


def test_what_was_merged_is_found_in_one_look_however_it_was_merged_and_whatever_its_date(world: World) -> None:
    repository = world.clone()
    commits = line(repository, 3)
    side = repository.commit(commits[1]).parents[1]
    open_ones = [
        repository.write_commit([commits[0]], files(x=b"%d" % year), "m", at=AT.replace(year=year))
        for year in (1980, 2026, 2080)
    ]
    assert repository.merged_into(commits[2], [side, *commits, *open_ones]) == {side, *commits}
    assert repository.merged_into(commits[0], [commits[2], *open_ones]) == frozenset()
    assert repository.merged_into(commits[2], []) == frozenset()


def test_what_is_not_there_was_not_merged_and_hides_nothing_else(world: World) -> None:
    repository = world.clone()
    commits = line(repository, 2)
    assert repository.merged_into(commits[1], [CommitId("1" * 40), *commits]) == frozenset(commits)


def test_what_a_line_touches_is_told_for_each_commit_newest_first_against_its_first_parent(world: World) -> None:
    repository = world.clone()
    root = repository.write_commit([], files(a__x=b"1", b__y=b"1", ab=b"1"), "m", at=AT)
    side = repository.write_commit([root], files(a__x=b"2", b__y=b"2"), "m", at=AT)
    other = repository.write_commit([root], files(ab=b"2"), "m", at=AT - dt.timedelta(days=9))
    merge = repository.write_commit([other, side], files(a__x=b"2", a__new=b"3"), "m", at=AT)
    gone = repository.write_commit([merge], files(a__x=None), "m", at=AT)
    told = list(repository.touched(gone, ["a"]))
    assert [t.commit for t in told] == [gone, merge, other, root]
    assert [[(c.path, c.status) for c in t.changes or ()] for t in told] == [
        [("a/x", "D")],
        [("a/new", "A"), ("a/x", "M")],
        [],
        [("a/x", "A")],
    ]
    blobs = [c.blob and repository.read(c.blob, max_bytes=9) for t in told for c in t.changes or ()]
    assert blobs == [None, b"3", b"2", b"1"]


def test_what_a_line_touches_may_be_asked_of_several_folders_and_of_files(world: World) -> None:
    repository = world.clone()
    root = repository.write_commit([], files(a__x=b"1", b__y__z=b"1", c=b"1"), "m", at=AT)
    (told,) = repository.touched(root, ["b", "a/x", "none"])
    assert [c.path for c in told.changes or ()] == ["a/x", "b/y/z"]


def test_a_rename_and_a_change_of_mode_are_told_as_they_are(world: World) -> None:
    repository = world.clone()
    root = world.plant(
        repository, [], {"a/old": ("100644", b"same"), "a/run": ("100644", b"r"), "a/l": ("100644", b"l")}
    )
    head = world.plant(
        repository, [root], {"a/new": ("100644", b"same"), "a/run": ("100755", b"r"), "a/l": ("120000", b"l")}
    )
    told = next(iter(repository.touched(head, ["a"])))
    assert [(c.path, c.status, c.mode) for c in told.changes or ()] == [
        ("a/l", "T", "120000"),
        ("a/new", "A", "100644"),
        ("a/old", "D", "000000"),
        ("a/run", "M", "100755"),
    ]  # fmt: skip


def test_a_line_that_nobody_has_cannot_be_walked(world: World) -> None:
    with pytest.raises(GitError) as caught:
        list(world.clone().touched(CommitId("1" * 40), ["a"]))
    assert caught.value.slug == "object_corrupt"


# --- refs


def test_a_push_is_seen_at_once_by_its_clone_and_after_a_fetch_by_others(world: World) -> None:
    one, two = world.clone(), world.clone()
    commit = one.write_commit([], files(a=b"1"), "m", at=AT)
    tag = one.write_tag("global@v0.0.0", commit, "global: v0")
    updates = {MAIN: commit, "refs/tags/global@v0.0.0": tag, "refs/pull/7/head": commit, "refs/fedops/forge": commit}
    assert one.push([RefUpdate(ref, None, name) for ref, name in updates.items()])
    names = ["main", *updates, "global@v0.0.0", tag, commit]
    assert [one.resolve(name) for name in names] == [commit] * len(names)
    assert [two.resolve(name) for name in names] == [None] * len(names)
    two.fetch()
    assert [two.resolve(name) for name in names] == [commit] * len(names)
    assert tree(two, commit) == {"a": b"1"}


def test_a_ref_that_is_not_there_is_none(world: World) -> None:
    repository = world.clone()
    main = publish(repository, files(a=b"1"))
    assert repository.push([RefUpdate("refs/pull/1/head", None, main)])
    odd = ["", "-x", "ma*", "main~1", ":/m", "@{-1}", "a\nb", "main^{tree}", "..", "/main"]
    for ref in ["refs/heads/none", "none", "1" * 40, "refs/pull", "refs/pull/1", *odd]:
        assert repository.resolve(ref) is None


def test_refs_below_a_folder_are_listed_with_what_they_name(world: World) -> None:
    clone = world.clone()
    one, two = (clone.write_commit((), {RepoPath("a"): data}, "m", at=AT) for data in (b"1", b"2"))
    names = {"refs/fedops/heartbeat/a": one, "refs/fedops/heartbeat/b": two}
    assert clone.push([RefUpdate(ref, None, name) for ref, name in names.items()])
    assert clone.push([RefUpdate("refs/fedops/heartbeats", None, one)])
    assert clone.refs_below("refs/fedops/heartbeat") == clone.refs_below("refs/fedops/heartbeat/") == names
    assert clone.refs_below("refs/fedops/none") == {}


def test_a_lost_race_moves_nothing_and_is_no_error(world: World) -> None:
    one, two = world.clone(), world.clone()
    base = publish(one, files(a=b"1"))
    two.fetch()
    publish(one, files(a=b"2"))
    mine = two.write_commit([base], files(a=b"3"), "m", at=AT)
    tag = two.write_tag("global@v1.0.0", mine, "m")
    assert two.push([RefUpdate(MAIN, base, mine), RefUpdate("refs/tags/global@v1.0.0", None, tag)]) is False
    assert two.resolve("main") == base
    one.fetch()
    assert one.versions() == ()
    two.fetch()
    assert two.versions() == ()
    assert tree(two, two.resolve("main") or mine) == {"a": b"2"}


def test_a_ref_that_must_not_exist_but_does_loses_the_race(world: World) -> None:
    one, two = world.clone(), world.clone()
    commit = publish(one, files(a=b"1"))
    assert one.push([RefUpdate("refs/pull/1/head", None, commit)])
    other = two.write_commit([], files(a=b"2"), "m", at=AT)
    assert two.push([RefUpdate("refs/pull/1/head", None, other)]) is False
    assert two.push([RefUpdate("refs/pull/2/head", commit, other)]) is False


def test_the_same_push_again_is_won_already(world: World) -> None:
    one, two = world.clone(), world.clone()
    base = publish(one, files(a=b"1"))
    two.fetch()
    ids = [r.write_commit([base], files(a=b"2"), "m", at=AT) for r in (one, two)]
    tags = [r.write_tag("global@v1.0.0", ids[0], "m") for r in (one, two)]
    updates = [RefUpdate(MAIN, base, ids[0]), RefUpdate("refs/tags/global@v1.0.0", None, tags[0])]
    assert one.push(updates)
    assert one.push(updates)
    assert two.push(updates)  # another runner that made the same commit
    assert two.resolve("main") == ids[0]
    assert [tag.object for tag in two.versions()] == [tags[0]]


def test_a_delete_needs_the_right_old_value_and_is_done_once(world: World) -> None:
    repository = world.clone()
    commit = publish(repository, files(a=b"1"))
    other = repository.write_commit([commit], {}, "m", at=AT)
    assert repository.push([RefUpdate("refs/fedops/x", None, commit)])
    assert repository.push([RefUpdate("refs/fedops/x", other, None)]) is False
    assert repository.resolve("refs/fedops/x") == commit
    assert repository.push([RefUpdate("refs/fedops/x", commit, None)])
    assert repository.resolve("refs/fedops/x") is None
    assert repository.push([RefUpdate("refs/fedops/x", commit, None)])
    both = [RefUpdate("refs/fedops/x", commit, None), RefUpdate("refs/fedops/y", None, commit)]
    assert repository.push(both) is False
    assert repository.resolve("refs/fedops/y") is None


def test_a_push_of_nothing_is_won(world: World) -> None:
    assert world.clone().push([])


def test_a_push_with_the_right_lease_may_go_back(world: World) -> None:
    repository = world.clone()
    first = publish(repository, files(a=b"1"))
    second = publish(repository, files(a=b"2"))
    assert repository.push([RefUpdate(MAIN, second, first)])
    assert repository.resolve("main") == first


def test_only_full_ref_names_are_pushed(world: World) -> None:
    repository = world.clone()
    commit = publish(repository, files(a=b"1"))
    for ref in ["main", "refs/", "refs/heads/a:refs/heads/b", "refs/heads/*", "--all", "refs/heads/a b"]:
        with pytest.raises(GitError):
            repository.push([RefUpdate(ref, None, commit)])


def test_an_object_that_is_not_here_cannot_be_pushed(world: World) -> None:
    with pytest.raises(GitError, match="1" * 40) as caught:
        world.clone().push([RefUpdate(MAIN, None, "1" * 40)])
    assert (caught.value.slug, caught.value.cause) == ("object_corrupt", "permanent")


def test_fetch_follows_moves_and_removals(world: World) -> None:
    one, two = world.clone(), world.clone()
    first = publish(one, files(a=b"1"))
    moved = ["refs/tags/global@v0.0.0", "refs/pull/1/head", "refs/fedops/forge"]
    gone = ["refs/tags/global@v1.0.0", "refs/pull/2/head", "refs/fedops/heartbeat/clinic-c"]
    assert one.push([RefUpdate(ref, None, first) for ref in moved + gone])
    two.fetch()
    assert [two.resolve(ref) for ref in moved + gone] == [first] * 6
    second = publish(one, files(a=b"2"))
    updates = [RefUpdate(ref, first, second) for ref in moved] + [RefUpdate(ref, first, None) for ref in gone]
    assert one.push([*updates, RefUpdate(MAIN, second, None)])
    two.fetch()
    assert [two.resolve(ref) for ref in moved] == [second] * 3
    assert [two.resolve(ref) for ref in gone] == [None] * 3
    assert two.resolve("main") is None
    assert publish(two, files(a=b"3")) == two.resolve("main")


def test_a_fetch_of_some_pulls_brings_those_and_leaves_the_others_as_they_are(world: World) -> None:
    one, two = world.clone(), world.clone()
    first = publish(one, files(a=b"1"))
    heads = [f"refs/pull/{number}/head" for number in (1, 2, 3)]
    assert one.push([RefUpdate(ref, None, first) for ref in heads])
    two.fetch(pulls=())
    assert [two.resolve(ref) for ref in ("main", *heads)] == [first, None, None, None]
    two.fetch(pulls=[2])
    assert [two.resolve(ref) for ref in heads] == [None, first, None]
    two.fetch()
    second = publish(one, files(a=b"2"))
    assert one.push([RefUpdate(heads[0], first, second), RefUpdate(heads[2], first, None)])
    two.fetch(pulls=[1])
    assert [two.resolve(ref) for ref in ("main", *heads)] == [second, second, first, first]
    two.fetch(pulls=[3, 999])
    assert [two.resolve(ref) for ref in heads] == [second, first, None]


def test_a_fetch_of_some_pulls_needs_no_main(world: World) -> None:
    one, two = world.clone(), world.clone()
    commit = one.write_commit([], files(a=b"1"), "m", at=AT)
    assert one.push([RefUpdate("refs/pull/1/head", None, commit)])
    two.fetch(pulls=[1, 2])
    assert [two.resolve(ref) for ref in ("main", "refs/pull/1/head", "refs/pull/2/head")] == [None, commit, None]


def test_fetch_leaves_out_other_branches_tags_and_merge_previews(world: World) -> None:
    one, two = world.clone(), world.clone()
    commit = publish(one, files(a=b"1"))
    other = one.write_commit([commit], files(b=b"2"), "m", at=AT)
    refs = ["refs/heads/submit/x", "refs/tags/v1", "refs/pull/1/merge", "refs/heads/main2"]
    assert one.push([RefUpdate(ref, None, other) for ref in refs])
    assert one.push([RefUpdate("refs/tags/of-main", None, one.write_tag("of-main", commit, "m"))])
    two.fetch()
    assert [two.resolve(ref) for ref in [*refs, "refs/tags/of-main"]] == [None] * 5


def test_versions_come_by_number_annotated_or_not_and_foreign_tags_are_not_parsed(world: World) -> None:
    repository = world.clone()
    commit = publish(repository, files(a=b"1"))
    tagged = repository.write_tag("global@v10.0.0", commit, "global: v10\n\nFedops-Model: sha256:0")
    foreign = ["global@v1.0.1", "global@v01.0.0", "global@v2", "global@vX.0.0", "global@v3.0.0-rc1", "v4.0.0"]
    updates = [RefUpdate(f"refs/tags/{name}", None, commit) for name in ["global@v9.0.0", *foreign]]
    assert repository.push([*updates, RefUpdate("refs/tags/global@v10.0.0", None, tagged)])
    assert [(t.version, t.tag, t.object, t.commit, t.annotated, t.message) for t in repository.versions()] == [
        (9, "global@v9.0.0", commit, commit, False, ""),
        (10, "global@v10.0.0", tagged, commit, True, "global: v10\n\nFedops-Model: sha256:0"),
    ]
    assert [[t.version for t in repository.versions(above=n)] for n in (8, 9, 10)] == [[9, 10], [10], []]


def test_a_tag_is_the_same_object_wherever_it_is_written(world: World) -> None:
    one, two = world.clone(), world.clone()
    commit = publish(one, files(a=b"1"))
    two.fetch()
    assert one.write_tag("global@v1.0.0", commit, "m") == two.write_tag("global@v1.0.0", commit, "m")


def test_the_id_of_a_tag_is_known_before_it_is_written(world: World) -> None:
    repository = world.clone()
    commit = publish(repository, files(a=b"1"))
    for message in ("m", "m\n\nKey: välue", ""):
        name = repository.tag_id("global@v1.0.0", commit, message)
        assert repository.resolve(name) is None
        assert repository.write_tag("global@v1.0.0", commit, message) == name
        assert repository.resolve(name) == commit
    with pytest.raises(GitError):
        repository.tag_id("a\nobject x", commit, "m")


def test_a_tag_name_that_git_refuses_is_an_error(world: World) -> None:
    repository = world.clone()
    commit = repository.write_commit([], {}, "m", at=AT)
    for name in ["a\nobject x", "a b", "a\0", "a:b"]:
        with pytest.raises(GitError):
            repository.write_tag(name, commit, "m")


def test_of_many_pushers_exactly_one_wins_each_round(world: World) -> None:
    clones = [world.clone() for _ in range(5)]
    main = publish(clones[0], files(a=b"0"))
    for turn in range(2):
        won: list[CommitId] = []
        errors: list[BaseException] = []
        start = threading.Barrier(50)
        for clone in clones:
            clone.fetch()

        def race(
            number: int,
            main: CommitId,
            turn: int,
            start: threading.Barrier,
            won: list[CommitId],
            errors: list[BaseException],
        ) -> None:
            try:
                clone = clones[number % len(clones)]
                mine = clone.write_commit([main], files(a=b"%d" % number), f"turn {turn} of {number}", at=AT)
                start.wait()
                if clone.push([RefUpdate(MAIN, main, mine), RefUpdate(f"refs/fedops/turn{turn}", None, mine)]):
                    won.append(mine)
            except BaseException as e:  # noqa: BLE001 shown by the assertion below
                errors.append(e)
                start.abort()

        threads = [
            threading.Thread(target=race, args=(n, main, turn, start, won, errors)) for n in range(start.parties)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(won) == 1
        clones[0].fetch()
        assert clones[0].resolve("main") == clones[0].resolve(f"refs/fedops/turn{turn}") == won[0]
        main = won[0]


# --- signatures


def test_the_key_that_signed_is_found_among_others_whatever_its_comment(
    world: World, keys: Mapping[str, SshKey]
) -> None:
    repository = world.clone()
    alice, bob = keys["alice"], keys["bob"]
    commit = repository.write_commit([], files(a=b"1"), "m", at=AT, key=alice.private)
    unsigned = repository.write_commit([], files(a=b"1"), "m", at=AT)
    assert commit != unsigned
    renamed = alice.public.rsplit(" ", 1)[0] + " somebody else"
    assert repository.signer(commit, [bob.public, alice.public]) == alice.public
    assert repository.signer(commit, [bob.public, renamed, alice.public]) == renamed
    assert repository.signer(commit, [bob.public]) is None
    assert repository.signer(commit, []) is None
    assert repository.signer(unsigned, [alice.public, bob.public]) is None


def test_a_signed_commit_is_the_same_when_written_again(world: World, keys: Mapping[str, SshKey]) -> None:
    one, two = world.clone(), world.clone()
    key = keys["alice"].private
    ids = {r.write_commit([], files(a=b"1"), "m", at=AT, key=key) for r in (one, two)}
    assert len(ids) == 1


def test_malformed_keys_are_skipped_and_can_name_no_other_key(world: World, keys: Mapping[str, SshKey]) -> None:
    repository = world.clone()
    alice, bob = keys["alice"].public, keys["bob"].public
    commit = repository.write_commit([], {}, "m", at=AT, key=keys["bob"].private)
    bare = bob.rsplit(" ", 1)[0]
    bad = [
        f"{alice}\nsigner {bob}",
        f"{alice}\r\n* {bare}",
        f"{alice}\n{bob}",
        f"cert-authority {bob}",
        f'namespaces="git" {bob}',
        f'command="x" {bare}',
        f"* {bare}",
        bare.replace(" ", "  "),
        bare.split(" ")[1],
        "ssh-ed25519",
        "",
        "# " + bob,
        bare[:-4],
        bare + "=",
        f"{bare}\0",
    ]
    assert [repository.signer(commit, [line]) for line in bad] == [None] * len(bad)
    assert repository.signer(commit, [*bad, bob]) == bob


def test_a_key_file_that_is_not_there_is_a_configuration_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        world.clone().write_commit([], {}, "m", at=AT, key=tmp_path / "none")
