"""Main's line as versions are read from it, in memory; the damage is made up here, and on real git in tests/scenario."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence

import pytest

from fedops.app.lineage import read_until
from fedops.app.main_line import MainLine, read_line
from fedops.core.documents import dump_json
from fedops.core.errors import GitError
from fedops.core.facts import Touched, TreeEntry, VersionTag
from fedops.core.ids import BlobId, CommitId, RepoPath, SiteId
from fedops.core.records import MAX_VERSION_BYTES
from tests.core.samples import excluded_entry, submission, version
from tests.fakes_repository import FakeOrigin, FakeRepository

AT = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
A = SiteId("hospital-a")
RECORD = "sites/hospital-a/submission.json"
Files = Mapping[str, bytes | None]


class Damaged(FakeRepository):
    """Breaks the walk before some commits, and hides the changes of others."""

    gone: frozenset[CommitId] = frozenset()
    hidden: frozenset[CommitId] = frozenset()
    unlisted: frozenset[CommitId] = frozenset()
    slug = "object_corrupt"

    def touched(self, until: CommitId, under: Sequence[str]) -> Iterator[Touched]:
        if until in self.gone:
            raise GitError(f"git: object {until} is missing or corrupt", slug=self.slug)
        for one in super().touched(until, under):
            if one.commit in self.gone:
                raise GitError(f"git: object {one.commit} is missing or corrupt", slug=self.slug)
            yield Touched(one.commit, None) if one.commit in self.hidden else one

    def entries(self, commit: CommitId, under: str = "") -> Sequence[TreeEntry]:
        if commit in self.unlisted:
            raise GitError(f"git: the tree of {commit} is missing or corrupt", slug="object_corrupt")
        return super().entries(commit, under)


@pytest.fixture
def repository() -> Damaged:
    return Damaged(FakeOrigin())


def line(repository: FakeRepository, *steps: Files) -> list[CommitId]:
    """One commit on top of the other, oldest first."""
    commits: list[CommitId] = []
    for files in steps:
        named = {RepoPath(path): data for path, data in files.items()}
        commits.append(repository.write_commit(commits[-1:], named, "m", at=AT))
    return commits


def made(number: int, **changes: object) -> dict[str, bytes | None]:
    record = version(number, kind="aggregate" if number else "init").model_copy(update=changes)
    return {"global/version.json": dump_json(record)}


def tags(*pairs: tuple[int, CommitId]) -> dict[int, VersionTag]:
    return {n: VersionTag(n, f"global@v{n}.0.0", commit, commit, True, "") for n, commit in pairs}


def test_versions_are_the_commits_that_set_the_record(repository: Damaged) -> None:
    commits = line(repository, {"README": b"1"}, made(0), {"README": b"2"}, made(1), {RECORD: b"{}"})
    got = read_line(repository, commits[-1], {})
    assert [(s.number, s.commit, s.place, s.where) for s in got.steps] == [
        (0, commits[1], 1, "v0"),
        (1, commits[3], 3, "v1"),
    ]
    assert (got.commits, got.breaks, got.lost, got.strays, got.unreadable) == (tuple(commits), {}, {}, {}, [])
    assert got.steps[1].model is not None
    assert got.steps[1].model.tensors == {}


def test_the_bases_of_a_version_are_those_of_its_inputs_and_of_what_was_judged_by_its_bytes(
    repository: Damaged,
) -> None:
    out = excluded_entry(submission("clinic-c", 3), "non_finite", "FO-218").model_copy(update={"judged": "bytes"})
    old = excluded_entry(submission("bank-d", 1))
    record = {"excluded": (old, out), "consumed": {"clinic-c": 3, "bank-d": 1}}
    (commit,) = line(repository, made(8, **record))
    (step,) = read_line(repository, commit, {}).steps
    assert step.bases == {3, 7, 8}


def test_before_the_first_record_global_belongs_to_somebody_else(repository: Damaged) -> None:
    commits = line(repository, {"global/x": b"1"}, {"global/x": b"2"}, made(0), {"global/x": b"3"}, made(1))
    got = read_line(repository, commits[-1], {})
    assert got.strays == {3: ("global/x",)}


def test_a_record_that_goes_and_comes_back(repository: Damaged) -> None:
    commits = line(repository, made(0), {"global/version.json": None}, made(0))
    got = read_line(repository, commits[-1], {})
    assert [(s.number, s.place) for s in got.steps] == [(0, 0)]
    assert got.strays == {1: ("global/version.json",), 2: ("global/version.json",)}
    assert got.due == 0


def test_a_version_follows_the_one_whose_record_main_had_then(repository: Damaged) -> None:
    commits = line(repository, made(0), made(1), made(0), made(1, metrics={"a": 1.0}), made(2))
    got = read_line(repository, commits[-1], {})
    assert [(s.number, s.place, s.follows) for s in got.steps] == [(0, 0, -1), (1, 1, 0), (1, 3, 0), (2, 4, 2)]
    assert got.strays == {2: ("global/version.json",)}
    assert got.due == 3


def test_main_must_have_the_version_of_its_record_or_a_later_one_that_has_its_tag(repository: Damaged) -> None:
    commits = line(repository, made(0), made(1), made(0))
    assert read_line(repository, commits[-1], {}).due == 0
    assert read_line(repository, commits[-1], tags((1, commits[1]))).due == 1


@pytest.mark.parametrize("data", [b"", b"{}", b"x" * (MAX_VERSION_BYTES + 1)])
def test_a_record_that_cannot_be_read_has_the_number_of_its_tag_or_its_place(repository: Damaged, data: bytes) -> None:
    commits = line(repository, made(0), {"global/version.json": data})
    for hint, number in ((tags(), 1), (tags((7, commits[1])), 7)):
        step = read_line(repository, commits[-1], hint).steps[1]
        assert step.number == number
        assert step.fault is not None
        assert step.fault.slug == ("file_too_large" if len(data) > 9 else "record_mismatch")


def test_the_merge_of_a_record_is_the_newest_that_brought_it(repository: Damaged) -> None:
    commits = line(repository, made(0), {RECORD: b"1"}, {"x": b"x"}, {RECORD: b"2"}, {RECORD: None}, {RECORD: b"1"})
    got = read_line(repository, commits[-1], {})
    blobs = {n: repository.entries(commits[n], RECORD)[0].blob for n in (1, 3)}
    assert got.merges(commits[2], {A: blobs[1]})[A].id == commits[1]
    assert got.merges(commits[3], {A: blobs[3]})[A].id == commits[3]
    assert got.merges(commits[5], {A: blobs[1]})[A].id == commits[5]
    assert list(got.brought(1, 5)) == [(RECORD, blobs[3]), (RECORD, blobs[1])]
    assert list(got.brought(3, 4)) == []


def test_the_model_of_a_version_is_that_of_the_first_commit_that_said_its_number(repository: Damaged) -> None:
    again = made(0, metrics={"loss": 1.0})
    commits = line(repository, made(0), made(1), again, {"global/version.json": b"{}"})
    got = read_line(repository, commits[-1], tags((7, commits[3])))
    assert got.model_sha256(commits[0], 0) == version(0, kind="init").model.sha256
    assert got.model_sha256(commits[0], 1) is None
    assert got.model_sha256(commits[2], 1) == version(1).model.sha256
    assert got.model_sha256(commits[2], 7) is None
    with pytest.raises(GitError, match="v7") as caught:
        got.model_sha256(commits[3], 7)
    assert caught.value.slug == "lineage_broken"


def test_a_merge_that_nobody_can_see_is_damage(repository: Damaged) -> None:
    commits = line(repository, made(0), {RECORD: b"1"}, {"x": b"x"})
    blob = repository.entries(commits[1], RECORD)[0].blob
    repository.hidden = frozenset({commits[1]})
    got = read_line(repository, commits[2], {})
    assert got.unreadable == [1]
    for wanted in (blob, BlobId("0" * 40)):
        with pytest.raises(GitError, match=RECORD) as caught:
            got.merges(commits[2], {A: wanted})
        assert caught.value.slug == "object_corrupt"


def test_a_version_whose_changes_are_hidden_is_found_by_its_tree(repository: Damaged) -> None:
    commits = line(repository, made(0), made(1), {"x": b"x"}, {"y": b"y"})
    repository.hidden = frozenset({commits[1], commits[2]})
    got = read_line(repository, commits[-1], {})
    assert [(s.number, s.place) for s in got.steps] == [(0, 0), (1, 1)]
    assert got.unreadable == [1, 2]


def test_a_version_without_a_tree_is_found_by_its_tag(repository: Damaged) -> None:
    commits = line(repository, made(0), made(1), {"x": b"x"})
    repository.hidden = repository.unlisted = frozenset({commits[1]})
    (_, one) = read_line(repository, commits[-1], tags((1, commits[1]))).steps
    assert (one.number, one.place, one.fault and one.fault.slug) == (1, 1, "object_corrupt")
    assert [s.number for s in read_line(repository, commits[-1], {}).steps] == [0]


def test_where_the_line_breaks_it_goes_on_from_the_next_older_tag(repository: Damaged) -> None:
    commits = line(repository, made(0), made(1), {"x": b"x"}, {"y": b"y"}, made(2), made(3))
    repository.gone = frozenset({commits[3]})
    got = read_line(repository, commits[-1], tags((0, commits[0]), (1, commits[1]), (2, commits[4]), (3, commits[5])))
    assert got.commits == (commits[0], commits[1], commits[4], commits[5])
    assert [s.number for s in got.steps] == [0, 1, 2, 3]
    assert list(got.breaks) == [2]
    assert got.lost == {}


def test_a_version_whose_commit_is_gone_is_lost_and_older_ones_are_not(repository: Damaged) -> None:
    commits = line(repository, made(0), made(1), made(2))
    repository.gone = frozenset({commits[1]})
    got = read_line(repository, commits[-1], tags(*enumerate(commits)))
    assert [s.number for s in got.steps] == [0, 2]
    assert list(got.breaks) == [1]
    commit, error = got.lost[1]
    assert commit == commits[1]
    assert commits[1] in error.message


def test_a_line_that_breaks_before_any_version_was_met_goes_on_from_the_newest_tag(repository: Damaged) -> None:
    commits = line(repository, made(0), {"x": b"x"}, {"y": b"y"})
    repository.gone = frozenset({commits[1]})
    got = read_line(repository, commits[-1], tags((0, commits[0])))
    assert got.commits == (commits[0], commits[2])
    assert list(got.breaks) == [1]


def test_a_line_that_breaks_at_once_and_has_no_tag_is_empty(repository: Damaged) -> None:
    commits = line(repository, made(0))
    repository.gone = frozenset(commits)
    got = read_line(repository, commits[-1], {})
    assert (got.commits, got.steps, list(got.breaks)) == ((), [], [0])


def test_the_tags_of_an_unbroken_line_are_never_followed(repository: Damaged) -> None:
    commits = line(repository, made(0), made(1))
    got = read_line(repository, commits[-1], tags((9, CommitId("1" * 40))))
    assert got.commits == tuple(commits)


def test_a_walk_that_fails_for_another_reason_is_an_error(repository: Damaged) -> None:
    commits = line(repository, made(0))
    repository.gone, repository.slug = frozenset(commits), "git_failed"
    with pytest.raises(GitError):
        read_line(repository, commits[-1], {})


def test_what_a_version_read_ends_at_its_input_commit_or_at_itself(repository: Damaged) -> None:
    def decided_on(commit: str | None) -> dict[str, bytes | None]:
        return made(1, witness=version(1).witness.model_copy(update={"input_commit": commit}))

    first = line(repository, made(0))
    for named, place in ((first[0], 0), ("1" * 40, 1), (None, 1)):
        files = {RepoPath(path): data for path, data in decided_on(named).items()}
        commit = repository.write_commit(first, files, "m", at=AT)
        got = read_line(repository, commit, {})
        assert read_until(got, 1) == place


def test_an_empty_line_has_no_places(repository: Damaged) -> None:
    assert MainLine(repository).place("1" * 40) is None
    assert MainLine(repository).place(None) is None
