"""GitHub's filter patterns and cron lines, as its documentation of workflow syntax gives them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from functools import lru_cache

from fedops.core.errors import ConfigError

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6))
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NAMES = {3: {name: i for i, name in enumerate(_MONTHS, 1)}, 4: {name: i for i, name in enumerate(_WEEKDAYS)}}
_PART = re.compile(r"(\*|[A-Za-z0-9]+(?:-[A-Za-z0-9]+)?)(?:/([1-9][0-9]?))?\Z")


def matches(patterns: Sequence[str], text: str) -> bool:
    """True if a branch or path passes a list of patterns; later ones win, `!` takes away.

    `*` is anything but a slash, `**` anything, `?` and `+` count the character before them, `[…]` is a choice.
    """
    passed = False
    for pattern in patterns:
        negative = pattern.startswith("!")
        if _regex(pattern[negative:]).fullmatch(text):
            passed = not negative
    return passed


@lru_cache(maxsize=256)
def _regex(pattern: str) -> re.Pattern[str]:
    out, i = "", 0
    while i < len(pattern):
        rest = pattern[i:]
        if rest.startswith("**/"):
            out, i = out + "(?:.*/)?", i + 3
        elif rest.startswith("**"):
            out, i = out + ".*", i + 2
        elif rest[0] == "*":
            out, i = out + "[^/]*", i + 1
        elif rest[0] in "?+":
            out, i = out + rest[0], i + 1
        elif choice := re.match(r"\[[A-Za-z0-9-]+\]", rest):
            out, i = out + choice[0], i + choice.end()
        else:
            out, i = out + re.escape(rest[0]), i + 1
    try:
        return re.compile(out)
    except re.error as e:
        raise ConfigError(f"filter pattern {pattern!r}: {e}") from e


def cron_due(line: str, after: dt.datetime, until: dt.datetime) -> bool:
    """True if a cron line names a minute in (after, until]; both UTC. Longer spans than a week are looked at from their end.

    Raises:
        ConfigError: the line is not one.
    """
    sets = _cron(line)
    minute = until.replace(second=0, microsecond=0)
    start = max(after, until - dt.timedelta(days=7, minutes=1))
    while minute > start:
        if _names(sets, minute, line):
            return True
        minute -= dt.timedelta(minutes=1)
    return False


def _names(sets: Sequence[frozenset[int]], at: dt.datetime, line: str) -> bool:
    minute, hour, day, month, weekday = sets
    if at.minute not in minute or at.hour not in hour or at.month not in month:
        return False
    days = (at.day in day, at.isoweekday() % 7 in weekday)
    # As cron has it: two restricted day fields are alternatives.
    _, _, day_text, _, weekday_text = line.split()
    both = not day_text.startswith("*") and not weekday_text.startswith("*")
    return any(days) if both else all(days)


@lru_cache(maxsize=64)
def _cron(line: str) -> tuple[frozenset[int], ...]:
    fields = line.split()
    if len(fields) != len(_FIELDS):
        raise ConfigError(f"cron {line!r}: {len(fields)} fields -> minute hour day month weekday")
    return tuple(_field(line, i, text) for i, text in enumerate(fields))


def _field(line: str, number: int, text: str) -> frozenset[int]:
    name, low, high = _FIELDS[number]
    out: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part)
        if match is None:
            raise ConfigError(f"cron {line!r}: {name} {part!r} -> *, a number, a range or a step")
        first, _, last = ("", "", "") if match[1] == "*" else match[1].partition("-")
        start = low if not first else _number(line, number, first)
        # As in cron, a single number with a step runs to the end of the field.
        end = _number(line, number, last) if last else high if not first or match[2] else start
        out.update(range(start, end + 1, int(match[2] or 1)))
    return frozenset(out)


def _number(line: str, number: int, text: str) -> int:
    name, low, high = _FIELDS[number]
    value = _NAMES.get(number, {}).get(text.upper(), int(text) if text.isdigit() else -1)
    if not low <= value <= high:
        raise ConfigError(f"cron {line!r}: {name} {text!r} -> {low} to {high}")
    return value
