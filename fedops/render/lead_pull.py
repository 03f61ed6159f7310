"""A lead's pull request that changes policies, roster or workflows: its text, and what a terminal says of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from fedops.render.markdown import code

Outcome = Literal["opened", "updated", "open"]
_DONE: dict[Outcome, str] = {
    "opened": "opened",
    "updated": "updated; what it proposed before is replaced",
    "open": "is open already, with the same content",
}


def lead_body(paths: Iterable[str]) -> str:
    """The text of the pull request."""
    changed = ", ".join(code(path) for path in sorted(paths))
    return f"Changes {changed}.\n\nNo submission: leads review it, and a person merges it. CI merges nothing of it.\n"


def lead_pull_text(number: int, outcome: Outcome) -> str:
    """What was done, and what comes next."""
    return f"#{number}: {_DONE[outcome]}; next: another lead runs `fedops review {number} --approve`, then a person merges it"
