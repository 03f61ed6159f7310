"""Npz archives: read as numpy reads them, rewritten canonically, refused before they can expand or run anything."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from fedops.adapters.model_files import ModelFiles
from fedops.core.errors import StoreError
from fedops.core.settings import Limits
from tests.core.test_zip_directory import as_zip64
from tests.model_world import World, roomy, world

KINDS = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
ORDINARY: dict[str, Any] = {
    "fc.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "n": np.array(7),
    "layer/größe:0": np.array([True, False]),
    "queue": np.zeros((0, 4), np.float16),
}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    yield from world(tmp_path)


def npz(arrays: dict[str, Any], *, compressed: bool = False) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asanyarray(array), allow_pickle=True)
    return out.getvalue()


def archive(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name), data, compress_type=method)
    return out.getvalue()


def slugs(files: World, data: bytes, **limits: int) -> list[str]:
    return [f.slug for f in files.refused(data, roomy().model_copy(update=limits))]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_archive_of_numpy_becomes_the_canonical_file_of_its_arrays(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rng = np.random.Generator(np.random.PCG64(data.draw(st.integers(0, 2**32))))
    arrays: dict[str, Any] = {}
    for name in data.draw(st.sets(st.text("abü_", min_size=1, max_size=3), min_size=1, max_size=4)):
        kind = data.draw(st.sampled_from(KINDS))
        values: Any = np.abs(rng.standard_normal(data.draw(st.lists(st.integers(0, 4), max_size=4)))) * 100
        stored = np.dtype(kind).newbyteorder(data.draw(st.sampled_from("<>")))
        arrays[name] = np.asarray(
            values > 50 if kind == "?" else values, stored, order=data.draw(st.sampled_from("CF"))
        )
    folder = tmp_path_factory.mktemp("npz")
    path = folder / "m.npz"
    path.write_bytes(npz(arrays, compressed=data.draw(st.booleans())))
    model, findings = ModelFiles(folder).open(path, roomy(), "x")
    assert model is not None, findings
    with model:
        assert (model.format, model.size, model.has_metadata) == ("npz", path.stat().st_size, False)
        ModelFiles().rewrite(model, folder / "out")
        assert (folder / "out").read_bytes() == save(
            {k: np.ascontiguousarray(v).reshape(v.shape) for k, v in arrays.items()}
        )
        assert model.head is None
    assert sorted(p.name for p in folder.iterdir()) == ["m.npz", "out"]


@pytest.mark.parametrize("shape", [(700, 900), (3, 400_000), (400_000, 3), (5, 70, 40, 60), (1, 100_000, 2)])
@pytest.mark.parametrize("compressed", [False, True])
def test_large_arrays_in_fortran_order_are_turned_in_pieces(
    files: World, shape: tuple[int, ...], compressed: bool
) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    model = files.open(npz({"w": np.asfortranarray(array), "c": array}, compressed=compressed))
    for name in ("w", "c"):
        assert np.array_equal(model.read(name, 0, array.size), array.reshape(-1))


def test_digest_is_of_the_archive_that_was_handed_in(files: World) -> None:
    model = files.open(npz(ORDINARY))
    assert model.sha256() == ModelFiles().digests(model.path)[0]
    os.utime(model.path, (1, 1))
    with pytest.raises(StoreError, match="changed"):
        model.check_unchanged()


# ---------------------------------------------------------------- what is refused


def test_expanded_size_is_checked_before_expanding(files: World) -> None:
    bomb = npz({"w": np.zeros(8 << 20, np.float32)}, compressed=True)
    assert len(bomb) < 100_000
    (found,) = files.refused(bomb, roomy().model_copy(update={"expanded_bytes": 8 << 20}))
    assert (found.slug, found.expected, found.detail) == ("file_too_large", 8 << 20, {"limit": "expanded_bytes"})
    assert found.got > 32 << 20


@pytest.mark.parametrize("declared", [100, (1 << 18) - 128])  # the second ends with a block of the reader
def test_member_that_expands_beyond_its_declared_size_is_stopped(files: World, declared: int) -> None:
    head = npy(np.zeros(declared, np.uint8))[:128]
    honest = archive([("w.npy", head + bytes(4 << 20))], zipfile.ZIP_DEFLATED)
    real, small = ((128 + n).to_bytes(4, "little") for n in (4 << 20, declared))
    assert honest.count(real) == 2  # in the local header and in the directory
    (found,) = files.refused(honest.replace(real, small), roomy().model_copy(update={"expanded_bytes": 1 << 18}))
    assert found.slug == "file_corrupt"
    assert "expands beyond" in found.got


def test_zip64_archive_is_read(files: World) -> None:
    model = files.open(as_zip64(archive([("w.npy", npy(np.array([1.0, 2.0])))])))
    assert model.read("w", 0, 2).tolist() == [1, 2]


SCRIPT = """
import resource, sys
from pathlib import Path
import numpy
from fedops.adapters.model_files import ModelFiles
from fedops.core.settings import Limits
peak = lambda: int(next(x for x in open("/proc/self/status") if x.startswith("VmHWM")).split()[1])
files, path = ModelFiles(Path(sys.argv[1]).parent), Path(sys.argv[1])
before = peak()
model, findings = files.open(path, Limits(expanded_bytes=int(sys.argv[2])), "x")
print(peak() - before, [f.slug for f in findings])
if model is not None:
    model.close()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(("limit", "slugs"), [(8 << 20, "['file_too_large']"), (1 << 30, "[]")])
def test_a_thousandfold_expansion_takes_no_memory(tmp_path: Path, limit: int, slugs: str) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, c=np.zeros((2048, 16384), np.float32))
    done = subprocess.run([sys.executable, "-c", SCRIPT, path, str(limit)], capture_output=True, text=True, check=True)
    kib, found = done.stdout.strip().split(" ", 1)
    assert found == slugs
    assert int(kib) < 16 << 10


def test_number_of_members_and_size_of_the_directory_are_limited(files: World) -> None:
    data = npz({f"t{i}": np.zeros(1) for i in range(40)})
    assert slugs(files, data, tensors=39) == ["file_too_large"]
    assert slugs(files, data, header_bytes=500) == ["file_too_large"]
    files.open(data, roomy().model_copy(update={"tensors": 40}))


def test_declared_shape_beyond_the_limit_is_too_large_and_not_allocated(files: World) -> None:
    head = npy(np.zeros(1, np.float32))[:-4].replace(b"(1,), }" + b" " * 12, b"(" + b"9" * 13 + b",), }")
    assert slugs(files, archive([("w.npy", head + bytes(4))])) == ["file_too_large"]


def test_objects_are_refused_and_never_unpickled(files: World) -> None:
    class Canary:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(files.folder / "canary"),))

    data = archive([("w.npy", npy(np.array([Canary()], dtype=object))), ("b.npy", npy(np.zeros(2)))])
    assert slugs(files, data) == ["pickle_refused"]
    assert not (files.folder / "canary").exists()


def test_torch_archive_is_a_pickle(files: World) -> None:
    members = [("archive/data.pkl", b"\x80\x02}q\x00."), ("archive/data/0", bytes(4)), ("archive/version", b"3\n")]
    assert slugs(files, archive(members)) == ["pickle_refused"]


def test_other_archives_are_no_model(files: World) -> None:
    (found,) = files.refused(archive([("word/document.xml", b"<x/>"), ("patients.csv", b"a,b\n")]))
    assert (found.slug, found.got) == ("format_unknown", "a zip archive")


def test_other_content_beside_arrays_is_named(files: World) -> None:
    (found,) = files.refused(archive([("w.npy", npy(np.zeros(1))), ("patients.csv", b"a,b\n")]))
    assert (found.slug, found.detail) == ("unexpected_keys", {"keys": ["patients.csv"]})


def test_empty_archive_is_an_empty_update(files: World) -> None:
    assert slugs(files, archive([])) == ["empty_update"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_repeated_and_impossible_names_are_told_at_once(files: World) -> None:
    one = npy(np.zeros(1))
    names = ["a.npy", "a.npy", "../b.npy", "__metadata__.npy", ".npy"]
    found = files.refused(archive([(name, one) for name in names]))
    assert sorted(f.slug for f in found) == ["duplicate_key"] + ["tensor_name_invalid"] * 3


def test_other_dtypes_are_told_at_once(files: World) -> None:
    arrays = {
        "c": np.zeros(1, "c16"),
        "s": np.array(["x"]),
        "t": np.zeros(1, "M8[s]"),
        "v": np.zeros(1, "V2"),
        "ok": np.zeros(1),
    }
    assert slugs(files, npz(arrays)) == ["dtype_unsupported"] * 4


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_refused(files: World, method: int) -> None:
    assert slugs(files, archive([("w.npy", npy(np.zeros(9)))], method)) == ["file_corrupt"]


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


BODY = np.frombuffer(b"0123456789abcdef", np.float32)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[: len(d) // 2],
        lambda d: d[:-1],
        lambda d: flip(d, d.find(b"0123456789")),
        lambda d: flip(d, d.find(b"\x93NUMPY")),
        lambda d: flip(d, d.find(b"\x93NUMPY") + 6),
        lambda d: flip(d, d.find(b"(4,)") + 1),
        lambda d: flip(d, d.find(b"PK\x01\x02")),
        lambda d: d + b"trailing",
    ],
)
def test_damaged_archive_is_corrupt(files: World, damage: Callable[[bytes], bytes]) -> None:
    assert set(slugs(files, damage(npz({"w": BODY})))) == {"file_corrupt"}


@pytest.mark.parametrize("at", [0.3, 0.5, 0.9])
def test_damage_inside_compressed_data_is_corrupt(files: World, at: float) -> None:
    values = np.random.Generator(np.random.PCG64(1)).standard_normal(5000)
    data = npz({"w": values}, compressed=True)
    assert slugs(files, flip(data, int(len(data) * at))) == ["file_corrupt"]


def test_compressed_data_that_ends_early_is_corrupt(files: World) -> None:
    raw = npy(np.zeros(1000, np.uint8))
    whole = archive([("w.npy", raw)], zipfile.ZIP_DEFLATED)
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    half = packed.compress(raw[:500]) + packed.flush(zlib.Z_SYNC_FLUSH)  # no end of the stream
    start = whole.find(b"w.npy") + 5
    stop = whole.find(b"PK\x01\x02")
    stored = (stop - start).to_bytes(4, "little")
    padded = half.ljust(stop - start, b"\x00")[: stop - start]
    assert stored in whole
    assert set(slugs(files, whole[:start] + padded + whole[stop:])) == {"file_corrupt"}


def test_array_shorter_or_longer_than_its_shape_is_corrupt(files: World) -> None:
    raw = npy(np.zeros(4, np.float32))
    for data in (raw[:-4], raw + bytes(4), raw[:60], b""):
        assert slugs(files, archive([("w.npy", data)])) == ["file_corrupt"]


def test_scratch_folder_that_is_not_there_is_a_store_error(files: World) -> None:
    path = files.path(npz(ORDINARY))
    with pytest.raises(StoreError, match="write a copy of the npz"):
        ModelFiles(files.folder / "absent").open(path, roomy(), "x")


def test_copy_is_closed_if_it_cannot_be_finished(files: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedops.adapters.npz_files._copy_array", full)
    with pytest.raises(StoreError, match="No space left") as e:
        ModelFiles(files.folder).open(files.path(npz(ORDINARY)), roomy(), "x")
    assert e.value.cause == "temporary"


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_what_is_accepted_of_a_damaged_archive_is_what_numpy_reads(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(npz({k: v for k, v in ORDINARY.items() if "/" not in k}, compressed=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        kind = data.draw(st.sampled_from(["set", "insert", "delete"]))
        if kind == "set":
            raw[at] = data.draw(st.integers(0, 255))
        elif kind == "insert":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        else:
            del raw[at : at + data.draw(st.integers(1, 3))]
    folder = tmp_path_factory.getbasetemp() / "fuzz-npz"
    folder.mkdir(exist_ok=True)
    path = folder / "f"
    path.write_bytes(raw)
    model, findings = ModelFiles(folder).open(path, Limits(expanded_bytes=10**6), "x")
    if model is None:
        assert findings
        return
    with model, np.load(path, allow_pickle=False) as expected:
        assert set(expected.files) == set(model.specs)
        for name in expected.files:
            assert model.specs[name].shape == expected[name].shape
            assert np.array_equal(
                model.read(name, 0, expected[name].size),
                expected[name].reshape(-1),
                equal_nan=expected[name].dtype.kind == "f",
            )
