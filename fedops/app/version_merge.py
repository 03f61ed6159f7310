"""How a version came to main: by one commit, or by the merge of the commit that proposed it; and did leads approve it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from fedops.app.snapshot import Snapshot, roster_at, snapshot
from fedops.core.approvals import MAX_REVIEW_BYTES, REVIEW_PATH, approval, approves
from fedops.core.errors import ConfigError, FedopsError
from fedops.core.facts import Commit, Pull
from fedops.core.findings import Finding, finding
from fedops.core.ids import CommitId, GlobalVersion
from fedops.core.settings import Lead, Sites
from fedops.core.steps import Publish
from fedops.ports import Repository

MAX_BACK = 1000  # commits of main in which a roster is looked for


def merge_findings(here: Snapshot, commit: Commit, parent: Snapshot, plan: Publish) -> Iterator[Finding]:
    """What a version's commit may merge: the one commit that proposed it, then leads' reviews of that, and nothing else.

    Args:
        parent: the first parent's tree.
        plan: with the files that the version brings.
    """
    where, detail = GlobalVersion(here.version.version).short, {"commit": commit.id}
    proposal = commit.parents[1] if len(commit.parents) > 1 else None
    if proposal is None or not _proposes(here, proposal, parent, plan):
        expected = "one parent, or besides it the commit that proposed the version"
        yield finding("lineage_broken", where, got=list(commit.parents[1:]), expected=expected, detail=detail)
        return
    keys = [key for lead in parent.sites.leads for key in lead.keys]
    for other in commit.parents[2:]:
        if here.repository.signer(other, keys) is None or not _approves(here.repository, other, proposal):
            expected = f"a lead's signed approval of {proposal}"
            yield finding("lineage_broken", where, got=other, expected=expected, detail=detail)


def _proposes(here: Snapshot, proposal: CommitId, parent: Snapshot, plan: Publish) -> bool:
    """True if a commit is one step from main, and that step is the version's files as they are on main."""
    repository = here.repository
    before = repository.commit(proposal).parents
    if len(before) != 1 or not repository.is_ancestor(before[0], parent.commit):
        return False
    old, new = snapshot(repository, before[0]).files, snapshot(repository, proposal).files
    touched = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    return touched <= plan.files.keys() and all(new.get(path) == here.files.get(path) for path in plan.files)


def approval_findings(here: Snapshot, parent: Snapshot, commit: Commit) -> Iterator[Finding]:
    """Did leads approve what needs their approval, by signatures that anybody can check.

    Where accounts are the forge's alone, or nothing has to be signed, git holds no proof, and nothing is said.
    """
    try:
        rules, sites = parent.aggregation.publish, parent.sites
        provable = parent.federation.forge.kind == "git" and parent.submission_policy.require_signed
    except ConfigError:
        return  # named where the version is derived again
    is_rollback = here.version.kind == "rollback"
    if not provable or not (is_rollback or rules.mode == "review"):
        return
    where, detail = GlobalVersion(here.version.version).short, {"commit": commit.id}
    proposal = commit.parents[1] if len(commit.parents) > 1 else commit.id
    author = lead_of(here.repository, proposal, sites.leads) if is_rollback else None
    if is_rollback and author is None:
        yield finding("lead_required", where, got=proposal, expected="signed by a lead's key", detail=detail)
    approved = [commit.id, *(c for c in commit.parents[2:] if _approves(here.repository, c, proposal))]
    by = [lead.id for c in approved if (lead := lead_of(here.repository, c, sites.leads)) is not None]
    count = approval(((a, "approved") for a in by), sites, author=author.id if author else None, needed=rules.approvals)
    if count.missing:
        yield finding("version_unapproved", where, got=len(count.approved), expected=rules.approvals, detail=detail)


def lead_of(repository: Repository, commit: CommitId, leads: Sequence[Lead]) -> Lead | None:
    """The lead whose key signed a commit; None: no lead's did."""
    key = repository.signer(commit, [key for lead in leads for key in lead.keys])
    return next((lead for lead in leads if key in lead.keys), None) if key is not None else None


def is_of_lead(main: Snapshot, pull: Pull) -> bool:
    """True if a lead of main's roster opened a pull request, as the forge says."""
    leads = _usable_roster(main).leads
    if pull.author.id not in {lead.id for lead in leads}:
        return False
    # NOTE: the numbers of the git forge are anybody's choice, and a site may have got a lead's; there the key decides.
    return main.federation.forge.kind != "git" or lead_of(main.repository, pull.head, leads) is not None


def _usable_roster(main: Snapshot) -> Sites:
    """Main's roster; where that cannot be read, the last one on main that could: somebody must be able to mend it.

    Raises:
        FedopsError: there is none among the last commits.
    """
    try:
        return main.sites
    except FedopsError:
        for commit in islice(main.repository.commits(None, main.commit), MAX_BACK):
            with suppress(ConfigError):
                return roster_at(main.repository, commit.id)
        raise


def _approves(repository: Repository, review: CommitId, proposal: CommitId) -> bool:
    """True if a commit is a review that approves the proposal; whose it is, its signature says."""
    entry = next((e for e in repository.entries(review, REVIEW_PATH) if e.path == REVIEW_PATH), None)
    if entry is None or entry.size > MAX_REVIEW_BYTES:
        return False
    return approves(repository.read(entry.blob, max_bytes=MAX_REVIEW_BYTES), proposal)
