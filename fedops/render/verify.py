"""`fedops verify` and `fedops ci audit` as text for people: the rows of their JSON documents in, lines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedops.core.facts import Json
from fedops.core.ids import GlobalVersion
from fedops.render.text import count, short


def verify_text(rows: Sequence[Mapping[str, Json]], *, whole: bool, remembered: Mapping[str, int] | None = None) -> str:
    """One line for each version, then how many; what is wrong is told elsewhere.

    Args:
        rows: `versions` of the document.
        whole: nothing beside the versions is wrong.
        remembered: `files` and `bytes` that were not read again, where that was allowed.
    """
    lines = [f"{GlobalVersion(r['version']).short}  {short(r['commit'])}  {_state(r)}" for r in rows]
    failed = sum(1 for r in rows if not r["ok"])
    beside = "" if whole else ", and more is wrong"
    lines.append(f"{count(len(rows), 'version')} verified, {failed} failed{beside}")
    if remembered is not None:
        size = f"{remembered['bytes'] / 1e6:.1f} MB"
        lines.append(
            f"{count(remembered['files'], 'file')} ({size}) not read again: as an earlier verification left them"
        )
    return "\n".join(lines)


def _state(row: Mapping[str, Json]) -> str:
    if row["ok"]:
        return f"ok ({row['level']})"
    return "FAILED" if row["level"] == "none" else f"FAILED (only {row['level']})"


def audit_text(rows: Sequence[Mapping[str, Json]], forge: Mapping[str, Json], *, whole: bool) -> str:
    """The versions, and a line on the forge.

    Args:
        forge: `forge` of the document.
    """
    facts = [count(forge[key], noun) for key, noun in (("open_pulls", "open pull request"), ("open_signals", "signal"))]
    return f"{verify_text(rows, whole=whole)}\nforge: {', '.join(facts)}"
