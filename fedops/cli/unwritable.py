"""A clone that this account may not write to, or that lies on a disk that nobody may write to: what is said then."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from fedops.core.errors import ConfigError, GitError
from fedops.core.ids import FEDERATION_PATH

_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_AS_IT_IS = ("verify", "status")


def unwritable(error: Exception, arguments: Sequence[str]) -> ConfigError | None:
    """The error to tell, if one comes from a file of this clone that cannot be written; None: it is another fault.

    Args:
        arguments: of the command line.
    """
    root = _root()
    if root is None:
        return None
    if isinstance(error, OSError) and error.errno in _REFUSED and error.filename is not None:
        path = Path(os.fsdecode(error.filename)).absolute()
        if not path.is_relative_to(root) or (error.errno != errno.EROFS and _may_write(path)):
            return None
        shown = path.relative_to(root).as_posix()
        return ConfigError(f"{root}: {shown} cannot be written, got {error.strerror}", hint=_hint(arguments))
    git = root / ".git"
    if isinstance(error, GitError) and error.cause == "temporary" and git.is_dir() and not os.access(git, os.W_OK):
        return ConfigError(f"{root}: .git cannot be written; {error.message}", hint=_hint(arguments))
    return None


def _root() -> Path | None:
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / FEDERATION_PATH).is_file()), None)


def _may_write(path: Path) -> bool:
    """True if this account may change a file, or make it in the nearest folder that is there."""
    there = next(place for place in (path, *path.parents) if place.exists())
    return os.access(there, os.W_OK)


def _hint(arguments: Sequence[str]) -> str:
    name = arguments[0] if arguments else ""
    if name in _AS_IT_IS:
        return f"fedops {name} --no-fetch looks at this clone as it is; else get the right to write there"
    return "get the right to write there, or work in a clone of your own: git clone"
