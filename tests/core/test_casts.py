"""Widening is exact; narrowing rounds once, half to even, also into the subnormal range."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.casts import narrow, storage, widen
from fedops.core.facts import Dtype

# significand bits with the hidden one, least and greatest exponent: IEEE 754 and the bfloat16 of its inventors
FORMATS: dict[Dtype, tuple[int, int, int]] = {
    "F64": (53, -1022, 1023),
    "F32": (24, -126, 127),
    "F16": (11, -14, 15),
    "BF16": (8, -126, 127),
}


def rounded(x: float, dtype: Dtype) -> Fraction | None:
    """The nearest number of a format, half to even, in exact arithmetic; None beyond its range."""
    precision, least, greatest = FORMATS[dtype]
    a = abs(Fraction(x))
    if a == 0:
        return a
    exponent = a.numerator.bit_length() - a.denominator.bit_length()
    exponent = max(exponent - (Fraction(2) ** exponent > a), least)
    step = Fraction(2) ** (exponent - precision + 1)
    value = round(a / step) * step  # Fraction rounds half to even
    if value > (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** greatest:
        return None
    return value if x > 0 else -value


def cast(values: list[float], dtype: Dtype) -> tuple[bool, list[float]]:
    stored = np.empty(len(values), storage(dtype))
    finite = narrow(np.array(values, np.float64), dtype, stored)
    back = np.empty(len(values))
    widen(stored, dtype, back)
    return finite, back.tolist()


@pytest.mark.parametrize("dtype", FORMATS)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_every_number_is_rounded_once_half_to_even(dtype: Dtype, values: list[float]) -> None:
    finite, back = cast(values, dtype)
    exact = [rounded(x, dtype) for x in values]
    assert finite == (None not in exact)
    assert [None if np.isinf(b) else Fraction(b) for b in back] == exact


@pytest.mark.parametrize("dtype", FORMATS)
@given(st.data())
def test_ties_and_their_neighbours_in_every_binade(dtype: Dtype, data: st.DataObject) -> None:
    precision, least, greatest = FORMATS[dtype]
    exponent = data.draw(st.integers(least - precision, greatest))
    grid = max(exponent, least) - precision  # half of the distance of two numbers of the format
    odd = 2 * data.draw(st.integers(0, 2**precision - 1)) + 1
    tie = Fraction(odd) * Fraction(2) ** grid
    if dtype == "F64" or tie >= Fraction(2) ** 1024:
        return  # float64 has no numbers between
    near = [float(tie), np.nextafter(float(tie), 0), np.nextafter(float(tie), np.inf)]
    _, back = cast([*near, *(-x for x in near)], dtype)
    exact = [rounded(x, dtype) for x in near]
    assert [None if np.isinf(b) else Fraction(b) for b in back[:3]] == exact
    assert back[3:] == [-b for b in back[:3]]


def test_bfloat16_does_not_round_by_way_of_float32() -> None:
    # Just above a tie: float32 would drop the last bit, and the tie would then go to even.
    assert cast([1 + 2.0**-8 + 2.0**-40], "BF16") == (True, [1 + 2.0**-7])
    assert cast([1 + 2.0**-8], "BF16") == (True, [1.0])


def test_bfloat16_is_the_upper_half_of_a_float32() -> None:
    stored = np.arange(65536, dtype=np.uint16)
    got = np.empty(65536)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        widen(stored, "BF16", got)
    expected = [struct.unpack("<f", struct.pack("<HH", 0, bits))[0] for bits in range(65536)]
    assert np.array_equal(got, np.array(expected, np.float64), equal_nan=True)


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_stored_number_survives_the_way_there_and_back(dtype: Dtype) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    stored: Any = rng.integers(0, 256, 8 * 4096, np.uint8).view(storage(dtype))
    wide = np.empty(stored.size)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        widen(stored, dtype, wide)
    finite = np.isfinite(wide)
    again = np.empty_like(stored)
    assert not narrow(wide, dtype, again)
    assert again[finite].tobytes() == stored[finite].tobytes()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -np.nan])
def test_what_is_not_finite_is_told_and_stays_so(dtype: Dtype, bad: float) -> None:
    finite, back = cast([1.0, bad], dtype)
    assert not finite
    assert back[0] == 1.0
    assert not np.isfinite(back[1])


def test_nan_with_all_bits_set_is_not_carried_over_into_a_number() -> None:
    stored = np.empty(1, np.uint16)
    assert not narrow(np.array([0x7FFFFFFFFFFFFFFF], np.uint64).view(np.float64), "BF16", stored)


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_sign_of_zero_is_kept(dtype: Dtype) -> None:
    _, back = cast([0.0, -0.0, -1e-320], dtype)
    assert [np.signbit(b) for b in back] == [False, True, True]


def test_no_elements_are_finite() -> None:
    assert cast([], "BF16") == (True, [])
    assert cast([], "F32") == (True, [])
