"""A command's folder for temporary files, locked as long as its process lives; what killed ones left is swept.

A lock and not a process id: the system gives it up with the process, however that ends, and numbers come again.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedops.core.disk import about

PREFIX = "fedops-scratch-"
LOCK = ".fedops-scratch"
STALE_SECONDS = 3600.0  # to make a folder and to lock it takes much less


@contextmanager
def command_folder() -> Iterator[Path]:
    """A scratch folder for a whole command: all temporary files lie in it, also those of git's calls and of signatures.

    Where they lie is told to all of the process, so one command at a time.
    """
    with scratch_folder() as folder:
        outside, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = outside


if sys.platform == "win32":

    @contextmanager
    def scratch_folder() -> Iterator[Path]:
        """An empty folder for the length of the block."""
        with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
            yield Path(name)
else:
    import fcntl

    # Whoever can put links into the folder's parent must not make us follow them.
    _FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    _FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    _NEW = f"{LOCK}.new"
    _MADE = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")  # by mkdtemp; what people name so themselves is not theirs alone

    @contextmanager
    def scratch_folder() -> Iterator[Path]:
        """An empty folder for the length of the block; before, those of killed processes are removed."""
        sweep(Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            held = _hold(folder)
        except OSError:  # of a full disk: there is nothing in it yet
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            yield folder
        finally:
            with suppress(OSError):  # then the next command does it
                _remove(folder)
            os.close(held)

    def _hold(folder: Path) -> int:
        """Lock a new folder; it has its lock's name only when it is locked, so that no sweep comes in between."""
        new = folder / _NEW
        held = os.open(new, _FILE | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with about(new):
                os.write(held, _here())
            if _take(held):  # else the file system knows no locks, and nobody ever sweeps this folder
                new.rename(folder / LOCK)
        except OSError:
            os.close(held)
            raise
        return held

    def sweep(parent: Path) -> None:
        """Remove the folders of this user's killed processes; what cannot be removed, or is not surely one, stays."""
        with suppress(OSError):
            names = [entry.name for entry in os.scandir(parent) if entry.name.startswith(PREFIX)]
            for name in names:
                with suppress(OSError):  # not there any more, somebody else's, no folder, or without a lock's file
                    _sweep(parent / name)

    def _sweep(folder: Path) -> None:
        inside = os.open(folder, _FOLDER)
        try:
            found, names = os.fstat(inside), {entry.name for entry in os.scandir(inside)}
            if not _is_own(found) or not (LOCK in names or _is_unfinished(folder.name, found, names)):
                return
            if not names:
                folder.rmdir()
                return
            name = LOCK if LOCK in names else _NEW
            held = os.open(name, _FILE, dir_fd=inside)
            try:
                if _is_left(held, inside, name):
                    _empty(inside)
                    folder.rmdir()
            finally:
                os.close(held)
        finally:
            os.close(inside)

    def _is_unfinished(name: str, found: os.stat_result, names: set[str]) -> bool:
        """True for what is left if a command is killed before its lock has its name, or when that is gone already."""
        made = _MADE.fullmatch(name) is not None and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
        return made and names <= {_NEW} and time.time() - found.st_mtime > STALE_SECONDS

    def _is_left(held: int, inside: int, name: str) -> bool:
        """True if the lock's file is ours, of this machine, and was free; then it is held from now on."""
        found = os.fstat(held)
        if not (stat.S_ISREG(found.st_mode) and _is_own(found) and os.pread(held, 256, 0) == _here() and _take(held)):
            return False
        # Another sweep may have removed it, and with it the folder, before it was locked here.
        return os.path.samestat(found, os.stat(name, dir_fd=inside, follow_symlinks=False))

    def _remove(folder: Path) -> None:
        inside = os.open(folder, _FOLDER)
        try:
            _empty(inside)
        finally:
            os.close(inside)
        folder.rmdir()

    def _empty(inside: int) -> None:
        """Remove all of a folder, its lock's file last: who is killed here leaves a folder that can be swept."""
        for name in sorted(os.listdir(inside), key=lambda name: name == LOCK):
            if stat.S_ISDIR(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=inside)
            else:
                os.unlink(name, dir_fd=inside)

    def _take(held: int) -> bool:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _is_own(found: os.stat_result) -> bool:
        return found.st_uid == os.geteuid()

    def _here() -> bytes:
        """A folder that several machines share may have locks that they do not."""
        return os.uname().nodename.encode()[:256]
