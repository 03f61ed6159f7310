"""The .npy header: numpy's own are read, everything that could run or hide something is refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.facts import TensorSpec
from fedops.core.findings import Finding
from fedops.core.npy_header import MAX_HEADER, PREFIX_BYTES, Array, header_end, parse_array_header


def written(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=True)
    return out.getvalue()


def header(text: str, version: int = 1) -> bytes:
    body = text.encode("utf-8" if version == 3 else "latin-1")
    return b"\x93NUMPY" + bytes([version, 0]) + len(body).to_bytes(2 if version == 1 else 4, "little") + body


def parse(data: bytes) -> Array | Finding:
    end = header_end(data[:PREFIX_BYTES])
    return parse_array_header(data if end is None else data[:end], "f", "w")


def slug(data: bytes) -> str:
    got = parse(data)
    assert isinstance(got, Finding)
    assert got.detail == {"tensor": "w"}
    return got.slug


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("<f8", "F64"),
        ("<f4", "F32"),
        ("<f2", "F16"),
        ("<i8", "I64"),
        ("<i4", "I32"),
        ("<i2", "I16"),
        ("|i1", "I8"),
        ("<u8", "U64"),
        ("<u4", "U32"),
        ("<u2", "U16"),
        ("|u1", "U8"),
        ("|b1", "BOOL"),
        (">f4", "F32"),
        (">i8", "I64"),
    ],
)
def test_headers_that_numpy_writes_are_read(version: tuple[int, int], kind: str, dtype: Any) -> None:
    for array in (
        np.zeros((2, 3), kind),
        np.zeros((), kind),
        np.zeros((0, 4), kind),
        np.zeros((2, 3), kind, order="F"),
    ):
        data = written(array, version)
        got = parse(data)
        assert isinstance(got, Array)
        assert got.spec == TensorSpec(dtype, array.shape)
        assert got.big_endian == kind.startswith(">")
        assert got.fortran_order == (array.flags.f_contiguous and not array.flags.c_contiguous)
        assert len(data) - got.data_start == array.nbytes


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(1, "c8"),
        np.zeros(1, "c16"),
        np.zeros(1, np.longdouble),
        np.array(["x"]),
        np.array([b"x"]),
        np.zeros(1, "datetime64[s]"),
        np.zeros(1, "timedelta64[s]"),
        np.zeros(1, "V2"),
        np.zeros(1, [("a", "f4"), ("b", "f4")]),
        np.zeros(1, [("O", "f4")]),
    ],
    ids=lambda a: str(a.dtype),
)
def test_what_is_no_plain_number_is_refused(array: Any) -> None:
    assert slug(written(array)) == "dtype_unsupported"


@pytest.mark.parametrize(
    "descr", ["'|O'", "'O'", "'<O8'", "[('a', '|O')]", "[('a', [('b', '<f4'), ('c', '|O')])]", "[('a', '|O', (2,))]"]
)
def test_objects_are_pickles_wherever_they_stand(descr: str) -> None:
    assert slug(header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}")) == "pickle_refused"


@pytest.mark.parametrize("descr", ["'f4'", "'=f4'", "'<f3'", "'<f4 '", "''", "None", "4", "[]", "'<b1,<f4'"])
def test_descr_that_numpy_does_not_write_is_refused(descr: str) -> None:
    assert slug(header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}")) == "dtype_unsupported"


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY\x01",
        b"\x93NUMPX" + header(GOOD)[6:],
        header(GOOD)[:-1],
        b"\x93NUMPY\x04\x00" + header(GOOD)[8:],
        b"\x93NUMPY\x01\x01" + header(GOOD)[8:],
        header(" " * (MAX_HEADER + 1)),
        header(GOOD[:-1]),
        header("__import__('os')"),
        header("{'descr': '<f4'}"),
        header(GOOD[:-1] + ", 'x': 1}"),
        header("['descr', 'fortran_order', 'shape']"),
        header(GOOD.replace("False", "0")),
        header(GOOD.replace("(1,)", "[1]")),
        header(GOOD.replace("(1,)", "1")),
        header(GOOD.replace("(1,)", "(True,)")),
        header(GOOD.replace("(1,)", "(-1,)")),
        header(GOOD.replace("(1,)", "(0, 2**62)")),
        header(GOOD.replace("(1,)", f"(0, {2**62})")),
        header("-" * 9000 + "1"),
        header("(" * 9000),
        header("{[]: 1}"),
        header("'\x00'"),
        header("'\udcff'".encode("utf-8", "surrogatepass").decode("latin-1"), 3),
        b"\x93NUMPY\x03\x00" + (4).to_bytes(4, "little") + b"'\xff' ",
    ],
    ids=lambda data: repr(data[10:50]),
)
def test_what_is_no_header_is_corrupt(data: bytes) -> None:
    assert slug(data) == "file_corrupt"


def test_longest_header_is_read() -> None:
    assert isinstance(parse(header(GOOD + " " * (MAX_HEADER - len(GOOD)))), Array)


@given(st.binary(max_size=200))
def test_noise_is_never_taken_for_an_array(noise: bytes) -> None:
    assert isinstance(parse(header("")[:6] + noise), Finding)


@given(st.text(max_size=100))
def test_any_literal_gives_an_answer(text: str) -> None:
    data = b"\x93NUMPY\x03\x00" + (len(text.encode())).to_bytes(4, "little") + text.encode()
    assert isinstance(parse(data), Array | Finding)
