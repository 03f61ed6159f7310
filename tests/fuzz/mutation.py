"""Changes bytes as damage and malice do: bits, cuts, copies, words of the format, numbers at the edges."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_NUMBER = re.compile(rb"-?[0-9]+")
_EDGES = (
    0,
    1,
    -1,
    7,
    127,
    128,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
)
LONGEST = 20_000  # bytes; what grows beyond is cut


def mutate(rng: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One of the seeds, changed one to four times; now and then nothing but words."""
    if words and rng.random() < 0.05:
        return b"".join(rng.choice(words) for _ in range(rng.randint(0, 12)))
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        _change(rng, data, seeds, words)
    return bytes(data[:LONGEST])


def _change(rng: random.Random, data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
    kind = rng.randrange(9)
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 1, 2, 4, 8, 40)))
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << rng.randrange(8)
    elif kind == 1 and data:
        data[at % len(data)] = rng.choice((0, 9, 10, 13, 32, 34, 39, 47, 92, 127, 128, 255, rng.randrange(256)))
    elif kind == 2:
        del data[at:end]
    elif kind == 3:
        data[at:at] = data[at:end] * rng.choice((1, 1, 2, 50))
    elif kind == 4 and words:
        data[at : at + rng.choice((0, 0, 1, 4))] = rng.choice(words)
    elif kind == 5:
        other = rng.choice(seeds)
        start = rng.randrange(len(other) + 1)
        data[at:end] = other[start : start + rng.choice((1, 4, 16, 64))]
    elif kind == 6:
        _number(rng, data)
    elif kind == 7:
        del data[at:]
    elif len(data) >= 8:  # a length or an offset of a binary format
        at = rng.randrange(len(data) - 7)
        size = rng.choice((2, 4, 8))
        value = (
            rng.choice(_EDGES)
            if rng.random() < 0.5
            else int.from_bytes(data[at : at + size], "little") + rng.randint(-9, 9)
        )
        data[at : at + size] = (value % 256**size).to_bytes(size, "little")


def _number(rng: random.Random, data: bytearray) -> None:
    """Write another number in the place of one in the text."""
    found = list(_NUMBER.finditer(data))
    if found:
        match = rng.choice(found)
        value = rng.choice(_EDGES) if rng.random() < 0.5 else int(match[0][:18]) + rng.choice((-1, 1, 8, -8))
        data[match.start() : match.end()] = str(value).encode()
