"""Whether the documents that people write can be used as a commit has them; of main, or of a change that is not merged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from fedops.app.rules import refuse_rules_as_written
from fedops.app.snapshot import Snapshot
from fedops.core.errors import FedopsError
from fedops.core.ids import (
    AGGREGATION_PATH,
    FEDERATION_PATH,
    SITES_PATH,
    SUBMISSION_POLICY_PATH,
    TRAINING_PATH,
    RepoPath,
)

# What people write -> reads it.
DOCUMENTS: Mapping[RepoPath, Callable[[Snapshot], object]] = {
    FEDERATION_PATH: lambda here: here.federation,
    SITES_PATH: lambda here: here.sites,
    SUBMISSION_POLICY_PATH: lambda here: here.submission_policy,
    TRAINING_PATH: lambda here: here.training,
    AGGREGATION_PATH: lambda here: refuse_rules_as_written(here.aggregation, here.bytes_of(AGGREGATION_PATH)),
}


def unusable(here: Snapshot, paths: Collection[str]) -> Iterator[tuple[RepoPath, FedopsError]]:
    """Those documents among some paths of a commit that cannot be used, and why.

    Raises:
        FedopsError: git cannot be read now.
    """
    for path, read in DOCUMENTS.items():
        if path in paths:
            try:
                read(here)
            except FedopsError as e:
                if e.cause != "permanent":
                    raise
                yield path, e
