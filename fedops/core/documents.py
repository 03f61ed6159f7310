"""Strict text in, documents out, and canonical bytes back: the only place that parses YAML or writes JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from fedops.core.errors import ConfigError

MAX_DOCUMENT_BYTES = 1_048_576
MAX_DEPTH = 32
Json = Any


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


# ---------------------------------------------------------------- YAML

_TAG_STR, _TAG_INT, _TAG_FLOAT = "tag:yaml.org,2002:str", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_TAG_BOOL, _TAG_NULL = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"
_INT = re.compile(r"-?(0|[1-9][0-9]{0,18})\Z")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?\Z")
# What YAML 1.1 readers take for booleans: written bare, it is probably a slip.
_SLIP = re.compile(r"(yes|no|on|off|y|n)\Z", re.IGNORECASE)
_NUMBER_LIKE = re.compile(r"[-+]?[0-9][0-9_:]*\Z|0[xob][0-9a-fA-F_]+\Z")
_Lines = dict[tuple[str | int, ...], int]


# NOTE: libyaml is several times as fast (a roster of a thousand sites: 0.1 s). Where it is not built in, refuses a text,
# or reads some characters otherwise, PyYAML's own parser has the word, so that all machines read and say the same.
_FAST: Any = getattr(yaml, "CSafeLoader", None)
_READ_OTHERWISE = re.compile("[|>][-+0-9]*#|[?\t\r\x85\u2028\u2029\ufeff]")


def _line(event: yaml.Event) -> int:
    """Of an event, from 1."""
    return event.start_mark.line + 1 if event.start_mark is not None else 1


def _scalar(event: yaml.ScalarEvent, where: str) -> Json:
    text, line = str(event.value), _line(event)
    if event.style:  # quoted, or a block; a bare one has None, or "" from libyaml
        return text
    if text in ("true", "false"):
        return text == "true"
    if text in ("null", "~", ""):
        return None
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ConfigError(f"{where}:{line}: number {text[:40]} is out of range")
        return value
    if _SLIP.match(text):
        raise ConfigError(f"{where}:{line}: bare {text!r} -> write true or false, or quote it")
    if _NUMBER_LIKE.match(text):
        raise ConfigError(f"{where}:{line}: {text[:40]!r} is not a decimal number -> quote it if it is text")
    return text


@dataclass
class _Open:
    """A mapping or sequence that is being read.

    Attributes:
        at: its place.
        key: of a mapping, the one whose value comes next.
    """

    at: tuple[str | int, ...]
    value: dict[str, Json] | list[Json]
    key: str | None = None


def _key(event: yaml.Event, here: _Open, where: str, lines: _Lines) -> None:
    """Take the next event as a key of an open mapping."""
    line = _line(event)
    if not isinstance(event, yaml.ScalarEvent) or event.value == "<<":
        raise ConfigError(f"{where}:{line}: a key must be plain text")
    if event.value in here.value:
        raise ConfigError(f"{where}:{line}: repeated key {event.value!r}")
    here.key = event.value
    lines[(*here.at, here.key)] = line


def _read_events(events: Iterable[yaml.Event], where: str) -> tuple[list[Json], _Lines]:
    """The documents of a stream, at most one, and where everything stands in it; no recursion, whatever the depth."""
    lines: _Lines = {}
    documents: list[Json] = []
    stack: list[_Open] = []
    for event in events:
        line = _line(event)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ConfigError(f"{where}:{line}: anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise ConfigError(f"{where}:{line}: tags are not allowed")
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        if isinstance(event, yaml.DocumentStartEvent) and documents:
            raise ConfigError(f"{where}:{line}: another document begins")
        if not isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            continue
        here = stack[-1] if stack else None
        if here is not None and isinstance(here.value, dict) and here.key is None:
            _key(event, here, where, lines)
            continue
        at = _place(here)
        lines.setdefault(at, line)
        if len(at) > MAX_DEPTH:
            raise ConfigError(f"{where}:{line}: nested more than {MAX_DEPTH} deep")
        value = _scalar(event, where) if isinstance(event, yaml.ScalarEvent) else _collection(event, at, stack)
        if here is None:
            documents.append(value)
        elif isinstance(here.value, list):
            here.value.append(value)
        else:
            assert here.key is not None
            here.value[here.key], here.key = value, None
    return documents, lines


def _place(here: _Open | None) -> tuple[str | int, ...]:
    """Of the value that comes next."""
    if here is None:
        return ()
    if isinstance(here.value, list):
        return (*here.at, len(here.value))
    assert here.key is not None
    return (*here.at, here.key)


def _collection(event: yaml.Event, at: tuple[str | int, ...], stack: list[_Open]) -> Json:
    """Open a mapping or sequence; what follows fills it."""
    value: dict[str, Json] | list[Json] = {} if isinstance(event, yaml.MappingStartEvent) else []
    stack.append(_Open(at, value))
    return value


def _documents(text: str, where: str) -> tuple[list[Json], _Lines]:
    if _FAST is not None and not _READ_OTHERWISE.search(text):
        with suppress(yaml.YAMLError):
            return _read_events(yaml.parse(text, Loader=_FAST), where)
    return _read_events(yaml.parse(text, Loader=yaml.SafeLoader), where)


def parse_yaml(data: bytes, where: str) -> tuple[Json, _Lines]:
    """Parse strict YAML: no anchors, tags or repeated keys, only true/false and decimal numbers.

    Returns:
        The plain value, and the line (from 1) of each location (a tuple of keys and indexes).

    Raises:
        ConfigError: `where:line: what`.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ConfigError(f"{where}: {len(data)} bytes -> at most {MAX_DOCUMENT_BYTES}")
    try:
        documents, lines = _documents(data.decode("utf-8"), where)
    except UnicodeDecodeError as e:
        raise ConfigError(f"{where}: not UTF-8 at byte {e.start}") from e
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 1
        raise ConfigError(f"{where}:{line}: {e.problem or e.context or 'not YAML'}") from e
    except yaml.YAMLError as e:
        raise ConfigError(f"{where}: not YAML: {str(e).splitlines()[0]}") from e
    if not documents:
        raise ConfigError(f"{where}: the file is empty")
    return documents[0], lines


def explain(error: ValidationError, where: str, lines: _Lines) -> str:
    """The first fault as `where:line: key: message`, and how many more there are."""
    faults = error.errors(include_url=False)
    first = faults[0]
    loc = tuple(first["loc"])
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
    what = {"missing": "required, but absent", "extra_forbidden": "unknown key"}.get(first["type"], first["msg"])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {name}: {what}{got}{more}" if name else f"{place}: {what}{got}{more}"


def validate(value: Json, model: type[Model], where: str, lines: _Lines | None = None) -> Model:
    """Turn plain values into a document.

    Raises:
        ConfigError: `where:line: key: message`.
    """
    try:
        # Through JSON text: in pydantic's strict mode only JSON lists may become tuples.
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as e:
        raise ConfigError(explain(e, where, lines or {})) from e


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
