"""Findings as lines for people: what is wrong, and below it the next step."""

from __future__ import annotations

from collections.abc import Sequence

from fedops.core.findings import Finding, hint, message


def finding_lines(findings: Sequence[Finding], indent: str = "") -> list[str]:
    """One line for each finding; equal hints that follow each other stand once, below the last they are for."""
    lines = []
    for i, f in enumerate(findings):
        lines.append(f"{indent}{'warning: ' if f.severity == 'warning' else ''}{message(f)}")
        following = findings[i + 1] if i + 1 < len(findings) else None
        if following is None or hint(following) != hint(f):
            lines.append(f"{indent}  hint: {hint(f)}")
    return lines
