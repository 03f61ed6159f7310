"""Values that somebody outside wrote, made fit for a report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches

from fedops.core.facts import Json

MAX_TEXT = 100  # characters of one value: a report is read by people
# NOTE: a report is itself JSON that is parsed with a limit; a value nested to that limit would make it unreadable.
MAX_NESTING = 4


def like(name: str, known: Iterable[str], otherwise: str) -> str:
    """What was probably meant: the known name that is most like one that is not known; else what there is in general."""
    near = get_close_matches(name, sorted(known), 1)
    return f"perhaps {near[0]}; {otherwise}" if near else otherwise


def brief(value: Json) -> Json:
    """A JSON value, small and printable: numbers as they are, text cut, large or deep containers named by their type.

    None is written "null", since a finding without `got` has None there. Text that is not Unicode (git allows any
    bytes in a path, JSON half of a surrogate pair) becomes escapes.
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return value[:MAX_TEXT].encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (dict, list)):
        text = json.dumps(value, ensure_ascii=False)
        small = len(text) <= MAX_TEXT and _nesting(value) <= MAX_NESTING
        return value if small and brief(text) == text else type(value).__name__
    return value


def _nesting(value: Json) -> int:
    """How many containers lie in each other; 0 for a plain value."""
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_nesting, value.values() if isinstance(value, dict) else value), default=0)


def brief_text(text: str) -> str:
    """`brief` of a text."""
    return str(brief(text))
