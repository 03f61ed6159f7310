"""The submissions on main that no version has used yet, with the merge that brought each."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

from fedops.app.snapshot import Snapshot, roster_at, site_record, time_text, version_record
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import Commit, Excluded, Submission
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import BlobId, CommitId, Digest, SiteId, record_path, update_path
from fedops.core.plan import is_merge_message
from fedops.core.policy import is_impossible
from fedops.core.records import Record, render_pointer, update_pointer
from fedops.core.validate_change import MAX_FINDINGS, foreign_files, validate_signature
from fedops.core.validate_record import within_policy
from fedops.ports import Repository


@dataclass(frozen=True)
class MergedState:
    """What main holds of its sites.

    Attributes:
        records: well-formed record of each site, consumed ones too.
        submissions: not consumed, on an existing version, well-formed; ascending site.
        refused: those of them that lack the signature which the policy asks for, or are not within its limits: merged
            by hand, or before the policy changed.
        faults: one finding for each record that can never count.
        by_hand: a warning for each of the submissions that CI's merge did not bring.
        foreign: a warning for each file that is none of fedops's.
    """

    records: Mapping[SiteId, Record]
    submissions: tuple[Submission, ...]
    refused: tuple[Excluded, ...]
    faults: tuple[Finding, ...]
    by_hand: tuple[Finding, ...]
    foreign: tuple[Finding, ...] = ()

    def fit(self) -> tuple[Submission, ...]:
        """The submissions that the submission policy allows."""
        refused = {e.submission.site for e in self.refused}
        return tuple(s for s in self.submissions if s.site not in refused)

    def taken(self) -> dict[str, SiteId]:
        """Sha256 of bytes -> site, of the records that are used up or can never count."""
        fresh = {s.site for s in self.submissions}
        return {record.sha256: site for site, record in sorted(self.records.items()) if site not in fresh}


class History(Protocol):
    """What somebody knows who has read all of main's history."""

    def merges(self, until: CommitId, wanted: Mapping[SiteId, BlobId]) -> Mapping[SiteId, Commit]:
        """As `find_merges`."""
        ...

    def model_sha256(self, until: CommitId, number: int) -> str | None:
        """Of a version's model, if the line up to a commit has that version."""
        ...


def merged_state(repository: Repository, main: Snapshot, *, history: History | None = None) -> MergedState:
    """Read the sites' records on a commit of main and find the merges of those that are not consumed.

    Costs one `ls-tree` for the snapshot, one comparison of trees by one process for each few dozen first-parent commits
    back to the oldest merge that is looked for, and each record read once in a process.

    Args:
        history: known already; None: it is walked as far as it must be.
    """
    records: dict[SiteId, Record] = {}
    faults: list[Finding] = []
    fresh: dict[SiteId, tuple[BlobId, BlobId]] = {}
    for site in main.folders:
        record, fault = _readable_record(main, site)
        if record is None:
            faults.append(fault)
            continue
        records[site] = record
        if record.base_version > main.version.version:
            faults.append(_unreadable(site, record.base_version, f"at most {main.version.version}"))
        elif record.base_version > main.version.consumed.get(site, -1):
            blobs = main.site_blobs(site)
            assert blobs is not None
            fresh[site] = blobs
    faults += [
        finding("record_unreadable", f"sites/{name}", got="a folder that no site can have", expected="a site id")
        for name in main.impossible[:MAX_FINDINGS]
    ]
    wanted = {site: blobs[0] for site, blobs in fresh.items()}
    history = history or _Unread(repository, main)
    merges = history.merges(main.commit, wanted)
    submissions = tuple(_submission(site, records[site], fresh[site], merges[site]) for site in sorted(fresh))
    unsigned = _unsigned(repository, main, [(s, merges[s.site]) for s in submissions])
    refused = tuple(
        Excluded(s, fault, "tree")
        for s, faults_of in zip(submissions, unsigned, strict=True)
        for fault in islice(chain(faults_of, _refusals(main, s, records[s.site], history)), 1)
    )
    by_hand = tuple(_by_hand(site, merge) for site, merge in sorted(merges.items()) if not _is_by_ci(site, merge))
    strangers = foreign_files(main.files, main.federation.extension)
    foreign = tuple(finding("foreign_file", path) for path in strangers[:MAX_FINDINGS])
    return MergedState(records, submissions, refused, tuple(faults), by_hand, foreign)


def _unreadable(site: SiteId, got: object, expected: object) -> Finding:
    return finding("record_unreadable", record_path(site), got=got, expected=expected, detail={"site": site})


def _readable_record(main: Snapshot, site: SiteId) -> tuple[Record, Finding] | tuple[None, Finding]:
    """A site's record, if it and its pointer are those that fedops writes; else why not."""
    blobs = main.site_blobs(site)
    if blobs is None:
        return None, _unreadable(site, "no pointer", "record and pointer")
    limits = main.submission_policy.limits
    path = record_path(site)
    for name, limit in (
        (path, limits.record_bytes),
        (update_path(site, main.federation.extension), limits.pointer_bytes),
    ):
        entry = main.files[name]
        if entry.mode != "100644" or entry.size > limit:
            return None, _unreadable(site, f"mode {entry.mode}, {entry.size} bytes", "a small plain file")
    record, faults = site_record(main, site, max_bytes=limits.record_bytes)
    if record is None or errors(faults):
        return None, _unreadable(site, [f.slug for f in faults], "a record that fedops wrote")
    said, expected = (record.site, record.format), (site, main.federation.model.format)
    if said != expected:
        return None, _unreadable(site, list(said), list(expected))
    pointer = render_pointer(update_pointer(record, main.federation.extension))
    if main.repository.read(blobs[1], max_bytes=limits.pointer_bytes) != pointer:
        return None, _unreadable(site, "another pointer", "the pointer of its record")
    return record, _unreadable(site, None, None)


@dataclass(frozen=True)
class _Unread:
    """History that is walked for each question."""

    repository: Repository
    main: Snapshot

    def merges(self, until: CommitId, wanted: Mapping[SiteId, BlobId]) -> Mapping[SiteId, Commit]:
        return find_merges(self.repository, until, wanted)

    def model_sha256(self, _until: CommitId, number: int) -> str | None:
        made = version_record(self.repository, self.main, number)
        return made[1].model.sha256 if made is not None else None


def find_merges(repository: Repository, until: CommitId, wanted: Mapping[SiteId, BlobId]) -> dict[SiteId, Commit]:
    """For each site, the newest first-parent commit of main that brought its present record blob."""
    found: dict[SiteId, Commit] = {}
    missing = {record_path(site): site for site in wanted}
    for one in repository.touched(until, ("sites",)) if missing else ():
        if one.changes is None:
            raise GitError(f"git: what {one.commit} changes cannot be read", slug="object_corrupt")
        for path in [c.path for c in one.changes if c.path in missing]:
            found[missing.pop(path)] = repository.commit(one.commit)
        if not missing:
            break
    return found


def merge_warnings(merged: MergedState, now: dt.datetime) -> tuple[Finding, ...]:
    """A warning for each unused submission that CI did not merge or whose merge has an impossible date, and for each
    file that is none of fedops's.
    """
    ahead = (
        finding("merge_in_future", record_path(s.site), got=time_text(s.merged_at), detail={"site": s.site})
        for s in merged.submissions
        if is_impossible(s.merged_at, now)
    )
    return (*merged.foreign, *merged.by_hand, *ahead)


def _is_by_ci(site: SiteId, merge: Commit) -> bool:
    return is_merge_message(merge.message, site, merge.parents[1] if len(merge.parents) == 2 else None)


def _by_hand(site: SiteId, merge: Commit) -> Finding:
    expected = "CI's merge, with its trailers"
    return finding("merged_by_hand", record_path(site), got=merge.id, expected=expected, detail={"site": site})


def _submission(site: SiteId, record: Record, blobs: tuple[BlobId, BlobId], merge: Commit) -> Submission:
    return Submission(
        site=site,
        base_version=record.base_version,
        num_examples=record.num_examples,
        payload=record.payload,
        sha256=record.sha256,
        md5=record.md5,
        size=record.size,
        manifest=Digest(record.manifest),
        record_blob=blobs[0],
        pointer_blob=blobs[1],
        commit=merge.id,
        merged_at=merge.committed_at,
        metrics=dict(record.metrics),
    )


def handed_in_commit(repository: Repository, submission: Submission, merge: Commit) -> CommitId:
    """The commit that the site made: the merge's second parent if that carries the record, else the merge itself."""
    path = record_path(submission.site)
    for parent in merge.parents[1:2]:
        if any(e.path == path and e.blob == submission.record_blob for e in repository.entries(parent, path)):
            return parent
    return merge.id


def _unsigned(
    repository: Repository, main: Snapshot, merged: Sequence[tuple[Submission, Commit]]
) -> Sequence[tuple[Finding, ...]]:
    """What is wrong with the signature of each submission; as many at a time as there are processors."""
    if not main.submission_policy.require_signed or not merged:
        return [()] * len(merged)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda one: _signature_faults(repository, main, *one), merged))


def _refusals(main: Snapshot, submission: Submission, record: Record, history: History) -> Iterator[Finding]:
    """What else the submission policy of now does not allow, whoever merged it and whenever."""
    policy = main.submission_policy
    where = record_path(submission.site)
    yield from within_policy(record, where, policy, metric_names=policy.metrics.allowed)
    if record.base_sha256 is not None:
        base = history.model_sha256(main.commit, record.base_version)
        if record.base_sha256 != base:
            detail = {"site": submission.site, "field": "base_sha256"}
            yield finding("hash_mismatch", where, got=record.base_sha256, expected=base, detail=detail)


def _signature_faults(
    repository: Repository, main: Snapshot, submission: Submission, merge: Commit
) -> tuple[Finding, ...]:
    """Judge the site's signature by the roster of its time: that of the merge's first parent."""
    signer = None
    site = submission.site
    if merge.parents:
        try:
            roster = roster_at(repository, merge.parents[0])
        except ConfigError:
            roster = None
        if roster is not None and site in roster.sites:
            keys = roster.sites[site].keys
            signer = repository.signer(handed_in_commit(repository, submission, merge), keys)
            return validate_signature(signer, site, roster, main.submission_policy, same_repository=False)
    return (finding("signature_invalid", record_path(site), got=None, expected="a signature", detail={"site": site}),)
