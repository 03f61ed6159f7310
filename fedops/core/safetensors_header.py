"""The safetensors header: strict in, canonical out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fedops.core.facts import Dtype, Specs, TensorSpec
from fedops.core.findings import Finding, finding
from fedops.core.settings import Limits
from fedops.core.tensors import DTYPES, byte_count, canonical_layout, shape_fault, tensor_name_fault

LENGTH_BYTES = 8  # the file begins with the header's length, little-endian
MAX_FINDINGS = 50  # of one file: more help nobody
_FIELDS = {"dtype", "shape", "data_offsets"}
_MAX_DIGITS = 20


@dataclass(frozen=True)
class Header:
    specs: Specs
    offsets: Mapping[str, int]  # tensor -> bytes from the beginning of the data
    has_metadata: bool


class _HeaderError(ValueError):
    """The text is not the JSON of a header."""


class _Pairs(list[tuple[str, object]]):
    """A JSON object as it stands, repeated keys kept."""


def encode_header(specs: Specs) -> bytes:
    """Length and header of the canonical file: no metadata, canonical order, compact JSON padded to 8 with spaces.

    Equal to the bytes that the reference library's `save` writes for C-contiguous arrays.
    """
    entries = {
        p.name: {
            "dtype": p.spec.dtype,
            "shape": list(p.spec.shape),
            "data_offsets": [p.position, p.position + p.size],
        }
        for p in canonical_layout(specs)
    }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def header_length(start: bytes, size: int, limits: Limits, where: str) -> int | tuple[Finding, ...]:
    """Bytes of the header without its length; or why the file cannot be read.

    Args:
        start: the first LENGTH_BYTES of the file, or all of a shorter one.
        size: bytes of the whole file.
        limits: of the policy: header_bytes, expanded_bytes.
        where: for the findings.
    """
    length = int.from_bytes(start, "little")
    end = LENGTH_BYTES + length
    if end > size:
        return (finding("file_corrupt", where, got=size, expected=end, detail={"unit": "bytes of header"}),)
    for limit, got, most in (
        ("header_bytes", length, limits.header_bytes),
        ("expanded_bytes", size - end, limits.expanded_bytes),
    ):
        if got > most:
            return (finding("file_too_large", where, got=got, expected=most, detail={"limit": limit}),)
    return length


def parse_header(text: bytes, size: int, where: str, *, max_tensors: int) -> Header | tuple[Finding, ...]:
    """Read a header; everything that could make two readers see different tensors is refused.

    Args:
        text: the header without its length.
        size: bytes of data that follow it in the file.
        where: for the findings.
        max_tensors: limit of the policy.

    Returns:
        The header, or all findings: file_corrupt, file_too_large, duplicate_key, dtype_unsupported,
        tensor_name_invalid, empty_update.
    """
    try:
        pairs = _parse(text)
    except _HeaderError as e:
        return (finding("file_corrupt", where, got=f"header: {e}"),)
    names = [name for name, _ in pairs if name != "__metadata__"]
    if len(names) > max_tensors:
        return (finding("file_too_large", where, got=len(names), expected=max_tensors, detail={"limit": "tensors"}),)
    if not names:
        return (finding("empty_update", where),)
    found = _repeated(pairs, where)
    entries = dict(pairs)
    if "__metadata__" in entries and not _is_text_map(metadata := entries.pop("__metadata__")):
        found.append(finding("file_corrupt", where, got=_show(metadata), expected="a map of texts, in __metadata__"))
    specs: dict[str, TensorSpec] = {}
    spans: dict[str, tuple[int, int]] = {}
    for name, entry in entries.items():
        found += _tensor(name, entry, where, specs, spans)
    if len(spans) == len(entries):  # otherwise the holes are where the faults already are
        found += _tiling(spans, size, where)
    if found:
        return tuple(found[:MAX_FINDINGS])
    return Header(specs, {name: begin for name, (begin, _) in spans.items()}, len(names) != len(pairs))


def _parse(text: bytes) -> _Pairs:
    """One JSON object without numbers that are not whole."""
    try:
        if not text.startswith(b"{"):
            raise _HeaderError("does not begin with {")
        value = json.loads(
            text.decode(),
            object_pairs_hook=_Pairs,
            parse_float=_refuse,
            parse_constant=_refuse,
            parse_int=_whole,
        )
    except UnicodeDecodeError as e:
        raise _HeaderError(f"not UTF-8 at byte {e.start}") from e
    except json.JSONDecodeError as e:
        raise _HeaderError(f"not JSON at character {e.pos}: {e.msg}") from e
    except RecursionError as e:
        raise _HeaderError("nested too deep") from e
    assert isinstance(value, _Pairs)
    return value


def _refuse(text: str) -> object:
    raise _HeaderError(f"{text[:_MAX_DIGITS]} is not a whole number")


def _whole(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _HeaderError(f"{text[:_MAX_DIGITS]}… has too many digits")
    return int(text)


def _repeated(pairs: _Pairs, where: str) -> list[Finding]:
    seen: set[str] = set()
    found = []
    for name, _ in pairs:
        if name in seen:
            found.append(finding("duplicate_key", where, detail={"tensor": _show(name)}))
        seen.add(name)
    return found


def _is_text_map(value: object) -> bool:
    return isinstance(value, _Pairs) and all(isinstance(text, str) for _, text in value)


def _tensor(
    name: str, entry: object, where: str, specs: dict[str, TensorSpec], spans: dict[str, tuple[int, int]]
) -> list[Finding]:
    """Read one entry into specs and spans; an entry with a finding may be in spans alone."""
    found = []
    detail = {"tensor": _show(name)}
    if fault := tensor_name_fault(name):
        found.append(finding("tensor_name_invalid", where, got=fault, detail=detail))
    if not isinstance(entry, _Pairs) or len(entry) != len(_FIELDS) or {key for key, _ in entry} != _FIELDS:
        return [*found, finding("file_corrupt", where, got=_show(entry), expected=sorted(_FIELDS), detail=detail)]
    fields = dict(entry)
    offsets = fields["data_offsets"]
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(n) is not int or n < 0 for n in offsets):
        found.append(finding("file_corrupt", where, got=_show(offsets), expected="two offsets", detail=detail))
    else:
        spans[name] = (offsets[0], offsets[1])
    dtype, shape = _dtype(fields["dtype"]), fields["shape"]
    if dtype is None:
        found.append(
            finding("dtype_unsupported", where, got=_show(fields["dtype"]), expected=list(DTYPES), detail=detail)
        )
    if fault := shape_fault(shape, 1 if dtype is None else DTYPES[dtype].itemsize):
        found.append(
            finding("file_corrupt", where, got=_show(shape), expected=f"a shape, this is {fault}", detail=detail)
        )
    elif dtype is not None:
        assert isinstance(shape, list)
        specs[name] = spec = TensorSpec(dtype, tuple(shape))
        if name in spans and (stored := spans[name][1] - spans[name][0]) != (needed := byte_count(spec)):
            found.append(
                finding("file_corrupt", where, got=stored, expected=needed, detail={**detail, "unit": "bytes"})
            )
    return found


def _dtype(value: object) -> Dtype | None:
    return next((dtype for dtype in DTYPES if dtype == value), None)


def _tiling(spans: Mapping[str, tuple[int, int]], size: int, where: str) -> list[Finding]:
    """Each byte of the data must belong to exactly one tensor: no overlap, hole, or byte behind the last one."""
    end = 0
    for name, (begin, stop) in sorted(spans.items(), key=lambda item: item[1]):
        if begin != end or stop < begin:
            detail = {"tensor": _show(name)}
            return [finding("file_corrupt", where, got=[begin, stop], expected=f"data from byte {end}", detail=detail)]
        end = stop
    if end != size:
        return [finding("file_corrupt", where, got=size, expected=end, detail={"unit": "bytes of data"})]
    return []


def _show(value: object) -> object:
    """A value of the file as a finding may carry it: bounded, and without lone surrogates."""
    if isinstance(value, (int, type(None))):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text[:200].encode("utf-8", "backslashreplace").decode()
