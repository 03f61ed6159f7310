"""Whether the documents that people write can be used as a commit has them; of main, or of a change that is not merged."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fedops.app.rules import WRITTEN, refuse_unusable
from fedops.app.snapshot import Snapshot
from fedops.core.errors import FedopsError
from fedops.core.ids import RepoPath


def unusable(here: Snapshot, paths: Collection[str]) -> Iterator[tuple[RepoPath, FedopsError]]:
    """Those documents among some paths of a commit that cannot be used, and why.

    Raises:
        FedopsError: git cannot be read now.
    """
    for path in WRITTEN:
        if path in paths:
            try:
                refuse_unusable(path, here.bytes_of(path), path)
            except FedopsError as e:
                if e.cause != "permanent":
                    raise
                yield path, e
