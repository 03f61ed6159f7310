"""Plain text for terminals: aligned tables, short digests, sizes and times; text of a site is made safe here."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Collection, Sequence

CELL_WIDTH = 60


def printable(text: str) -> str:
    r"""One line in which nothing acts on a terminal: white space becomes a space, other unseen characters `\x1b`.

    Covers control and escape characters, bidirectional overrides and zero-width characters.
    """
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(text.split()))


def width(text: str) -> int:
    """Terminal columns of printable text: 2 for wide East Asian characters, 0 for combining marks."""
    wide = ("W", "F")
    marks = ("Mn", "Me")
    return sum(
        0 if unicodedata.category(c) in marks else 2 if unicodedata.east_asian_width(c) in wide else 1 for c in text
    )


def clean(text: str, columns: int = CELL_WIDTH) -> str:
    """Printable text of at most so many columns; the end of a longer one is replaced by an ellipsis."""
    # NOTE: cut before it is measured: a site may send megabytes, and combining marks take no column.
    safe = printable(text[: 4 * columns + 4])
    if width(safe) <= columns and len(text) <= 4 * columns:
        return safe
    while safe and width(safe) > columns - 1:
        safe = safe[:-1]
    return safe + "…"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Columns two spaces apart, as wide as their widest cell; no space at line ends.

    Args:
        rows: as many cells as the header has; made safe here, at most CELL_WIDTH columns each.
        right: indexes of columns that are set flush right (numbers).

    Returns:
        Lines joined by newlines, without a final one.
    """
    lines = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(width(line[i]) for line in lines) for i in range(len(header))]

    def pad(cell: str, i: int) -> str:
        fill = " " * (widths[i] - width(cell))
        return fill + cell if i in right else cell + fill

    return "\n".join("  ".join(pad(cell, i) for i, cell in enumerate(line)).rstrip() for line in lines)


def short(digest: str) -> str:
    """First 12 characters of a digest or git id, without `sha256:`; for display, never to compare."""
    return digest.removeprefix("sha256:")[:12]


def count(number: int, noun: str) -> str:
    """`1 site`, `3 sites`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int = 10) -> str:
    """`a, b, c`; of a longer list the first ones, `and 990 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(size_bytes: int) -> str:
    """`160 bytes`, `1.5 MB`: decimal units, two digits from kB on."""
    if size_bytes < 1000:
        return count(size_bytes, "byte")
    value, unit = float(size_bytes), "bytes"
    for unit in ("kB", "MB", "GB", "TB"):  # noqa: B007 the unit that the loop stopped at is wanted
        value /= 1000
        if value < 999.5:
            break
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"


def percent(share: float) -> str:
    """`66.7 %` of 2/3."""
    return f"{100 * share:.1f} %"


_STEPS = ((60, "minute"), (3600, "hour"), (86400, "day"))


def ago(moment: dt.datetime, now: dt.datetime) -> str:
    """`3 hours ago`, `in 5 minutes`, `just now` (within a minute); whole units, rounded down."""
    seconds = (now - moment).total_seconds()
    span = int(abs(seconds))
    fitting = [(length, noun) for length, noun in _STEPS if span >= length]
    if not fitting:
        return "just now"
    length, noun = fitting[-1]
    text = count(span // length, noun)
    return f"{text} ago" if seconds > 0 else f"in {text}"
