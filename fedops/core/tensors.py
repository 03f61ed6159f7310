"""Tensors by name: the dtypes, which names are allowed, and the one canonical order of their bytes. No numpy here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedops.core.facts import Dtype, Specs, TensorSpec

MAX_NAME = 256  # characters
MAX_DIMENSIONS = 64  # numpy has no more
MAX_BYTES = 2**63 - 1  # of one tensor: what file offsets and numpy can count


@dataclass(frozen=True)
class DtypeFacts:
    rank: int  # place in the canonical order, which is the reference library's
    itemsize: int  # bytes
    kind: Literal["float", "integer", "bool"]
    storage: str  # numpy dtype of the stored bytes; BF16, which numpy lacks, as its 16 bits


_ORDER: tuple[tuple[Dtype, int, Literal["float", "integer", "bool"], str], ...] = (
    ("U64", 8, "integer", "<u8"),
    ("I64", 8, "integer", "<i8"),
    ("F64", 8, "float", "<f8"),
    ("F32", 4, "float", "<f4"),
    ("U32", 4, "integer", "<u4"),
    ("I32", 4, "integer", "<i4"),
    ("BF16", 2, "float", "<u2"),
    ("F16", 2, "float", "<f2"),
    ("U16", 2, "integer", "<u2"),
    ("I16", 2, "integer", "<i2"),
    ("I8", 1, "integer", "|i1"),
    ("U8", 1, "integer", "|u1"),
    ("BOOL", 1, "bool", "|b1"),
)
DTYPES: Mapping[Dtype, DtypeFacts] = {
    name: DtypeFacts(rank, size, kind, storage) for rank, (name, size, kind, storage) in enumerate(_ORDER)
}
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class Placed:
    """One tensor's place in the data of a canonical file."""

    name: str
    spec: TensorSpec
    position: int  # bytes from the beginning of the data
    size: int  # bytes


def element_count(spec: TensorSpec) -> int:
    return math.prod(spec.shape)


def byte_count(spec: TensorSpec) -> int:
    return element_count(spec) * DTYPES[spec.dtype].itemsize


def is_float(spec: TensorSpec) -> bool:
    return DTYPES[spec.dtype].kind == "float"


def canonical_layout(specs: Specs) -> tuple[Placed, ...]:
    """All tensors in canonical order: by rank of the dtype, then by name; without gaps."""
    placed = []
    position = 0
    for name in sorted(specs, key=lambda n: (DTYPES[specs[n].dtype].rank, n)):
        size = byte_count(specs[name])
        placed.append(Placed(name, specs[name], position, size))
        position += size
    return tuple(placed)


def data_bytes(specs: Specs) -> int:
    return sum(byte_count(spec) for spec in specs.values())


def tensor_name_fault(name: str) -> str | None:
    """Say what is wrong with a tensor's name; None for ordinary ones such as `h.0.attn/c_attn.weight:0`."""
    if not name:
        return "empty"
    if len(name) > MAX_NAME:
        return f"{len(name)} characters"
    if not name.isprintable():  # control, format and surrogate characters
        return "a character that cannot be printed"
    if name == "__metadata__":
        return "a reserved word of safetensors"
    if "\\" in name:
        return "a backslash"
    if name.startswith("/") or (_DRIVE.match(name) and name[2:3] == "/"):
        return "an absolute path"
    if any(part in (".", "..") for part in name.split("/")):
        return "a path part . or .."
    return None


def shape_fault(shape: object, itemsize: int) -> str | None:
    """Say what is wrong with a shape read from a file; None for a list or tuple of sizes that can be counted.

    The product is taken over the sizes that are not 0: a tensor without elements must not hide a size that overflows.
    """
    if not isinstance(shape, (list, tuple)) or any(type(n) is not int or n < 0 for n in shape):
        return "no list of sizes"
    if len(shape) > MAX_DIMENSIONS:
        return f"{len(shape)} dimensions"
    if math.prod(n for n in shape if n) * itemsize > MAX_BYTES:
        return "more bytes than can be counted"
    return None
