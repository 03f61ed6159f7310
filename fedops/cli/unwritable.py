"""A file that cannot be written, since its disk is full, or fails, or lets this account write nothing: what is said then."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from fedops.cli.console import silence_stdout
from fedops.core.disk import REFUSED, DiskError, disk_fault, named_file
from fedops.core.errors import ConfigError, FedopsError, GitError
from fedops.core.ids import FEDERATION_PATH

_AS_IT_IS = ("verify", "status")
_AGAIN = {"demo": "run the same command again with --replace: it begins anew"}
_NO_SCRATCH = "No usable temporary directory"  # Python's words, of an error that has no number of its own
_MAY_NOT = ("Read-only file system", "Permission denied", "insufficient permission")  # git's words
_PRINTING = ("click.utils", "fedops.cli.main")  # the latter flushes what was printed
_RIGHTS = "give this account the right to it, or name another place"


def unwritable(error: Exception, arguments: Sequence[str]) -> FedopsError | None:
    """The error to tell, if one comes from a file that cannot be written; None: it is another fault.

    Args:
        arguments: of the command line.
    """
    root = _root()
    if isinstance(error, OSError):
        return _full(error, root, arguments) or _refused(error, root, arguments)
    if isinstance(error, GitError) and root is not None:
        return _of_git(error, root, arguments)
    return None


def _full(error: OSError, root: Path | None, arguments: Sequence[str]) -> FedopsError | None:
    """A disk that is full or fails; nothing that this account has to be given the right to."""
    if error.errno == errno.ENOENT and _NO_SCRATCH in str(error.strerror):
        hint = "make room in one of these folders, or name one that can be written: TMPDIR=FOLDER fedops …"
        return DiskError(f"no room for temporary files: {error.strerror}", hint=hint, cause="temporary")
    if disk_fault(error) is None:
        return None
    again = _AGAIN.get(arguments[0] if arguments else "", "run the same command again")
    name = named_file(error)
    if (scratch := _scratch(name)) is not None:
        return disk_fault(error, f"{scratch}: a temporary file", again=f"{again}, or name another place: TMPDIR=FOLDER")
    if name:
        return disk_fault(error, _shown(name, root), again=again)
    if _is_output(error):
        return disk_fault(error, "the output", again=again)
    return disk_fault(error, f"{root or Path.cwd()}, or the folder of temporary files", again=again)


def _scratch(name: str) -> Path | None:
    """The folder of temporary files that a file lies in, if it is one of a command's own."""
    from fedops.cli.scratch import PREFIX

    path = Path(name)
    return next((folder.parent for folder in (path, *path.parents) if folder.name.startswith(PREFIX)), None)


def _is_output(error: OSError) -> bool:
    """True if it was printing that failed; nothing more is printed then."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_globals.get("__name__") not in _PRINTING:
        return False
    silence_stdout()
    return True


def _refused(error: OSError, root: Path | None, arguments: Sequence[str]) -> ConfigError | None:
    """A file that this account may not write, or that lies on a disk that nobody may write to."""
    if error.errno not in REFUSED or not named_file(error):
        return None
    path = Path(named_file(error)).absolute()
    inside = root is not None and path.is_relative_to(root)
    hint = _hint(arguments) if inside else _RIGHTS
    did = "used" if error.errno != errno.EROFS and _may_write(path) else "written"
    return ConfigError(f"{_shown(named_file(error), root)} cannot be {did}, got {error.strerror}", hint=hint)


def _of_git(error: GitError, root: Path, arguments: Sequence[str]) -> ConfigError | None:
    git = root / ".git"
    refused = error.cause == "temporary" or any(words in error.message for words in _MAY_NOT)
    if refused and error.cause != "auth" and git.is_dir() and not os.access(git, os.W_OK):
        return ConfigError(f"{root}: .git cannot be written; {error.message}", hint=_hint(arguments))
    return None


def _root() -> Path | None:
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / FEDERATION_PATH).is_file()), None)


def _shown(name: str, root: Path | None) -> str:
    """A file as messages name it: the clone, and where in it."""
    path = Path(os.path.normpath(Path(name).absolute()))
    if root is None or not path.is_relative_to(root):
        return str(path)
    return f"{root}: {path.relative_to(root).as_posix()}"


def _may_write(path: Path) -> bool:
    """True if this account may change a file, or make it in the nearest folder that is there."""
    there = next(place for place in (path, *path.parents) if place.exists())
    return os.access(there, os.W_OK)


def _hint(arguments: Sequence[str]) -> str:
    name = arguments[0] if arguments else ""
    if name in _AS_IT_IS:
        return f"fedops {name} --no-fetch looks at this clone as it is; else get the right to write there"
    return "get the right to write there, or work in a clone of your own: git clone"
