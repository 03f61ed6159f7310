"""Files that a kill leaves whole: hashed streams, replacement by rename, a lock that dies with its holder."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Protocol

from fedops.core.disk import disk_fault
from fedops.core.errors import Cause, StoreError

BLOCK_BYTES = 1 << 20
STALE_SECONDS = 3600.0

_PART = re.compile(r"(\.part-[0-9a-f]{16})+\Z")  # twice: a part that another store filled by a part of its own
_AUTH = frozenset({errno.EACCES, errno.EPERM})
_TEMPORARY = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK}
)
_HINTS: dict[Cause, str] = {
    "auth": "give this account the right to read and write there",
    "temporary": "free space or mount the folder again, then repeat the command; nothing was lost",
    "permanent": "check that it exists and is mounted; `store` in federation.yaml names the folder",
}

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


class Readable(Protocol):
    """Bytes that are read once, in order: an open file, or what comes over the network."""

    def readinto(self, buffer: memoryview, /) -> int: ...


@dataclass(frozen=True)
class Streamed:
    size: int  # bytes read
    sha256: str
    md5: str  # hex; empty if it was not asked for


@contextmanager
def reported(where: Path | str, doing: str) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError that says where, what, and whether repeating may help."""
    try:
        yield
    except OSError as e:
        cause: Cause = "permanent"
        if e.errno in _AUTH:
            cause = "auth"
        elif e.errno in _TEMPORARY:
            cause = "temporary"
        large = disk_fault(e) if e.errno == errno.EFBIG else None
        hint = large.hint if large is not None else _HINTS[cause]
        raise StoreError(f"{where}: cannot {doing}, got {e.strerror or e}", hint=hint, cause=cause) from e


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the one lock on a file, waiting for it; the system frees it with the process, however that ends."""
    with path.open("ab") as handle:
        _lock(handle.fileno())
        yield


@contextmanager
def part(target: Path) -> Iterator[Path]:
    """Name a new file beside `target` to write before renaming; what is still there at the end is removed."""
    path = target.with_name(f"{target.name}.part-{secrets.token_hex(8)}")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def clean_parts(folder: Path, of: str | None = None) -> None:
    """Remove what killed writers left behind; a part touched in the last hour may still be written.

    Args:
        folder: where to look, not below it.
        of: only parts of the file of this name; None: all parts.
    """
    oldest = time.time() - STALE_SECONDS
    for path in folder.iterdir():
        match = _PART.search(path.name)
        if match and of in (None, path.name[: match.start()]):
            with suppress(FileNotFoundError):  # another writer cleans too
                if path.lstat().st_mtime < oldest:
                    path.unlink()


def sync_file(path: Path) -> None:
    """Make the bytes of a closed file survive a power cut; to be done before it is renamed to where it is looked for."""
    with path.open("rb+") as handle:
        os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    if sys.platform == "win32":  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_up_to(path: Path, max_bytes: int) -> bytes:
    """The bytes of a small file; one more than max_bytes of a larger one."""
    with path.open("rb") as handle:
        # NOTE: read(n) takes n bytes of memory at once, however short the file is.
        return handle.read(min(os.fstat(handle.fileno()).st_size, max_bytes) + 1)


def replace(path: Path, data: bytes, *, scratch: Path) -> None:
    """Write a small file whole: after a kill the old or the new bytes are there, never a mixture.

    Args:
        path: the file.
        data: its new bytes.
        scratch: name beside which the part is written; on the same file system as `path`.
    """
    with part(scratch) as temporary:
        with temporary.open("xb") as out:
            out.write(data)
        sync_file(temporary)
        temporary.replace(path)
    sync_folder(path.parent)


def stream(
    source: Readable, target: BufferedWriter | None = None, *, limit: int | None = None, md5: bool = False
) -> Streamed:
    """Read bytes once in blocks of 1 MiB, hash them and write them to `target`; `sync_file` makes that last.

    Args:
        source: at its beginning.
        target: opened for writing; None only hashes.
        limit: stop after the first block that goes beyond this number of bytes, without writing that block.
        md5: also take the md5, in a second thread: it is slower than sha256 and would otherwise double the time.
    """
    sha256 = hashlib.sha256()
    weak = hashlib.md5(usedforsecurity=False)
    block = memoryview(bytearray(BLOCK_BYTES))
    size = 0
    with ThreadPoolExecutor(1) as pool:
        while count := source.readinto(block):
            size += count
            if limit is not None and size > limit:
                break
            pending = pool.submit(weak.update, block[:count]) if md5 else None
            sha256.update(block[:count])
            if target is not None:
                target.write(block[:count])
            if pending is not None:
                pending.result()
    return Streamed(size, sha256.hexdigest(), weak.hexdigest() if md5 else "")
