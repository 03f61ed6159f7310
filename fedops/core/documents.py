"""Strict text in, documents out, and canonical bytes back: the only place that parses YAML or writes JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
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


def _scalar(node: yaml.ScalarNode, where: str) -> Json:
    text, line = str(node.value), node.start_mark.line + 1
    if node.style is not None:
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


def _build(node: yaml.Node, where: str, at: tuple[str | int, ...], lines: _Lines) -> Json:
    line = node.start_mark.line + 1
    lines[at] = line
    if len(at) > MAX_DEPTH:
        raise ConfigError(f"{where}:{line}: nested more than {MAX_DEPTH} deep")
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, where)
    if isinstance(node, yaml.SequenceNode):
        return [_build(child, where, (*at, i), lines) for i, child in enumerate(node.value)]
    out: dict[str, Json] = {}
    assert isinstance(node, yaml.MappingNode)
    for key_node, value_node in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if not isinstance(key, str) or key == "<<":
            raise ConfigError(f"{where}:{key_node.start_mark.line + 1}: a key must be plain text")
        if key in out:
            raise ConfigError(f"{where}:{key_node.start_mark.line + 1}: repeated key {key!r}")
        out[key] = _build(value_node, where, (*at, key), lines)
        lines[(*at, key)] = key_node.start_mark.line + 1
    return out


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
        text = data.decode("utf-8")
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise ConfigError(f"{where}:{line}: anchors and aliases are not allowed")
            if getattr(event, "tag", None) is not None:
                raise ConfigError(f"{where}:{line}: tags are not allowed")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as e:
        raise ConfigError(f"{where}: not UTF-8 at byte {e.start}") from e
    except RecursionError as e:
        raise ConfigError(f"{where}: nested too deep") from e
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 1
        raise ConfigError(f"{where}:{line}: {e.problem or e.context or 'not YAML'}") from e
    except yaml.YAMLError as e:
        raise ConfigError(f"{where}: not YAML: {str(e).splitlines()[0]}") from e
    if node is None:
        raise ConfigError(f"{where}: the file is empty")
    lines: _Lines = {}
    return _build(node, where, (), lines), lines


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
