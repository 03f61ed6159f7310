"""What a file is, by its content; the name says nothing."""

from __future__ import annotations

import re
from typing import Literal

SNIFF_BYTES = 4096  # from the beginning of the file

# First match wins; place, bytes, what it is called.
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras .h5?)"),
    (0, b"\x93NUMPY", "a single .npy array"),
    (0, b"PAR1", "a Parquet table"),
    (0, b"ARROW1", "an Arrow table"),
    (0, b"GGUF", "a GGUF file"),
    (4, b"TFL3", "a TensorFlow Lite file"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"%PDF", "a PDF document"),
    (128, b"DICM", "a DICOM image"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"II*\x00", "a TIFF image"),
    (0, b"MM\x00*", "a TIFF image"),
    (344, b"n+1\x00", "a NIfTI image"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (0, b"\xfd7zXZ\x00", "an xz archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
    (0, b"\xd0\xcf\x11\xe0", "an old Office document"),
)
# Protocol 2 and above begin with an opcode of their own; older ones are text that begins with one of a few opcodes.
_PICKLE = re.compile(
    rb"\x80[\x02-\x05]|c[a-zA-Z_][\w.]*\n[a-zA-Z_]\w*\n|\((?:[dl]p?\d+\n|c[a-zA-Z_][\w.]*\n)|[\])}]q\x00"
)
_LFS = "version https://git-lfs"
_DVC = re.compile(r"^(outs|deps):", re.MULTILINE)
_YAML = re.compile(r"(---\s|[\w.-]+:\s)")

Kind = Literal["safetensors", "npz", "pickle", "empty", "other"]


def sniff(head: bytes, size: int) -> tuple[Kind, str]:
    """Say what a file looks like.

    Args:
        head: its first SNIFF_BYTES, or all.
        size: bytes of the whole file.

    Returns:
        Which reader to try ("pickle", "empty" and "other" have none), and what a person would call the file.
        "safetensors" and "npz" are no promise: a file that is cut off looks like one too.
    """
    if not head:
        return "empty", "an empty file"
    # NOTE: first of all, since a header of 640 bytes begins like a pickle, one of 23,117 like a program.
    if not any(head[4:8]) and head[8:9] == b"{":
        return "safetensors", "a safetensors file"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "npz", "a zip archive"
    if _PICKLE.match(head):
        return "pickle", "a pickle"
    for place, magic, what in _MAGIC:
        if head[place : place + len(magic)] == magic:
            return "other", what
    text = _text(head)
    if text is not None:
        return "other", _text_kind(text)
    if not any(head):
        return "other", "a file of zero bytes"
    return (
        ("safetensors", "a safetensors file") if _may_be_safetensors(head, size) else ("other", "unknown binary data")
    )


def _may_be_safetensors(head: bytes, size: int) -> bool:
    """A length, then a header that begins with {; or a length that fits, so that the header is to blame."""
    if len(head) < 9:
        return not any(head[3:8])  # cut off inside the length or just behind it
    length = int.from_bytes(head[:8], "little")
    return head[8:9] == b"{" or 0 < length <= size - 8


def _text(head: bytes) -> str | None:
    """The head as text; None if it is binary. The last character may be cut off."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head[: len(head) // 2 * 2].decode("utf-16", "replace")
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        if e.reason != "unexpected end of data":
            return None
        text = head[: e.start].decode("utf-8-sig")
    return text if all(c.isprintable() or c in "\t\r\n\f" for c in text) else None


def _text_kind(text: str) -> str:
    start = text.lstrip()
    if start.startswith(_LFS):
        return "a git-lfs pointer, not the file it stands for"
    if _DVC.search(text):
        return "a .dvc file, not the file it stands for"
    if start[:9].lower() == "<!doctype" or start[:5].lower() == "<html":
        return "a web page"
    if start.startswith("<"):
        return "an XML file"
    if start.startswith(("{", "[")):
        return "JSON text"
    if what := _table(start):
        return what
    return "YAML text" if _YAML.match(start) else "plain text"


def _table(text: str) -> str | None:
    """Two or more lines with the same number of separators: rows of data, which may not leave a site."""
    lines = text.splitlines()[:3]
    for separator, what in ((",", "a table of comma-separated values"), ("\t", "a table of tab-separated values"),
                            (";", "a table of semicolon-separated values")):  # fmt: skip
        counts = {line.count(separator) for line in lines[:2]}
        if len(lines) > 1 and counts != {0} and len(counts) == 1:
            return what
    return None
