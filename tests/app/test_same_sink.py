"""A result that is compared with a stored file, and not written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fedops.app.same_sink import SameSink
from fedops.core.facts import TensorSpec
from fedops.core.safetensors_header import encode_header

SPECS = {"w": TensorSpec("F32", (300,))}
HEAD, DATA = encode_header(SPECS), bytes(range(200)) * 6
PIECES = (500, 500, 200)


@pytest.mark.parametrize(
    ("stored", "same"),
    [
        (HEAD + DATA, True),
        (HEAD + DATA + b"x", False),
        (HEAD + DATA[:-1], False),
        (HEAD + DATA[:-1] + b"\0", False),
        (HEAD + b"\1" + DATA[1:], False),
        (HEAD + DATA[:700], False),
        (b"\1" + HEAD[1:] + DATA, False),
        (HEAD.replace(b"300", b"301") + DATA, False),
        (HEAD, False),
        (b"", False),
    ],
    ids=range(10),
)
def test_only_equal_bytes_have_the_stored_digest(stored: bytes, same: bool, tmp_path: Path) -> None:
    path = tmp_path / "stored"
    path.write_bytes(stored)
    digest = hashlib.sha256(HEAD + DATA).hexdigest()
    with path.open("rb") as stream:
        sink, at = SameSink(stream, digest, SPECS), 0
        for size in PIECES:
            sink.append(memoryview(DATA)[at : at + size])
            at += size
        assert sink.commit() == (digest if same else "", "", len(HEAD) + len(DATA))
