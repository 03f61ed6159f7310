"""Text written as a YAML scalar is read back as the same text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.yaml_reader import parse_yaml
from fedops.core.yaml_text import is_bare, scalar


@pytest.mark.parametrize("text", ["alice-a", "breast-cancer", "_x", "Null1"])
def test_plain_words_stay_bare(text: str) -> None:
    assert scalar(text) == text


@pytest.mark.parametrize(
    "text", ["on", "No", "NULL", "y", "7fed", "1e5", "", "a b", "-x", "a: b", "ssh-ed25519 AAAA", "a\n"]
)
def test_what_a_reader_could_take_for_something_else_is_quoted(text: str) -> None:
    assert not is_bare(text)
    assert scalar(text).startswith('"')


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=30))
def test_text_is_read_back(text: str) -> None:
    assert parse_yaml(f"key: {scalar(text)}\n".encode(), "x")[0] == {"key": text}
