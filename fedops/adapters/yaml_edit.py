"""Edits of YAML files that people wrote: one value changes, and comments, order, quotes and line ends stay (ruamel.yaml)."""

from __future__ import annotations

import difflib
import io
import itertools
import re
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from fedops.core.documents import Json
from fedops.core.errors import ConfigError
from fedops.core.yaml_text import is_bare

_ITEM = re.compile(r"^( *)- ", re.MULTILINE)
_START = re.compile(rb"(?:\s*#[^\n]*\n|\s*\n)*---\s")


class RoundTripEditor:
    """Changes single values of a YAML text. The text must have passed `load_document`."""

    def put(self, data: bytes, path: Sequence[str], value: Json) -> bytes:
        """Set the value at a path of map keys; maps on the way that are missing are made.

        Raises:
            ConfigError: something on the way is not a map.
        """

        def change(root: CommentedMap) -> None:
            parent = _map_at(root, path[:-1])
            parent[_styled_text(path[-1])] = _styled(value)

        return _edit(data, change)

    def append(self, data: bytes, path: Sequence[str], value: Json) -> bytes:
        """Add a value to the list at a path, which is made if it is missing.

        Raises:
            ConfigError: what is there is not a list.
        """

        def change(root: CommentedMap) -> None:
            parent = _map_at(root, path[:-1])
            items = parent.setdefault(_styled_text(path[-1]), CommentedSeq())
            if not isinstance(items, CommentedSeq):
                raise ConfigError(f"{'.'.join(path)}: got {type(items).__name__} -> a list")
            if not items:
                items.fa.set_block_style()
            items.append(_styled(value, inner=True))

        return _edit(data, change)


def _edit(data: bytes, change: Any) -> bytes:
    text = data.decode("utf-8").replace("\r\n", "\n")
    round_trip = _round_trip(text)
    round_trip.explicit_start = _START.match(data) is not None
    try:
        root = round_trip.load(text)
    except YAMLError as e:
        raise ConfigError(f"not YAML: {str(e).splitlines()[0]}") from e
    if not isinstance(root, CommentedMap):
        raise ConfigError(f"got {type(root).__name__} -> a map")
    change(root)
    out = io.StringIO()
    round_trip.dump(root, out)
    result = _respaced(text, out.getvalue())
    return (result.replace("\n", "\r\n") if b"\r\n" in data else result).encode("utf-8")


def _respaced(before: str, after: str) -> str:
    """`after`, with lines that differ from `before` only in inner spaces written as they were."""
    old, new = before.split("\n"), after.split("\n")
    pairs = difflib.SequenceMatcher(None, [_squeezed(s) for s in old], [_squeezed(s) for s in new], autojunk=False)
    for start, place, size in pairs.get_matching_blocks():
        new[place : place + size] = old[start : start + size]
    return "\n".join(new)


def _squeezed(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    return line[:indent] + " ".join(line.split())


class _Representer(RoundTripRepresenter):
    """Writes null as `null`; ruamel's own would turn it into nothing."""

    def represent_none(self, data: None) -> Any:  # noqa: ARG002 ruamel hands the value over
        return self.represent_scalar("tag:yaml.org,2002:null", "null")


_Representer.add_representer(type(None), _Representer.represent_none)


def _round_trip(text: str) -> YAML:
    round_trip = YAML(typ="rt")
    round_trip.Representer = _Representer
    round_trip.preserve_quotes = True
    round_trip.width = 1 << 20  # never folds a line that somebody wrote
    indented = _indented_lists(text)
    round_trip.indent(mapping=2, sequence=4 if indented else 2, offset=2 if indented else 0)
    return round_trip


def _indented_lists(text: str) -> bool:
    """True if the first list that stands below a key is indented deeper than that key."""
    lines = text.split("\n")
    for above, line in itertools.pairwise(lines):
        item = _ITEM.match(line)
        key = above.split(" #")[0].rstrip()
        if item and key.endswith(":"):
            return len(item[1]) > len(key) - len(key.lstrip())
    return False


def _map_at(root: CommentedMap, path: Sequence[str]) -> CommentedMap:
    here = root
    for key in path:
        if here.get(key) is None:
            here[_styled_text(key)] = CommentedMap()
        inner = here[key]
        if not isinstance(inner, CommentedMap):
            raise ConfigError(f"{'.'.join(path)}: got {type(inner).__name__} -> a map")
        here = inner
    if not here:
        here.fa.set_block_style()  # `sites: {}` becomes one line per site
    return here


def _styled(value: Json, *, inner: bool = False) -> Any:
    """A plain value in the house's form: maps and lists one item per line, maps inside lists on one line."""
    if isinstance(value, dict):
        out = CommentedMap({_styled_text(k): _styled(v, inner=True) for k, v in value.items()})
        if inner:
            out.fa.set_flow_style()
        return out
    if isinstance(value, list):
        items = CommentedSeq([_styled(v, inner=True) for v in value])
        if not items:
            items.fa.set_flow_style()
        return items
    return _styled_text(value) if isinstance(value, str) else value


def _styled_text(text: str) -> str:
    return text if is_bare(text) else DoubleQuotedScalarString(text)
