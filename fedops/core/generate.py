"""First models without a file: bytes that are a pure function of (generator, seed, specs), the same on any machine.

No random stream of numpy and no `log` or `cos` is used, since these change between versions and processors: the bits
come from SHAKE-256, and what follows is exact arithmetic and one rounding to the tensor's dtype.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedops.core.errors import ConfigError
from fedops.core.facts import Dtype, Specs, TensorSpec
from fedops.core.tensors import (
    DTYPES,
    Placed,
    canonical_layout,
    element_count,
    is_float,
    shape_fault,
    tensor_name_fault,
)

Generator = Literal["zeros", "normal"]
GENERATORS: tuple[Generator, ...] = get_args(Generator)

BLOCK_VALUES = 4096  # values that one hash input gives; part of the definition, never to be changed
NORMAL_SCALE = 2.0**-6  # standard deviation of `normal`
_WORDS = 12  # 32-bit words summed for one value: twelve uniforms have variance 1
_ZEROS = bytes(1 << 20)


def generate(generator: str, seed: int, specs: Specs) -> Iterator[bytes]:
    """The data of a model's canonical safetensors file, in order and in pieces of at most 1 MiB.

    `zeros` gives zeros. `normal` gives float tensors values with mean 0 and standard deviation 1/64, of a bell shape
    that is cut at 6 standard deviations (the sum of twelve uniforms), and integer and bool tensors zeros.

    Args:
        generator: "zeros" or "normal".
        seed: >= 0; plays no part in `zeros`.
        specs: tensor name -> dtype and shape.

    Raises:
        ConfigError: unknown generator, negative seed, or no tensor.
    """
    if generator not in GENERATORS:
        raise ConfigError(f"generator {generator!r}: unknown -> {' or '.join(GENERATORS)}")
    if seed < 0:
        raise ConfigError(f"seed {seed}: must not be negative")
    if not specs:
        raise ConfigError("a generated model needs at least one tensor", hint="add --tensor coef:F32:1,30")
    return _pieces(generator, seed, canonical_layout(specs))


def _pieces(generator: str, seed: int, layout: tuple[Placed, ...]) -> Iterator[bytes]:
    for placed in layout:
        if generator == "normal" and is_float(placed.spec):
            count = element_count(placed.spec)
            for index in range(-(-count // BLOCK_VALUES)):
                values = _normal_block(seed, placed.name, index)[: count - index * BLOCK_VALUES]
                yield _stored(values, placed.spec.dtype)
        else:
            for start in range(0, placed.size, len(_ZEROS)):
                yield _ZEROS[: placed.size - start]


def _normal_block(seed: int, name: str, index: int) -> NDArray[np.float64]:
    """Values index·BLOCK_VALUES … of a tensor in C order.

    Value k = (((sum of the block's words 12k … 12k+11) + 6) / 2^32 - 6) / 64, exact in float64.

    Returns:
        float64, shape (BLOCK_VALUES,).
    """
    # As JSON, so that no two of (seed, name, index) are written alike.
    text = json.dumps(["fedops.generate/v1", "normal", seed, name, index], ensure_ascii=True, separators=(",", ":"))
    data = hashlib.shake_256(text.encode("ascii")).digest(4 * _WORDS * BLOCK_VALUES)
    words = np.frombuffer(data, dtype="<u4").astype(np.int64).reshape(BLOCK_VALUES, _WORDS)
    # Integers below 2^36: any order of the sum gives the same.
    sums = words.sum(axis=1)
    values: NDArray[np.float64] = ((sums + _WORDS // 2) / 2.0**32 - 6.0) * NORMAL_SCALE
    return values


def _stored(values: NDArray[np.float64], dtype: Dtype) -> bytes:
    """Round float64 values half to even to a float dtype, as little-endian bytes."""
    if dtype != "BF16":
        return values.astype(DTYPES[dtype].storage).tobytes()
    # BF16 is the upper half of a float32. Its 7 bits of fraction are rounded in the float64, since going through
    # float32 would round twice; no value here is so small that it would be subnormal.
    bits = values.view(np.uint64)
    odd = (bits >> np.uint64(45)) & np.uint64(1)
    rounded = (bits + np.uint64((1 << 44) - 1) + odd) & ~np.uint64((1 << 45) - 1)
    halves = rounded.view(np.float64).astype("<f4").view("<u4") >> np.uint32(16)
    return halves.astype("<u2").tobytes()


def parse_tensor(text: str) -> tuple[str, TensorSpec]:
    """Read `NAME:DTYPE:SHAPE`, such as `coef:F32:1,30` or, for a scalar, `steps:I64:`; inverse of `tensor_text`.

    Raises:
        ConfigError: not of this form, or a name or size that no model may have.
    """
    parts = text.rsplit(":", 2)  # a name may hold colons
    if len(parts) != 3:
        raise ConfigError(f"tensor {text!r}: {len(parts)} of 3 parts -> NAME:DTYPE:SHAPE, such as coef:F32:1,30")
    name, dtype, shape = parts
    if fault := tensor_name_fault(name):
        raise ConfigError(f"tensor {name!r}: its name is not allowed: {fault}")
    known = next((d for d in DTYPES if d == dtype), None)
    if known is None:
        raise ConfigError(f"tensor {name}: dtype {dtype!r} -> one of {', '.join(DTYPES)}")
    texts = shape.split(",") if shape else []
    sizes = tuple(int(s) if s.isascii() and s.isdigit() else -1 for s in texts)
    if fault := shape_fault(sizes, DTYPES[known].itemsize):
        raise ConfigError(f"tensor {name}: shape {shape!r}: {fault} -> numbers with commas, such as 1,30")
    return name, TensorSpec(known, sizes)


def tensor_text(name: str, spec: TensorSpec) -> str:
    """Write a tensor's spec as `NAME:DTYPE:SHAPE`."""
    return f"{name}:{spec.dtype}:{','.join(str(n) for n in spec.shape)}"
