"""A model cut into chunks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.chunks import Chunk, integer_rules, plan_chunks
from fedops.core.facts import Specs, TensorSpec
from fedops.core.norms import BLOCK
from fedops.core.settings import Integers
from fedops.core.tensors import DTYPES, canonical_layout, data_bytes, element_count

SPECS: Specs = {
    "big": TensorSpec("F32", (3, BLOCK)),
    "bias": TensorSpec("F32", (10,)),
    "scale": TensorSpec("F32", ()),
    "queue": TensorSpec("F32", (0, 4)),
    "half": TensorSpec("BF16", (5,)),
    "bn.num": TensorSpec("I64", ()),
    "bn.ids": TensorSpec("I64", (6,)),
    "mask": TensorSpec("BOOL", (4,)),
}


def cut(specs: Specs, elements: int, integers: int | None = None, rules: Any = None) -> list[Chunk]:
    layout = canonical_layout(specs)
    return list(plan_chunks(layout, integer_rules(Integers(tensors=rules or {}), specs), elements, integers))


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 6), max_size=3)),
        max_size=8,
    ),
    st.integers(1, 50),
)
def test_chunks_cover_the_data_once_and_in_order(tensors: dict[str, tuple[Any, list[int]]], elements: int) -> None:
    specs = {name: TensorSpec(dtype, tuple(shape)) for name, (dtype, shape) in tensors.items()}
    chunks = cut(specs, elements)
    assert [c.index for c in chunks] == list(range(len(chunks)))
    end = 0
    for chunk in chunks:
        assert chunk.position == end
        assert 1 <= chunk.count <= elements
        end += chunk.count * DTYPES[chunk.dtype].itemsize
        assert {specs[p.name].dtype for p in chunk.pieces} == {chunk.dtype}
    assert end == data_bytes(specs)
    runs = [(p.name, i) for chunk in chunks for p in chunk.pieces for i in range(p.start, p.start + p.count)]
    assert runs == [(p.name, i) for p in canonical_layout(specs) for i in range(element_count(p.spec))]


def test_from_the_size_of_a_block_on_no_block_is_cut_in_two() -> None:
    for elements in (BLOCK, BLOCK + 7, 3 * BLOCK):
        for chunk in cut(SPECS, elements):
            for piece in chunk.pieces:
                assert piece.start % BLOCK == 0
                assert piece.count == min(BLOCK, element_count(SPECS[piece.name]) - piece.start)


def test_small_tensors_share_a_chunk() -> None:
    few = cut({f"t{i:02}": TensorSpec("F32", (3,)) for i in range(10)}, 12)
    assert [c.count for c in few] == [12, 12, 6]


def test_whole_numbers_have_a_limit_of_their_own() -> None:
    sizes = {c.dtype: c.count for c in cut(SPECS, BLOCK, 4)}
    assert sizes["I64"] <= 4
    assert sizes["BF16"] == 5
    assert [c.is_float for c in cut(SPECS, BLOCK, 4) if c.dtype in ("I64", "BOOL", "BF16")].count(True) == 1


def test_tensors_of_other_rules_are_in_other_chunks() -> None:
    chunks = [c for c in cut(SPECS, BLOCK, rules={"bn.num": "keep"}) if c.dtype == "I64"]
    assert [([p.name for p in c.pieces], c.rule) for c in chunks] == [(["bn.ids"], "max"), (["bn.num"], "keep")]


def test_float_tensors_have_no_rule() -> None:
    assert integer_rules(Integers(tensors={"*": "keep"}), SPECS).keys() == {"bn.num", "bn.ids", "mask"}


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({}, "max"),
        ({"other": "keep"}, "max"),
        ({"*": "keep"}, "keep"),
        ({"bn.*": "keep", "*num": "rounded_mean"}, "keep"),
        ({"*num": "rounded_mean", "bn.*": "keep"}, "rounded_mean"),
        ({"*": "keep", "bn.num": "sum_of_deltas"}, "sum_of_deltas"),
        ({"BN.*": "keep"}, "max"),
        ({"bn.[mn]um": "keep"}, "keep"),
    ],
)
def test_exact_name_wins_then_the_first_glob_as_written(tensors: Any, expected: str) -> None:
    assert integer_rules(Integers(tensors=tensors), SPECS)["bn.num"] == expected
