"""DVC's own command line, run in this process."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress

from fedops.adapters.dvc_remote import Stores, register


def run_dvc(arguments: Sequence[str], stores: Stores) -> int:
    """Run one DVC command with the stores as remotes; it prints by itself.

    Returns:
        DVC's exit code.

    Raises:
        ConfigError: this DVC does not fit.
    """
    register(stores)
    with suppress(ImportError):
        # `dvc version` would ask a server for newer ones, in projects whose .dvc/config does not forbid it.
        importlib.import_module("dvc.updater").notify_updates = lambda: None  # type: ignore[attr-defined]  # no types
    from dvc.cli import main

    try:
        code: int | None = main(list(arguments))
    except SystemExit as e:  # --help, --version, and a command line that argparse refuses
        return e.code if isinstance(e.code, int) else 0
    return code or 0
