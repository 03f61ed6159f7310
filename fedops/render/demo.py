"""The demo's result as text: who was in which version, the comparisons, what was refused, where everything lies."""

from __future__ import annotations

import html
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedops.render.text import count, printable, table

WIDTH = 100
BAR = 12
CELL = 8  # "100% (2)"
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")

PLACES = (
    ("origin.git", "the federation: a bare git repository, with its pull requests and issues"),
    ("store", "model bytes, as standard OCI image layouts"),
    ("lead, ci, auditor", "clones of the lead, of CI, and of somebody who checks"),
    ("hospital-a, …", "the sites' clones; their data and keys never leave them"),
    ("accuracy.svg", "the plot"),
    ("summary.json", "this table as data"),
)


def demo_text(result: Mapping[str, Any], folder: str, path: str = "") -> str:
    """The whole result for a terminal of 100 columns.

    Args:
        result: as in summary.json.
        folder: where the demo lies, as a person types it.
        path: the folder of the command `fedops`, if a shell does not find it.
    """
    versions: Sequence[Mapping[str, Any]] = result["versions"]
    return "\n".join(
        [
            "",
            *_version_lines(versions, result["sites"]),
            "",
            f"held-out accuracy ({count(result['held_out_rows'], 'patient')} that no site has)",
            *_compared_lines(result["compared"]),
            "",
            *_trouble_lines(result["troubles"]),
            "refused",
            *(line for one in result["refused"] for line in _refused_lines(one)),
            *([] if result["refused"] else ["  nothing"]),
            "",
            _verified_line(result["verified"]),
            "",
            f"in {folder}",
            *(f"  {name:<17}  {what}" for name, what in PLACES),
            "",
            "try",
            *indented(
                [
                    *([f"export PATH={shlex.quote(path)}:$PATH"] if path else []),
                    f"cd {folder}/auditor",
                    "fedops log",
                    f"fedops show v{shown_version(versions)}",
                    "fedops verify --all",
                    "fedops status",
                    "git log --first-parent --oneline",
                ]
            ),
        ]
    )


def shown_version(versions: Sequence[Mapping[str, Any]]) -> int:
    """The version that is worth a look: the newest one with a stale contribution, else the newest."""
    stale = [v["version"] for v in versions if any(c["staleness"] for c in v["contributions"])]
    return int((stale or [versions[-1]["version"]])[-1])


def _version_lines(versions: Sequence[Mapping[str, Any]], sites: Sequence[str]) -> Iterator[str]:
    widths = [max(len(site), CELL) for site in sites]
    names = "  ".join(f"{site:<{w}}" for site, w in zip(sites, widths, strict=True))
    yield f"version  accuracy  {'':<{BAR}}  {names}".rstrip()
    for v in versions:
        parts = {c["site"]: _cell(c) for c in v["contributions"]}
        cells = "  ".join(f"{parts.get(site, '   -'):<{w}}" for site, w in zip(sites, widths, strict=True))
        bar = "#" * round(BAR * v["accuracy"])
        if v["kind"] == "rollback":
            cells = f"   the model of v{v['source']} again"
        yield f"v{v['version']:<7} {v['accuracy']:8.1%}  {bar:<{BAR}}  {cells}".rstrip()
    yield "per site: its share of the version; (2): its update was two versions old, and counts a third"


def _cell(contribution: Mapping[str, Any]) -> str:
    stale = contribution["staleness"]
    return f"{contribution['share']:4.0%}" + (f" ({stale})" if stale else "")


def _verified_line(verified: Mapping[str, Any]) -> str:
    ok, versions = verified["ok"], verified["versions"]
    done = "verified" if ok == versions else "FAILED to verify"
    return f"{done} from a clone of its own: {ok} of {versions} versions, bit for bit"


def _compared_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [(row["name"], f"{row['accuracy']:.1%}", count(row["rows"], "patient")) for row in rows]
    return indented(table(("", "", ""), cells, right={1, 2}).splitlines()[1:])


def _trouble_lines(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """What went wrong on purpose, or needed a person."""
    if not events:
        return []
    return ["on the way", *(f"  v{event['version']:<3} {event['what']}" for event in events), ""]


def _refused_lines(one: Mapping[str, Any]) -> Iterator[str]:
    """What was handed in, and what CI wrote to it."""
    yield f"  #{one['pull']} of {one['site']}, {one['what']}. CI wrote:"
    for line in finding_lines(one["comment"]):
        yield from textwrap.wrap(line, WIDTH, initial_indent="    ", subsequent_indent="      ")


def finding_lines(comment: str) -> list[str]:
    """The findings and hints of a pull request's comment, as plain text."""
    _, _, findings = comment.partition("**Findings**")
    lines = [line.strip() for line in findings.splitlines()]
    return [printable(html.unescape(_ESCAPED.sub(r"\1", line[2:]))) for line in lines if line.startswith("- ")]


def indented(lines: Sequence[str]) -> list[str]:
    """Each line two columns to the right."""
    return [f"  {line}" for line in lines]
