"""A model that is used while it comes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedops.adapters.model_files import ModelFiles
from fedops.adapters.model_stream import ModelStream
from fedops.core.errors import StoreError
from fedops.core.findings import Finding
from fedops.core.settings import Limits
from tests.model_world import file_bytes, roomy

W = np.arange(1000, dtype=np.float32)
STEPS = np.array(7, np.int64)
GOOD = file_bytes({"steps": STEPS, "w": W})


class Line:
    """Gives bytes in small pieces; `error` instead of the last of them."""

    def __init__(self, data: bytes, *, piece: int = 7, error: Exception | None = None) -> None:
        self.data, self.piece, self.error = data, piece, error
        self.asked = 0
        self.closed = False

    def readinto(self, buffer: memoryview, /) -> int:
        part = self.data[self.asked : self.asked + min(self.piece, len(buffer))]
        self.asked += len(part)
        if self.error is not None and self.asked == len(self.data):
            raise self.error
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self.closed = True


def opened(line: Line, limits: Limits | None = None) -> tuple[ModelStream | None, Sequence[Finding]]:
    return ModelFiles().stream(line, len(line.data), limits or roomy(), "update")


def test_header_first_then_the_data_in_order() -> None:
    line = Line(GOOD)
    model, found = opened(line)
    assert model is not None
    assert not found
    assert {n: (s.dtype, s.shape) for n, s in model.specs.items()} == {"steps": ("I64", ()), "w": ("F32", (1000,))}
    head = model.head
    assert line.asked == len(head)
    assert (model.size, model.format, model.in_order, model.has_metadata) == (len(GOOD), "safetensors", True, False)
    # the canonical order is by size of the elements: the eight bytes of `steps` come before `w`
    assert head + STEPS.tobytes() + W.tobytes() == GOOD
    first, rest = memoryview(bytearray(100)), memoryview(bytearray(len(GOOD) - len(head) - 100))
    model.read_into(0, first)
    model.read_into(100, rest)
    assert head + first.tobytes() + rest.tobytes() == GOOD
    model.check_unchanged()
    model.close()
    assert line.closed


def test_it_can_be_read_once_and_in_order_alone() -> None:
    model, _ = opened(Line(GOOD))
    assert model is not None
    with pytest.raises(AssertionError, match="8 -> 0"):
        model.read_into(8, memoryview(bytearray(4)))
    model.read_into(0, memoryview(bytearray(8)))
    with pytest.raises(AssertionError, match="0 -> 8"):
        model.read_into(0, memoryview(bytearray(4)))
    with pytest.raises(AssertionError, match="8 of 4008 bytes were read"):
        model.check_unchanged()
    for ask in (lambda: model.read("w", 0, 1), model.sha256):
        with pytest.raises(AssertionError, match="not kept"):
            ask()


def test_what_the_source_says_of_the_last_bytes_is_raised() -> None:
    line = Line(GOOD, error=StoreError("wrong", slug="hash_mismatch"))
    model, _ = opened(line)
    assert model is not None
    model.read_into(0, memoryview(bytearray(8)))
    with pytest.raises(StoreError, match="wrong"):
        model.read_into(8, memoryview(bytearray(4000)))


def test_a_source_that_fails_in_the_header_is_closed() -> None:
    line = Line(GOOD[:5], error=StoreError("cut", slug="size_mismatch"))
    with pytest.raises(StoreError, match="cut"):
        opened(line)
    assert line.closed


def headed(text: bytes, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + data


TWO = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}


@pytest.mark.parametrize(
    ("data", "limits", "slug"),
    [
        (b"\x01\x00", {}, "file_corrupt"),
        (headed(b"{}")[:9], {}, "file_corrupt"),
        (headed(b"{]"), {}, "file_corrupt"),
        (headed(b"{}"), {}, "empty_update"),
        (GOOD + b"x", {}, "file_corrupt"),
        (GOOD, {"update_bytes": len(GOOD) - 1}, "file_too_large"),
        (GOOD, {"expanded_bytes": 4007}, "file_too_large"),
        (GOOD, {"header_bytes": 10}, "file_too_large"),
        (GOOD, {"tensors": 1}, "file_too_large"),
        (headed(json.dumps(TWO).encode(), b"1234"), {}, "unexpected_keys"),  # spaces that we would not write
        (file_bytes({"w": W}, metadata={"a": "b"}), {}, "unexpected_keys"),
        (file_bytes({"steps": STEPS, "w": W}, order=["w", "steps"]), {}, "unexpected_keys"),
    ],
)
def test_what_cannot_be_read_in_order_is_a_finding(data: bytes, limits: dict[str, Any], slug: str) -> None:
    line = Line(data)
    model, found = opened(line, roomy().model_copy(update=limits))
    assert model is None
    assert [f.slug for f in found] == [slug]
    assert line.closed
