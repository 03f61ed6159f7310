"""Canonical files: the reference library's bytes, whole or not there."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from fedops.adapters.model_files import ModelFiles
from fedops.adapters.model_writer import save_arrays, writing
from fedops.core.errors import ConfigError, StoreError
from fedops.core.facts import TensorSpec
from tests.model_world import file_bytes

KINDS = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]


def digests(data: bytes) -> tuple[str, str, int]:
    return hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest(), len(data)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_arrays_become_the_reference_librarys_bytes_in_any_order_of_insertion(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rng = np.random.Generator(np.random.PCG64(data.draw(st.integers(0, 2**32))))
    shapes = st.lists(st.integers(0, 4), max_size=3)
    arrays = {}
    for name in data.draw(st.sets(st.text("abü/.0", min_size=1, max_size=4), min_size=1, max_size=6)):
        if name.startswith("/") or {".", ".."} & set(name.split("/")):
            continue
        kind = data.draw(st.sampled_from(KINDS))
        shape = data.draw(shapes)
        arrays[name] = (rng.standard_normal(shape) * 100).astype(kind) if kind != "?" else rng.random(shape) < 0.5
        arrays[name] = np.asarray(arrays[name])
    if not arrays:
        return
    shuffled = data.draw(st.permutations(sorted(arrays)))
    path = tmp_path_factory.mktemp("out") / "m.safetensors"
    written = save_arrays(path, {name: arrays[name] for name in shuffled})
    assert path.read_bytes() == save(arrays)
    assert written == digests(save(arrays))


def test_memory_order_of_an_array_does_not_matter(tmp_path: Path) -> None:
    a = np.arange(12, dtype="f4").reshape(3, 4)
    arrays = {
        "fortran": np.asfortranarray(a),
        "strided": np.repeat(a, 2, axis=1)[:, ::2],
        "transposed": a.T,
        "backwards": a[::-1],
        "big-endian": a.astype(">f4"),
        "read-only": np.broadcast_to(np.float32(3), (2, 2)),
    }
    save_arrays(tmp_path / "m", arrays)
    got = load_file(tmp_path / "m")
    for name, array in arrays.items():
        assert np.array_equal(got[name], array), name
        assert got[name].dtype == np.float32


def test_numpy_scalars_become_tensors_without_dimensions(tmp_path: Path) -> None:
    scalars: Any = {"n": np.int64(7), "x": np.float16(0.5), "flag": np.bool_(True)}
    save_arrays(tmp_path / "m", scalars)
    got = load_file(tmp_path / "m")
    assert {k: (v.dtype.name, v.shape, v.item()) for k, v in got.items()} == {
        "n": ("int64", (), 7),
        "x": ("float16", (), 0.5),
        "flag": ("bool", (), True),
    }


@pytest.mark.parametrize(
    ("arrays", "slug"),
    [
        ({}, "empty_update"),
        ({"a": np.array([None])}, "dtype_unsupported"),
        ({"a": np.zeros(1, "c8")}, "dtype_unsupported"),
        ({"a": np.array(["x"])}, "dtype_unsupported"),
        ({"a": np.zeros(1, np.longdouble)}, "dtype_unsupported"),
        ({"a": np.zeros(1, "datetime64[s]")}, "dtype_unsupported"),
        ({"../a": np.zeros(1)}, "tensor_name_invalid"),
    ],
)
def test_what_no_model_may_hold_is_refused_and_nothing_is_written(tmp_path: Path, arrays: Any, slug: str) -> None:
    with pytest.raises(ConfigError) as e:
        save_arrays(tmp_path / "m", arrays)
    assert e.value.slug == slug
    assert list(tmp_path.iterdir()) == []


def test_bfloat16_of_ml_dtypes_is_written_as_such(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    save_arrays(tmp_path / "m", {"w": np.array([1, 2], ml_dtypes.bfloat16)})
    bits = np.array([0x3F80, 0x4000], np.uint16)
    assert (tmp_path / "m").read_bytes() == file_bytes({"w": bits}, bf16=["w"])


SPECS = {"w": TensorSpec("F32", (2, 3))}
DATA = np.arange(6, dtype=np.float32)


def append_all(writer: Any, parts: Sequence[int]) -> None:
    raw = DATA.tobytes()
    for start, stop in zip([0, *parts], [*parts, len(raw)], strict=True):
        writer.append(memoryview(raw[start:stop]))


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_file_appears_whole_readable_for_all_and_only_at_commit(tmp_path: Path, umask: int) -> None:
    target = tmp_path / "m"
    target.write_bytes(b"old")
    before = os.umask(umask)
    try:
        with ModelFiles().create(target, SPECS) as writer:
            append_all(writer, [5, 11])
            assert target.read_bytes() == b"old"
            written = writer.commit()
    finally:
        os.umask(before)
    expected = save({"w": DATA.reshape(2, 3)})
    assert target.read_bytes() == expected
    assert written == digests(expected)
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [target]


def test_md5_is_left_out_if_nobody_wants_it(tmp_path: Path) -> None:
    with writing(tmp_path / "m", SPECS, md5=False) as writer:
        append_all(writer, [])
        sha256, md5, size = writer.commit()
    assert (md5, size) == ("", len((tmp_path / "m").read_bytes()))
    assert sha256 == digests((tmp_path / "m").read_bytes())[0]


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_of_a_file_that_was_not_committed(tmp_path: Path, error: type[BaseException] | None) -> None:
    try:
        with writing(tmp_path / "m", SPECS) as writer:
            append_all(writer, [])
            if error is not None:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("advice", [True, False])
def test_large_file_is_sent_to_the_disk_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advice: bool
) -> None:
    if not advice:  # as on a system without it
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    data = np.arange(5 << 20, dtype=np.float32)
    assert save_arrays(tmp_path / "m", {"w": data}) == digests((tmp_path / "m").read_bytes())
    assert (tmp_path / "m").read_bytes() == save({"w": data})


def test_half_a_model_cannot_be_committed(tmp_path: Path) -> None:
    with writing(tmp_path / "m", SPECS) as writer:
        writer.append(memoryview(DATA.tobytes()[:-1]))
        with pytest.raises(AssertionError):
            writer.commit()
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_not_there_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot create it"), writing(tmp_path / "absent" / "m", SPECS):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_full_disk_is_a_temporary_store_error(tmp_path: Path) -> None:
    with writing(tmp_path / "m", SPECS) as writer:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, writer._file.fileno())
        os.close(full)
        with pytest.raises(StoreError, match="cannot write it") as e:
            append_all(writer, [])
    assert e.value.cause == "temporary"
    assert list(tmp_path.iterdir()) == []
