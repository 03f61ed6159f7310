"""`fedops verify` and `fedops ci audit` as text for people: the rows of their JSON documents in, lines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedops.core.facts import Json
from fedops.core.ids import GlobalVersion
from fedops.render.text import count, short


def verify_text(rows: Sequence[Mapping[str, Json]], *, whole: bool) -> str:
    """One line for each version, then how many; what is wrong is told elsewhere.

    Args:
        rows: `versions` of the document.
        whole: nothing beside the versions is wrong.
    """
    lines = [f"{GlobalVersion(r['version']).short}  {short(r['commit'])}  {_state(r)}" for r in rows]
    failed = sum(1 for r in rows if not r["ok"])
    beside = "" if whole else ", and more is wrong"
    return "\n".join([*lines, f"{count(len(rows), 'version')} verified, {failed} failed{beside}"])


def _state(row: Mapping[str, Json]) -> str:
    return f"ok ({row['level']})" if row["ok"] else "FAILED"


def audit_text(rows: Sequence[Mapping[str, Json]], forge: Mapping[str, Json], *, whole: bool) -> str:
    """The versions, and a line on the forge.

    Args:
        forge: `forge` of the document.
    """
    facts = [count(forge[key], noun) for key, noun in (("open_pulls", "open pull request"), ("open_signals", "signal"))]
    return f"{verify_text(rows, whole=whole)}\nforge: {', '.join(facts)}"
