"""Generated first models: the same bytes everywhere, computed here once more with Python integers and fractions."""

from __future__ import annotations

import hashlib
import struct
from fractions import Fraction

import numpy as np
import pytest

from fedops.core.errors import ConfigError
from fedops.core.facts import Dtype, TensorSpec
from fedops.core.generate import BLOCK_VALUES, generate, parse_tensor, tensor_text

SPECS = {"coef": TensorSpec("F32", (1, 30)), "intercept": TensorSpec("F32", (1,))}


def reference_values(seed: int, name: str, count: int) -> list[Fraction]:
    """The definition in words: twelve little-endian 32-bit words of SHAKE-256 summed, centred, divided by 64."""
    values: list[Fraction] = []
    block = 0
    while len(values) < count:
        text = f'["fedops.generate/v1","normal",{seed},"{name}",{block}]'
        words = struct.unpack(f"<{12 * 4096}I", hashlib.shake_256(text.encode()).digest(4 * 12 * 4096))
        for k in range(4096):
            total = sum(words[12 * k : 12 * k + 12])
            values.append((Fraction(total + 6, 2**32) - 6) / 64)
        block += 1
    return values[:count]


def test_normal_values_are_those_of_the_definition() -> None:
    data = b"".join(generate("normal", 7, SPECS))
    coef = [float(np.float32(float(v))) for v in reference_values(7, "coef", 30)]
    intercept = [float(np.float32(float(v))) for v in reference_values(7, "intercept", 1)]
    assert list(struct.unpack("<31f", data)) == coef + intercept


def test_a_tensor_of_several_blocks_goes_on_where_the_block_before_ended() -> None:
    count = BLOCK_VALUES + 3
    data = b"".join(generate("normal", 0, {"w": TensorSpec("F64", (count,))}))
    assert list(struct.unpack(f"<{count}d", data)) == [float(v) for v in reference_values(0, "w", count)]


def test_a_tensor_that_fills_its_block_is_not_longer_than_its_shape() -> None:
    assert len(b"".join(generate("normal", 0, {"w": TensorSpec("F64", (BLOCK_VALUES,))}))) == 8 * BLOCK_VALUES


def test_normal_has_the_moments_that_it_promises() -> None:
    data = b"".join(generate("normal", 3, {"w": TensorSpec("F64", (40_000,))}))
    values = np.frombuffer(data, dtype="<f8")
    assert abs(float(values.mean())) < 5 / 64 / 200  # five standard errors
    assert abs(float(values.std()) * 64 - 1) < 0.02
    assert float(np.abs(values).max()) <= 6 / 64


def nearest_bfloat16(value: Fraction) -> Fraction:
    """Round to 8 significant bits, half to even, by exact arithmetic."""
    if value == 0:
        return value
    exponent = 0
    while abs(value) / Fraction(2) ** exponent >= 256:
        exponent += 1
    while abs(value) / Fraction(2) ** exponent < 128:
        exponent -= 1
    return round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent


def test_bfloat16_is_rounded_once_and_half_to_even() -> None:
    count = 2000
    data = b"".join(generate("normal", 1, {"w": TensorSpec("BF16", (count,))}))
    halves = np.frombuffer(data, dtype="<u2").astype("<u4") << np.uint32(16)
    expected = [float(nearest_bfloat16(v)) for v in reference_values(1, "w", count)]
    assert halves.view("<f4").astype(float).tolist() == expected


def test_float16_is_the_nearest_half() -> None:
    data = b"".join(generate("normal", 1, {"w": TensorSpec("F16", (50,))}))
    expected = [struct.unpack("<e", struct.pack("<e", float(v)))[0] for v in reference_values(1, "w", 50)]
    assert list(struct.unpack("<50e", data)) == expected


@pytest.mark.parametrize(("dtype", "size"), [("I64", 8), ("U8", 1), ("BOOL", 1), ("BF16", 2), ("F64", 8)])
def test_zeros_fill_every_dtype(dtype: Dtype, size: int) -> None:
    assert b"".join(generate("zeros", 5, {"n": TensorSpec(dtype, (3, 2))})) == bytes(6 * size)


def test_large_zeros_come_in_pieces() -> None:
    pieces = list(generate("zeros", 0, {"n": TensorSpec("U8", (3, 1 << 20)), "m": TensorSpec("U8", (5,))}))
    assert [len(p) for p in pieces] == [5, 1 << 20, 1 << 20, 1 << 20]


def test_counters_of_a_normal_model_start_at_zero() -> None:
    specs = {"steps": TensorSpec("I64", ()), "w": TensorSpec("F32", (1,))}
    assert b"".join(generate("normal", 9, specs))[:8] == bytes(8)  # I64 stands before F32


def test_seed_and_name_each_change_the_values() -> None:
    drawn = {
        b"".join(generate("normal", seed, {name: TensorSpec("F64", (4,))})) for seed in (0, 1) for name in ("a", "b")
    }
    assert len(drawn) == 4


def test_an_empty_tensor_has_no_bytes() -> None:
    assert b"".join(generate("normal", 0, {"w": TensorSpec("F32", (0, 3))})) == b""


@pytest.mark.parametrize(
    ("generator", "seed", "specs", "said"),
    [
        ("uniform", 0, SPECS, "unknown -> zeros or normal"),
        ("zeros", -1, SPECS, "negative"),
        ("zeros", 0, {}, "at least one tensor"),
    ],
)
def test_what_cannot_be_generated_is_refused_at_once(
    generator: str, seed: int, specs: dict[str, TensorSpec], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        generate(generator, seed, specs)


@pytest.mark.parametrize(
    ("text", "name", "spec"),
    [
        ("coef:F32:1,30", "coef", TensorSpec("F32", (1, 30))),
        ("steps:I64:", "steps", TensorSpec("I64", ())),
        ("h.0/attn:0:BF16:7", "h.0/attn:0", TensorSpec("BF16", (7,))),
        ("none:U8:0", "none", TensorSpec("U8", (0,))),
    ],
)
def test_a_tensor_is_written_as_it_is_read(text: str, name: str, spec: TensorSpec) -> None:
    assert parse_tensor(text) == (name, spec)
    assert tensor_text(name, spec) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("coef", "1 of 3 parts"),
        (":F32:1", "empty"),
        ("../x:F32:1", "path part"),
        ("a:FLOAT:1", "dtype 'FLOAT'"),
        ("a:F32:-1", "no list of sizes"),
        ("a:F32:1,,2", "no list of sizes"),
        ("a:F32:²", "no list of sizes"),
        ("a:F32:9223372036854775807,9", "more bytes than can be counted"),
    ],
)
def test_a_tensor_that_no_model_may_have_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_tensor(text)
