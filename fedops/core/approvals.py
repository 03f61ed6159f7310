"""Whether leads have approved a version: one rule for CI, which asks the forge, and for auditors, who ask git."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedops.core.documents import BadJson, parse_json
from fedops.core.facts import Marker
from fedops.core.ids import CommitId, Digest, GlobalVersion, RepoPath, is_digest
from fedops.core.settings import Sites

REVIEW_PATH = RepoPath("review.json")
MAX_REVIEW_BYTES = 524_288
HOLD_LABELS = frozenset({"fedops", "version:rejected"})


@dataclass(frozen=True)
class Approval:
    """How a proposed version stands with the leads.

    Attributes:
        approved: accounts of leads that approve it; `rejected` the same for those that ask for changes.
        missing: how many more approvals it takes.
    """

    approved: tuple[int, ...]
    rejected: tuple[int, ...]
    missing: int

    @property
    def given(self) -> bool:
        return self.missing == 0 and not self.rejected


def approval(said: Iterable[tuple[int, str]], sites: Sites, *, author: int | None, needed: int) -> Approval:
    """Count what leads say of one head.

    The lead who proposes a version does not judge it, unless there is no other lead.

    Args:
        said: account and state of each review of this head.
        author: account of the lead who proposed it; None: no lead did.
        needed: approvals that the policy asks for.
    """
    leads = frozenset(lead.id for lead in sites.leads)
    judges = leads - {author} or leads
    states = {account: state for account, state in said if account in judges}
    approved = tuple(sorted(a for a, state in states.items() if state == "approved"))
    rejected = tuple(sorted(a for a, state in states.items() if state == "changes_requested"))
    return Approval(approved, rejected, max(0, needed - len(approved)))


def approves(data: bytes, head: CommitId) -> bool:
    """True if the content of a signed review approves a head."""
    try:
        value = parse_json(data, max_bytes=MAX_REVIEW_BYTES)
    except BadJson:
        return False
    wanted = {"schema": "fedops.review/v1", "head": head, "state": "approved"}
    return isinstance(value, dict) and wanted.items() <= value.items()


def hold_marker(version: int, inputs: Digest, pull: int) -> Marker:
    """Marker of the issue that keeps a rejected version from being proposed again.

    Args:
        inputs: `inputs_digest` of what it was made of.
        pull: that was rejected; so that a second rejection opens a second issue.
    """
    return Marker("rejected", f"{GlobalVersion(version).short}/{inputs}/pull-{pull}")


def held_by(marker: Marker | None) -> tuple[int, Digest] | None:
    """(version, inputs) of a hold's marker; inverse of `hold_marker`, None for anything else."""
    parts = marker.key.split("/") if marker is not None and marker.kind == "rejected" else []
    version = GlobalVersion.from_short(parts[0]) if len(parts) == 3 else None
    if version is None or not is_digest(parts[1]):
        return None
    return version.number, Digest(parts[1])
