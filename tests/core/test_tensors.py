"""Dtypes, names, shapes, and the canonical order."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from fedops.core.facts import TensorSpec
from fedops.core.tensors import (
    DTYPES,
    MAX_NAME,
    byte_count,
    canonical_layout,
    data_bytes,
    element_count,
    is_float,
    shape_fault,
    tensor_name_fault,
)

NUMPY = {d: np.dtype(f.storage) for d, f in DTYPES.items() if d != "BF16"}


def test_sizes_and_kinds_are_those_of_the_stored_numpy_types() -> None:
    for dtype, stored in NUMPY.items():
        assert DTYPES[dtype].itemsize == stored.itemsize
        assert DTYPES[dtype].kind[0] == {"f": "f", "i": "i", "u": "i", "b": "b"}[stored.kind]
    assert (DTYPES["BF16"].itemsize, DTYPES["BF16"].kind) == (2, "float")


def test_layout_is_the_order_in_which_the_reference_library_writes_all_its_dtypes() -> None:
    arrays = {f"{name}-{dtype}": np.zeros(3, stored) for dtype, stored in NUMPY.items() for name in ("b", "a")}
    data = save(arrays)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    specs = {name: TensorSpec(e["dtype"], tuple(e["shape"])) for name, e in header.items()}
    assert [(p.name, [p.position, p.position + p.size]) for p in canonical_layout(specs)] == [
        (name, e["data_offsets"]) for name, e in header.items()
    ]


def test_counts_of_scalars_and_of_tensors_without_elements() -> None:
    assert element_count(TensorSpec("F32", ())) == 1
    assert byte_count(TensorSpec("F64", (2, 3))) == 48
    assert byte_count(TensorSpec("BF16", (0, 4))) == 0
    assert data_bytes({"a": TensorSpec("F16", (3,)), "b": TensorSpec("BOOL", ())}) == 7
    assert is_float(TensorSpec("BF16", ()))
    assert not is_float(TensorSpec("BOOL", ()))


@pytest.mark.parametrize(
    "name", ["w", "h.0.attn/c_attn.weight:0", "größe", "重み", "a b", "..x", "a..b", "C:", "C:x", "x" * MAX_NAME, '"']
)
def test_ordinary_names_are_allowed(name: str) -> None:
    assert tensor_name_fault(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * (MAX_NAME + 1),
        "a\nb",
        "a\x00",
        "\x1b[31m",
        "a\u202eb",
        "\ud800",
        "\u200b",
        "a\x7f",
        "/etc/passwd",
        "../x",
        "a/../b",
        "..",
        ".",
        "a/./b",
        "a\\b",
        "C:/x",
        "__metadata__",
    ],
)
def test_names_with_tricks_are_refused(name: str) -> None:
    assert tensor_name_fault(name)


@given(st.text(max_size=300))
def test_an_allowed_name_can_be_printed_and_encoded(name: str) -> None:
    if tensor_name_fault(name) is None:
        assert name.isprintable()
        assert json.loads(json.dumps(name.encode().decode())) == name


@pytest.mark.parametrize("shape", [[], [0], [0, 4], [2, 3], (1,), [2**60], [0, 2**40]])
def test_shapes_that_can_be_counted_are_allowed(shape: object) -> None:
    assert shape_fault(shape, 4) is None


@pytest.mark.parametrize(
    "shape",
    [
        None,
        3,
        "3",
        {},
        [True],
        [-1],
        [1.0],
        ["1"],
        [[1]],
        [2**62],
        [2**32, 2**32],
        [0, 2**62],
        [0, 2**32, 2**32],
        [1] * 65,
    ],
)
def test_shapes_that_hide_something_are_refused(shape: object) -> None:
    assert shape_fault(shape, 4)
