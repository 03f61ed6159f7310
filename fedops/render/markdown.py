"""Markdown for comments, issues and summaries; all text that a site wrote goes through `escape`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedops.core.facts import Marker
from fedops.core.findings import Finding, errors, hint, message
from fedops.core.ids import GlobalVersion
from fedops.core.plan import version_title
from fedops.core.records import Contribution, Record, VersionRecord
from fedops.core.report import PullReport, SignalReport
from fedops.core.strategies import counts_examples
from fedops.render.text import count, printable, short, size

MAX_CHARACTERS = 60_000  # GitHub refuses a body of more than 65,536
MAX_TEXT = 400  # characters of one text of a site, before escaping
MAX_METRICS = 32

# Zero-width space: unlike a backslash it also stops what GitHub links in the finished page (mentions, #12, addresses).
_BREAK = "&#8203;"
_ESCAPES = {c: "\\" + c for c in "\\`*_[]|~"} | {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "$": "&#36;",
    "@": "@" + _BREAK,
    "#": "#" + _BREAK,
}
_LINKED = re.compile(r"(:)(//)|(www)(\.)|(GH)(-[0-9])", re.IGNORECASE)
_BLOCK = re.compile(r"([-+=]|[0-9]{1,9}(?=[.)]))")
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._@/-]*\Z")


def escape(text: str, limit: int = MAX_TEXT) -> str:
    r"""Text of a site as one line of inert inline Markdown that reads the same.

    No markup, HTML, comment (so no forged marker), link, mention, issue reference, table cell or block can come out
    of it, wherever it is put; unseen characters are shown as `\x1b`.

    Args:
        limit: characters of the text that are kept; the rest becomes an ellipsis.
    """
    line = printable(text[: limit + 1])
    if len(text) > limit:
        line = line[:limit] + "…"
    line = _LINKED.sub(lambda m: "\0".join(g for g in m.groups() if g), line)
    start = _BLOCK.match(line)
    body = "".join(_ESCAPES.get(c, c) for c in line).replace("\0", _BREAK)
    if start is None:
        return body
    at = start.end() if start[0].isdigit() else 0
    return body[:at] + "\\" + body[at:]


def code(text: str) -> str:
    """Ids and digests in code type; anything that is not plainly one is escaped instead."""
    return f"`{text}`" if _CODE.match(text) else escape(text)


# ---------------------------------------------------------------- length


@dataclass(frozen=True)
class _Rows:
    """Lines that may be cut at their end, if all does not fit."""

    lines: Sequence[str]
    noun: str


def _fit(parts: Sequence[str | _Rows]) -> str:
    """Join the parts; of rows as many as fit into MAX_CHARACTERS, and a count of those left out."""
    room = MAX_CHARACTERS
    for part in parts:
        room -= len(part) if isinstance(part, str) else 80  # for "… and 12,345 more findings"
    out: list[str] = []
    for part in parts:
        if isinstance(part, str):
            out.append(part)
            continue
        kept = 0
        for line in part.lines:
            if len(line) + 1 > room:
                break
            room -= len(line) + 1
            kept += 1
        out += [line + "\n" for line in part.lines[:kept]]
        if kept < len(part.lines):
            out.append(f"\n… and {len(part.lines) - kept:,} more {part.noun}\n")
            room = 0
    return "".join(out)


def _table(header: Sequence[str]) -> str:
    return f"\n| {' | '.join(header)} |\n|{' --- |' * len(header)}\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


# ---------------------------------------------------------------- pull request


def pull_comment(report: PullReport, marker: Marker) -> str:
    """The one sticky comment of a pull request; its marker is the last line.

    First line: the verdict in words and the head that it is about. Then what was checked, what was handed in, each
    finding with its hint, and as last line what to do now.
    """
    findings = report.verdict.findings
    parts: list[str | _Rows] = [_verdict_line(report)]
    if report.checks:
        parts.append(_table(["check", "result", "detail"]))
        parts += [
            _row(c.name, f"**{c.result}**" if c.result == "failed" else c.result, c.detail) + "\n"
            for c in report.checks
        ]
    if report.record is not None:
        parts.append(_table(["handed in", ""]))
        parts.append("".join(line + "\n" for line in _handed_in(report.record, report)))
    if findings:
        parts += ["\n**Findings**\n\n", _Rows(_finding_lines(findings), "lines of findings")]
    parts.append(f"\nNext: {report.next_step}\n\n{marker.text}\n")
    return _fit(parts)


def _verdict_line(report: PullReport) -> str:
    state, head = report.verdict.state, code(short(report.verdict.head))
    bad = len(errors(report.verdict.findings))
    whose = "the submission" if report.site is None else f"the submission of {code(report.site)}"
    words = {
        "accepted": f"**Accepted** at {head}: {whose} passed all checks.",
        "rejected": f"**Rejected** at {head}: {whose} has {count(bad, 'finding')} to correct.",
        "pending": f"**Pending** at {head}: {escape(report.note) or 'not all checks are done'}.",
        "not_a_submission": f"**Not a submission** at {head}: nothing for fedops to decide.",
    }
    return words[state] + "\n"


def _handed_in(record: Record, report: PullReport) -> list[str]:
    base, current = GlobalVersion(record.base_version).short, GlobalVersion(report.current).short
    behind = report.current - record.base_version
    age = "the current version" if behind == 0 else f"current is {current}: staleness {behind}"
    lines = [
        _row("base version", f"{base} ({age})" if behind >= 0 else f"{base} (current is {current})"),
        _row("examples", f"{record.num_examples:,}"),
        _row("model", f"{record.payload}, {record.format}, {size(record.size)}, sha256 {code(short(record.sha256))}"),
    ]
    if report.delta_norm is not None:
        lines.append(_row("distance from its base (L2)", f"{report.delta_norm:.6g}"))
    for name in sorted(record.metrics)[:MAX_METRICS]:
        known = f" ({current}: {report.metrics[name]:.6g})" if name in report.metrics else ""
        lines.append(_row(escape(name, 60), f"{record.metrics[name]:.6g}{known}"))
    if len(record.metrics) > MAX_METRICS:
        lines.append(_row("…", f"and {count(len(record.metrics) - MAX_METRICS, 'metric')} more"))
    return lines


def _finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Each finding on a line; a hint after the last of those that share it."""
    lines = []
    for i, f in enumerate(findings):
        kind = "" if f.severity == "error" else "warning: "
        lines.append(f"- {kind}{escape(message(f), 1000)}")
        if i + 1 == len(findings) or hint(findings[i + 1]) != hint(f):
            lines.append(f"  - hint: {hint(f)}")
    return lines


# ---------------------------------------------------------------- signal

# GitHub's own rule for logins: anything else would not notify anybody, and is not written as a mention.
_LOGIN = re.compile(r"[A-Za-z0-9](-?[A-Za-z0-9]){0,38}\Z")


def signal_body(report: SignalReport) -> str:
    """The issue that tells one site to train; its markers are the last lines."""
    version = GlobalVersion(report.version).short
    parts: list[str | _Rows] = [f"{code(report.site)}: please train on **{version}** and hand in an update.\n"]
    if report.reason is not None:
        parts.append(
            f"\nWhat was handed in before is not used: {escape(message(report.reason), 1000)}\n"
            f"\n- hint: {hint(report.reason)}\n"
        )
    parts.append(_table(["global version", version]))
    parts.append(_row("model", f"{size(report.size)}, {code(report.model)}") + "\n")
    parts.append(_Rows([_row(escape(n, 60), f"{v:.6g}") for n, v in sorted(report.metrics.items())], "metrics"))
    parts.append(
        "\nAt the site, in the clone of this federation:\n\n"
        "```\nfedops pull\nfedops train\nfedops submit\n```\n"
        "\nor `fedops run`, which does all three and waits for the next version.\n"
        "\nThis issue is a reminder; what counts is `global/version.json` on main. It is closed by the next signal.\n"
    )
    mentions = ", ".join(f"@{login}" if _LOGIN.match(login) else escape(login) for login in report.logins)
    parts.append(f"\nFor {mentions}\n\n" + "".join(f"{m.text}\n" for m in report.markers))
    return _fit(parts)


# ---------------------------------------------------------------- version


def version_summary(
    record: VersionRecord, before: Mapping[str, float] | None = None, *, reason: str = "", next_step: str = ""
) -> str:
    """What one version is made of: body of a version's pull request and summary of a run.

    Args:
        before: metrics of the version before, to compare with.
        reason: of a rollback, as the lead wrote it.
        next_step: trusted Markdown; default: how to recompute it.
    """
    version = GlobalVersion(record.version).short
    model = record.model
    parts: list[str | _Rows] = [
        f"**{escape(version_title(record))}**\n",
        f"\nReason: {escape(reason, 1000)}\n" if reason else "",
        _table(["", ""]),
        _row("model", f"{size(model.size)}, {code('sha256:' + model.sha256)}") + "\n",
        _row("status", record.status) + "\n",
        _row("policy", code(record.policy)) + "\n",
    ]
    was = before or {}
    metrics = [
        _row(escape(n, 60), f"{v:.6g}" + (f" (before: {was[n]:.6g})" if n in was else ""))
        for n, v in sorted(record.metrics.items())
    ]
    parts.append(_Rows(metrics, "metrics"))
    if record.contributions:
        counts = record.rule is None or counts_examples(record.rule.strategy.name)
        how = ["weight", "share"] if counts else ["score", "taken"] if record.chosen is not None else []
        parts.append(_table(["site", "base version", "staleness", "examples", *how, "distance (L2)"]))
        lines = [
            _row(
                code(c.site),
                GlobalVersion(c.base_version).short,
                str(c.staleness),
                f"{c.num_examples:,}",
                *_counted(c, how, record.chosen),
                "" if c.delta_norm is None else f"{c.delta_norm:.6g}",
            )
            for c in record.contributions
        ]
        parts.append(_Rows(lines, "contributions"))
    if record.excluded:
        parts.append("\nNot used:\n\n")
        parts.append(
            _Rows([f"- {code(e.site)}: {code(e.slug)} [{code(e.id)}]" for e in record.excluded], "excluded submissions")
        )
    if record.witness.unavailable:
        lost = [f"- {code(u.site)}: {code(u.slug)}" for u in record.witness.unavailable]
        parts += ["\nCould not be had, and stays in line for a later version:\n\n", _Rows(lost, "submissions")]
    parts.append(f"\nNext: {next_step or f'`fedops verify {version}` recomputes it.'}\n")
    return _fit(parts)


def _counted(c: Contribution, how: Sequence[str], chosen: str | None) -> list[str]:
    """What a contribution counted for: cells of these columns."""
    cells = {
        "weight": f"{c.weight:.6g}",
        "share": f"{c.share:.1%}",
        "score": "" if c.score is None else f"{c.score:.6g}",
        "taken": "yes" if c.site == chosen else "",
    }
    return [cells[name] for name in how]
