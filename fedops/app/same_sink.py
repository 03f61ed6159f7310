"""A model that is only compared with a file: what it would be, without another one."""

from __future__ import annotations

from io import BufferedReader

from fedops.core.facts import Specs
from fedops.core.safetensors_header import encode_header
from fedops.core.tensors import data_bytes


class SameSink:
    """Takes a canonical file's data in order and compares it with a stored one (see `ModelSink` in fedops.ports).

    Args:
        stored: at its beginning; whoever opened it closes it.
        sha256: of the stored file, by whoever hashes it.
        specs: tensors of the model.
    """

    def __init__(self, stored: BufferedReader, sha256: str, specs: Specs) -> None:
        head = encode_header(specs)
        self._stored, self._sha256 = stored, sha256
        self._size = len(head) + data_bytes(specs)
        self._taken = len(head)
        self._room = bytearray()
        self._same = stored.read(len(head)) == head

    def append(self, data: memoryview) -> None:
        self._taken += len(data)
        if len(self._room) != len(data):
            self._room = bytearray(len(data))
        # NOTE: a bytearray is compared with other bytes by one call of the C library, a memoryview byte by byte.
        self._same = self._same and self._stored.readinto(self._room) == len(data) and self._room == data

    def commit(self) -> tuple[str, str, int]:
        """(sha256 hex, "", size in bytes) of the file that was not written; no digest at all if it is another one."""
        assert self._taken == self._size, f"{self._taken} bytes -> {self._size}"
        same = self._same and not self._stored.read(1)
        return self._sha256 if same else "", "", self._size
