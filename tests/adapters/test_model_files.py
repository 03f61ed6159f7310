"""Model files: opened by content, every number checked before it is used, read as the reference library reads them."""

from __future__ import annotations

import hashlib
import os
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fedops.adapters.model_files import ModelFiles
from fedops.core.errors import ConfigError, StoreError
from fedops.core.settings import Limits
from tests.model_world import World, file_bytes, roomy, specs_of, world

ARRAYS: dict[str, Any] = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "h": np.array([0.5, -2], np.float16),
    "d": np.array(1e300),
    "n": np.array(2**62 + 1),
    "u": np.array([2**64 - 1], np.uint64),
    "mask": np.array([True, False]),
    "queue": np.zeros((0, 4), np.float32),
}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    yield from world(tmp_path)


def slugs(files: World, data: bytes, **limits: int) -> list[str]:
    return [f.slug for f in files.refused(data, roomy().model_copy(update=limits))]


# ---------------------------------------------------------------- reading


def test_file_of_the_reference_library_is_read_with_all_values(files: World) -> None:
    model = files.open(save(ARRAYS))
    assert model.specs == specs_of(ARRAYS)
    assert (model.format, model.has_metadata) == ("safetensors", False)
    for name, array in ARRAYS.items():
        got = model.read(name, 0, array.size)
        assert got.dtype == (np.float64 if array.dtype.kind == "f" else array.dtype)
        assert np.array_equal(got, array.reshape(-1))
    assert model.read("w", 2, 3).tolist() == [2, 3, 4]


def test_bfloat16_is_read_as_float64(files: World) -> None:
    model = files.open(file_bytes({"w": np.array([0x3F80, 0xC000, 0x7F80, 0x7FA0], np.uint16)}, bf16=["w"]))
    assert model.specs["w"].dtype == "BF16"
    assert model.read("w", 0, 2).tolist() == [1.0, -2.0]
    assert not np.isfinite(model.read("w", 2, 2)).any()


def test_any_byte_but_0_is_true(files: World) -> None:
    data = bytearray(file_bytes({"mask": np.array([True, False, True])}))
    data[-1] = 7
    assert files.open(bytes(data)).read("mask", 0, 3).tolist() == [True, False, True]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_canonical_bytes_are_found_wherever_the_file_keeps_its_tensors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(sorted(ARRAYS)))
    canonical = save(ARRAYS)
    body = canonical[8 + int.from_bytes(canonical[:8], "little") :]
    path = tmp_path_factory.mktemp("f") / "m"
    path.write_bytes(file_bytes(ARRAYS, order=order))
    model, _ = ModelFiles().open(path, roomy(), "m")
    assert model is not None
    with model:
        start = data.draw(st.integers(0, len(body)))
        stop = data.draw(st.integers(start, len(body)))
        buffer = bytearray(stop - start)
        model.read_into(start, memoryview(buffer))
        assert bytes(buffer) == body[start:stop]
        assert model.head in (None, canonical[: len(canonical) - len(body)])


def test_head_and_data_are_the_whole_file_if_it_is_canonical(files: World) -> None:
    data = save(ARRAYS)
    model = files.open(data)
    assert model.head is not None
    rest = bytearray(len(data) - len(model.head))
    model.read_into(0, memoryview(rest))
    assert model.head + bytes(rest) == data
    assert files.open(file_bytes(ARRAYS, order=sorted(ARRAYS))).head is None


def test_facts_of_the_file_are_told(files: World) -> None:
    data = file_bytes(ARRAYS, metadata={"format": "pt"})
    model = files.open(data)
    assert model.has_metadata
    assert model.size == len(data)
    assert model.sha256() == hashlib.sha256(data).hexdigest()
    assert ModelFiles().digests(model.path) == (model.sha256(), hashlib.md5(data).hexdigest(), len(data))
    model.check_unchanged()


@pytest.mark.parametrize("order", [None, sorted(ARRAYS)])
@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_rewritten_file_is_canonical_and_without_metadata(files: World, order: Any, metadata: Any) -> None:
    model = files.open(file_bytes(ARRAYS, order=order, metadata=metadata))
    target = files.folder / "out"
    sha256, md5, size = ModelFiles().rewrite(model, target)
    data = target.read_bytes()
    assert data == save(ARRAYS)
    assert (sha256, md5, size) == (hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest(), len(data))


# ---------------------------------------------------------------- a file that does not stay as it was


def test_file_that_becomes_shorter_is_an_error_and_never_other_values(files: World) -> None:
    model = files.open(save(ARRAYS))
    os.truncate(model.path, model.size - 4)
    with pytest.raises(StoreError, match="changed while it was read"):
        model.read("mask", 0, 2)
    with pytest.raises(StoreError, match="changed"):
        model.check_unchanged()
    with pytest.raises(StoreError, match="changed"):
        ModelFiles().rewrite(model, files.folder / "out")
    assert not (files.folder / "out").exists()


def test_file_that_is_written_to_is_not_rewritten(files: World) -> None:
    model = files.open(save(ARRAYS))
    os.utime(model.path, (1, 1))
    with pytest.raises(StoreError, match="changed"):
        ModelFiles().rewrite(model, files.folder / "out")
    assert not (files.folder / "out").exists()


def test_path_without_a_file_is_a_matter_of_configuration(files: World) -> None:
    for name in ("absent", "."):
        with pytest.raises(ConfigError):
            ModelFiles().open(files.folder / name, roomy(), "x")


def test_file_is_closed_if_opening_fails(files: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreError("broken")

    monkeypatch.setattr("fedops.adapters.model_files.parse_header", broken)
    with pytest.raises(StoreError, match="broken"):
        ModelFiles().open(files.path(save(ARRAYS)), roomy(), "x")  # a file left open would fail the test


# ---------------------------------------------------------------- refusing


@pytest.mark.parametrize("cut", [3, 8, 9, 20, 200, -1])
def test_file_that_is_cut_off_is_corrupt(files: World, cut: int) -> None:
    assert slugs(files, save(ARRAYS)[:cut]) == ["file_corrupt"]


def test_byte_behind_the_last_tensor_is_corrupt(files: World) -> None:
    assert slugs(files, save(ARRAYS) + b"\x00") == ["file_corrupt"]


@pytest.mark.parametrize("length", [2**63 - 1, 2**64 - 1, 2**40, 10**6])
def test_length_of_a_header_beyond_the_file_is_corrupt(files: World, length: int) -> None:
    assert slugs(files, struct.pack("<Q", length) + b'{"a":{}}') == ["file_corrupt"]


def test_limits_are_checked_before_anything_is_read(files: World) -> None:
    data = save({"w": np.zeros(100, np.float32), "v": np.zeros(1, np.float32)})
    for limit, value in (
        ("update_bytes", len(data) - 1),
        ("header_bytes", 50),
        ("expanded_bytes", 403),
        ("tensors", 1),
    ):
        found = files.refused(data, roomy().model_copy(update={limit: value}))
        assert [(f.slug, f.expected, f.detail) for f in found] == [("file_too_large", value, {"limit": limit})]
    for limit, value in (("update_bytes", len(data)), ("expanded_bytes", 404), ("tensors", 2)):
        files.open(data, roomy().model_copy(update={limit: value}))


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git-lfs"),
        (b"outs:\n- md5: 00\n", ".dvc"),
        (b"<!DOCTYPE html>", "web page"),
        (b'{"errors":[]}', "JSON"),
        (b"a,b\n1,2\n", "comma"),
        (b"PAR1" + bytes(99), "Parquet"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"hi", "text"),
    ],
)
def test_what_is_no_model_is_refused_by_what_it_is(files: World, data: bytes, word: str) -> None:
    (found,) = files.refused(data)
    assert found.slug == "format_unknown"
    assert word in found.got


def test_bare_pickle_is_refused_and_never_run(files: World) -> None:
    class Canary:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(files.folder / "canary"),))

    for protocol in (0, 2, 4, 5):
        assert slugs(files, pickle.dumps(Canary(), protocol)) == ["pickle_refused"]
    assert not (files.folder / "canary").exists()


def test_all_faults_of_the_tensors_are_told_at_once(files: World) -> None:
    one = np.zeros(1, np.float32)
    data = file_bytes({"../a": one, "b\n": one, "ok": one}).replace(b'"F32"', b'"F8_"', 1)
    assert sorted(slugs(files, data)) == ["dtype_unsupported", "tensor_name_invalid", "tensor_name_invalid"]


# ---------------------------------------------------------------- against the reference reader


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_what_is_accepted_of_a_damaged_file_is_what_the_reference_reader_reads(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(data.draw(st.sampled_from([save(ARRAYS), file_bytes(ARRAYS, metadata={"a": "b"})])))
    head = 8 + int.from_bytes(raw[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(["set", "insert", "delete", "swap", "cut", "digit"]))
        at = data.draw(st.integers(0, min(head + 8, len(raw) - 1)))
        if kind == "set":
            raw[at] = data.draw(st.integers(0, 255))
        elif kind == "insert":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        elif kind == "delete":
            del raw[at : at + data.draw(st.integers(1, 3))]
        elif kind == "digit":
            raw[at : at + 1] = str(data.draw(st.integers(0, 99))).encode()
        elif kind == "swap":
            other = data.draw(st.integers(0, len(raw) - 1))
            raw[at], raw[other] = raw[other], raw[at]
        else:
            del raw[data.draw(st.integers(1, len(raw))) :]
        if not raw:
            return
    path = _folder(tmp_path_factory) / "fuzz"
    path.write_bytes(raw)
    model, findings = ModelFiles().open(path, Limits(), "x")
    if model is None:
        assert findings
        return
    with model:
        expected = load(bytes(raw))  # raises if the reference reader refuses what we accept
        assert set(expected) == set(model.specs)
        for name, array in expected.items():
            assert model.specs[name].shape == array.shape
            got = model.read(name, 0, array.size)
            assert np.array_equal(got, array.reshape(-1).astype(got.dtype), equal_nan=array.dtype.kind == "f")


def _folder(factory: pytest.TempPathFactory) -> Path:
    folder = factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    return folder
