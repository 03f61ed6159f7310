from __future__ import annotations

import errno
import os

import pytest

from fedops.core.disk import about, disk_fault, named_file, no_room


def fault(code: int, name: str | None = None, name2: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), name, None, name2)


@pytest.mark.parametrize(
    ("code", "cause", "did", "hint"),
    [
        (errno.ENOSPC, "temporary", "written", "make room there, then"),
        (errno.EDQUOT, "temporary", "written", "make room there, then"),
        (errno.EIO, "temporary", "written", "see that this disk is mounted and whole, then"),
        (errno.ESTALE, "temporary", "written", "see that this disk is mounted and whole, then"),
        (errno.EMFILE, "temporary", "opened", "let this account open more files"),
        (errno.ENFILE, "temporary", "opened", "let this account open more files"),
        (errno.EFBIG, "permanent", "written", "allow larger files there"),
    ],
)
def test_what_a_disk_does_is_told_with_what_a_person_does_then(code: int, cause: str, did: str, hint: str) -> None:
    told = disk_fault(fault(code, "/data/a"))
    assert told is not None
    assert (told.cause, told.message) == (cause, f"/data/a: cannot be {did}, got {os.strerror(code)}")
    assert told.hint.startswith(hint)
    assert told.hint.endswith("then run the same command again; nothing was lost")


@pytest.mark.parametrize(
    "code", [errno.EACCES, errno.EROFS, errno.ENOENT, errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT]
)
def test_what_is_no_disks_fault_is_left_to_others(code: int) -> None:
    assert disk_fault(fault(code, "/data/a")) is None


def test_the_caller_may_name_the_file_and_what_comes_next() -> None:
    told = disk_fault(fault(errno.ENOSPC, "x"), "the clone", again="fedops pull")
    assert told is not None
    assert (told.message[:10], told.hint) == ("the clone:", "make room there, then fedops pull; nothing was lost")
    nameless = disk_fault(fault(errno.ENOSPC))
    assert nameless is not None
    assert nameless.message.startswith("a file: ")


def test_of_two_names_the_new_one_is_meant() -> None:
    assert named_file(fault(errno.ENOSPC, "old", "new")) == "new"
    assert named_file(fault(errno.ENOSPC, "old")) == "old"
    assert named_file(OSError(errno.ENOSPC, "full", b"a\xff")) == "a\ufffd"
    assert named_file(OSError(errno.ENOSPC, "full", 7)) == "", "a descriptor says nothing to people"
    assert named_file(fault(errno.ENOSPC)) == ""


def test_a_write_to_an_open_file_is_named_and_a_name_that_is_there_stays() -> None:
    for given, expected in ((fault(errno.ENOSPC), "journal"), (fault(errno.ENOSPC, "other"), "other")):
        with pytest.raises(OSError, match="No space left") as e, about("journal"):
            raise given
        assert (e.value, e.value.filename) == (given, expected)
    with pytest.raises(OSError, match="in words alone") as plain, about("journal"):
        raise OSError("in words alone")
    assert plain.value.filename is None
    with about("journal"):
        pass


def test_what_other_programs_say_of_a_full_disk_is_known() -> None:
    assert no_room("fatal: write error: No space left on device\n")
    assert no_room("error: x: Disk quota exceeded")
    assert not no_room("error: cannot lock ref")
