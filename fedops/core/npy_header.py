"""The header of one .npy array, read without numpy and without running anything."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fedops.core.facts import Dtype, TensorSpec
from fedops.core.findings import Finding, finding
from fedops.core.tensors import shape_fault

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000  # bytes; numpy's own limit
PREFIX_BYTES = 12  # the longest of the fixed parts; the rest of an array's first bytes may be read with it
_FIELDS = {"descr", "fortran_order", "shape"}
_DTYPES: dict[str, Dtype] = {
    "f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8",
    "u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8", "b1": "BOOL",
}  # fmt: skip


@dataclass(frozen=True)
class Array:
    """What an .npy header says."""

    spec: TensorSpec
    big_endian: bool
    fortran_order: bool
    data_start: int  # bytes from the beginning of the array's file


class _HeaderError(ValueError):
    """The bytes are not the header of an array."""


def header_end(prefix: bytes) -> int | None:
    """Bytes up to the end of the header, from the first PREFIX_BYTES; None if it is no array that we read."""
    if len(prefix) < PREFIX_BYTES or not prefix.startswith(MAGIC):
        return None
    version = (prefix[6], prefix[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        return None
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(prefix[8 : 8 + width], "little")
    return 8 + width + length if length <= MAX_HEADER else None


def parse_array_header(head: bytes, where: str, tensor: str) -> Array | Finding:
    """Read the header of an array.

    Args:
        head: the array's bytes up to `header_end`.
        where: for the finding.
        tensor: its name, for the finding.

    Returns:
        What it says, or why it is refused: file_corrupt, pickle_refused, dtype_unsupported.
    """
    detail = {"tensor": tensor}
    try:
        descr, fortran_order, shape = _fields(head)
    except _HeaderError as e:
        return finding("file_corrupt", where, got=f"npy header: {e}", detail=detail)
    if _has_objects(descr):
        return finding("pickle_refused", where, got="an array of Python objects", detail=detail)
    dtype = _DTYPES.get(descr[1:]) if isinstance(descr, str) and descr[:1] in "<>|" else None
    if dtype is None:
        got = descr if isinstance(descr, str) else repr(descr)[:200]
        return finding("dtype_unsupported", where, got=got, expected=sorted(_DTYPES), detail=detail)
    if fault := shape_fault(shape, 8):
        return finding(
            "file_corrupt", where, got=repr(shape)[:200], expected=f"a shape, this is {fault}", detail=detail
        )
    return Array(TensorSpec(dtype, shape), str(descr).startswith(">"), fortran_order, len(head))


def _fields(head: bytes) -> tuple[object, bool, tuple[int, ...]]:
    """The three values, the first unchecked; numpy writes them as a Python literal."""
    end = header_end(head[:PREFIX_BYTES])
    if end is None or len(head) != end:
        raise _HeaderError("not one of versions 1 to 3, or too long, or cut off")
    text = head[10 if head[6] == 1 else 12 :]
    try:
        value = ast.literal_eval(text.decode("utf-8" if head[6] == 3 else "latin-1").strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as e:
        raise _HeaderError(f"not a literal ({type(e).__name__})") from e
    if not isinstance(value, dict) or set(value) != _FIELDS:
        raise _HeaderError(f"not a map of {', '.join(sorted(_FIELDS))}")
    fortran_order, shape = value["fortran_order"], value["shape"]
    if not isinstance(fortran_order, bool) or not isinstance(shape, tuple):
        raise _HeaderError("fortran_order or shape of a wrong type")
    return value["descr"], fortran_order, shape


def _has_objects(descr: object) -> bool:
    """True if numpy would unpickle: dtype O anywhere, also inside a structured dtype."""
    if isinstance(descr, (list, tuple)):
        return any(_has_objects(part) for part in descr[1 if isinstance(descr, tuple) else 0 :])
    return isinstance(descr, str) and descr.lstrip("<>|=").startswith("O")
