"""Strict text in, documents out, and canonical bytes back: the only place that reads or writes JSON documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from fedops.core.errors import ConfigError
from fedops.core.yaml_reader import MAX_DEPTH, MAX_TEXT_BYTES, Lines, parse_yaml

MAX_DOCUMENT_BYTES = MAX_TEXT_BYTES
_LONGEST_KEY = 40  # characters; none of ours is longer, and comparing takes the square of it
Json = Any
_PATTERNS = {f"^[0-9a-f]{{{n}}}$": f"{n} hexadecimal digits in lower case" for n in (32, 40, 64)}


class Document(BaseModel):
    """Base of all documents: frozen, strict, nothing extra."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", defer_build=True, populate_by_name=True)
    # Optional fields that are left out of canonical bytes when they are None.
    absent_if_none: ClassVar[frozenset[str]] = frozenset()


Model = TypeVar("Model", bound=Document)


class BadJson(ValueError):  # noqa: N818 reads better at the except clause
    """The bytes are not strict JSON; says where and why."""


def _no_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for key, value in pairs:
        if key in out:
            raise BadJson(f"repeated key {key[:60]!r}")
        out[key] = value
    return out


def _no_constant(text: str) -> Json:
    raise BadJson(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise BadJson(f"number {text[:40]} is out of range")
    return value


def _small_int(text: str) -> int:
    if len(text) > 20:
        raise BadJson(f"number {text[:20]}… has too many digits")
    return int(text)


def _check_depth(text: str) -> None:
    depth = 0
    in_string = False
    escaped = False
    for c in text:
        if in_string:
            if escaped:
                escaped = False
            elif c == "\\":
                escaped = True
            elif c == '"':
                in_string = False
        elif c == '"':
            in_string = True
        elif c in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise BadJson(f"nested more than {MAX_DEPTH} deep")
        elif c in "]}":
            depth -= 1


def parse_json(data: bytes, where: str = "", *, max_bytes: int = MAX_DOCUMENT_BYTES) -> Json:
    """Parse strict JSON: UTF-8, no byte order mark, no NaN, no repeated key, bounded size, depth and numbers.

    Raises:
        BadJson: with the reason; `where` is put in front of it.
    """
    try:
        if len(data) > max_bytes:
            raise BadJson(f"{len(data)} bytes, at most {max_bytes} are read")
        if data.startswith(b"\xef\xbb\xbf"):
            raise BadJson("starts with a byte order mark")
        text = data.decode("utf-8")
        _check_depth(text)
        return json.loads(
            text,
            object_pairs_hook=_no_repeats,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_small_int,
        )
    except UnicodeDecodeError as e:
        raise BadJson(f"{where}: not UTF-8 at byte {e.start}".lstrip(": ")) from e
    except json.JSONDecodeError as e:
        raise BadJson(f"{where}: line {e.lineno}: {e.msg}".lstrip(": ")) from e
    except BadJson as e:
        raise BadJson(f"{where}: {e}".lstrip(": ")) from e


def plain(value: Any) -> Json:
    """A document as plain JSON values: fields in the model's order, map keys sorted."""
    if isinstance(value, BaseModel):
        skip: frozenset[str] = getattr(value, "absent_if_none", frozenset())
        fields = {
            (info.alias or name): plain(getattr(value, name))
            for name, info in type(value).model_fields.items()
            if not (name in skip and getattr(value, name) is None)
        }
        return fields | plain(value.model_extra or {})
    if isinstance(value, Mapping):
        return {str(k): plain(value[k]) for k in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def dump_json(document: Any) -> bytes:
    """Canonical bytes: UTF-8, two spaces, model field order, sorted map keys, shortest floats, one final newline.

    Raises:
        ValueError: the document holds NaN or infinity.
    """
    return (json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _documents_in(annotation: Any) -> Iterator[type[Document]]:
    """The kinds of documents that a field may hold, also in a list, a map or a choice."""
    if isinstance(annotation, type) and issubclass(annotation, Document):
        yield annotation
    for argument in get_args(annotation):
        yield from _documents_in(argument)


def _known_keys(model: type[Document], place: Sequence[int | str]) -> list[str]:
    """The keys that a document may have at a place within it; a place's indexes and names of a map are passed over."""
    kinds = [model]
    for part in place:
        fields = [info for kind in kinds for name, info in kind.model_fields.items() if part in (name, info.alias)]
        kinds = [below for info in fields for below in _documents_in(info.annotation)] or kinds
    return [info.alias or name for kind in kinds for name, info in kind.model_fields.items()]


def _unknown(model: type[Document], place: Sequence[int | str]) -> str:
    """What to say of a key that nothing has, with the one that was probably meant."""
    key = str(place[-1])
    near = get_close_matches(key, _known_keys(model, place[:-1]), 1) if len(key) <= _LONGEST_KEY else []
    return f"unknown key, did you mean {near[0]}?" if near else "unknown key"


def explain(error: ValidationError, model: type[Document], where: str, lines: Lines) -> str:
    """The first fault as `where:line: key: message`, and how many more there are."""
    faults = error.errors(include_url=False)
    first = faults[0]
    loc = tuple(first["loc"])
    # NOTE: pydantic also names the member of a union that it tried, such as literal['participants'].
    if first["type"] == "literal_error" and str(loc[-1]).startswith("literal["):
        loc = loc[:-1]
    # NOTE: pydantic puts names of union members into `loc`; the longest prefix that the text has is the place.
    # JSON comes without lines: there the whole of it names the key.
    at = loc
    while lines and at and at not in lines:
        at = at[:-1]
    key = ".".join(str(p) for p in at)
    place = f"{where}:{lines[at]}" if at in lines else where
    shown = repr(first.get("input"))
    got = "" if first["type"] in ("missing", "extra_forbidden") or len(shown) > 80 else f", got {shown}"
    missing = ".".join(str(p) for p in loc[len(at) :])
    name = f"{key}.{missing}".strip(".") if first["type"] in ("missing", "extra_forbidden") else key
    what = "required, but absent" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
    if first["type"] == "string_pattern_mismatch" and first["ctx"]["pattern"] in _PATTERNS:
        what = f"must be {_PATTERNS[first['ctx']['pattern']]}"
    what = _unknown(model, loc) if first["type"] == "extra_forbidden" else what
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {name}: {what}{got}{more}" if name else f"{place}: {what}{got}{more}"


def validate(value: Json, model: type[Model], where: str, lines: Lines | None = None) -> Model:
    """Turn plain values into a document.

    Raises:
        ConfigError: `where:line: key: message`.
    """
    try:
        # Through JSON text: in pydantic's strict mode only JSON lists may become tuples.
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as e:
        raise ConfigError(explain(e, model, where, lines or {})) from e


def load_document(data: bytes, model: type[Model], where: str) -> Model:
    """Read one YAML document.

    Args:
        data: the text as stored.
        where: its path, for messages.

    Raises:
        ConfigError: `where:line: key: message`.
    """
    value, lines = parse_yaml(data, where)
    return validate(value, model, where, lines)


def load_json_document(data: bytes, model: type[Model], where: str, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> Model:
    """Read one JSON document that the tool wrote.

    Raises:
        ConfigError: not strict JSON, or not this document.
    """
    try:
        value = parse_json(data, where, max_bytes=max_bytes)
    except BadJson as e:
        raise ConfigError(str(e)) from e
    return validate(value, model, where)
