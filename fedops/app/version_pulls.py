"""Open pull requests that would bring the next version: which one counts, and why others do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedops.app.rederive import rederive, rederive_rollback
from fedops.app.snapshot import Snapshot, is_ruled, snapshot, version_record
from fedops.app.version_commit import commit_findings, planned
from fedops.app.version_merge import lead_of
from fedops.app.version_push import on_line
from fedops.core.approvals import Approval, approval
from fedops.core.documents import load_json_document
from fedops.core.errors import ConfigError, FedopsError, GitError
from fedops.core.facts import Commit, Pull
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import VERSION_PATH, CommitId, GlobalVersion, is_hex, is_version_branch
from fedops.core.plan import reason_in
from fedops.core.records import MAX_VERSION_BYTES, VersionRecord
from fedops.core.validate_change import is_submission
from fedops.ports import Forge, Repository


@dataclass(frozen=True)
class VersionPull:
    """An open pull request that is the next version, if leads approve it.

    Attributes:
        author: account of the lead who proposes a rollback; None: CI proposes.
        proofs: signed approvals of this head.
        reason: that the lead gave.
    """

    pull: Pull
    record: VersionRecord
    approval: Approval
    author: int | None = None
    proofs: tuple[CommitId, ...] = ()
    reason: str = ""

    @property
    def is_rollback(self) -> bool:
        return self.record.kind == "rollback"


@dataclass(frozen=True)
class Refused:
    """It never counts, and holds up nothing; people may do with it what they like."""

    pull: Pull
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Stale:
    """It was good, and is so no more: to be closed.

    Attributes:
        why: one sentence, of words of our own.
    """

    pull: Pull
    record: VersionRecord
    why: str


@dataclass(frozen=True)
class Look:
    """All that bring a version.

    Attributes:
        counting: the one on which the federation waits.
        later: of leads, who must wait for that one.
    """

    counting: VersionPull | None = None
    later: tuple[VersionPull, ...] = ()
    stale: tuple[Stale, ...] = ()
    refused: tuple[Refused, ...] = ()


def look(repository: Repository, forge: Forge, main: Snapshot, pulls: Sequence[Pull]) -> Look:
    """Judge every open pull request that would bring a version; no bytes of models are looked at.

    A lead's rollback goes before what CI proposes.

    Args:
        main: as fetched after `pulls` were listed.

    Raises:
        FedopsError: temporary, or access is refused; whatever else is wrong with one pull request is its own affair.
    """
    good: list[VersionPull] = []
    stale: list[Stale] = []
    refused: list[Refused] = []
    for pull in pulls:
        if not is_version_branch(pull.branch):
            continue
        try:
            one = judge(repository, forge, main, pull)
        except FedopsError as e:
            if e.cause != "permanent":
                raise
            one = Refused(pull, (finding("commit_shape", f"pull/{pull.number}", got=e.message),))
        match one:
            case VersionPull():
                good.append(one)
            case Stale():
                stale.append(one)
            case Refused():
                refused.append(one)
    good.sort(key=lambda one: (not one.is_rollback, one.pull.number))
    beaten = [one for one in good[1:] if not one.is_rollback]
    stale += (
        Stale(one.pull, one.record, f"#{good[0].pull.number} proposes {_short(good[0])} instead") for one in beaten
    )
    later = tuple(one for one in good[1:] if one.is_rollback)
    return Look(good[0] if good else None, later, tuple(stale), tuple(refused))


def _short(one: VersionPull) -> str:
    return GlobalVersion(one.record.version).short


def judge(repository: Repository, forge: Forge, main: Snapshot, pull: Pull) -> VersionPull | Refused | Stale | None:
    """Judge one pull request; None: it brings no version.

    Raises:
        FedopsError: git or the forge cannot be read.
    """
    try:
        changes = repository.changes(main.commit, pull.head)
    except GitError as e:
        if e.cause != "permanent":
            raise
        return None  # `inspect` has told it
    if is_submission(changes) or not any(c.path.startswith("global/") for c in changes):
        return None
    here, commit = snapshot(repository, pull.head), repository.commit(pull.head)
    try:
        data = here.bytes_of(VERSION_PATH, max_bytes=MAX_VERSION_BYTES)
        record = load_json_document(data, VersionRecord, VERSION_PATH, max_bytes=MAX_VERSION_BYTES)
    except ConfigError as e:
        return Refused(pull, (finding("record_mismatch", f"pull/{pull.number}", got=e.message),))
    author, fault = _author(main, pull, record)
    if fault is not None:
        return Refused(pull, (fault,))
    if why := _outdated(main, record):
        return Stale(pull, record, why)
    mode = main.aggregation.publish.mode
    if record.kind == "aggregate" and mode != "review":
        got = f"publish.mode {mode}"
        return Refused(pull, (finding("lead_required", f"pull/{pull.number}", got=got, expected="a rollback"),))
    if faults := errors([*_shape(here, commit, main), *_derivation(main, record)]):
        return Refused(pull, faults)
    reviews = [r for r in forge.reviews(pull.number) if r.head == pull.head]
    said = ((r.author.id, r.state) for r in reviews)
    count = approval(said, main.sites, author=author, needed=main.aggregation.publish.approvals)
    proofs = tuple(
        r.proof for r in reviews if r.state == "approved" and r.proof is not None and r.author.id in count.approved
    )
    return VersionPull(pull, record, count, author, proofs, reason_in(commit.message))


def _author(main: Snapshot, pull: Pull, record: VersionRecord) -> tuple[int | None, Finding | None]:
    """The lead who proposes it, or why nobody may: rollbacks are leads', new versions CI's."""
    where, sites = f"pull/{pull.number}", main.sites
    if record.kind == "rollback":
        # NOTE: where the forge vouches for accounts, a commit that a lead once signed is not that lead's proposal again.
        by_key = lead_of(main.repository, pull.head, sites.leads) if main.federation.forge.kind == "git" else None
        lead = by_key.id if by_key is not None else next((p.id for p in sites.leads if p.id == pull.author.id), None)
        refused = finding("lead_required", where, got=pull.author.login, expected="a lead")
        return lead, refused if lead is None else None
    if record.kind != "aggregate":
        expected = "aggregate or rollback"
        return None, finding("record_mismatch", where, got=record.kind, expected=expected, detail={"field": "kind"})
    # NOTE: CI has an account only where the forge gives it one; but a site's own is known, and a fork is never CI's.
    if sites.site_of(pull.author.id) is not None or not pull.same_repository:
        return None, finding("lead_required", where, got=pull.author.login, expected="CI")
    return None, None


def _outdated(main: Snapshot, record: VersionRecord) -> str:
    """Why a proposal is out of date, in words; empty if it is not."""
    short, current = GlobalVersion(record.version).short, main.version.version
    if record.version <= current:
        return f"{short} is made"
    named = record.witness.input_commit
    if named is None or not is_hex(named, 40):
        return ""
    if main.repository.resolve(named) is None or not on_line(main.repository, CommitId(named), main.commit):
        return "the commit that it was decided on is no longer on main"
    at = snapshot(main.repository, CommitId(named))
    paths = sorted(
        p for p in at.files.keys() | main.files.keys() if is_ruled(p) and at.files.get(p) != main.files.get(p)
    )
    return f"{', '.join(paths[:3])} changed since it was decided" if paths else ""


def _shape(here: Snapshot, commit: Commit, main: Snapshot) -> Iterator[Finding]:
    """One commit on main, with exactly the version's files."""
    where = GlobalVersion(here.version.version).short
    if len(commit.parents) != 1 or not main.repository.is_ancestor(commit.parents[0], main.commit):
        yield finding("commit_shape", where, got=len(commit.parents), expected="one commit on main")
        return
    yield from commit_findings(here, commit, snapshot(main.repository, commit.parents[0]), planned(here, commit))


def _derivation(main: Snapshot, record: VersionRecord) -> Sequence[Finding]:
    """What of the record does not follow from the commit that it was decided on."""
    where = GlobalVersion(record.version).short
    if record.version != main.version.version + 1:
        expected = main.version.version + 1
        return (finding("record_mismatch", where, got=record.version, expected=expected, detail={"field": "version"}),)
    named = record.witness.input_commit
    if named is None:
        return (finding("lineage_broken", where, expected="a commit of main that it was decided on"),)
    at = snapshot(main.repository, CommitId(named))
    if record.kind == "aggregate":
        return rederive(None, main, at, record).findings
    number = record.source.version if record.source is not None else None
    earlier = version_record(main.repository, main, number) if number is not None else None
    return rederive_rollback(earlier[1] if earlier is not None else None, main, at, record)
