"""Strict YAML text into plain values, with the line of each: the only place that parses YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml

from fedops.core.errors import ConfigError

MAX_TEXT_BYTES = 1_048_576
MAX_DEPTH = 32

_TAG_STR, _TAG_INT, _TAG_FLOAT = "tag:yaml.org,2002:str", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_TAG_BOOL, _TAG_NULL = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"
_INT = re.compile(r"-?(0|[1-9][0-9]{0,18})\Z")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?\Z")
# What YAML 1.1 readers take for booleans: written bare, it is probably a slip.
_SLIP = re.compile(r"(yes|no|on|off|y|n)\Z", re.IGNORECASE)
_NUMBER_LIKE = re.compile(r"[-+]?[0-9][0-9_:]*\Z|0[xob][0-9a-fA-F_]+\Z")
Lines = dict[tuple[str | int, ...], int]


# NOTE: libyaml is several times as fast (a roster of a thousand sites: 0.1 s). Where it is not built in, refuses a text,
# or reads some characters otherwise, PyYAML's own parser has the word, so that all machines read and say the same.
_FAST: Any = getattr(yaml, "CSafeLoader", None)
_READ_OTHERWISE = re.compile("[|>][-+0-9]*#|[?\t\r\x85\u2028\u2029\ufeff]")


def _line(event: yaml.Event) -> int:
    """Of an event, from 1."""
    return event.start_mark.line + 1 if event.start_mark is not None else 1


def _scalar(event: yaml.ScalarEvent, where: str) -> Any:
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
    value: dict[str, Any] | list[Any]
    key: str | None = None


def _key(event: yaml.Event, here: _Open, where: str, lines: Lines) -> None:
    """Take the next event as a key of an open mapping."""
    line = _line(event)
    if not isinstance(event, yaml.ScalarEvent) or event.value == "<<":
        raise ConfigError(f"{where}:{line}: a key must be plain text")
    if event.value in here.value:
        raise ConfigError(f"{where}:{line}: repeated key {event.value!r}")
    here.key = event.value
    lines[(*here.at, here.key)] = line


def _read_events(events: Iterable[yaml.Event], where: str) -> tuple[list[Any], Lines]:
    """The documents of a stream, at most one, and where everything stands in it; no recursion, whatever the depth."""
    lines: Lines = {}
    documents: list[Any] = []
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


def _collection(event: yaml.Event, at: tuple[str | int, ...], stack: list[_Open]) -> Any:
    """Open a mapping or sequence; what follows fills it."""
    value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
    stack.append(_Open(at, value))
    return value


def _documents(text: str, where: str) -> tuple[list[Any], Lines]:
    if _FAST is not None and not _READ_OTHERWISE.search(text):
        with suppress(yaml.YAMLError):
            return _read_events(yaml.parse(text, Loader=_FAST), where)
    return _read_events(yaml.parse(text, Loader=yaml.SafeLoader), where)


def parse_yaml(data: bytes, where: str) -> tuple[Any, Lines]:
    """Parse strict YAML: no anchors, tags or repeated keys, only true/false and decimal numbers.

    Returns:
        The plain value, and the line (from 1) of each location (a tuple of keys and indexes).

    Raises:
        ConfigError: `where:line: what`.
    """
    if len(data) > MAX_TEXT_BYTES:
        raise ConfigError(f"{where}: {len(data)} bytes -> at most {MAX_TEXT_BYTES}")
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
