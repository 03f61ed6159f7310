"""Lets DVC draw a version record: it draws lists of rows alone, takes all lists of a file at once, and stops at an empty one."""

from __future__ import annotations

import functools
from typing import Any

VERSION_SCHEMA = "fedops.version/v1"
_NOBODY = {"site": "none", "num_examples": 0, "weight": 0.0, "share": 0.0, "staleness": 0, "delta_norm": 0.0}


def rows_of(content: Any) -> list[dict[str, Any]] | None:
    """The rows to draw of a document that fedops wrote, None for any other.

    A version record gives one row for each contribution, with `site`, `share`, `weight` and the like; one without any
    gives a row of zeros, which DVC needs to know the columns. A flat map of numbers gives one row.
    """
    if not isinstance(content, dict):
        return None
    if content.get("schema") == VERSION_SCHEMA:
        return [dict(row) for row in content["contributions"]] or [dict(_NOBODY)]
    is_flat = bool(content) and all(isinstance(value, (int, float)) for value in content.values())
    return [dict(content)] if is_flat else None


def extend_plots(vega: Any) -> None:
    """Extend `dvc.render.converter.vega`, which is `vega`; harmless when repeated, and when a newer DVC works otherwise."""
    plain = getattr(vega, "get_datapoints", None)
    if plain is None or getattr(plain, "fedops", False):
        return

    @functools.wraps(plain)
    def get_datapoints(file_content: Any) -> Any:
        rows = rows_of(file_content)
        return plain(file_content) if rows is None else rows

    get_datapoints.fedops = True  # type: ignore[attr-defined]  # marks that it is done
    vega.get_datapoints = get_datapoints
