"""The file by which a Python environment's plain `dvc` command knows the stores: a line that runs when Python starts."""

from __future__ import annotations

from pathlib import Path

from fedops.core.disk import disk_fault
from fedops.core.errors import ConfigError, FedopsError

NAME = "fedops-dvc.pth"
# All of it is read at each start of Python, for whatever purpose: so nothing is imported before DVC is.
_STARTER = """
class Fedops:
    def find_spec(self, name, path=None, target=None):
        if name == "dvc":
            try:
                from fedops.cli.dvc_hook import install
            except ImportError:
                return None
            install()

sys.meta_path.insert(0, Fedops())
"""
# NOTE: site.py takes a line for a command only if it begins with `import`.
LINE = f"import sys; exec({_STARTER!r}, {{'sys': sys}})\n"


def is_installed(folder: Path) -> bool:
    """True if the hook is in an environment's folder of packages, as this version writes it."""
    try:
        return (folder / NAME).read_text("utf-8") == LINE
    except OSError:
        return False


def install(folder: Path) -> bool:
    """Put the hook there; False if it is there already.

    Raises:
        ConfigError: no right to write there.
        DiskError: no room there.
    """
    if is_installed(folder):
        return False
    try:
        (folder / NAME).write_text(LINE, "utf-8")
    except OSError as e:
        raise _refused(folder, e) from e
    return True


def remove(folder: Path) -> bool:
    """Take the hook away, of whatever version; False if there is none.

    Raises:
        ConfigError: no right to write there.
    """
    try:
        (folder / NAME).unlink()
    except FileNotFoundError:
        return False
    except OSError as e:
        raise _refused(folder, e) from e
    return True


def _refused(folder: Path, error: OSError) -> FedopsError:
    return disk_fault(error, str(folder / NAME)) or ConfigError(
        f"{folder / NAME}: {error.strerror}",
        hint="install fedops and dvc into an environment of your own (python -m venv); `fedops dvc …` needs no hook",
    )
