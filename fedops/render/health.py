"""What `fedops doctor` prints; checks in, lines out."""

from __future__ import annotations

from collections.abc import Sequence

from fedops.core.health import Check, summary
from fedops.render.text import clean

_WIDE = 300  # columns; a path and a reason must stay whole to be of use


def health_text(checks: Sequence[Check]) -> str:
    """One line for each check, the next command below those that need one, and the sum of all."""
    width = max((len(c.name) for c in checks), default=0)
    lines = []
    for c in checks:
        expected = f" -> {clean(c.expected, _WIDE)}" if c.expected and c.state != "ok" else ""
        lines.append(f"{c.state:<7}  {c.name:<{width}}  {clean(c.got, _WIDE)}{expected}")
        if c.next and c.state != "ok":
            lines.append(f"         {'':<{width}}  next: {clean(c.next, _WIDE)}")
    return "\n".join([*lines, "", summary(checks)])
