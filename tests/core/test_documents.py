"""Strict text in, canonical bytes out."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import StringConstraints, field_validator

from fedops.core import yaml_reader
from fedops.core.documents import (
    MAX_DOCUMENT_BYTES,
    BadJson,
    Document,
    dump_json,
    load_document,
    load_json_document,
    parse_json,
)
from fedops.core.errors import ConfigError
from fedops.core.settings import Aggregation, Sites, Staleness
from fedops.core.yaml_reader import parse_yaml

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda c: st.lists(c, max_size=4) | st.dictionaries(st.text(), c, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_what_is_dumped_parses_back_to_the_same_value(value: Any) -> None:
    assert parse_json(dump_json(value)) == value


@given(_JSON)
def test_canonical_bytes_do_not_depend_on_the_order_of_map_keys(value: Any) -> None:
    turned = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert dump_json(turned) == dump_json(value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1, "a": 2}', "repeated key 'a'"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b'{"a": 1e999}', "out of range"),
        (b'{"a": 123456789012345678901}', "too many digits"),
        (b"[" * 33 + b"]" * 33, "nested more than 32"),
        (b'{"a": }', "line 1"),
        (b"", "line 1"),
        (b"{} {}", "line 1"),
        (b" " * 20, "20 bytes, at most 10"),
    ],
)
def test_loose_json_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadJson, match=reason):
        parse_json(data, max_bytes=10 if data == b" " * 20 else 1000)


def test_brackets_inside_strings_do_not_count_as_depth() -> None:
    text = '{"a": "' + "[" * 100 + '\\"{{"}'
    assert parse_json(text.encode()) == {"a": "[" * 100 + '"{{'}


def test_the_place_stands_in_front_of_the_reason() -> None:
    with pytest.raises(BadJson, match=r"^sites/a/submission\.json: repeated key"):
        parse_json(b'{"a":1,"a":1}', "sites/a/submission.json")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nothing_is_written_that_is_not_json(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json({"a": value})


def test_fields_stand_in_the_model_s_order_and_absent_ones_are_left_out() -> None:
    text = dump_json(Staleness(kind="hinge", a=2.0, b=1.0)).decode()
    assert text == '{\n  "kind": "hinge",\n  "max": 5,\n  "a": 2.0,\n  "b": 1.0\n}\n'
    assert b"alpha" not in dump_json(Staleness())


def test_a_strategy_s_own_parameters_are_kept() -> None:
    data = b"strategy: {name: trimmed_mean, beta: '0.2'}\n"
    policy = load_document(data, Aggregation, "policies/aggregation.yaml")
    assert policy.strategy.parameters == {"beta": "0.2"}
    assert b'"beta": "0.2"' in dump_json(policy)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: true", True),
        ("a: false", False),
        ("a: null", None),
        ("a: ~", None),
        ("a:", None),
        ("a: 7", 7),
        ("a: -7", -7),
        ("a: 0.5", 0.5),
        ("a: 1e-3", 0.001),
        ('a: "007"', "007"),
        ("a: 'no'", "no"),
        ("a: hospital-a", "hospital-a"),
        ("a: v1.2", "v1.2"),
        ("a: [1, b]", [1, "b"]),
        ("a: 2026-03-02", "2026-03-02"),
    ],
)
def test_yaml_scalars_mean_what_they_look_like(text: str, value: Any) -> None:
    assert parse_yaml(text.encode(), "f.yaml")[0] == {"a": value}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: no", "f.yaml:1: bare 'no'"),
        (b"\na: On", "f.yaml:2: bare 'On'"),
        (b"a: 007", "f.yaml:1: '007' is not a decimal number"),
        (b"a: 12:30", "f.yaml:1: '12:30' is not"),
        (b"a: 1_000", "f.yaml:1: '1_000' is not"),
        (b"a: 0x10", "f.yaml:1: '0x10' is not"),
        (b"a: 1e999", "f.yaml:1: number 1e999 is out of range"),
        (b"a: 1\nb: 2\na: 3", "f.yaml:3: repeated key 'a'"),
        (b"a: &x 1\nb: *x", "f.yaml:1: anchors and aliases"),
        (b"a: !!python/name:os.system x", "f.yaml:1: tags are not allowed"),
        (b"a: ! 5", "f.yaml:1: tags are not allowed"),
        (b"? [1]\n: 2", "f.yaml:1: a key must be plain text"),
        (b"<<: {a: 1}", "f.yaml:1: a key must be plain text"),
        (b"a: [1", "f.yaml:1: expected ',' or ']'"),
        (b"a: 1\n---\nb: 2", "f.yaml:2: "),
        (b"", "f.yaml: the file is empty"),
        (b"\xff", "f.yaml: not UTF-8 at byte 0"),
        (b"a: \x07", "f.yaml: not YAML"),
        (b"[" * 40 + b"]" * 40, "nested more than 32 deep"),
        (b"[" * 5000 + b"]" * 5000, "nested more than 32 deep"),
        (b" " * 1_048_577, "1048577 bytes -> at most 1048576"),
    ],
)
def test_loose_yaml_is_refused_with_file_and_line(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as e:
        parse_yaml(data, "f.yaml")
    assert message in e.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: fedops.sites/v1\nsits: {}\n", "p.yaml:2: sits: unknown key, did you mean sites?"),
        ("schema: fedops.sites/v1\ncolour: {}\n", "p.yaml:2: colour: unknown key"),
        ("leads: []\n", "p.yaml:1: schema: required, but absent"),
        ("schema: fedops.sites/v2\n", "p.yaml:1: schema: Input should be 'fedops.sites/v1', got 'fedops.sites/v2'"),
        (
            "schema: fedops.sites/v1\nsites:\n  a:\n    accounts: [{login: x, id: '3'}]\n",
            "p.yaml:4: sites.a.accounts.0.id: Input should be a valid integer, got '3'",
        ),
        ("schema: fedops.sites/v1\nsites:\n  A: {accounts: [{login: x, id: 3}]}\n", "p.yaml:2: sites: "),
    ],
)
def test_a_document_s_fault_names_line_key_and_value(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as e:
        load_document(text.encode(), Sites, "p.yaml")
    assert e.value.message.startswith(message)


def test_several_faults_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"\(and 1 more\)"):
        load_document(b"schema: fedops.sites/v1\nx: 1\ny: 2\n", Sites, "p.yaml")


def test_a_fault_of_the_whole_document_names_the_file() -> None:
    with pytest.raises(ConfigError, match=r"^p\.yaml:1: Input should be an object"):
        load_document(b"- 1\n", Sites, "p.yaml")
    with pytest.raises(ConfigError, match=r"^p\.json: Input should be an object"):
        load_json_document(b"[]", Sites, "p.json")


class _Small(Document):
    xs: tuple[int, ...]


def test_json_documents_are_strict_too() -> None:
    assert load_json_document(b'{"xs": [1, 2]}', _Small, "x").xs == (1, 2)
    with pytest.raises(ConfigError, match="x: repeated key"):
        load_json_document(b'{"xs": [1], "xs": [2]}', _Small, "x")
    with pytest.raises(ConfigError, match=r"x: xs\.0: Input should be a valid integer"):
        load_json_document(b'{"xs": [1.0]}', _Small, "x")


class _Written(Document):
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    of: Literal["participants"] | int = 1

    @field_validator("digest")
    @classmethod
    def _not_zero(cls, digest: str) -> str:
        if digest == "0" * 64:
            raise ValueError("no file has this one")
        return digest


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"digest": "A" * 64}, "x: digest: must be 64 hexadecimal digits in lower case, got "),
        ({"digest": "0" * 64}, "x: digest: no file has this one, got "),
        ({"digest": "1" * 64, "of": "all"}, "x: of: Input should be 'participants', got 'all' (and 1 more)"),
        ({"digest": "1" * 64, "of[0]": 1}, "x: of[0]: unknown key"),
        ({"digest": "1" * 64, "[[": 1}, "x: [[: unknown key"),
    ],
)
def test_faults_are_told_in_words_of_the_document(document: Any, says: str) -> None:
    with pytest.raises(ConfigError) as e:
        load_json_document(json.dumps(document).encode(), _Written, "x")
    assert e.value.message.startswith(says)


def test_documents_are_frozen() -> None:
    small = _Small(xs=(1,))
    with pytest.raises(ValueError, match="frozen"):
        small.xs = (2,)  # type: ignore[misc]  # the point of the test


def test_the_limit_of_a_document_is_one_mebibyte() -> None:
    assert MAX_DOCUMENT_BYTES == 2**20


SAME = [
    b"a: [1, 2.5, ~, 'q', {b: c}]\nd:\n  - x\n  - {}\n",
    b"# comment\nlong: |\n  one\n  two\nfold: >-\n  a\n  b\n",
    b"a: 'no'\nb: \"007\"\nc: |-\n  12:30\n",
    b"a: [1?: , 2]\n",
    b"a: |#\n  x\n",
    b"a:\tb\n",
    b"\xef\xbb\xbfa: 1\n",
    b"a: 1\r\nb: 2\r\n",
    b"a: \xe2\x80\xa8b\n",
    b"a: 1\n--- \nb: 2\n",
    b"a: [1, 2\n",
    b"a: b: c\n",
]


@pytest.mark.parametrize("data", SAME)
def test_with_and_without_libyaml_a_text_is_the_same(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> object:
        try:
            return parse_yaml(data, "f.yaml")
        except ConfigError as e:
            return e.message

    fast = read()
    monkeypatch.setattr(yaml_reader, "_FAST", None)
    assert read() == fast


def test_depth_is_counted_in_places_and_what_is_too_deep_ends_the_reading() -> None:
    deep = b"[" * 32 + b"1" + b"]" * 32
    value, lines = parse_yaml(deep, "f.yaml")
    for _ in range(32):
        [value] = value
    assert (value, max(map(len, lines))) == (1, 32)
    with pytest.raises(ConfigError, match="nested more than 32 deep"):
        parse_yaml(b"[" * 33 + b"1" + b"]" * 33, "f.yaml")
    with pytest.raises(ConfigError, match="nested more than 32 deep"):
        parse_yaml(b"[" * 1_000_000, "f.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("trigger: {quorun: 2}", "p.yaml:2: trigger.quorun: unknown key, did you mean quorum?"),
        ("triger: {quorum: 2}", "p.yaml:2: triger: unknown key, did you mean trigger?"),
        ("shema: x", "p.yaml:2: shema: unknown key, did you mean schema?"),  # by its name in the file
        # One of several kinds, and keys that stand nowhere near.
        ("staleness: {kind: inverse, maxi: 5}", "p.yaml:2: staleness.maxi: unknown key, did you mean max?"),
        ("trigger: {colour: 2}", "p.yaml:2: trigger.colour: unknown key"),
        ("trigger: {quorum_of_all_the_sites_that_there_are_in_it: 2}", "unknown key"),
    ],
)
def test_an_unknown_key_is_told_with_the_one_that_was_meant(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as e:
        load_document(f"schema: fedops.aggregation/v1\n{text}\n".encode(), Aggregation, "p.yaml")
    assert says in e.value.message
    assert ("did you mean" in e.value.message) == ("did you mean" in says)


def test_what_was_meant_is_found_below_names_and_in_lists() -> None:
    text = "schema: fedops.sites/v1\nsites:\n  a:\n    accounts: [{login: x, idd: 3}]\n"
    with pytest.raises(ConfigError, match=r"sites\.a\.accounts\.0\.\w+: .*"):
        load_document(text.encode(), Sites, "p.yaml")
    text = "schema: fedops.sites/v1\nsites:\n  a:\n    accounts: [{login: x, id: 3}]\n    stat: active\n"
    with pytest.raises(ConfigError, match=r"p\.yaml:5: sites\.a\.stat: unknown key, did you mean state\?"):
        load_document(text.encode(), Sites, "p.yaml")
