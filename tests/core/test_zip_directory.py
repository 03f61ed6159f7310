"""The directory of a zip archive: the one that Python's zipfile writes is read, a damaged one is refused."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedops.core import zip_directory as zips
from fedops.core.zip_directory import Directory, Member, ZipError


def archive(members: dict[str, bytes], *, deflate: bool = False, zip64: bool = False, comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as z:
        for name, data in members.items():
            with z.open(name, "w", force_zip64=zip64) as member:
                member.write(data)
        z.comment = comment
    return out.getvalue()


def read(data: bytes) -> tuple[Member, ...]:
    place = zips.find_directory(data[-zips.TAIL_BYTES :], len(data))
    if isinstance(place, int):
        place = zips.find_directory64(data[place : place + zips.END64.size], place)
    return zips.parse_members(data[place.start : place.start + place.size], place.members)


def content(data: bytes, member: Member) -> bytes:
    local = data[member.header : member.header + zips.LOCAL.size]
    start = zips.data_start(local, member, data[member.header + zips.LOCAL.size :])
    return data[start : start + member.stored]


MEMBERS = {"a.npy": b"first", "größe/重み.npy": b"second" * 40, "empty.npy": b""}


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("comment", [b"", b"a comment"])
def test_archive_of_zipfile_is_read(zip64: bool, comment: bytes) -> None:
    data = archive(MEMBERS, zip64=zip64, comment=comment)
    members = read(data)
    assert {m.name: content(data, m) for m in members} == MEMBERS
    expected = {i.filename: (i.CRC, i.file_size) for i in zipfile.ZipFile(io.BytesIO(data)).infolist()}
    assert {m.name: (m.crc32, m.size) for m in members} == expected
    assert {m.method for m in members} == {zips.STORED}
    assert not any(m.encrypted for m in members)


def test_deflated_members_tell_both_sizes() -> None:
    member = read(archive({"a.npy": b"0" * 10_000}, deflate=True))[0]
    assert (member.method, member.size) == (zips.DEFLATED, 10_000)
    assert member.stored < 100


def test_archive_without_members_is_read() -> None:
    assert read(archive({})) == ()


@pytest.mark.parametrize("flag", [0x01, 0x20, 0x40])
def test_encrypted_member_is_told(flag: int) -> None:
    data = bytearray(archive({"a.npy": b"x"}))
    data[data.find(b"PK\x01\x02") + 8] |= flag
    assert read(bytes(data))[0].encrypted


def test_names_without_the_utf8_flag_are_cp437() -> None:
    data = archive({"x.npy": b"x"}).replace(b"x.npy", b"\x81.npy")
    assert read(data)[0].name == "ü.npy"


def as_zip64(data: bytes) -> bytes:
    """The same archive with a zip64 end, its entry's numbers moved into the zip64 field."""
    end = data.rfind(b"PK\x05\x06")
    _, _, _, _, count, size, start, _ = zips.END.unpack_from(data, end)
    directory = bytearray(data[start:end])
    stored, full, name_size = *struct.unpack_from("<2L", directory, 20), struct.unpack_from("<H", directory, 28)[0]
    header = struct.unpack_from("<L", directory, 42)[0]
    other = struct.pack("<2H2s", 0x7075, 2, b"??")
    extra = other + struct.pack("<2H3Q", 1, 24, full, stored, header)
    struct.pack_into("<2L", directory, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", directory, 30, len(extra))
    struct.pack_into("<L", directory, 42, 0xFFFFFFFF)
    directory[46 + name_size : 46 + name_size] = extra
    place = start + len(directory)
    end64 = zips.END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), start)
    locator = zips.LOCATOR64.pack(b"PK\x06\x07", 0, place, 1)
    tail = zips.END.pack(b"PK\x05\x06", 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    assert size == len(directory) - len(extra)
    return data[:start] + bytes(directory) + end64 + locator + tail


def test_zip64_archive_is_read() -> None:
    data = as_zip64(archive({"a.npy": b"content"}))
    assert zipfile.ZipFile(io.BytesIO(data)).read("a.npy") == b"content"  # the archive itself is right
    assert content(data, read(data)[0]) == b"content"


def cut_zip64_field(data: bytes) -> bytes:
    at = data.find(struct.pack("<2H", 1, 24), data.find(b"PK\x01\x02"))
    return data[: at + 2] + struct.pack("<H", 16) + data[at + 4 :]


GOOD = archive({"a.npy": b"content"})
BIG = as_zip64(GOOD)


def changed(data: bytes, find: bytes, offset: int, new: bytes) -> bytes:
    at = data.find(find) + offset
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[: len(GOOD) // 2],
        GOOD[:-1],
        GOOD + b"\x00",
        b"before" + GOOD,
        changed(GOOD, b"PK\x05\x06", 4, b"\x01"),
        changed(GOOD, b"PK\x05\x06", 10, b"\x02"),
        changed(GOOD, b"PK\x05\x06", 12, b"\xff\xff"),
        changed(GOOD, b"PK\x01\x02", 0, b"XX"),
        changed(GOOD, b"PK\x01\x02", 6, b"\x40"),
        changed(GOOD, b"PK\x01\x02", 28, b"\xff"),
        changed(changed(GOOD, b"PK\x01\x02", 9, b"\x08"), b"PK\x01\x02", 46, b"\xff"),
        changed(BIG, b"PK\x06\x06", 0, b"XX"),
        changed(BIG, b"PK\x06\x07", 8, b"\xff" * 8),
        changed(BIG, b"PK\x06\x06", 40, b"\x01"),
        cut_zip64_field(BIG),
    ],
)
def test_damaged_archive_is_refused(data: bytes) -> None:
    with pytest.raises(ZipError):
        read(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: changed(data, b"PK\x03\x04", 0, b"XX"),
        lambda data: changed(data, b"PK\x03\x04", 8, b"\x08"),
        lambda data: changed(data, b"PK\x03\x04", 30, b"b"),
        lambda data: changed(data, b"PK\x03\x04", 26, b"\x02"),
        lambda data: data[:20],
    ],
)
def test_local_header_of_another_member_is_refused(damage: Callable[[bytes], bytes]) -> None:
    member = read(GOOD)[0]
    with pytest.raises(ZipError, match=r"a\.npy"):
        content(damage(GOOD), member)


@pytest.mark.parametrize(("place", "value"), [(4, 1), (16, 2)])
def test_a_large_archive_of_several_disks_is_refused_as_zipfile_does(place: int, value: int) -> None:
    raw = bytearray(BIG)
    raw[raw.rindex(b"PK\x06\x07") + place] = value
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(raw))
    with pytest.raises(ZipError, match="several disks"):
        read(bytes(raw))


def test_a_large_archive_with_bytes_behind_its_zip64_end_is_refused_as_zipfile_does() -> None:
    locator = BIG.rindex(b"PK\x06\x07")
    raw = BIG[:locator] + b"\xff" * 9 + BIG[locator:]
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(raw))
    with pytest.raises(ZipError, match="just before"):
        read(raw)


def test_an_extra_field_that_is_longer_than_it_can_be_is_refused_as_zipfile_does() -> None:
    raw = bytearray(BIG)
    field = raw.rindex(b"\x01\x00\x18\x00\x07")  # kind 1, 24 bytes
    raw[field + 3] = 1
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(raw))
    with pytest.raises(ZipError, match="an extra field is cut off"):
        read(bytes(raw))


@settings(max_examples=1000, deadline=None)
@given(st.data())
def test_a_changed_byte_gives_an_answer_or_a_refusal(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([GOOD, BIG])))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        members = read(bytes(raw))
        for member in members:
            content(bytes(raw), member)
    except ZipError:
        return
    with zipfile.ZipFile(io.BytesIO(raw)) as reference:
        infos = reference.infolist()
    # Checksums and sizes are held against the bytes where these are read.
    assert [(m.name, m.stored, m.size) for m in members] == [
        (i.orig_filename, i.compress_size, i.file_size) for i in infos
    ]


def test_directory_is_a_place_in_the_file() -> None:
    got = zips.find_directory(GOOD, len(GOOD))
    assert isinstance(got, Directory)
    assert GOOD[got.start : got.start + 4] == b"PK\x01\x02"
    assert got.members == 1
