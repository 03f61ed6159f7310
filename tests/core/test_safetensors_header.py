"""The safetensors header: what is written equals the reference library, what is read is strict."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from fedops.core.facts import TensorSpec
from fedops.core.findings import Finding
from fedops.core.safetensors_header import MAX_FINDINGS, Header, encode_header, parse_header

STORED = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I8": "i1", "U16": "u2", "U64": "u8", "BOOL": "?"}
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=12)


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def parsed(header: Any, size: int = 4, *, max_tensors: int = 100) -> Header | tuple[Finding, ...]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return parse_header(text, size, "f", max_tensors=max_tensors)


def slugs(header: Any, size: int = 4, *, max_tensors: int = 100) -> list[str]:
    got = parsed(header, size, max_tensors=max_tensors)
    assert not isinstance(got, Header)
    assert all(f.where == "f" for f in got)
    return [f.slug for f in got]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        NAMES,
        st.tuples(st.sampled_from(sorted(STORED)), st.lists(st.integers(0, 3), max_size=3)),
        min_size=1,
        max_size=8,
    )
)
def test_written_header_is_the_reference_librarys_and_is_read_back(tensors: dict[str, tuple[Any, list[int]]]) -> None:
    specs = {
        name: TensorSpec(dtype, tuple(shape)) for name, (dtype, shape) in tensors.items() if name != "__metadata__"
    }
    arrays = {name: np.zeros(s.shape, STORED[s.dtype]) for name, s in specs.items()}
    expected = save(arrays)
    head = encode_header(specs)
    assert head == expected[: len(head)]
    assert len(expected) - len(head) == sum(a.nbytes for a in arrays.values())
    got = parse_header(head[8:], len(expected) - len(head), "f", max_tensors=8)
    if all(n.isprintable() and not set("\\/") & set(n) and n not in (".", "..") for n in specs) and specs:
        assert isinstance(got, Header), got
        assert (got.specs, got.has_metadata) == (specs, False)


def test_order_of_data_in_the_file_is_free() -> None:
    got = parsed({"a": entry(offsets=(4, 8)), "b": entry(offsets=(0, 4))}, 8)
    assert isinstance(got, Header)
    assert got.offsets == {"a": 4, "b": 0}


def test_tensor_without_elements_may_stand_anywhere() -> None:
    assert isinstance(parsed({"a": entry(), "z": entry(shape=(0, 4), offsets=(4, 4))}), Header)
    assert isinstance(parsed({"a": entry(), "z": entry(shape=(0, 4), offsets=(0, 0))}), Header)


def test_metadata_is_a_fact_for_the_caller() -> None:
    got = parsed({"__metadata__": {"format": "pt"}, "a": entry()})
    assert isinstance(got, Header)
    assert got.has_metadata
    assert set(got.specs) == {"a"}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" {}",
        b"[]",
        b"{",
        b"{}x",
        b'{"a":1.0}',
        b'{"a":NaN}',
        b"\xff{}",
        b'{"a":' + b"9" * 21 + b"}",
        b"{\x00}",
        b'{"a":' + b"[" * 100_000,
        b'{"a":"\xff"}',
    ],
    ids=lambda text: repr(text[:12]),
)
def test_text_that_is_no_header_is_corrupt(text: bytes) -> None:
    assert slugs(text) == ["file_corrupt"]


@pytest.mark.parametrize(
    "bad",
    [
        entry(offsets=(0, 5)),
        entry(offsets=(4, 0)),
        entry(offsets=(-4, 0)),
        entry(offsets=(0,)),
        entry(offsets=(False, 4)),
        entry(offsets=("0", "4")),
        entry(shape=(-1,)),
        entry(shape=(True,)),
        entry(shape=(2,)),
        entry(shape=(0, 2**62), offsets=(0, 0)),
        {**entry(), "extra": 1},
        {"dtype": "F32", "shape": [1]},
        [],
        None,
        1,
    ],
    ids=str,
)
def test_impossible_tensor_is_corrupt(bad: Any) -> None:
    assert set(slugs({"a": bad})) == {"file_corrupt"}


@pytest.mark.parametrize("size", [3, 5, 0])
def test_data_that_ends_early_or_late_is_corrupt(size: int) -> None:
    assert slugs({"a": entry()}, size) == ["file_corrupt"]


@pytest.mark.parametrize(("first", "second"), [((0, 4), (0, 4)), ((0, 4), (2, 6)), ((0, 4), (5, 9)), ((1, 5), (5, 9))])
def test_overlap_and_hole_are_corrupt(first: Any, second: Any) -> None:
    assert slugs({"a": entry(offsets=first), "b": entry(offsets=second)}, 9) == ["file_corrupt"]


def test_repeated_name_is_named() -> None:
    one = json.dumps(entry())
    got = parsed(f'{{"a":{one},"a":{one}}}'.encode())
    assert not isinstance(got, Header)
    assert [(f.slug, f.detail) for f in got] == [("duplicate_key", {"tensor": "a"})]


def test_repeated_field_of_a_tensor_is_corrupt() -> None:
    assert slugs(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}') == ["file_corrupt"]
    assert slugs(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1]}}') == ["file_corrupt"]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "C64", "f32", "", 4, None, ["F32"]])
def test_other_dtypes_are_refused_by_name(dtype: Any) -> None:
    assert slugs({"a": entry(dtype)}) == ["dtype_unsupported"]


@pytest.mark.parametrize("metadata", ["x", [], None, {"a": 1}, {"a": {"b": "c"}}])
def test_metadata_that_is_no_map_of_texts_is_corrupt(metadata: Any) -> None:
    assert slugs({"__metadata__": metadata, "a": entry()}) == ["file_corrupt"]


def test_no_tensors_is_an_empty_update() -> None:
    assert slugs({}, 0) == ["empty_update"]
    assert slugs({"__metadata__": {}}, 0) == ["empty_update"]


def test_too_many_tensors_are_refused_before_they_are_looked_at() -> None:
    got = parsed({str(i): None for i in range(101)}, 0)
    assert not isinstance(got, Header)
    assert [(f.slug, f.got, f.expected) for f in got] == [("file_too_large", 101, 100)]


def test_all_faults_are_listed_but_not_without_end() -> None:
    got = slugs({"../a": entry("C64"), "b\n": entry(offsets=(4, 8)), "\ud800": entry(offsets=(8, 12))}, 12)
    assert got == ["tensor_name_invalid", "dtype_unsupported", "tensor_name_invalid", "tensor_name_invalid"]
    assert len(slugs({f"{i}\n": entry() for i in range(90)}, 4)) == MAX_FINDINGS


def test_findings_can_be_written_as_json_whatever_the_file_holds() -> None:
    for header in (
        {"\ud800": entry("\udfff" * 900)},
        {"a": {"dtype": {"x": [None]}, "shape": "s", "data_offsets": {}}},
    ):
        got = parsed(header)
        assert not isinstance(got, Header)
        for f in got:
            json.dumps([f.got, f.expected, f.detail], allow_nan=False, ensure_ascii=False).encode()
