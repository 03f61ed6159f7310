"""Submissions in the order in which they would be merged: which of them stand in the end, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedops.core.findings import Finding, finding
from fedops.core.settings import SubmissionPolicy
from fedops.core.validate_record import succession_faults


@dataclass(frozen=True)
class Handed:
    """One submission that is good by itself.

    Attributes:
        where: for findings.
        sha256: of its bytes; any other name of them will do that is equal if and only if the bytes are.
    """

    where: str
    site: str
    base_version: int
    sha256: str


@dataclass(frozen=True)
class Merged:
    """What came of it; numbers are places in the sequence.

    Attributes:
        standing: at most one for each site, ascending.
        superseded: a later one of the same site took its place, ascending.
        refused: place -> why; only duplicate_submission.
    """

    standing: tuple[int, ...]
    superseded: tuple[int, ...]
    refused: Mapping[int, tuple[Finding, ...]]


def merge_in_order(submissions: Sequence[Handed], policy: SubmissionPolicy) -> Merged:
    """Merge one after the other, each against what stands then, as a repository does.

    A site's later submission takes the place of its earlier one, or is refused (see `succession_faults`). Bytes that
    another site has standing are refused.

    Args:
        submissions: on versions that exist; oldest first.
    """
    standing: dict[str, int] = {}
    owners: dict[str, str] = {}  # bytes that stand -> whose they are
    superseded: list[int] = []
    refused: dict[int, tuple[Finding, ...]] = {}
    for place, new in enumerate(submissions):
        own = standing.get(new.site)
        found = [] if own is None else list(succession_faults(new, submissions[own], new.where, policy))
        owner = owners.get(new.sha256, new.site)
        if owner != new.site:
            detail = {"site": new.site, "same_as": owner}
            found.append(finding("duplicate_submission", new.where, got=new.sha256, detail=detail))
        if found:
            refused[place] = tuple(found)
            continue
        if own is not None:
            superseded.append(own)
            del owners[submissions[own].sha256]
        standing[new.site] = place
        owners[new.sha256] = new.site
    return Merged(tuple(sorted(standing.values())), tuple(sorted(superseded)), refused)
