"""Stored values to float64 and back: exact in, one rounding (half to even) out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.core.facts import F64, Dtype
from fedops.core.tensors import DTYPES

_BF16_DROPPED = 45  # bits of a float64 significand that BF16 has no room for
_BF16_TINY = 2.0**-126  # below it BF16 has fewer bits: a fixed grid of 2**-133
_TO_GRID = 1.5 * 2.0 ** (52 - 133)  # adding and subtracting it rounds to that grid, half to even


def widen(stored: NDArray[Any], dtype: Dtype, out: F64) -> None:
    """Write stored float values as float64; exact.

    Args:
        stored: shape (m,), the dtype's storage type (BF16: its 16 bits as uint16).
        dtype: F64, F32, F16 or BF16.
        out: float64, shape (m,), overwritten.
    """
    if dtype == "BF16":  # a BF16 is the upper half of a float32
        out[...] = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        out[...] = stored


def narrow(values: F64, dtype: Dtype, out: NDArray[Any]) -> bool:
    """Round float64 values once, half to even, to a float dtype.

    Args:
        values: float64, shape (m,).
        dtype: F64, F32, F16 or BF16.
        out: the dtype's storage type, shape (m,), overwritten.

    Returns:
        True if every rounded value is finite. A value beyond the dtype's range is not, NaN and infinity are not.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype == "BF16":
            single = _to_bf16_grid(values).astype(np.float32)
            out[...] = single.view(np.uint32) >> np.uint32(16)
            return bool(np.isfinite(single).all())
        out[...] = values
    return bool(np.isfinite(out).all())


def _to_bf16_grid(values: F64) -> F64:
    """The nearest numbers that BF16 can hold, as float64; beyond its range the next power of two.

    Not by way of float32: a second rounding would decide some ties wrongly.
    """
    bits = values.view(np.uint64)
    odd = (bits >> np.uint64(_BF16_DROPPED)) & np.uint64(1)
    rounded = bits + (np.uint64((1 << (_BF16_DROPPED - 1)) - 1) + odd)
    rounded &= np.uint64((1 << 64) - (1 << _BF16_DROPPED))
    grid = rounded.view(np.float64)
    tiny = np.abs(values) < _BF16_TINY
    if tiny.any():
        near = (values[tiny] + _TO_GRID) - _TO_GRID
        grid[tiny] = np.copysign(near, values[tiny])
    np.copyto(grid, values, where=np.isnan(values))  # the carry could have turned NaN into a number
    return grid


def storage(dtype: Dtype) -> np.dtype[Any]:
    """The numpy dtype of stored values, little-endian; BF16 as uint16, BOOL as bool."""
    return np.dtype(DTYPES[dtype].storage)
