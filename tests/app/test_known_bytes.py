"""What a verification keeps of files, and when a later one may rely on it."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.app.known_bytes import KnownBytes, Lying, fingerprint, look
from fedops.app.read_ahead import ReadAhead, digests_of
from fedops.core.errors import StoreError

DAY = 86_400


def file(folder: Path, name: str = "a", data: bytes = b"one model", *, age: float = DAY) -> Lying:
    path = folder / name
    path.write_bytes(data)
    at = time.time() - age
    os.utime(path, (at, at))
    return Lying(path, hashlib.sha256(data).hexdigest(), hashlib.md5(data, usedforsecurity=False).hexdigest())


def remembered(folder: Path, *files: Lying, made: str = "", proof: str = "") -> KnownBytes:
    """What a second run knows, after a first one has read these files."""
    first = KnownBytes(folder / "known.json")
    first.begin()
    for one in files:
        first.note(one, look(one.path))
    if made:
        first.note_made(made)
    if proof:
        first.prove(proof, "inputs")
    first.save()
    return KnownBytes(folder / "known.json", trust=True)


def test_a_file_that_was_read_and_is_as_it_was_need_not_be_read(tmp_path: Path) -> None:
    one = file(tmp_path)
    known = remembered(tmp_path, one)
    assert known.has(one)
    assert known.spared == (0, 0)
    assert known.trusts(one)
    assert known.trusts(one)
    assert known.spared == (1, 9)


def test_nothing_is_trusted_unless_that_was_asked(tmp_path: Path) -> None:
    one = file(tmp_path)
    remembered(tmp_path, one, made="1" * 64, proof="2" * 64)
    known = KnownBytes(tmp_path / "known.json")
    assert not known.trusts(one)
    assert not known.made("1" * 64)
    assert known.proven("2" * 64) is None


def test_other_digests_are_not_known_of_it(tmp_path: Path) -> None:
    one = file(tmp_path)
    known = remembered(tmp_path, one._replace(md5=None))
    assert known.trusts(one._replace(md5=None))
    assert not known.trusts(one)  # nobody has taken its md5
    assert not known.trusts(one._replace(sha256="0" * 64, md5=None))
    known = remembered(tmp_path, one, one._replace(md5=None))
    assert known.trusts(one)  # what was known of the same bytes stays


@pytest.mark.parametrize("change", ["bytes", "time", "inode", "gone"])
def test_a_file_that_looks_otherwise_is_read(tmp_path: Path, change: str) -> None:
    one = file(tmp_path)
    known = remembered(tmp_path, one, proof="1" * 64)
    assert known.proven("1" * 64) == "inputs"
    facts = one.path.stat()
    if change == "bytes":
        one.path.write_bytes(b"two model")
    elif change == "time":
        os.utime(one.path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    elif change == "inode":
        other = file(tmp_path, "b")
        os.utime(other.path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        other.path.replace(one.path)
    else:
        one.path.unlink()
    assert not known.trusts(one)
    assert known.proven("1" * 64) is None


def test_a_file_that_was_written_to_just_now_is_not_kept(tmp_path: Path) -> None:
    one = file(tmp_path, age=0)
    known = remembered(tmp_path, one, proof="1" * 64)
    assert not known.trusts(one)
    assert known.proven("1" * 64) is None


def test_a_file_that_changed_while_it_was_read_is_not_kept(tmp_path: Path) -> None:
    one = file(tmp_path)
    before = look(one.path)
    first = KnownBytes(tmp_path / "known.json")
    os.utime(one.path, (1, 1))
    first.note(one, before)
    first.note(one._replace(path=tmp_path / "absent"), look(tmp_path / "absent"))
    first.save()
    assert not KnownBytes(tmp_path / "known.json", trust=True).trusts(one)


def test_what_rests_on_more_than_files_leaves_no_proof(tmp_path: Path) -> None:
    one = file(tmp_path)
    first = KnownBytes(tmp_path / "known.json")
    first.prove("1" * 64, "inputs")  # nothing was begun
    first.begin()
    first.note(one, look(one.path))
    first.spoil()
    first.saw(one.path, look(one.path))
    first.prove("2" * 64, "inputs")
    first.begin()
    first.saw(tmp_path / "absent", None)
    first.prove("3" * 64, "inputs")
    first.begin()
    first.prove("4" * 64, "lineage")
    first.save()
    known = KnownBytes(tmp_path / "known.json", trust=True)
    assert [known.proven(c * 64) for c in "1234"] == [None, None, None, "lineage"]


def test_what_was_made_is_known_by_its_digest(tmp_path: Path) -> None:
    known = remembered(tmp_path, made="1" * 64)
    assert known.made("1" * 64)
    assert not known.made("2" * 64)


def test_the_list_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedops.app.known_bytes.MAX_ENTRIES", 2)
    files = [file(tmp_path, f"f{n}", b"%d" % n) for n in range(4)]
    known = remembered(tmp_path, *files)
    assert [known.trusts(one) for one in files] == [False, False, True, True]
    monkeypatch.setattr("fedops.app.known_bytes.MAX_BYTES", 10)
    before = (tmp_path / "known.json").read_bytes()
    remembered(tmp_path, *files)
    assert (tmp_path / "known.json").read_bytes() == before
    assert not KnownBytes(tmp_path / "known.json", trust=True).trusts(files[3])


def test_without_a_place_nothing_is_written(tmp_path: Path) -> None:
    one = file(tmp_path)
    known = KnownBytes()
    known.note(one, look(one.path))
    known.save()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_two_lists_have_one_fingerprint_only_if_they_are_equal(one: list[str], other: list[str]) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)


# ---------------------------------------------------------------- reading ahead


def test_digests_are_those_of_the_standard_library(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    one = file(tmp_path, data=data)
    assert digests_of(one.path, ["md5", "sha256"]) == ((one.md5, one.sha256), False)


def test_a_file_is_read_once_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = file(tmp_path), file(tmp_path, "b", b"another")
    reads: list[str] = []

    def noted(path: Path, names: tuple[str, ...], twin: Path | None) -> tuple[tuple[str, ...], bool]:
        reads.append(path.name)
        return digests_of(path, names, twin)

    monkeypatch.setattr("fedops.app.read_ahead.digests_of", noted)
    ahead, known = ReadAhead(), KnownBytes()
    ahead.begin(one.path, ["sha256", "md5"])
    ahead.check([one, other], known)
    ahead.check([one], known)
    assert sorted(reads) == ["a", "b"]
    assert ahead.read(other.path, ["sha256", "md5"]).digests == (other.sha256, other.md5)
    assert sorted(reads) == ["a", "b"]
    ahead.close()


def test_what_no_thread_has_come_to_is_read_by_who_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)  # one thread beside this one
    held, by = threading.Event(), {}

    def noted(path: Path, names: tuple[str, ...], twin: Path | None) -> tuple[tuple[str, ...], bool]:
        by[path.name] = threading.current_thread()
        if path.name == "a":
            held.wait(60)
        return digests_of(path, names, twin)

    monkeypatch.setattr("fedops.app.read_ahead.digests_of", noted)
    ahead, files = ReadAhead(), [file(tmp_path, name, name.encode()) for name in "abc"]
    for one in files:
        ahead.begin(one.path, ["md5"])
    try:
        assert ahead.read(files[2].path, ["md5"]).digests == (files[2].md5,)
        assert by["c"] is threading.main_thread()
    finally:
        held.set()
    assert [ahead.read(one.path, ["md5"]).digests for one in files] == [(one.md5,) for one in files]
    assert by["a"] is not threading.main_thread()
    ahead.close()


def test_what_this_run_has_read_is_known_as_long_as_nobody_touches_it(tmp_path: Path) -> None:
    one = file(tmp_path)
    earlier = remembered(tmp_path, one)
    assert not earlier.has_read(one)
    known, ahead = KnownBytes(), ReadAhead()
    ahead.check([one], known)
    ahead.close()
    assert known.has_read(one)
    assert not known.has_read(one._replace(sha256="0" * 64))
    os.utime(one.path, (1, 1))
    assert not known.has_read(one)
    one.path.unlink()
    assert not known.has_read(one)


def test_wrong_bytes_and_missing_files_are_told_as_a_store_would(tmp_path: Path) -> None:
    one = file(tmp_path)
    ahead, known = ReadAhead(), KnownBytes()
    for wrong in (one._replace(sha256="0" * 64), one._replace(md5="0" * 32)):
        with pytest.raises(StoreError) as e:
            ahead.check([wrong], known)
        assert e.value.slug == "hash_mismatch"
    with pytest.raises(StoreError) as e:
        ahead.check([one._replace(path=tmp_path / "absent")], known)
    assert (e.value.slug, e.value.cause) == ("object_missing", "permanent")
    ahead.close()


MB = 1 << 20
DATA = bytes(range(256)) * (MB // 128)  # two blocks


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"", b""),
        (b"", b"x"),
        (b"x", b""),
        (DATA, DATA),
        (DATA[:-1], DATA[:-1]),
        (DATA + b"x", DATA + b"x"),
        (DATA + b"x", DATA + b"y"),
        (DATA, DATA + b"x"),
        (DATA + b"x", DATA),
        (DATA[:MB], DATA),
        (DATA, DATA[:MB]),
        (DATA, b"\1" + DATA[1:]),
        (DATA, DATA[:MB] + b"\1" + DATA[MB + 1 :]),
        (DATA, DATA[:-1] + b"\0"),
        (b"\0" * MB, b""),
        (b"\0" * (MB + 5), b"\0" * (MB + 4)),
    ],
    ids=range(16),
)
def test_two_files_are_twins_only_if_all_bytes_are_equal(first: bytes, second: bytes, tmp_path: Path) -> None:
    one, other = file(tmp_path, data=first), file(tmp_path, "b", second)
    assert digests_of(one.path, ["md5"], other.path) == ((one.md5,), first == second)


def read_copies(tmp_path: Path, one: Lying, other: Lying | None, known: KnownBytes | None = None) -> KnownBytes:
    """Both copies read and checked; what is known of them then, by a run that trusts."""
    known, ahead = known or KnownBytes(tmp_path / "known.json"), ReadAhead()
    try:
        ahead.check_copies(one, other, known)
    finally:
        ahead.close()
    known.save()
    return KnownBytes(tmp_path / "known.json", trust=True)


def test_both_copies_of_an_update_are_read_and_known(tmp_path: Path) -> None:
    one, other = file(tmp_path, data=DATA), file(tmp_path, "b", DATA)
    known = read_copies(tmp_path, one, other._replace(md5=None))
    assert [known.has(f) for f in (one, other._replace(md5=None), other)] == [True, True, False]
    known = read_copies(tmp_path, one, None, KnownBytes(tmp_path / "fresh.json"))
    assert known.has(one)


def test_a_copy_that_is_not_its_twin_is_told_and_not_noted(tmp_path: Path) -> None:
    one, other = file(tmp_path, data=DATA), file(tmp_path, "b", DATA[:-1] + b"\0")
    claimed = other._replace(sha256=one.sha256, md5=None)
    with pytest.raises(StoreError) as e:
        read_copies(tmp_path, one, claimed)
    assert (e.value.slug, str(other.path) in e.value.message) == ("hash_mismatch", True)
    with pytest.raises(StoreError) as e:
        read_copies(tmp_path, one._replace(md5="0" * 32), None)
    assert e.value.slug == "hash_mismatch"
    with pytest.raises(StoreError) as e:
        read_copies(tmp_path, one, claimed._replace(path=tmp_path / "absent"))
    assert e.value.slug == "object_missing"
    assert not KnownBytes(tmp_path / "known.json", trust=True).has(one)


@pytest.mark.parametrize("good", [True, False])
def test_a_copy_that_was_not_compared_is_hashed(good: bool, tmp_path: Path) -> None:
    one, other = file(tmp_path, data=b"12345678"), file(tmp_path, "b", b"12345678" if good else b"12345679")
    ahead, known = ReadAhead(), KnownBytes()
    ahead.begin(one.path, ["md5"])  # by somebody who did not know where the other one is
    claimed = other._replace(sha256=one.sha256, md5=None)
    if good:
        ahead.check_copies(one, claimed, known)
    else:
        with pytest.raises(StoreError) as e:
            ahead.check_copies(one, claimed, known)
        assert e.value.slug == "hash_mismatch"
    assert ahead.read(other.path, ["sha256"]).digests == (other.sha256,)
    ahead.close()


def test_a_trusted_copy_is_not_compared(tmp_path: Path) -> None:
    one, other = file(tmp_path, data=b"12345678"), file(tmp_path, "b", b"12345678")._replace(md5=None)
    trusting = remembered(tmp_path, other)
    ahead = ReadAhead()
    ahead.check_copies(one, other, trusting)
    assert ahead.read(one.path, ["md5"]).twin is None
    assert trusting.spared == (1, 8)
    ahead.close()


def test_what_is_trusted_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = file(tmp_path)
    known = remembered(tmp_path, one)
    monkeypatch.setattr("fedops.app.read_ahead.digests_of", None)
    ahead = ReadAhead()
    ahead.check([one], known)
    ahead.close()
    assert known.spared == (1, 9)
