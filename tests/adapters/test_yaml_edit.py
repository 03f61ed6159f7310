"""Edits of people's YAML: the one value changes, everything else stays byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.adapters.yaml_edit import RoundTripEditor
from fedops.core.errors import ConfigError
from fedops.core.yaml_reader import parse_yaml

EDITOR = RoundTripEditor()
ROSTER = b"""---
# top of the file
schema: fedops.sites/v1   # do not touch
leads:
  - {login: lena,   id: 1, keys: ["ssh-ed25519 AAAA lena"]}   # the boss

# Sites, by region
sites:
  # north
  hospital-a: {accounts: [{login: alice-a, id: 1001}], keys: ["ssh-ed25519 BBBB alice"], state: active}   # since May
  'on':
    accounts:
      - login: x   # two
        id: 5
    store: null
    state: active  # hm
  # end of the list
"""
VALUE = {"accounts": [{"login": "bob", "id": 7}], "keys": ["ssh-ed25519 CCCC bob"], "state": "active"}


def new_lines(before: bytes, after: bytes) -> list[str]:
    """Lines that were added; fails if one of the old lines is missing or moved."""
    rest = iter(after.splitlines())
    added: list[str] = []
    for line in before.splitlines():
        for other in rest:
            if other == line:
                break
            added.append(other.decode())
        else:
            pytest.fail(f"lost: {line!r}")
    return added + [line.decode() for line in rest]


def test_a_new_entry_is_added_in_the_files_own_list_style() -> None:
    after = EDITOR.put(ROSTER, ("sites", "hospital-b"), VALUE)
    assert new_lines(ROSTER, after) == [
        "  hospital-b:",
        "    accounts:",
        "      - {login: bob, id: 7}",
        "    keys:",
        '      - "ssh-ed25519 CCCC bob"',
        "    state: active",
    ]
    assert parse_yaml(after, "x")[0]["sites"]["hospital-b"] == VALUE


@pytest.mark.parametrize(
    ("site", "old", "new"),
    [
        ("hospital-a", b"state: active}   # since May", b"state: suspended} # since May"),
        ("on", b"state: active  # hm", b"state: suspended # hm"),
    ],
)
def test_one_value_is_replaced_and_its_comment_stays(site: str, old: bytes, new: bytes) -> None:
    assert EDITOR.put(ROSTER, ("sites", site, "state"), "suspended") == ROSTER.replace(old, new)


def test_a_value_is_appended_to_a_list_on_one_line() -> None:
    after = EDITOR.append(ROSTER, ("sites", "hospital-a", "keys"), "ssh-ed25519 DDDD alice")
    assert b'keys: ["ssh-ed25519 BBBB alice", "ssh-ed25519 DDDD alice"]' in after


def test_a_value_is_appended_to_a_list_of_lines() -> None:
    after = EDITOR.append(ROSTER, ("sites", "on", "accounts"), {"login": "z", "id": 6})
    assert new_lines(ROSTER, after) == ["      - {login: z, id: 6}"]


def test_a_list_that_is_missing_or_empty_is_begun() -> None:
    after = EDITOR.append(ROSTER, ("sites", "on", "keys"), "k k")
    assert new_lines(ROSTER, after) == ["    keys:", '      - "k k"']
    assert EDITOR.append(b"keys: []\n", ("keys",), "k k") == b'keys:\n- "k k"\n'


def test_an_empty_map_becomes_one_line_per_entry() -> None:
    data = b"sites: {}\n"
    for site in ("a", "no", "007"):
        data = EDITOR.put(data, ("sites", site), {"state": "active", "keys": []})
    assert data == (
        b"sites:\n  a:\n    state: active\n    keys: []\n"
        b'  "no":\n    state: active\n    keys: []\n  "007":\n    state: active\n    keys: []\n'
    )


def test_maps_that_are_missing_on_the_way_are_made() -> None:
    assert EDITOR.put(b"a: 1\nb: null\n", ("b", "c"), 2) == b"a: 1\nb:\n  c: 2\n"


def test_line_ends_of_windows_stay() -> None:
    data = ROSTER.replace(b"\n", b"\r\n")
    after = EDITOR.put(data, ("sites", "hospital-b"), VALUE)
    assert after.count(b"\n") == after.count(b"\r\n")
    assert after.replace(b"\r\n", b"\n") == EDITOR.put(ROSTER, ("sites", "hospital-b"), VALUE)


def test_lists_beside_their_key_stay_there() -> None:
    data = b"leads:\n- {login: a, id: 1}\nsites: {}\n"
    assert EDITOR.put(data, ("sites", "s"), {"keys": ["k k"]}) == (
        b'leads:\n- {login: a, id: 1}\nsites:\n  s:\n    keys:\n    - "k k"\n'
    )


def test_long_lines_are_not_folded() -> None:
    key = "ssh-rsa " + "A" * 800 + " a comment of several words"
    assert f'"{key}"'.encode() in EDITOR.append(b"keys: []\n", ("keys",), key)


@pytest.mark.parametrize(
    ("data", "path", "said"),
    [
        (b"- a\n", ("x",), "got CommentedSeq -> a map"),
        (b"a: [1\n", ("x",), "not YAML"),
        (b"a: 1\n", ("a", "b"), "a: got int -> a map"),
    ],
)
def test_what_cannot_be_edited_is_refused(data: bytes, path: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EDITOR.put(data, path, 1)


def test_nothing_is_appended_to_what_is_no_list() -> None:
    with pytest.raises(ConfigError, match="a: got int -> a list"):
        EDITOR.append(b"a: 1\n", ("a",), 2)


WORDS = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)


@given(st.dictionaries(WORDS, st.lists(WORDS | st.integers(0, 10**9) | st.booleans(), max_size=3), max_size=4), WORDS)
def test_any_text_is_read_back_as_it_was_put(values: dict[str, list[str | int | bool]], last: str) -> None:
    data = b"# head\nsites: {}\n"
    for name, value in values.items():
        data = EDITOR.put(data, ("sites", name), value)
    data = EDITOR.put(data, ("sites", last), last)
    assert parse_yaml(data, "x")[0] == {"sites": {**values, last: last}}
