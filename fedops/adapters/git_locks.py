"""Locks that a killed git left behind: git waits for them for ever, since it cannot know that nobody holds them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

# Git holds the lock of a ref for milliseconds, that of all packed refs for seconds.
STALE_SECONDS = 600.0
_log = logging.getLogger(__name__)


def git_folder(path: Path) -> Path | None:
    """Where a repository on this machine keeps its refs; None if there is none at a path.

    Args:
        path: of a bare repository, or of a work tree that is not a linked one.
    """
    for folder in (path / ".git", path):
        if (folder / "objects").is_dir() and (folder / "HEAD").is_file():
            return folder
    return None


def locks(folder: Path) -> Iterator[Path]:
    """The locks of refs in a repository's folder; not that of the index, which a person at work may hold for hours."""
    yield from (lock for name in ("packed-refs", "HEAD", "shallow") if (lock := folder / f"{name}.lock").is_file())
    yield from sorted((folder / "refs").rglob("*.lock"))


def remove_stale_locks(folder: Path) -> int:
    """Remove the locks that are older than any git holds one; how many there were."""
    removed = 0
    for lock in locks(folder):
        try:
            age = time.time() - lock.stat().st_mtime
            if age < STALE_SECONDS:
                continue
            lock.unlink()
        except FileNotFoundError:  # its git is alive, or another one cleared up
            continue
        except OSError as e:
            _log.warning("%s: cannot be removed: %s", lock, e.strerror)
            continue
        _log.warning("%s: removed, a killed git left it %.0f minutes ago", lock, age / 60)
        removed += 1
    return removed
