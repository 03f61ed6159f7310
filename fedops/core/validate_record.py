"""Second stage of validation: the two documents of a submission against the policies and the current version."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import SiteId, record_path, update_path
from fedops.core.parse_record import parse_record
from fedops.core.records import Draft, Pointer, Record, render_pointer, update_pointer
from fedops.core.settings import EXTENSIONS, SubmissionPolicy
from fedops.core.validate_change import MAX_FINDINGS

NEVER_CONSUMED = -1  # below every version: a site that no version used or excluded yet


@dataclass(frozen=True)
class Known:
    """What main says that a submission is measured by.

    Attributes:
        current: number of the current global version.
        consumed: site -> base version of its last submission that a version used or excluded.
        models: version -> sha256 of its model, for as many versions as are known.
        staleness_max: of policies/aggregation.yaml; None: no limit.
        own: the site's record on main, if it has one.
        taken: sha256 of update bytes -> the site that handed them in: all *other* sites' records on main, and the
            contributions to the current version.
    """

    current: int
    consumed: Mapping[str, int]
    models: Mapping[int, str]
    staleness_max: int | None
    own: Record | None
    taken: Mapping[str, str]


def validate_record(
    head_record: bytes,
    head_pointer: bytes | None,
    site: SiteId,
    known: Known,
    policy: SubmissionPolicy,
    *,
    extension: str,
) -> tuple[Finding, ...]:
    """Check a submission's record and pointer; the bytes of the model are not looked at.

    Args:
        head_record: the record's blob of the head.
        head_pointer: the pointer's blob of the head, None if the head's tree has none.
        site: whose folder it is, as `validate_change` found.
        known: of the main that the submission would be merged into.
        policy: of that main.
        extension: of the federation's model files.
    """
    where, pointer = record_path(site), update_path(site, extension)
    found: list[Finding] = []
    if head_pointer is None:
        found.append(finding("files_missing", pointer, got="absent", expected="the pointer of the record"))
    elif len(head_pointer) > policy.limits.pointer_bytes:
        found.append(finding("file_too_large", pointer, got=len(head_pointer), expected=policy.limits.pointer_bytes))
    record, faults = parse_record(head_record, where, max_bytes=policy.limits.record_bytes)
    found += faults
    if record is None:
        return tuple(found[:MAX_FINDINGS])
    if record.site != site:
        found.append(finding("site_mismatch", where, got=record.site, expected=site, detail={"field": "site"}))
    found += within_policy(record, where, policy, metric_names=policy.metrics.allowed)
    expected_format = next(name for name, ending in EXTENSIONS.items() if ending == extension)
    if record.format != expected_format:
        found.append(_field("format", where, record.format, expected_format))
    found += base_version_faults(record.base_version, where, known.current, known.staleness_max)
    found += _repeats(record, where, site, known, policy)
    model = known.models.get(record.base_version)
    if record.base_sha256 is not None and model is not None and record.base_sha256 != model:
        detail = {"field": "base_sha256"}
        found.append(finding("hash_mismatch", where, got=record.base_sha256, expected=model, detail=detail))
    if head_pointer is not None and not errors(found):
        found += pointer_faults(head_pointer, update_pointer(record, extension), pointer)
    return tuple(found[:MAX_FINDINGS])


def _field(name: str, where: str, got: str, expected: str) -> Finding:
    return finding("metadata_schema", where, got=got, expected=expected, detail={"field": name})


def within_policy(
    record: Record | Draft, where: str, policy: SubmissionPolicy, *, metric_names: Collection[str] | None
) -> Iterator[Finding]:
    """What a record claims that the submission policy does not allow.

    Args:
        metric_names: allowed names; None: any.
    """
    if record.payload not in policy.payloads:
        yield finding("payload_refused", where, got=record.payload, expected=list(policy.payloads))
    if record.num_examples > policy.num_examples_max:
        yield finding("num_examples_invalid", where, got=record.num_examples, expected=policy.num_examples_max)
    if record.size is not None and record.size > policy.limits.update_bytes:
        detail = {"field": "size"}
        yield finding("file_too_large", where, got=record.size, expected=policy.limits.update_bytes, detail=detail)
    if len(record.metrics) > policy.metrics.max_count:
        yield finding("metrics_invalid", where, got=len(record.metrics), expected=policy.metrics.max_count)
    if metric_names is not None and (unknown := sorted(record.metrics.keys() - set(metric_names))):
        names = [name[:100] for name in unknown[:10]]
        yield finding("metrics_invalid", where, got=names, expected=list(metric_names))


def base_version_faults(
    base_version: int, where: str, current: int, staleness_max: int | None, *, versions: Collection[int] | None = None
) -> Iterator[Finding]:
    """Whether an update on this base version may be used at all.

    Args:
        current: number of the current version; staleness is current - base_version.
        staleness_max: None: no limit.
        versions: those that exist; None: all up to the current one.
    """
    if base_version > current or (versions is not None and base_version not in versions):
        expected = current if versions is None else sorted(versions)[-MAX_FINDINGS:]
        yield finding("base_version_unknown", where, got=base_version, expected=expected)
    elif staleness_max is not None and current - base_version > staleness_max:
        detail = {"base_version": base_version, "current_version": current}
        yield finding("too_stale", where, got=current - base_version, expected=staleness_max, detail=detail)


def _repeats(record: Record, where: str, site: SiteId, known: Known, policy: SubmissionPolicy) -> Iterator[Finding]:
    """Whether this, or what it would come after, was handed in before."""
    base, own = record.base_version, known.own
    consumed = known.consumed.get(site, NEVER_CONSUMED)
    if base <= consumed:
        yield finding("duplicate_submission", where, got=base, expected=consumed + 1, detail={"field": "base_version"})
    elif own is not None:
        yield from succession_faults(record, own, where, policy)
    taken = known.taken.get(record.sha256)
    if taken is not None and taken != site:
        yield finding("duplicate_submission", where, got=record.sha256, detail={"field": "sha256", "site": taken})


class HandedIn(Protocol):
    """What of a submission says whether another of its site may come after it; a Record is one."""

    @property
    def site(self) -> str: ...

    @property
    def base_version(self) -> int: ...

    @property
    def sha256(self) -> str: ...


def succession_faults(new: HandedIn, own: HandedIn, where: str, policy: SubmissionPolicy) -> Iterator[Finding]:
    """Whether a submission may take the place of its site's earlier one, which no version has used yet."""
    base, earlier = new.base_version, own.base_version
    if base < earlier or (base == earlier and policy.resubmit == "reject"):
        expected = earlier if base < earlier else earlier + 1
        detail = {"field": "base_version"}
        yield finding("duplicate_submission", where, got=base, expected=expected, detail=detail)
    elif base == earlier and new.sha256 == own.sha256:
        yield finding("duplicate_submission", where, got=new.sha256, detail={"field": "sha256", "site": new.site})


def pointer_faults(data: bytes, pointer: Pointer, where: str) -> tuple[Finding, ...]:
    """Compare a pointer file with the one that a record implies, byte for byte; it is never parsed."""
    expected = render_pointer(pointer)
    if data == expected:
        return ()
    got = "CRLF line ends" if data.replace(b"\r\n", b"\n") == expected else "other bytes"
    return (finding("dvc_schema", where, got=got, expected="the pointer that belongs to the record"),)


def validate_draft(
    draft: Draft,
    where: str,
    policy: SubmissionPolicy,
    *,
    current: int | None,
    versions: Collection[int] | None,
    staleness_max: int | None,
    metric_names: Collection[str] | None,
) -> tuple[Finding, ...]:
    """Check a draft against policies, as far as they can be known without a repository.

    Args:
        draft: as `parse_draft` read it.
        where: for the findings.
        policy: what a site may hand in.
        current: number of the current version; None: unknown, and the base version is not judged.
        versions: those that exist; None: all up to the current one.
        staleness_max: None: no limit.
        metric_names: allowed names; None: any.
    """
    found = list(within_policy(draft, where, policy, metric_names=metric_names))
    if current is not None:
        found += base_version_faults(draft.base_version, where, current, staleness_max, versions=versions)
    return tuple(found[:MAX_FINDINGS])
