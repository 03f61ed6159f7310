"""What every line that a doctor gives must have, wherever a test makes it give some."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from fedops.core.health import Check

STATES = ("ok", "warning", "broken")


def whole(check: Check) -> Check:
    """The same, once it says what is and, unless all is ok, what to do."""
    assert check.state in STATES, check
    assert check.name.strip(), check
    assert check.got.strip(), check
    assert check.state == "ok" or check.next.strip(), f"{check.name}: no next step: {check}"
    return check


def by_name(checks: Iterable[Check]) -> dict[str, Check]:
    """Name -> check of a whole report; no name comes twice."""
    every = [whole(check) for check in checks]
    found = {check.name: check for check in every}
    assert len(found) == len(every), [check.name for check in every]
    return found


def bad(checks: Iterable[Check]) -> dict[str, str]:
    """What is not well, and how."""
    return {check.name: check.state for check in checks if check.state != "ok"}


def told_steps(text: str) -> dict[str, str]:
    """Line that is not ok -> the next step below it, of a printed report; each has one.

    >>> told_steps("warning  key  none\\n         next: make one")
    {'warning  key  none': 'make one'}
    """
    lines = [*text.splitlines(), ""]
    found = {}
    for line, below in pairwise(lines):
        if line.startswith(STATES[1:]):
            mark, _, step = below.strip().partition("next: ")
            assert (mark, bool(step.strip())) == ("", True), f"no next step below: {line}"
            found[line] = step
    return found
