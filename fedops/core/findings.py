"""A finding: what somebody must be told, as data; its words come from the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedops.core.catalogue import CATALOGUE, Slug


@dataclass(frozen=True)
class Finding:
    """One statement that failed (error) or that a person should know (warning)."""

    id: str  # "FO-214", never reused
    slug: Slug
    severity: Literal["error", "warning"]
    where: str  # path, "path:line", "submissions/2", "pull/12"
    got: Any = None  # typed: [4, 2], not "[4, 2]"
    expected: Any = None
    detail: Mapping[str, Any] | None = None  # {"tensor": "head.weight"}, {"keys": [...]}, {"site": ...}


def finding(
    slug: Slug, where: str, *, got: Any = None, expected: Any = None, detail: Mapping[str, Any] | None = None
) -> Finding:
    """Make one finding of the catalogue.

    Args:
        slug: key of CATALOGUE.
        where: path, "path:line", "submissions/2" or "pull/12".
        got: what was found, typed as in JSON.
        expected: what should have been there, typed as in JSON.
        detail: further typed facts, such as {"tensor": "head.weight"} or {"site": "hospital-a"}.
    """
    rule = CATALOGUE[slug]
    return Finding(rule.id, slug, rule.severity, where, got, expected, detail)


def slug_of(text: str) -> Slug:
    """Read a slug out of a document; one that this version does not know becomes `record_unreadable`."""
    return text if text in CATALOGUE else "record_unreadable"


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those findings that make the answer no."""
    return tuple(f for f in findings if f.severity == "error")


def _show(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    if len(text) > 120:
        text = text[:117] + "..."
    # A site wrote this: no control characters may reach a terminal or a log.
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def message(f: Finding) -> str:
    """`where: what, got -> expected [FO-nnn]`, one line."""
    rule = CATALOGUE[f.slug]
    what = rule.text
    detail = dict(f.detail or {})
    unit = f" {_show(detail.pop('unit'))}" if "unit" in detail else ""
    if detail:
        what += " (" + ", ".join(f"{k} {_show(v)}" for k, v in detail.items()) + ")"
    if f.got is not None and f.expected is not None:
        what += f", {_show(f.got)} -> {_show(f.expected)}{unit}"
    elif f.got is not None:
        what += f", got {_show(f.got)}"
    elif f.expected is not None:
        what += f", expected {_show(f.expected)}"
    return f"{_show(f.where)}: {what} [{f.id}]"


def hint(f: Finding) -> str:
    """The next step for the person who must act."""
    return CATALOGUE[f.slug].hint


def as_json(f: Finding) -> dict[str, Any]:
    """The finding as every `--format json` document shows it."""
    return {
        "id": f.id,
        "slug": f.slug,
        "severity": f.severity,
        "where": f.where,
        "got": f.got,
        "expected": f.expected,
        "detail": dict(f.detail) if f.detail is not None else None,
    }
