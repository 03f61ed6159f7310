"""The demo's result as text: one row per version, the comparisons, where everything lies, what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BAR = 24


def demo_text(result: Mapping[str, Any]) -> str:
    """Tables for a terminal of 100 columns."""
    versions: Sequence[Mapping[str, Any]] = result["versions"]
    lines = ["", "version  accuracy                            contributions: share (staleness)"]
    for v in versions:
        bar = "#" * round(BAR * v["accuracy"])
        parts = ", ".join(f"{c['site']} {c['share']:.0%} ({c['staleness']})" for c in v["contributions"]) or "start"
        lines.append(f"v{v['version']:<7} {v['accuracy']:8.1%}  {bar:<{BAR}}  {parts}")
    lines += ["", f"held-out accuracy ({result['held_out_rows']} patients that no site has)"]
    for row in result["compared"]:
        lines.append(f"  {row['name']:<28} {row['accuracy']:6.1%}   {row['rows']} patients")
    lines += ["", "refused"]
    for r in result["refused"]:
        lines.append(f"  #{r['pull']} {r['site']}: {r['what']} -> {r['reason']}")
    if result["refused"]:
        first = result["refused"][0]
        lines += ["", f"what CI wrote to #{first['pull']}"]
        lines += [f"  | {line}" for line in first["comment"].splitlines() if not line.startswith("<!--")]
    verified = result["verified"]
    lines += ["", f"verified from a clone of its own: {verified['ok']} of {verified['versions']} versions bit for bit"]
    lines += ["", "where everything lies"]
    lines += [f"  {path:<44} {what}" for path, what in result["places"]]
    lines += ["", "try"]
    lines += [f"  {command}" for command in result["commands"]]
    return "\n".join(lines)
