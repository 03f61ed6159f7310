"""Runs of workflows as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedops.render.text import table

_ENDS = {"success": "ok", "timed_out": "time is over"}


def runs_text(runs: Sequence[Mapping[str, Any]]) -> str:
    """The table of runs; what failed is named by its jobs.

    Args:
        runs: as in the JSON document.
    """
    rows = [(_number(run), run["workflow"], run["event"], _end(run), _seconds(run), run["log"] or "") for run in runs]
    if not rows:
        return "nothing to run"
    header = ("run", "workflow", "event", "result", "seconds", "log")
    # NOTE: the log is the last column, and may be longer than a cell.
    lines = table(header[:-1], [row[:-1] for row in rows], right={0, 4}).splitlines()
    width = max(len(line) for line in lines)
    return "\n".join(
        f"{line:<{width}}  {log}".rstrip() for line, log in zip(lines, ["log", *(r[-1] for r in rows)], strict=True)
    )


def run_line(run: Mapping[str, Any]) -> str:
    """One run as a line of progress."""
    return f"run {_number(run)}: {run['workflow']} on {run['event']}: {_end(run)}" + (
        f", {_seconds(run)} s" if run["seconds"] is not None else ""
    )


def _number(run: Mapping[str, Any]) -> str:
    return "-" if run["number"] is None else str(run["number"])


def _end(run: Mapping[str, Any]) -> str:
    failed = [job for job, result in run["jobs"].items() if result == "failure"]
    if failed:
        return f"failed: {', '.join(failed)}"
    return str(_ENDS.get(run["result"], run["result"]))


def _seconds(run: Mapping[str, Any]) -> str:
    return "" if run["seconds"] is None else f"{run['seconds']:.1f}"
