"""What a published version has besides its commit and tag, made again where a killed run or a person took it away.

Two halves, since two jobs do it: the store's tag needs the right to write packages, the page that to write the repository.
"""

from __future__ import annotations

from fedops.app.announce import announce
from fedops.app.context import Context
from fedops.app.next_version import untagged
from fedops.app.snapshot import Snapshot
from fedops.app.version_push import display_tag


def repair_tag(ctx: Context, main: Snapshot) -> bool:
    """Set the registry's display tag of the current version, once that has its own tag; True if it was not set."""
    return untagged(main) is None and display_tag(ctx, main, main.version)


def repair_page(ctx: Context, main: Snapshot) -> bool:
    """Have the forge's page of the current version, once that has its tag; True if something changed."""
    return untagged(main) is None and announce(ctx, main.federation, main.version)
