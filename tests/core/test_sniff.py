"""What a file is called, by its first bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from fedops.core.sniff import SNIFF_BYTES, sniff


@pytest.mark.parametrize("size", [1, 20, 60, 100])
def test_safetensors_is_known_whatever_its_header_begins_with(size: int) -> None:
    data = save({"x" * size: np.zeros(2, np.float32)})
    assert sniff(data[:SNIFF_BYTES], len(data))[0] == "safetensors"


@pytest.mark.parametrize("length", [0x0280, 0x5A4D, 0x8B1F, 0xFEFF, 0x2A4949])
def test_length_that_looks_like_other_magic_is_a_length(length: int) -> None:
    head = length.to_bytes(8, "little") + b'{"a":'
    assert sniff(head, 8 + length)[0] == "safetensors"


@pytest.mark.parametrize(
    "head",
    [
        b"\x20\x00\x00\x00\x00\x00\x00\x00",
        b"\x20\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\xff{}",
        b"\x03\x00\x00\x00\x00\x00\x00\x00[1]",
    ],
)
def test_damaged_safetensors_is_still_meant_as_one(head: bytes) -> None:
    assert sniff(head, len(head))[0] == "safetensors"


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", [np.zeros(2), {"w": [1.0]}, [np.float64(1)], {"a": 1}])
def test_bare_pickle_is_known(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    if protocol == 1:
        return  # begins with any opcode; what is not recognised is refused as unknown all the same
    assert sniff(data, len(data))[0] == "pickle", data[:20]


@pytest.mark.parametrize("value", [np.zeros(2), {"w": [1.0]}, [np.float64(1)], {"a": 1}])
def test_no_pickle_is_ever_taken_for_a_model(value: object) -> None:
    data = pickle.dumps(value, 1)
    assert sniff(data, len(data))[0] in ("pickle", "other")


def test_zip_is_tried_as_npz() -> None:
    assert sniff(b"PK\x03\x04....", 100)[0] == "npz"
    assert sniff(b"PK\x05\x06" + bytes(18), 22)[0] == "npz"


def test_empty_file() -> None:
    assert sniff(b"", 0) == ("empty", "an empty file")


DICOM = bytes(128) + b"DICM"
NIFTI = b"\x5c\x01\x00\x00" + bytes(340) + b"n+1\x00"
TAR = b"name\x00" + bytes(252) + b"ustar\x0000"


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git-lfs"),
        (b"outs:\n- md5: 00\n  size: 1\n  path: x\n", ".dvc"),
        (b"# note\nouts:\n- md5: 00\n", ".dvc"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\n <HTML>", "web page"),
        (b"<?xml version='1.0'?>", "XML"),
        (b'{"errors":[]}\n', "JSON"),
        (b"\xef\xbb\xbf[1, 2]", "JSON"),
        (b"age,sex,outcome\n61,f,1\n58,m,0\n", "comma"),
        (b"age\tsex\n61\tf\n", "tab"),
        (b"age;sex\n61;f\n", "semicolon"),
        (b"a: 1\nb: 2\n", "YAML"),
        (b"just some words\n", "plain text"),
        ("Grüße".encode()[:4] + b"", "plain text"),
        (("x" * 4094 + "ü").encode()[:4095], "plain text"),
        ("name".encode("utf-16"), "plain text"),
        (b"\x89HDF\r\n\x1a\n" + bytes(20), "HDF5"),
        (b"\x93NUMPY\x01\x00", ".npy"),
        (b"PAR1" + bytes(10), "Parquet"),
        (b"GGUF\x03\x00", "GGUF"),
        (b"\x1c\x00\x00\x00TFL3", "TensorFlow"),
        (b"\x1f\x8b\x08\x00\x00", "gzip"),
        (b"\x28\xb5\x2f\xfd\x00", "zstd"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"BZh91AY&SY", "bzip2"),
        (b"%PDF-1.7\n", "PDF"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"II*\x00\x08\x00\x00\x00", "TIFF"),
        (b"MM\x00*\x00\x00\x00\x08", "TIFF"),
        (DICOM, "DICOM"),
        (NIFTI, "NIfTI"),
        (TAR, "tar"),
        (b"\x7fELF\x02\x01", "program"),
        (bytes(64), "zero bytes"),
        (b"\x99\x88\x77\x66\x55\x44\x33\x22\x11", "unknown"),
    ],
)
def test_what_is_no_model_is_called_by_its_name(head: bytes, word: str) -> None:
    kind, what = sniff(head, len(head))
    assert kind == "other"
    assert word in what


@given(st.binary(max_size=400), st.integers(0, 10_000))
def test_any_bytes_get_an_answer(head: bytes, more: int) -> None:
    kind, what = sniff(head, len(head) + more)
    assert kind in ("safetensors", "npz", "pickle", "empty", "other")
    assert what.isprintable()
