"""The directory of a zip archive, from bytes; only what an .npz needs, so that nothing is expanded to look at it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

END = struct.Struct("<4s4H2LH")  # end of the central directory
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR64 = struct.Struct("<4sLQL")
LOCAL = struct.Struct("<4s5H3L2H")  # header in front of each member
_ENTRY = struct.Struct("<4s6H3L5H2L")  # entry of the central directory
TAIL_BYTES = END.size + 0xFFFF + LOCATOR64.size  # the end lies within these last bytes of the file
STORED, DEFLATED = 0, 8
_SPECIAL, _UTF8 = 0x0001 | 0x0020 | 0x0040, 0x0800  # encrypted, patched data, strongly encrypted; name is UTF-8
_NEWEST = 63  # version 6.3 of the format
_ZIP64 = 0x0001
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF


class ZipError(ValueError):
    """The bytes are not a zip archive that can be read; says why."""


@dataclass(frozen=True)
class Directory:
    """Where the central directory lies."""

    start: int  # bytes from the beginning of the file
    size: int  # bytes
    members: int


@dataclass(frozen=True)
class Member:
    name: str
    method: int
    encrypted: bool  # or packed in another way that we do not read
    crc32: int
    stored: int  # bytes in the archive
    size: int  # bytes when expanded, as declared
    header: int  # place of its local header, bytes from the beginning of the file


def find_directory(tail: bytes, file_size: int) -> Directory | int:
    """Find the central directory.

    Args:
        tail: the last bytes of the file, TAIL_BYTES or all.
        file_size: bytes of the file.

    Returns:
        The directory; or, for a large archive, the place of the END64 record to be given to `find_directory64`.

    Raises:
        ZipError: there is none (the file is cut off, or no zip).
    """
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < END.size:
        raise ZipError("the end of the archive is missing")
    _, disk, start_disk, _, members, size, start, comment = END.unpack_from(tail, at)
    if at + END.size + comment != len(tail):
        raise ZipError("bytes behind the end of the archive, or its comment is cut off")
    locator = at - LOCATOR64.size
    if locator >= 0 and tail[locator : locator + 4] == b"PK\x06\x07":
        _, disk, place, disks = LOCATOR64.unpack_from(tail, locator)
        if disk or disks > 1:
            raise ZipError("an archive of several disks")
        if place + END64.size != file_size - len(tail) + locator:
            raise ZipError("the zip64 end does not lie just before what names it")
        return int(place)
    if disk or start_disk:
        raise ZipError("an archive of several disks")
    return _within(Directory(start, size, members), file_size - len(tail) + at)


def find_directory64(record: bytes, place: int) -> Directory:
    """Read the END64 record that begins at `place` of the file."""
    if len(record) < END64.size or not record.startswith(b"PK\x06\x06"):
        raise ZipError("the zip64 end of the archive is missing")
    *_, members, size, start = END64.unpack_from(record)
    return _within(Directory(start, size, members), place)


def _within(directory: Directory, end: int) -> Directory:
    # NOTE: zipfile shifts all offsets if something stands before the archive; here such a file is refused.
    if directory.start + directory.size != end:
        raise ZipError("the directory does not lie just before the end of the archive")
    return directory


def parse_members(directory: bytes, count: int) -> tuple[Member, ...]:
    """Read the central directory.

    Raises:
        ZipError: an entry is cut off, or their number is not `count`.
    """
    members: list[Member] = []
    at = 0
    while at < len(directory):
        if len(directory) - at < _ENTRY.size or directory[at : at + 4] != b"PK\x01\x02":
            raise ZipError(f"entry {len(members)} of the directory is damaged")
        (_, _, needed, flags, method, _, _, crc, stored, size, name_size, extra_size, comment_size, _, _, _, header) = (
            _ENTRY.unpack_from(directory, at)
        )
        if needed & 0xFF > _NEWEST:
            raise ZipError(f"entry {len(members)} needs version {needed & 0xFF} of the format")
        name_end = at + _ENTRY.size + name_size
        name, extra = directory[at + _ENTRY.size : name_end], directory[name_end : name_end + extra_size]
        at = name_end + extra_size + comment_size
        size, stored, header = _large(extra, size, stored, header)
        members.append(Member(_decode(name, flags), method, bool(flags & _SPECIAL), crc, stored, size, header))
    if len(members) != count or at != len(directory):
        raise ZipError(f"{len(members)} entries in the directory, {count} are declared")
    return tuple(members)


def _decode(name: bytes, flags: int) -> str:
    try:
        return name.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError as e:
        raise ZipError("a name is not UTF-8") from e


def _large(extra: bytes, size: int, stored: int, header: int) -> tuple[int, int, int]:
    """Replace those of the three that do not fit 32 bits by their values in the zip64 extra field."""
    values = [size, stored, header]
    wanted = [i for i, value in enumerate(values) if value == _FULL32]
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        body, extra = extra[4 : 4 + length], extra[4 + length :]
        if len(body) < length:
            raise ZipError("an extra field is cut off")
        if kind == _ZIP64 and wanted:
            if len(body) < 8 * len(wanted):
                raise ZipError("a zip64 field is cut off")
            for place, i in enumerate(wanted):
                values[i] = struct.unpack_from("<Q", body, 8 * place)[0]
            wanted = []
    return values[0], values[1], values[2]


def data_start(local: bytes, member: Member, name_field: bytes) -> int:
    """Place of a member's data, from its local header.

    Args:
        local: LOCAL.size bytes at `member.header`.
        member: its entry of the directory.
        name_field: the bytes that follow `local`, at least its name.

    Raises:
        ZipError: the local header is damaged or tells of another member.
    """
    if len(local) < LOCAL.size or not local.startswith(b"PK\x03\x04"):
        raise ZipError(f"{member.name!r}: its local header is damaged")
    _, _, flags, method, _, _, _, _, _, name_size, extra_size = LOCAL.unpack(local)
    if method != member.method or _decode(name_field[:name_size], flags) != member.name:
        raise ZipError(f"{member.name!r}: its local header tells of another member")
    return member.header + LOCAL.size + int(name_size) + int(extra_size)
