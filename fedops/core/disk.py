"""What the system says where a file cannot be written, and what that means for the one who waits for it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fedops.core.errors import Cause, FedopsError

REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_ROOM_WORDS = re.compile("No space left on device|Disk quota exceeded")
_HANDLES = frozenset({errno.EMFILE, errno.ENFILE})
_TOO_LARGE = errno.EFBIG  # for `ulimit -f`, or for the kind of disk: waiting changes neither
_FAULTS = ROOM | _HANDLES | {_TOO_LARGE, errno.EIO, errno.ESTALE}


class DiskError(FedopsError):
    """A file could not be written, and that is the disk's fault or the machine's."""

    slug = "disk_failed"


def disk_fault(error: OSError, where: str = "", *, again: str = "run the same command again") -> DiskError | None:
    """The error to tell for what the system said; None: the fault is neither the disk's nor the machine's.

    Args:
        where: the file, as a person knows it; empty: as the system named it.
        again: what to do once it is put right.
    """
    if error.errno not in _FAULTS:
        return None
    did = "opened" if error.errno in _HANDLES else "written"
    cause: Cause = "permanent" if error.errno == _TOO_LARGE else "temporary"
    return DiskError(
        f"{where or named_file(error) or 'a file'}: cannot be {did}, got {error.strerror}",
        hint=f"{_what(error)}, then {again}; nothing was lost",
        cause=cause,
    )


def no_room(words: str) -> bool:
    """True if another program said that a disk or quota is full; in English, as LC_ALL=C makes them say it."""
    return _ROOM_WORDS.search(words) is not None


def named_file(error: OSError) -> str:
    """The file that an error is about: the new one, where one is made of another; empty: the system named none."""
    name = error.filename2 if error.filename2 is not None else error.filename
    if isinstance(name, bytes):
        return name.decode("utf-8", "replace")
    return "" if name is None or isinstance(name, int) else str(name)


@contextmanager
def about(file: object) -> Iterator[None]:
    """Let an error of the block name this file where the system names none, as for a write to an open one."""
    try:
        yield
    except OSError as e:
        if e.filename is None and e.errno is not None:
            e.filename = str(file)
        raise


def _what(error: OSError) -> str:
    """What a person does about it."""
    if error.errno in ROOM:
        return "make room there"
    if error.errno in _HANDLES:
        return "let this account open more files (`ulimit -n`)"
    if error.errno == _TOO_LARGE:
        return "allow larger files there (`ulimit -f`, or another kind of disk)"
    return "see that this disk is mounted and whole"
