"""Who commits on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from fedops.core.errors import ConfigError
from fedops.core.health import NAME_YOURSELF, NOBODY


def author_here() -> tuple[str, str] | None:
    """Name and address that fedops gives to commits in a job of GitHub Actions, where git knows nobody; else None."""
    from fedops.core.workflows import JOB_AUTHOR

    return JOB_AUTHOR if os.environ.get("GITHUB_ACTIONS") == "true" else None


def demand_author(folder: Path) -> None:
    """Check that commits can be made in a folder, there or not.

    Raises:
        ConfigError: git does not know whose they are; says which commands tell it.
    """
    from fedops.adapters.machine import ThisMachine

    if ThisMachine(author_here()).identity(folder) is None:
        raise ConfigError(f"{folder}: {NOBODY} -> a name and an address", hint=NAME_YOURSELF)
