"""An .npz to a canonical safetensors copy: checked from its directory first, then expanded in small blocks."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from fedops.adapters.durable import reported
from fedops.adapters.positioned import PositionedFile
from fedops.core import zip_directory as zips
from fedops.core.casts import storage
from fedops.core.disk import about
from fedops.core.findings import Finding, finding
from fedops.core.npy_header import PREFIX_BYTES, Array, header_end, parse_array_header
from fedops.core.safetensors_header import MAX_FINDINGS, encode_header
from fedops.core.settings import Limits
from fedops.core.tensors import byte_count, canonical_layout, tensor_name_fault

_BLOCK_BYTES = 1 << 18  # expanded at a time; a multiple of every item size
_SUFFIX = ".npy"


class _MemberStream:
    """The expanded bytes of one member, in order; never more at a time than asked for, and a few blocks."""

    def __init__(self, file: PositionedFile, member: zips.Member) -> None:
        name_and_extra = file.read(member.header + zips.LOCAL.size, len(member.name) * 4)
        self._at = zips.data_start(file.read(member.header, zips.LOCAL.size), member, name_and_extra)
        self._file, self._member = file, member
        self._left = member.stored
        self._size = self._crc = 0
        self._blocks = self._inflate() if member.method == zips.DEFLATED else self._stored()
        self._waiting = b""

    def read(self, count: int) -> bytes:
        """The next `count` bytes.

        Raises:
            ZipError: there are fewer, or more than the directory says.
        """
        parts = [self._waiting]
        have = len(self._waiting)
        while have < count:
            block = next(self._blocks, b"")
            if not block:
                raise zips.ZipError(f"{self._member.name!r}: {have} bytes instead of {count}")
            self._crc = zlib.crc32(block, self._crc)
            self._size += len(block)
            if self._size > self._member.size:
                raise zips.ZipError(f"{self._member.name!r}: expands beyond {self._member.size} bytes")
            parts.append(block)
            have += len(block)
        data = b"".join(parts)
        self._waiting = data[count:]
        return data[:count]

    def finish(self) -> None:
        """Check that this is the end, and the checksum.

        Raises:
            ZipError: it is not.
        """
        if self._waiting or any(self._blocks):
            raise zips.ZipError(f"{self._member.name!r}: expands beyond {self._member.size} bytes")
        if self._crc != self._member.crc32:
            raise zips.ZipError(f"{self._member.name!r}: checksum {self._crc:08x} -> {self._member.crc32:08x}")

    def _packed(self) -> bytes:
        data = self._file.read(self._at, min(_BLOCK_BYTES, self._left))
        self._at += len(data)
        self._left -= len(data)
        return data

    def _stored(self) -> Iterator[bytes]:
        while block := self._packed():
            yield block

    def _inflate(self) -> Iterator[bytes]:
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        while not engine.eof:
            packed = engine.unconsumed_tail or self._packed()
            try:
                block = engine.decompress(packed, _BLOCK_BYTES)
            except zlib.error as e:
                raise zips.ZipError(f"{self._member.name!r}: {e}") from e
            if not packed and not block:
                return
            if block:
                yield block


@dataclass(frozen=True)
class _Entry:
    member: zips.Member
    array: Array


class _Refused(Exception):  # noqa: N818 it carries findings, it is no error
    def __init__(self, *findings: Finding) -> None:
        super().__init__()
        self.findings = findings[:MAX_FINDINGS]


def unpack_npz(
    file: PositionedFile, scratch: Path | None, limits: Limits, where: str
) -> PositionedFile | tuple[Finding, ...]:
    """Check an .npz and write its canonical safetensors copy into an unnamed file.

    Args:
        file: the archive.
        scratch: folder of the copy; None: the system's. The system removes the copy with its last user.
        limits: of the policy; all are checked before anything is expanded.
        where: for the findings.

    Returns:
        The copy; or all findings of the first stage that found one: file_corrupt, file_too_large, pickle_refused,
        format_unknown, unexpected_keys, duplicate_key, tensor_name_invalid, dtype_unsupported, empty_update.
    """
    try:
        members = _members(file, limits, where)
        _check_members(members, limits, where)
        entries = _arrays(file, members, limits, where)
        with reported(scratch or Path(tempfile.gettempdir()), "write a copy of the npz there"):
            return _copy(file, entries, scratch)
    except zips.ZipError as e:
        return (finding("file_corrupt", where, got=str(e)),)
    except _Refused as e:
        return e.findings


def _members(file: PositionedFile, limits: Limits, where: str) -> tuple[zips.Member, ...]:
    tail = file.read(max(0, file.size - zips.TAIL_BYTES), zips.TAIL_BYTES)
    place = zips.find_directory(tail, file.size)
    if isinstance(place, int):
        place = zips.find_directory64(file.read(place, zips.END64.size), place)
    for limit, got in (("tensors", place.members), ("header_bytes", place.size)):
        if got > (expected := getattr(limits, limit)):
            raise _Refused(finding("file_too_large", where, got=got, expected=expected, detail={"limit": limit}))
    members = zips.parse_members(file.read(place.start, place.size), place.members)
    if not members:
        raise _Refused(finding("empty_update", where))
    return members


def _check_members(members: tuple[zips.Member, ...], limits: Limits, where: str) -> None:
    """Refuse what the directory alone says no to."""
    names = [m.name for m in members]
    if pickles := [n for n in names if n.endswith((".pkl", ".pickle"))]:
        raise _Refused(finding("pickle_refused", where, got=pickles[0], detail={"format": "a PyTorch .pt file?"}))
    foreign = [n for n in names if not n.endswith(_SUFFIX)]
    if len(foreign) == len(names):
        raise _Refused(finding("format_unknown", where, got="a zip archive", detail={"holds": foreign[:3]}))
    found = [finding("unexpected_keys", where, detail={"keys": foreign[:MAX_FINDINGS]})] if foreign else []
    seen: set[str] = set()
    for member in members:
        name = member.name.removesuffix(_SUFFIX)
        detail = {"tensor": name}
        if name in seen:
            found.append(finding("duplicate_key", where, detail=detail))
        seen.add(name)
        if fault := tensor_name_fault(name):
            found.append(finding("tensor_name_invalid", where, got=fault, detail=detail))
        if member.encrypted or member.method not in (zips.STORED, zips.DEFLATED):
            got = "encrypted" if member.encrypted else f"compressed by method {member.method}"
            found.append(finding("file_corrupt", where, got=got, expected="stored or deflated", detail=detail))
    if (size := sum(m.size for m in members)) > limits.expanded_bytes:
        limit = {"limit": "expanded_bytes"}
        found.append(finding("file_too_large", where, got=size, expected=limits.expanded_bytes, detail=limit))
    if found:
        raise _Refused(*found)


def _arrays(file: PositionedFile, members: tuple[zips.Member, ...], limits: Limits, where: str) -> Mapping[str, _Entry]:
    """Read the header of each array; nothing else is expanded."""
    entries: dict[str, _Entry] = {}
    found: list[Finding] = []
    for member in members:
        name = member.name.removesuffix(_SUFFIX)
        array: Array | Finding
        try:
            array = _array(file, member, limits, where, name)
        except zips.ZipError as e:
            array = finding("file_corrupt", where, got=str(e), detail={"tensor": name})
        if isinstance(array, Finding):
            found.append(array)
        else:
            entries[name] = _Entry(member, array)
    if found:
        raise _Refused(*found)
    return entries


def _array(file: PositionedFile, member: zips.Member, limits: Limits, where: str, name: str) -> Array | Finding:
    stream = _MemberStream(file, member)
    prefix = stream.read(min(PREFIX_BYTES, member.size))
    end = header_end(prefix)
    head = prefix if end is None else prefix + stream.read(max(0, min(end, member.size) - len(prefix)))
    array = parse_array_header(head, where, name)
    if isinstance(array, Finding):
        return array
    needed, there = byte_count(array.spec), member.size - array.data_start
    if needed > limits.expanded_bytes:
        detail = {"limit": "expanded_bytes", "tensor": name}
        return finding("file_too_large", where, got=needed, expected=limits.expanded_bytes, detail=detail)
    if needed != there:
        return finding("file_corrupt", where, got=there, expected=needed, detail={"tensor": name, "unit": "bytes"})
    return array


def _copy(file: PositionedFile, entries: Mapping[str, _Entry], scratch: Path | None) -> PositionedFile:
    specs = {name: entry.array.spec for name, entry in entries.items()}
    out = cast("BinaryIO", tempfile.TemporaryFile(dir=scratch))  # noqa: SIM115 it becomes the copy
    try:
        with about(scratch or tempfile.gettempdir()):
            out.write(encode_header(specs))
            for placed in canonical_layout(specs):
                _copy_array(file, entries[placed.name], out, scratch)
            out.flush()
        return PositionedFile(file.path, out)
    except BaseException:
        out.close()
        raise


def _copy_array(file: PositionedFile, entry: _Entry, out: BinaryIO, scratch: Path | None) -> None:
    shape = entry.array.spec.shape
    if not entry.array.fortran_order or sum(n > 1 for n in shape) < 2 or 0 in shape:
        _expand(file, entry, out)
        return
    with tempfile.TemporaryFile(dir=scratch) as spool:
        _expand(file, entry, cast("BinaryIO", spool))
        # Our own unnamed file, so nobody can cut it off under the mapping.
        array = np.memmap(spool, storage(entry.array.spec.dtype), mode="r", shape=shape, order="F")
        for block in _c_order(array):
            out.write(block)
        del array


def _expand(file: PositionedFile, entry: _Entry, out: BinaryIO) -> None:
    """Write one array's bytes, little-endian, in the order in which they are stored."""
    dtype = storage(entry.array.spec.dtype)
    stream = _MemberStream(file, entry.member)
    stream.read(entry.array.data_start)
    left = byte_count(entry.array.spec)
    while left:
        data = stream.read(min(_BLOCK_BYTES, left))
        left -= len(data)
        if entry.array.big_endian:
            data = np.frombuffer(data, dtype).byteswap().tobytes()
        out.write(data)
    stream.finish()


def _c_order(array: NDArray[Any]) -> Iterator[bytes]:
    """The bytes of an array in C order, a few rows at a time."""
    if array.nbytes <= _BLOCK_BYTES or array.ndim == 0:
        yield array.tobytes()
        return
    rows = max(1, _BLOCK_BYTES // (array.nbytes // len(array)))
    for start in range(0, len(array), rows):
        block = array[start : start + rows]
        if len(block) > 1:
            yield block.tobytes()
        else:
            yield from _c_order(block[0])
