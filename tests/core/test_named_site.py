"""Whose record it is, however wrong the rest of it may be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedops.core.validate import named_site


@pytest.mark.parametrize("value", [{"site": "hospital-a"}, {"site": "hospital-a", "num_examples": None, "x": [1]}])
def test_a_valid_id_is_read_out_of_any_record(value: Any) -> None:
    assert named_site(value) == "hospital-a"
    assert named_site(json.dumps(value).encode()) == "hospital-a"


@pytest.mark.parametrize("value", [{}, [], None, "hospital-a", {"site": 7}, {"site": "Hospital-A"}, {"site": "global"}])
def test_nothing_else_is_a_site(value: Any) -> None:
    assert named_site(value) is None
    assert named_site(json.dumps(value).encode()) is None


def test_bytes_that_are_no_json_name_no_site() -> None:
    assert named_site(b'{"site": "hospital-a", "site": "hospital-a"}') is None
    assert named_site(b"\xff") is None
