from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.render.text import ago, clean, count, listed, printable, short, size, table, width
from tests.core.samples import T0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\n b\t\tc\r\n", "a b c"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("bell\x07", "bell\\x07"),
        ("\u202eevil", "\\x202eevil"),
        ("zero\u200bwidth", "zero\\x200bwidth"),
        ("line\u2028break", "line break"),
        ("half \ud800", "half \\xd800"),
        ("Klinik für Ärzte", "Klinik für Ärzte"),
    ],
)
def test_nothing_in_the_text_of_a_site_acts_on_a_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_printable_text_is_one_line_that_can_be_written_anywhere(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    shown.encode()


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("病院", 4), ("e\u0301", 1), ("ｱ", 1), ("", 0), ("a\u20dd", 1)]
)
def test_width_is_in_terminal_columns(text: str, columns: int) -> None:
    assert width(text) == columns


def test_long_text_is_cut_to_columns() -> None:
    assert clean("abcdef", 6) == "abcdef"
    assert clean("abcdefg", 6) == "abcde…"
    assert clean("病院病院", 6) == "病院…"
    assert clean("x" * 10**6) == "x" * 59 + "…"


@given(st.text(max_size=400), st.integers(1, 40))
def test_clean_text_is_never_wider_than_asked(text: str, columns: int) -> None:
    assert width(clean(text, columns)) <= columns


def test_hidden_marks_cannot_make_a_cell_long() -> None:
    assert len(clean("e" + "\u0301" * 10**6, 10)) <= 45


def test_columns_are_aligned_and_lines_end_without_spaces() -> None:
    text = table(["site", "n", "state"], [["病院", "1,000", ""], ["b", "7", "merged"]], right={1})
    assert text.split("\n") == ["site      n  state", "病院  1,000", "b         7  merged"]


def test_a_hostile_cell_breaks_no_row() -> None:
    text = table(["a", "b"], [["x\ny\x1b[2J", "z"]])
    assert text.split("\n") == ["a           b", "x y\\x1b[2J  z"]


def test_a_table_without_rows_is_its_header() -> None:
    assert table(["site", "base"], []) == "site  base"


def test_digests_are_shown_by_twelve_characters() -> None:
    assert short("sha256:" + "0123456789abcdef" * 4) == "0123456789ab"
    assert short("0123456789abcdef" * 2) == "0123456789ab"


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 sites"), (1, "1 site"), (2, "2 sites"), (1234567, "1,234,567 sites")]
)
def test_counts_agree_with_their_noun(number: int, text: str) -> None:
    assert count(number, "site") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (1549, "1.5 kB"),
        (99_400, "99 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (2_000_000_000, "2.0 GB"),
        (5_000_000_000_000_000, "5000 TB"),
    ],
)
def test_sizes_are_short(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (59, "just now"),
        (-59, "just now"),
        (60, "1 minute ago"),
        (3599, "59 minutes ago"),
        (3600, "1 hour ago"),
        (86399, "23 hours ago"),
        (86400, "1 day ago"),
        (400 * 86400, "400 days ago"),
        (-300, "in 5 minutes"),
        (-7200, "in 2 hours"),
    ],
)
def test_times_are_told_from_the_given_now(seconds: int, text: str) -> None:
    assert ago(T0, T0 + dt.timedelta(seconds=seconds)) == text


def test_a_long_list_names_the_first_and_counts_the_rest() -> None:
    names = [f"s{n}" for n in range(1000)]
    assert listed([]) == ""
    assert listed(names[:2]) == "s0, s1"
    assert listed(names[:10]) == ", ".join(names[:10])
    assert listed(names) == ", ".join(names[:10]) + " and 990 more"
    assert listed(names, most=1) == "s0 and 999 more"
