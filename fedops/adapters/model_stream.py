"""A model that is used while it comes over the network: its header first, then its data in order, once."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import NDArray

from fedops.core.findings import Finding, finding
from fedops.core.safetensors_header import LENGTH_BYTES, Header, encode_header, header_length, parse_header
from fedops.core.settings import Limits
from fedops.ports import BlobReader


class ModelStream:
    """An open model whose data can be read once (see `OpenModel` in fedops.ports, `in_order`).

    Args:
        source: behind the header.
        header: of the file, canonical.
        head: length and header as they came.
        size: bytes of the whole file.
        where: for messages.
    """

    def __init__(self, source: BlobReader, header: Header, head: bytes, size: int, where: str) -> None:
        self._source, self._where = source, where
        self._position, self._end = 0, size - len(head)
        self.specs = header.specs
        self.size, self.head = size, head
        self.has_metadata = False
        self.format: Literal["safetensors"] = "safetensors"
        self.in_order = True

    def read(self, name: str, start: int, count: int) -> NDArray[Any]:  # noqa: ARG002 nothing is kept
        raise self._only_in_order()

    def sha256(self) -> str:
        raise self._only_in_order()

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill a buffer with the next bytes of the data.

        Raises:
            StoreError: the source is broken, or, with the last bytes, any of them were wrong.
        """
        assert position == self._position, f"{self._where}: {position} -> {self._position}"
        _fill(self._source, buffer)
        self._position += len(buffer)

    def check_unchanged(self) -> None:
        """The source has compared every byte if all were read."""
        assert self._position == self._end, f"{self._where}: {self._position} of {self._end} bytes were read"

    def close(self) -> None:
        self._source.close()

    def _only_in_order(self) -> AssertionError:
        return AssertionError(f"{self._where}: comes in order and is not kept")


def open_stream(source: BlobReader, size: int, limits: Limits, where: str) -> ModelStream | tuple[Finding, ...]:
    """Read the header of a canonical safetensors file; every number is checked before it is used.

    Nothing but a canonical file can be read in order together with others.

    Args:
        source: at its beginning.
        size: bytes of the whole file.
        limits: of the policy: update_bytes, expanded_bytes, header_bytes, tensors.
        where: for the findings.

    Raises:
        StoreError: as the source.
    """
    if size > limits.update_bytes:
        detail = {"limit": "update_bytes"}
        return (finding("file_too_large", where, got=size, expected=limits.update_bytes, detail=detail),)
    start = _take(source, min(size, LENGTH_BYTES))
    length = header_length(start, size, limits, where)
    if not isinstance(length, int):
        return length
    head = start + _take(source, length)
    header = parse_header(head[LENGTH_BYTES:], size - len(head), where, max_tensors=limits.tensors)
    if not isinstance(header, Header):
        return header
    if head != encode_header(header.specs):
        got = "a header that fedops did not write"
        return (finding("unexpected_keys", where, got=got, expected="canonical bytes"),)
    return ModelStream(source, header, head, size, where)


def _take(source: BlobReader, count: int) -> bytes:
    data = bytearray(count)
    _fill(source, memoryview(data))
    return bytes(data)


def _fill(source: BlobReader, buffer: memoryview) -> None:
    done = 0
    while done < len(buffer):
        count = source.readinto(buffer[done:])
        assert count, "a reader raises before it ends too early"
        done += count
