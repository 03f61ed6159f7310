"""A submission record's bytes in, a document and all its faults out."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fedops.core.brief import brief, brief_text
from fedops.core.catalogue import Slug
from fedops.core.documents import BadJson, parse_json
from fedops.core.facts import Json
from fedops.core.findings import Finding, finding
from fedops.core.ids import SiteId, site_id_fault
from fedops.core.records import Draft, Record
from fedops.core.validate_change import MAX_FINDINGS

_Record = TypeVar("_Record", Record, Draft)

# RFC 3339 section 5.6, "T" and "Z" in either case. ASCII digits: \d would take those of other scripts.
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]((?:[01][0-9]|2[0-3]):[0-9]{2}):([0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])\Z"
)
# What a draft in a file must have; the rest is what `submit` fills in.
_DRAFT_FIELDS = ("schema", "format", "payload", "sha256", "metrics", "created_at")
_SLUGS: dict[str, Slug] = {
    "num_examples": "num_examples_invalid",
    "metrics": "metrics_invalid",
    "created_at": "timestamp_invalid",
}
_EXPECTED = {
    "num_examples": "a whole number, at least 1",
    "metrics": "a flat map of names to finite numbers",
    "created_at": "2026-03-02T09:30:00Z",
    "base_version": "the number of a global version",
}


def parse_record(data: bytes, where: str, *, max_bytes: int) -> tuple[Record | None, tuple[Finding, ...]]:
    """Read a record as it stands in a repository: every field but two is required, the time is UTC with Z.

    Args:
        data: the blob; CRLF line ends are fine.
        where: its path.
        max_bytes: the policy's limit.

    Returns:
        The record, None if there is an error; and all findings.
    """
    value, found = _json(data, where, max_bytes)
    return (None, found) if found else _document(value, where, Record, required=("schema",))


def parse_draft(data: bytes, where: str, *, max_bytes: int) -> tuple[Draft | None, tuple[Finding, ...]]:
    """Read a record before it is handed in: `md5`, `size` and `manifest` may be absent, the time may have any zone.

    Returns:
        The draft, None if there is an error; and all findings.
    """
    value, found = _json(data, where, max_bytes)
    return (None, found) if found else _document(value, where, Draft, required=_DRAFT_FIELDS)


def draft_of(value: Json, where: str) -> tuple[Draft | None, tuple[Finding, ...]]:
    """Read a draft that is written inside a plan: only site, base_version and num_examples are required."""
    return _document(value, where, Draft)


def named_site(value: Json) -> SiteId | None:
    """The site that a record names, however wrong the rest of it is; None if it is not a valid id.

    Args:
        value: the record as parsed JSON, or its bytes.
    """
    if isinstance(value, bytes):
        try:
            value = parse_json(value)
        except BadJson:
            return None
    site = value.get("site") if isinstance(value, dict) else None
    return SiteId(site) if isinstance(site, str) and site_id_fault(site) is None else None


def _json(data: bytes, where: str, max_bytes: int) -> tuple[Json, tuple[Finding, ...]]:
    if len(data) > max_bytes:
        return None, (finding("file_too_large", where, got=len(data), expected=max_bytes),)
    try:
        return parse_json(data, max_bytes=max_bytes), ()
    except BadJson as e:
        return None, (finding("metadata_invalid_json", where, got=brief_text(str(e))),)


def _document(
    value: Json, where: str, model: type[_Record], *, required: tuple[str, ...] = ()
) -> tuple[_Record | None, tuple[Finding, ...]]:
    document = None
    faults: list[ErrorDetails] = []
    try:
        # Through JSON text: in pydantic's strict mode only JSON lists may become tuples.
        document = model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as e:
        faults = e.errors(include_url=False)
    if any(fault["type"] == "json_invalid" for fault in faults):
        # NOTE: Python reads lone surrogates (an escaped half of a pair) without complaint; nobody can encode them again.
        return None, (finding("metadata_invalid_json", where, got="text that is not Unicode"),)
    found = [_fault(fault, where) for fault in faults]
    if isinstance(value, dict):
        told = {str(fault["loc"][0]) for fault in faults if fault["loc"]}
        found += _more_faults(value, where, told, required, only_utc=model is Record)
    return (None if found else document), tuple(found[:MAX_FINDINGS])


def _fault(error: ErrorDetails, where: str) -> Finding:
    """One fault of the document model as a finding of the field that has it."""
    place = [brief_text(str(part)) for part in error["loc"]]
    field = ".".join(place)
    top = place[0] if place else ""
    detail = {"field": field} if field else None
    if error["type"] == "missing":
        return finding("metadata_schema", where, got="absent", expected="required", detail=detail)
    if error["type"] == "extra_forbidden":
        return finding("metadata_schema", where, got="unknown field", expected="absent", detail=detail)
    slug: Slug = _SLUGS.get(top, "metadata_schema")
    if top == "base_version" and error["type"] == "greater_than_equal":
        slug = "base_version_unknown"
    expected = _EXPECTED.get(top, error["msg"])
    return finding(slug, where, got=brief(error["input"]), expected=expected, detail=detail)


def _more_faults(
    value: Mapping[str, Json], where: str, told: set[str], required: tuple[str, ...], *, only_utc: bool
) -> Iterator[Finding]:
    """What the document model cannot say: absent fields of a file, null, ids, times."""
    for field in required:
        if field not in value:
            yield finding("metadata_schema", where, got="absent", expected="required", detail={"field": field})
    for field in sorted(value.keys() - told):
        if value[field] is None:
            slug = _SLUGS.get(field, "metadata_schema")
            expected = _EXPECTED.get(field, "a value, or no such field")
            yield finding(slug, where, got="null", expected=expected, detail={"field": field})
    site, created_at = value.get("site"), value.get("created_at")
    if isinstance(site, str) and (fault := site_id_fault(site)):
        yield finding(
            "site_id_reserved" if fault == "site_id_reserved" else "site_id_invalid", where, got=brief_text(site)
        )
    if isinstance(created_at, str) and not is_time(created_at, only_utc=only_utc):
        expected = "RFC 3339, UTC with Z" if only_utc else "RFC 3339 with a zone"
        yield finding(
            "timestamp_invalid", where, got=brief_text(created_at), expected=expected, detail={"field": "created_at"}
        )


def is_time(text: str, *, only_utc: bool) -> bool:
    """True for an RFC 3339 date and time; with only_utc, for one in UTC that ends with Z."""
    match = _TIME.match(text)
    if match is None:
        return False
    if only_utc and (match[5] != "Z" or text[10] != "T"):
        return False
    # A leap second is a legal time that Python has no value for.
    second = "59" if match[3] == "60" and match[2].endswith("59") else match[3]
    try:
        dt.datetime.fromisoformat(f"{match[1]}T{match[2]}:{second}+00:00")
    except ValueError:
        return False
    return True
