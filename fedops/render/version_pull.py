"""Markdown of the pull requests that bring versions: what is proposed, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from fedops.core.findings import Finding, hint, message
from fedops.core.ids import GlobalVersion
from fedops.core.records import VersionRecord
from fedops.render.markdown import code, escape, version_summary
from fedops.render.text import short

State = Literal["waits", "approved", "refused", "closed"]
_HEADS: Mapping[State, str] = {
    "waits": "**Under review** at {head}: {note}.",
    "approved": "**Approved** at {head}: the next run recomputes and publishes exactly this commit.",
    "refused": "**Not counted** at {head}: {note}.",
    "closed": "**Closed** at {head}: {note}.",
}


def version_body(
    record: VersionRecord, before: Mapping[str, float], *, reason: str = "", findings: Sequence[Finding] = ()
) -> str:
    """The text of a version's pull request.

    Args:
        before: metrics of the current version.
        reason: of a rollback, as the lead wrote it.
        findings: warnings about how the version was made.
    """
    step = (
        "leads look at it, then `fedops review NUMBER --approve` or `--reject --reason WHY`; approved, it is published by "
        "the next run. Until then no other version is made, and what is handed in belongs to the version after."
    )
    noted = "".join(f"- {escape(message(f), 1000)}\n" for f in findings[:20])
    page = version_summary(record, before, reason=reason, next_step=step)
    return f"{page}\nNoted:\n\n{noted}" if noted else page


def version_comment(state: State, number: int, head: str, note: str, findings: Sequence[Finding]) -> str:
    """The one sticky comment of a version's pull request, without its marker.

    Args:
        number: of the pull request.
        note: what it waits for or why it was closed, in words of our own.
    """
    lines = [_HEADS[state].format(head=code(short(head)), note=escape(note)), ""]
    if findings:
        lines += [f"- {escape(message(f), 1000)}\n  - hint: {hint(f)}" for f in findings[:20]]
        lines.append("")
    if state == "waits":
        lines += [f"Next: a lead runs `fedops review {number} --approve`, or `--reject --reason WHY`.", ""]
    return "\n".join(lines)


def hold_body(record: VersionRecord, number: int) -> str:
    """The issue that keeps a rejected version from being proposed again."""
    version = GlobalVersion(record.version).short
    sites = ", ".join(code(c.site) for c in record.contributions)
    return (
        f"Leads rejected {version} of {sites} in #{number}.\n\n"
        "It is not proposed again while this issue is open. Other submissions, or other policies, make another version, "
        "which is proposed.\n\n"
        "To have this one proposed again, close this issue, or run `fedops ci reconcile --retry-rejected`.\n"
    )
