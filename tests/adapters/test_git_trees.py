"""One path of a tree, as `git ls-tree` gives it, also of trees that git itself would never write."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fedops.adapters.git_objects import ObjectReader, parse_entries
from fedops.adapters.git_process import GitProcess
from fedops.adapters.git_repo import GitRepository
from fedops.adapters.git_trees import Trees
from fedops.core.errors import GitError
from fedops.core.facts import TreeEntry
from fedops.core.ids import BlobId, CommitId

FILE, RUN, LINK, TREE, MODULE = "100644", "100755", "120000", "40000", "160000"


class Ground:
    """A repository into which any tree can be put."""

    def __init__(self, path: Path) -> None:
        self.path = path
        GitRepository.init(path, bare=True).close()
        self.process = GitProcess(path, {})
        self.objects = ObjectReader(self.process)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return subprocess.run(["git", "-C", self.path, *arguments], input=stdin, capture_output=True, check=True).stdout

    def trees(self) -> Trees:
        return Trees(self.process, self.objects)

    def write(self, kind: str, data: bytes) -> str:
        return self("hash-object", "-t", kind, "-w", "--stdin", "--literally", stdin=data).decode().strip()

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        """Mode, name and id of each entry, in this order."""
        return self.write("tree", b"".join(b"%s %s\0%s" % (m.encode(), n, bytes.fromhex(i)) for m, n, i in entries))

    def commit(self, tree: str) -> CommitId:
        facts = f"tree {tree}\nauthor a <a@h.invalid> 0 +0000\ncommitter a <a@h.invalid> 0 +0000\n\nm\n"
        return CommitId(self.write("commit", facts.encode()))

    def listed(self, commit: CommitId, path: str) -> tuple[TreeEntry, ...]:
        """What git says."""
        return parse_entries(
            self("--literal-pathspecs", "ls-tree", "-r", "-z", "-l", "--full-tree", "--", commit, path)
        )


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    one = Ground(tmp_path / "bare.git")
    yield one
    one.objects.close()


def test_files_and_links_at_any_depth_are_found_as_git_lists_them(ground: Ground) -> None:
    blob, empty = ground.write("blob", b"text\n"), ground.write("blob", b"")
    deep = ground.tree((FILE, b"file", blob), (LINK, b"link", blob), (RUN, b"run", empty))
    commit = ground.commit(ground.tree((FILE, b"a", blob), (TREE, b"d", ground.tree((TREE, "é é".encode(), deep)))))
    trees = ground.trees()
    for path, mode, size in (("a", FILE, 5), ("d/é é/file", FILE, 5), ("d/é é/link", LINK, 5), ("d/é é/run", RUN, 0)):
        found = trees.find(commit, path)
        assert found == ground.listed(commit, path)
        assert found is not None
        assert [(e.path, e.mode, e.size) for e in found] == [(path, mode, size)]
    for missing in ("b", "d/b", "b/c/d", "d/é é/fil", "d/é é/file ", "D", ":a", "*", "d/*/file", "\udcff"):
        assert trees.find(commit, missing) == ground.listed(commit, missing) == ()


def test_what_is_not_plain_is_left_to_git(ground: Ground) -> None:
    blob, other = ground.write("blob", b"1"), ground.write("blob", b"2")
    folder = ground.tree((FILE, b"x", blob))
    odd: Sequence[tuple[tuple[tuple[str, bytes, str], ...], str]] = [
        (((TREE, b"d", folder),), "d"),
        (((MODULE, b"m", "1" * 40),), "m"),
        (((FILE, b"a", blob), (FILE, b"a", other)), "a"),
        (((TREE, b"d", folder), (TREE, b"d", folder)), "d/x"),
        (((FILE, b"d", blob), (TREE, b"d", folder)), "d/x"),
        (((FILE, b"a", blob),), "a/x"),
        (((MODULE, b"m", "1" * 40),), "m/x"),
        ((("100664", b"a", blob),), "a"),
        ((("040000", b"d", folder),), "d/x"),
        (((TREE, b"d", folder),), "d//x"),
        (((TREE, b"d", folder),), "./d/x"),
        (((TREE, b"d", folder),), "d/../d/x"),
    ]
    for entries, path in odd:
        assert ground.trees().find(ground.commit(ground.tree(*entries)), path) is None


def test_the_repository_answers_the_same_either_way(ground: Ground) -> None:
    blob, other = ground.write("blob", b"1"), ground.write("blob", b"2")
    folder = ground.tree((FILE, b"x", blob), (FILE, b"y", other))
    commit = ground.commit(ground.tree((FILE, b"a", blob), (TREE, b"d", folder), (MODULE, b"m", "1" * 40)))
    twice = ground.commit(ground.tree((FILE, b"a", blob), (FILE, b"a", other)))
    with GitRepository(ground.path) as repository:
        for at, path in ((commit, "a"), (commit, "d"), (commit, "d/x"), (commit, "m"), (commit, "a/x"), (twice, "a")):
            assert repository.entries(at, path) == ground.listed(at, path)
        assert [len(repository.entries(commit, path)) for path in ("a", "d", "d/x", "m", "a/x")] == [1, 2, 1, 1, 0]


@pytest.mark.parametrize("data", [b"100644 a\0" + b"1" * 19, b"100644 a", b"100644\0" + b"1" * 20, b"\0" * 30])
def test_a_tree_that_is_cut_short_is_corrupt(data: bytes, ground: Ground) -> None:
    tree = ground.write("tree", data)
    with pytest.raises(GitError) as e:
        ground.trees().find(ground.commit(tree), "a")
    assert (e.value.slug, tree in e.value.message) == ("object_corrupt", True)


def test_objects_that_are_missing_are_named(ground: Ground) -> None:
    gone, blob = "1" * 40, ground.write("blob", b"1")
    for commit in (
        ground.commit(gone),
        ground.commit(ground.tree((TREE, b"d", gone))),
        ground.commit(ground.tree((TREE, b"d", ground.tree((FILE, b"x", gone))))),
    ):
        with pytest.raises(GitError) as e:
            ground.trees().find(commit, "d/x")
        assert (e.value.slug, gone in e.value.message) == ("object_corrupt", True)
    named_wrong = ground.commit(ground.tree((FILE, b"a", ground.tree((FILE, b"x", blob)))))
    with pytest.raises(GitError) as e:
        ground.trees().find(named_wrong, "a")
    assert e.value.slug == "object_corrupt"
    assert ground.objects.size(BlobId(blob)) == 1


@pytest.mark.parametrize("twice", [True, False])
def test_a_tree_of_very_many_entries_is_left_to_git(twice: bool, ground: Ground) -> None:
    """A commit that nobody has seen may hold one: what it costs must not grow with its square, nor stay in memory."""
    blob, empty = ground.write("blob", b"1"), ground.tree()
    entries = [(TREE, b"zz" if twice else b"z%05d" % n, empty) for n in range(10_000)]
    commit = ground.commit(ground.tree((FILE, b"a", blob), *entries))
    trees = ground.trees()
    assert trees.find(commit, "a") is None
    assert [e.blob for e in trees.entries(commit, "a")] == [blob]


def test_a_tree_that_is_named_in_capitals_is_left_to_git(ground: Ground) -> None:
    tree = ground.tree((FILE, b"a", ground.write("blob", b"1")))
    commit = ground.commit(tree.upper())
    assert ground.trees().find(commit, "a") is None
    assert ground.trees().entries(commit, "a") == ground.listed(commit, "a") != ()
