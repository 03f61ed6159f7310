"""One process at a time in a clone: a locked file, which the system frees with the process, however that ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedops.core.disk import about
from fedops.core.errors import BusyError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_MOST_BYTES = 200


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the lock on a file, which is made if it is absent and stays; it names its holder for others to read.

    Programs that are started meanwhile do not inherit the lock, so one that outlives its parent holds nothing.

    Args:
        what: is being run, for the message of the second one.

    Raises:
        BusyError: temporary, another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # NOTE: "a", so that the second one does not empty what the first has written; without a buffer, since what a full disk
    # does not take would be written once more when the file is closed.
    with path.open("ab", buffering=0) as handle:
        try:
            _try_lock(handle.fileno())
        except OSError as e:
            raise BusyError(
                f"{path}: {_holder(path) or f'another {what}'} is at work in this clone -> one at a time",
                hint="wait for it, or end it; for another site use another clone",
                cause="temporary",
            ) from e
        with about(path):
            handle.truncate(0)
            handle.write(f"{what}, process {os.getpid()}\n".encode("utf-8", "replace"))
        yield


def _holder(path: Path) -> str:
    """What the holder wrote; empty where a locked file cannot be read."""
    text = ""
    with suppress(OSError):
        text = path.read_text(encoding="utf-8", errors="replace")[:_MOST_BYTES].strip()
    return "".join(c if c.isprintable() else "?" for c in text)
