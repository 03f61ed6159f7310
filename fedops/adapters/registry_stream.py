"""One blob on its way from a registry: in order, in constant memory, over as many connections as it takes."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import requests

from fedops.adapters.refusals import refusal
from fedops.adapters.registry_http import BROKEN, Wire, no_answer
from fedops.adapters.registry_retry import PassingError, Patience
from fedops.core.artifacts import Blob
from fedops.core.ids import digest_of_hex
from fedops.ports import Clock

# A connection that brought this much counts as a success: tries begin anew, so that a large model gets through a bad line.
_PROGRESS_BYTES = 16 << 20
_SKIP_BYTES = 1 << 20


class BlobStream:
    """The bytes of one blob; a connection that is cut is opened again where it stopped. They are not hashed here.

    Args:
        name: of the repository at the registry.
        blob: what the manifest says of the bytes.

    Raises:
        StoreError: slug object_missing, size_mismatch (said before any byte is read), or the registry is broken.
    """

    def __init__(self, wire: Wire, clock: Clock, name: str, blob: Blob) -> None:
        self._wire, self._name, self._blob = wire, name, blob
        self._where = f"{wire.hostname}/{name}@{digest_of_hex(blob.sha256)}"
        self._patience = Patience(clock)
        self._position = 0
        self._since = 0  # position at the last success
        self._response: requests.Response | None = None
        while self._response is None:
            try:
                self._response = self._open()
            except PassingError as e:
                self._patience.wait(e)

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a buffer from its beginning; returns how many bytes came, 0 at the end."""
        while True:
            try:
                data = self._read(len(buffer))
            except PassingError as e:
                self.close()
                self._patience.wait(e)
                continue
            buffer[: len(data)] = data
            self._position += len(data)
            if self._position - self._since >= _PROGRESS_BYTES:
                self._since = self._position
                self._patience.renew()
            return len(data)

    def _read(self, count: int) -> bytes:
        if self._response is None:
            self._response = self._open()
        try:
            data: bytes = self._response.raw.read(count, decode_content=False)
        except BROKEN as e:
            raise no_answer(self._where, e) from e
        return data

    def _open(self) -> requests.Response:
        """Ask for all bytes from the position on."""
        url = self._wire.url(self._wire.container(self._name).get_blob_url(digest_of_hex(self._blob.sha256)))
        headers = {"Range": f"bytes={self._position}-"} if self._position else {}
        response = self._wire.send("GET", url, self._where, [self._name], headers=headers)
        self._wire.check(response, self._where, 200, 206, missing="object_missing")
        whole = response.status_code == 200
        length = response.headers.get("Content-Length", "")
        start = 0 if whole else self._position
        if length.isdigit() and int(length) != self._blob.size - start:
            response.close()
            raise refusal("size_mismatch", self._where, got=int(length) + start, expected=self._blob.size)
        if not whole and not response.headers.get("Content-Range", "").startswith(f"bytes {self._position}-"):
            response.close()
            raise refusal("registry_unavailable", self._where, got=f"another range than bytes {self._position}-")
        if whole and self._position:  # some registries give all or nothing
            self._skip(response)
        return response

    def _skip(self, response: requests.Response) -> None:
        left = self._position
        try:
            while left:
                skipped = len(response.raw.read(min(left, _SKIP_BYTES), decode_content=False))
                left = left - skipped if skipped else 0
        except BROKEN as e:
            response.close()
            raise no_answer(self._where, e) from e

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
