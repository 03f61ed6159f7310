"""What a killed DVC leaves in a clone: files that it had not given their names yet, and that it never looks at again."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

STALE_SECONDS = 86_400.0  # a large model comes slowly, but something of it each hour
_CACHE = Path(".dvc", "cache", "files", "md5")
# DVC's own ending for what it still writes; below it a store adds the one of its parts.
_NAME = re.compile(r"([0-9a-f]{30}|(model|update)\.(safetensors|bin))?\.[A-Za-z0-9_-]{22}\.tmp(\.part-[0-9a-f]{16})?\Z")
_SHARD = re.compile(r"[0-9a-f]{2}\Z")


def is_left(name: str) -> bool:
    """True for a name that DVC gives to a file of ours for as long as it is not whole."""
    return _NAME.match(name) is not None


def sweep(root: Path, *, now: float) -> int:
    """Remove such files from a clone's cache and from the folders of its models, once they are a day old.

    A cache outside of the clone is left alone: others may work in it. What cannot be removed stays.

    Args:
        root: of the federation's clone.
        now: in seconds, as the system's clock counts them.

    Returns:
        How many there were.
    """
    return sum(_removed(path, now) for folder in _folders(root) for path in _files(folder) if is_left(path.name))


def _folders(root: Path) -> Iterator[Path]:
    cache = root / _CACHE
    if cache.resolve() == root.resolve() / _CACHE:
        yield cache
        yield from (folder for folder in _entries(cache) if _SHARD.match(folder.name))
    yield root / "global"
    yield from _entries(root / "sites")


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    return []


def _files(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    return []


def _removed(path: Path, now: float) -> bool:
    with suppress(OSError):
        found = path.lstat()
        # NOTE: a hard link has the time of what it is a link to; when it was made changes the other one.
        if stat.S_ISREG(found.st_mode) and now - max(found.st_mtime, found.st_ctime) > STALE_SECONDS:
            path.unlink()
            return True
    return False
