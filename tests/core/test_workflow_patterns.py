"""Filter patterns and cron lines mean what GitHub's documentation of workflow syntax says."""

from __future__ import annotations

import datetime as dt

import pytest

from fedops.core.errors import ConfigError
from fedops.core.workflow_patterns import cron_due, matches


# The examples of the documentation's "filter pattern cheat sheet".
@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("feature/*", ["feature/my-branch"], ["feature/a/b", "feature"]),
        ("feature/**", ["feature/beta-a/my-branch", "feature/x"], ["features"]),
        ("main", ["main"], ["mainly", "domain"]),
        ("*", ["main", "releases"], ["all/the/branches"]),
        ("**", ["main", "all/the/branches", "every/tag"], []),
        ("*feature", ["mona-feature", "feature"], ["mona/feature"]),
        ("v2*", ["v2", "v2.0", "v2.9"], ["v1"]),
        ("v[12].[0-9]+.[0-9]+", ["v1.10.1", "v2.0.0"], ["v3.0.0", "v1.x.1"]),
        ("*.jsx?", ["page.js", "page.jsx"], ["page.ts"]),
        ("**.js", ["index.js", "js/index.js", "src/js/app.js"], ["index.jsx"]),
        ("docs/*", ["docs/README.md"], ["docs/mona/x.md"]),
        ("**/docs/**", ["docs/hello.md", "dir/docs/my-file.txt", "space/docs/plan/x.doc"], ["mydocs/x"]),
        ("**/README.md", ["README.md", "js/README.md"], ["README.mdx"]),
        ("**/*-post.md", ["my-post.md", "path/their-post.md"], ["post.md"]),
        ("a[b.txt", ["a[b.txt"], ["ab.txt"]),
    ],
)
def test_patterns_are_those_of_the_documentation(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in [*yes, *no] if matches([pattern], text)] == yes


def test_later_patterns_win_and_an_exclamation_mark_takes_away() -> None:
    patterns = ["sites/**", "!sites/README.md", "sites/README.md.dvc"]
    assert matches(patterns, "sites/a/x.json")
    assert not matches(patterns, "sites/README.md")
    assert not matches([], "x")


def test_a_pattern_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="filter pattern"):
        matches(["?x"], "x")


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


MONDAY = "2026-03-02"  # a Monday


@pytest.mark.parametrize(
    ("line", "after", "until", "due"),
    [
        ("11,41 * * * *", "10:10:30", "10:11:00", True),
        ("11,41 * * * *", "10:11:00", "10:40:59", False),
        ("11,41 * * * *", "10:11:00", "10:41:00", True),
        ("37 4 * * 1", "04:36:00", "04:37:05", True),
        ("37 4 * * 2", "00:00:00", "23:59:00", False),
        ("37 4 * * MON-WED", "04:00:00", "05:00:00", True),
        ("*/15 * * * *", "10:16:00", "10:29:59", False),
        ("*/15 * * * *", "10:16:00", "10:30:00", True),
        ("5/20 * * * *", "10:26:00", "10:45:00", True),
        ("0 0-3 * * *", "03:30:00", "04:30:00", False),
        ("0 0 2 3 *", "00:00:00", "12:00:00", False),  # the minute itself was before
        ("0 6 2 MAR *", "00:00:00", "12:00:00", True),
        ("0 6 3 3 *", "00:00:00", "12:00:00", False),
        ("0 6 3 3 1", "00:00:00", "12:00:00", True),  # two restricted days are alternatives
        ("0 6 2 4 *", "00:00:00", "12:00:00", False),
    ],
)
def test_a_cron_line_is_due_in_its_minutes(line: str, after: str, until: str, due: bool) -> None:
    assert cron_due(line, at(f"{MONDAY} {after}"), at(f"{MONDAY} {until}")) is due


def test_a_long_pause_is_looked_at_from_its_end() -> None:
    assert cron_due("37 4 * * 1", at("2020-01-01 00:00:00"), at(f"{MONDAY} 04:00:00"))
    assert not cron_due("0 0 1 1 *", at("2020-01-01 00:00:00"), at(f"{MONDAY} 04:00:00"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("60 * * * *", "minute '60' -> 0 to 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day '0' -> 1 to 31"),
        ("* * * FOO *", "month 'FOO'"),
        ("* * * * 7", "weekday '7'"),
        ("*/0 * * * *", "minute '*/0'"),
        ("1- * * * *", "minute '1-'"),
        ("5-MON * * * *", "minute 'MON'"),
        ("@daily x x x x", "minute '@daily'"),
    ],
)
def test_what_is_no_cron_line_is_told(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as e:
        cron_due(line, at(f"{MONDAY} 00:00:00"), at(f"{MONDAY} 00:01:00"))
    assert says in e.value.message
