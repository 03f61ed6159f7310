"""A model that is only hashed: what it would be, without a file."""

from __future__ import annotations

import hashlib

from fedops.core.facts import Specs
from fedops.core.safetensors_header import encode_header
from fedops.core.tensors import data_bytes


class DigestSink:
    """Takes a canonical file's data in order and keeps nothing but its sha256 (see `ModelSink` in fedops.ports)."""

    def __init__(self, specs: Specs) -> None:
        head = encode_header(specs)
        self._size = len(head) + data_bytes(specs)
        self._taken = len(head)
        self._sha256 = hashlib.sha256(head)

    def append(self, data: memoryview) -> None:
        self._sha256.update(data)
        self._taken += len(data)

    def commit(self) -> tuple[str, str, int]:
        """(sha256 hex, "", size in bytes) of the file that was not written; no md5."""
        assert self._taken == self._size, f"{self._taken} bytes -> {self._size}"
        return self._sha256.hexdigest(), "", self._size
