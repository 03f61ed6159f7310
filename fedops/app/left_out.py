"""The bytes of what a version did not use: is each reason why still true, and is what lies there whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedops.app.compute import judge_alone
from fedops.app.deciding import Situation
from fedops.app.input_bytes import Tools, is_own_whole, own_copy, store_fault
from fedops.app.rederive import mismatch
from fedops.core.byte_faults import REFUSED, WRONG
from fedops.core.errors import GitError, StoreError
from fedops.core.facts import Submission
from fedops.core.findings import Finding, finding
from fedops.core.ids import BlobId, SiteId, repository_of, site_of_path
from fedops.core.parse_record import parse_record
from fedops.core.records import Record, VersionRecord


def left_out_findings(
    tools: Tools, here: Situation, record: VersionRecord, passed_over: Iterator[tuple[str, BlobId]], folder: Path
) -> Iterator[Finding]:
    """Look at the bytes of everything that was on main and is not in the version.

    Args:
        here: the situation at the version's input_commit.
        record: of the version.
        passed_over: path and blob of every record that came to main since the version before.
        folder: for the bytes, one update at a time.
    """
    reasons = {BlobId(e.record_blob): e.slug for e in record.excluded if e.judged == "bytes"}
    for submission in here.candidates:
        if submission.record_blob in reasons:
            yield from _excluded_again(tools, here, record, submission, reasons[submission.record_blob], folder)
        elif submission.record_blob in here.skips.unavailable:
            yield from _unavailable_again(tools, here, record, submission, folder)
    for site in (e.site for e in record.excluded if e.judged == "tree"):
        if SiteId(site) in here.merged.records:
            yield from _damage(tools, here, record, here.merged.records[SiteId(site)], folder)
    named = {c.record_blob for c in record.contributions} | {e.record_blob for e in record.excluded}
    named |= {u.record_blob for u in record.witness.unavailable}
    for path, blob in passed_over:
        other = _record_of(here, path, blob) if blob not in named else None
        if other is not None:
            yield from _damage(tools, here, record, other, folder)


def _record_of(here: Situation, path: str, blob: BlobId) -> Record | None:
    """A record of history, if it is one that counts."""
    limit = here.main.submission_policy.limits.record_bytes
    try:
        data = here.main.repository.read(blob, max_bytes=16 * limit)
    except GitError as e:
        if e.slug != "file_too_large":
            raise
        return None  # put there by hand, and never a record
    record, _ = parse_record(data, path, max_bytes=limit)
    return record if record is not None and record.site == site_of_path(path) else None


def _excluded_again(
    tools: Tools, here: Situation, record: VersionRecord, submission: Submission, slug: str, folder: Path
) -> Iterator[Finding]:
    """Left out for its bytes: if these are there, they must be wrong again, and in the way that the record says."""
    where, site = f"v{record.version}", submission.site
    unchecked = finding("exclusion_unchecked", where, got=slug, detail={"site": site})
    try:
        with own_copy(tools, here, here.merged.records[site], folder) as (path, faults):
            if path is not None and not _bases_are_whole(tools, here, submission):
                yield unchecked
                return
            again = _judged(tools, here, submission, path, folder) if path is not None else faults[0]
    except StoreError as e:
        if e.slug in WRONG:
            yield store_fault(e, f"{where}: {repository_of(site)}", site=site)
        if e.slug not in REFUSED:
            yield unchecked
            return
        again = store_fault(e, where)
    if again is None:
        yield mismatch(where, "excluded", slug, "used", site=site)
    elif again.slug != slug:
        yield mismatch(where, "excluded", slug, again.slug, site=site)


def _bases_are_whole(tools: Tools, here: Situation, submission: Submission) -> bool:
    """Whether the global models can be had by which an update is judged; those that made them name the fault."""
    try:
        for number in {submission.base_version, here.main.version.version}:
            tools.models.open(number, here.main.submission_policy.limits).close()
    except StoreError as e:
        store_fault(e, "")  # raises what may pass
        return False
    return True


def _judged(tools: Tools, here: Situation, submission: Submission, path: Path, folder: Path) -> Finding | None:
    """What the aggregate job finds wrong with the bytes of one submission; None: nothing.

    Args:
        path: its bytes.
    """
    limits = here.main.submission_policy.limits
    return judge_alone(
        tools.ctx,
        here.main,
        submission,
        path,
        folder / "judged.safetensors",
        opened=lambda number: tools.models.open(number, limits),
    )


def _unavailable_again(
    tools: Tools, here: Situation, record: VersionRecord, submission: Submission, folder: Path
) -> Iterator[Finding]:
    """Left out since its bytes could not be had: nobody can repeat that, but everybody may know if they are there now."""
    try:
        with own_copy(tools, here, here.merged.records[submission.site], folder) as (path, _):
            if path is not None:
                detail = {"site": submission.site}
                slug = here.skips.unavailable[submission.record_blob]
                yield finding("unavailable_present", f"v{record.version}", got=slug, detail=detail)
    except StoreError:  # as the version says
        return


def _damage(tools: Tools, here: Situation, record: VersionRecord, other: Record, folder: Path) -> Iterator[Finding]:
    """No version needs these bytes; if they lie there and are wrong, somebody changed them."""
    if is_own_whole(tools, here, other):
        return
    try:
        with own_copy(tools, here, other, folder):
            return
    except StoreError as e:
        if e.slug in WRONG:
            yield store_fault(e, f"v{record.version}: {repository_of(SiteId(other.site))}", site=other.site)
