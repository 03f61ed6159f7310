from __future__ import annotations

import json
from typing import Any

import pytest

from fedops.core.brief import brief, brief_text, like

LONE = json.loads('"a\\ud800"')


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, True),
        (12.5, 12.5),
        ("x", "x"),
        ("é" * 500, "é" * 100),
        (LONE, "a\\ud800"),
        ([10], [10]),
        ({"n": 1}, {"n": 1}),
        (list(range(100)), "list"),
        ({"k": "v" * 200}, "dict"),
        ([LONE], "list"),
        ([[{"a": [1]}]], [[{"a": [1]}]]),
        ([[{"a": [[1]]}]], "list"),
        ({"a": [[[[]]]]}, "dict"),
    ],
)
def test_a_value_in_a_report_is_small_and_printable(value: Any, shown: Any) -> None:
    assert brief(value) == shown
    json.dumps(brief(value), ensure_ascii=False).encode()


def test_text_stays_text() -> None:
    assert brief_text("x") == "x"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hospital-aa", "perhaps hospital-a; a site"),
        ("hopsital-b", "perhaps hospital-b; a site"),
        ("rogue-x", "a site"),
        ("", "a site"),
    ],
)
def test_a_name_that_is_nearly_a_known_one_is_told_with_it(name: str, expected: str) -> None:
    assert like(name, ["hospital-b", "hospital-a", "clinic-c"], "a site") == expected
