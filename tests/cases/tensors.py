"""Models of the cases, read without fedops, and compared in units of the last place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file; `values` in C order, float dtypes as float64, which holds all of them exactly."""

    dtype: str
    shape: tuple[int, ...]
    values: NDArray[Any]


_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by nothing but the format's description: BF16 has no other reader here."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        begin, end = entry["data_offsets"]
        stored = np.frombuffer(data[start + begin : start + end], _DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        values = stored.astype(np.float64) if stored.dtype.kind == "f" else stored
        tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), values)
    return tensors


def steps(values: NDArray[Any], dtype: str) -> list[int]:
    """Places of values among all numbers of their dtype: the distance of two is their distance in ulps."""
    if dtype == "BF16":
        places = (values.astype(np.float32).view(np.int32) >> 16).tolist()
        return [p if p >= 0 else -(p & 0x7FFF) for p in places]
    kind = np.dtype(_DTYPES[dtype])
    if kind.kind != "f":
        return [int(v) for v in values.tolist()]
    places = values.astype(kind).view(f"<i{kind.itemsize}").tolist()
    top = 1 << (8 * kind.itemsize - 1)
    return [p if p >= 0 else -(p & (top - 1)) for p in places]


def assert_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, Mapping[str, Any]]) -> None:
    """Names, dtypes, shapes are the case's, and values within its ulps."""
    assert tensors.keys() == expected.keys()
    for name, want in expected.items():
        got = tensors[name]
        assert (got.dtype, list(got.shape)) == (want["dtype"], want["shape"]), name
        places = zip(steps(got.values, got.dtype), steps(np.array(want["values"]), got.dtype), strict=True)
        apart = [abs(a - b) for a, b in places]
        assert max(apart, default=0) <= want["ulps"], (name, got.values, want["values"])


def as_expected(path: Path, ulps: int) -> dict[str, dict[str, Any]]:
    """A case's file of expected tensors in the form of its manifest."""
    return {
        name: {"dtype": t.dtype, "shape": list(t.shape), "values": t.values, "ulps": ulps}
        for name, t in read_tensors(path).items()
    }
