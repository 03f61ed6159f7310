"""docs/reference/documents.md: every document of a federation, field by field, from the pydantic models' JSON schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedops.core.documents import Document
from fedops.core.records import Record, VersionRecord
from fedops.core.settings import Aggregation, Federation, Sites, SubmissionPolicy, Training
from fedops.core.starter import Starter

Schema = Mapping[str, Any]
PEOPLE, TOOL = "People edit it, as YAML.", "fedops writes it, as canonical JSON: this order of fields, map keys sorted."
LEAD = "fedops writes it, as YAML; a lead sends it to the site. It is in no repository."
# File, model, name of its schema for editors, who writes it.
DOCUMENTS: Sequence[tuple[str, type[Document], str | None, str]] = (
    ("federation.yaml", Federation, "federation", PEOPLE),
    ("policies/sites.yaml", Sites, "sites", PEOPLE),
    ("policies/submission.yaml", SubmissionPolicy, "submission-policy", PEOPLE),
    ("policies/training.yaml", Training, "training", PEOPLE),
    ("policies/aggregation.yaml", Aggregation, "aggregation", PEOPLE),
    ("sites/<id>/submission.json", Record, "submission", TOOL),
    ("global/version.json", VersionRecord, "version", TOOL),
    ("hospital-a.yaml, a site's starter", Starter, None, LEAD),
)
INTRO = """\
# Documents

Every document of a federation, field by field. Nothing else may stand in one: an unknown key is refused, with file and line.
How the rules work together is in [how to write a policy](../how-to/write-a-policy.md). This page is generated from the models
in `fedops/core/`.

Three files have no fields of their own. `sites/<id>/update.safetensors.dvc` and `global/model.safetensors.dvc` are pointers for
DVC: they follow from the record beside them, byte for byte. `global/metrics.json` is the `metrics` of `global/version.json`.
"""
PATTERNS = {
    r"^[0-9a-f]{64}$": "64 hex digits",
    r"^[0-9a-f]{40}$": "40 hex digits",
    r"^[0-9a-f]{32}$": "32 hex digits",
    r"^sha256:[0-9a-f]{64}$": "`sha256:` and 64 hex digits",
    r"^[a-z0-9-]{1,63}$": "1 to 63 lower-case letters, digits, dashes",
}
WORDS = {"boolean": "true or false", "null": "null", "string": "text", "integer": "integer", "number": "number"}
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
BELOW = "fields below"
SCHEMA_MEANING = "kind of the document, and its version"


@dataclass(frozen=True)
class Row:
    """One field; `path` as people say it: `sites.<name>.accounts[].id`."""

    path: str
    type: str
    default: str
    meaning: str

    @property
    def line(self) -> str:
        return f"| `{self.path}` | " + " | ".join(map(_cell, (self.type, self.default, self.meaning))) + " |"


@dataclass
class Page:
    """Remembers which parts were shown, so that a second document refers to the first."""

    shown: dict[str, str] = field(default_factory=dict)  # part -> title of the document that shows it

    def section(self, title: str, model: type[Document], schema: str | None, written: str) -> str:
        """The whole section of one document."""
        place = f" For editors: [{schema}.schema.json](../../schemas/{schema}.schema.json)." if schema else ""
        out = [f"## {_heading(title)}", "", f"{_sentence(model)} {written}{place}", ""]
        out += ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
        out += [row.line for row in self.rows(title, model)]
        return "\n".join(out) + "\n"

    def rows(self, title: str, model: type[Document]) -> list[Row]:
        whole = model.model_json_schema()
        return list(self._of(title, whole, whole.get("$defs", {}), "", model.absent_if_none))

    def _of(
        self, title: str, part: Schema, parts: Mapping[str, Schema], prefix: str, absent: frozenset[str]
    ) -> Iterator[Row]:
        for name, one in part["properties"].items():
            default = _default(one, name in part.get("required", ()), name in absent)
            meaning = SCHEMA_MEANING if name == "schema" else one.get("description", "")
            suffix, below = _part_of(one)
            elsewhere = self.shown.get(below or "", title)
            link = f"as in [{elsewhere}](#{_slug(elsewhere)})"
            kind = _type(one) if elsewhere == title else _type(one).replace(BELOW, link)
            yield Row(prefix + name, kind, default, meaning)
            if below is not None and elsewhere == title:
                self.shown[below] = title
                yield from self._of(title, parts[below], parts, f"{prefix}{name}{suffix}.", _absent(below))
        if part.get("additionalProperties") is True:
            yield Row(f"{prefix}…", "anything", "", "further keys, by name")


def documents_page() -> dict[str, bytes]:
    """The page, by its path."""
    page = Page()
    sections = [page.section(*row) for row in DOCUMENTS]
    return {"docs/reference/documents.md": "\n".join([INTRO, *sections]).encode()}


def _sentence(model: type[Document]) -> str:
    """What the model's docstring says first, without the file's name."""
    first = (model.__doc__ or "").strip().splitlines()[0]
    said = first.partition(": ")[2] or first
    return said[0].upper() + said[1:]


def _part_of(one: Schema) -> tuple[str, str | None]:
    """How a path goes on below a field, and the name of the part that lies there."""
    if "$ref" in one:
        return "", one["$ref"].rpartition("/")[2]
    for choice in one.get("anyOf", ()):
        if "$ref" in choice:
            return _part_of(choice)
    if "items" in one:
        suffix, below = _part_of(one["items"])
        return "[]" + suffix, below
    inner = one.get("additionalProperties")
    if isinstance(inner, Mapping):
        suffix, below = _part_of(inner)
        return ".<name>" + suffix, below
    return "", None


def _type(one: Schema) -> str:
    """In words, with its bounds."""
    if "$ref" in one:
        return BELOW
    if "anyOf" in one:
        return " or ".join(_type(choice) for choice in one["anyOf"])
    if "const" in one:
        return f"`{one['const']}`"
    if "enum" in one:
        return "one of " + ", ".join(f"`{value}`" for value in one["enum"])
    kind = one.get("type")
    if kind == "array":
        return "list of " + _type(one["items"]) + (", at least one" if one.get("minItems") else "")
    if kind == "object":
        inner = one.get("additionalProperties")
        return "map of name to " + (_type(inner) if isinstance(inner, Mapping) else "anything")
    if kind is None:
        return "anything"
    if "pattern" in one:
        return PATTERNS.get(one["pattern"], f"text like `{one['pattern']}`")
    bounds = ", ".join(f"{sign} {one[key]:g}" for key, sign in LIMITS.items() if key in one)
    return f"{WORDS[kind]} {bounds}".strip()


def _default(one: Schema, required: bool, absent: bool) -> str:
    if required:
        return "required"
    if absent:
        return "absent"
    value = one.get("default", {})  # what has a factory starts empty
    if isinstance(value, Mapping):
        return "as below" if "$ref" in one else "empty"
    return "empty" if value == [] else f"`{json.dumps(value)}`"


def _absent(part: str) -> frozenset[str]:
    """Fields of a part that are left out when they are null."""
    return next(model.absent_if_none for model in _below(Document) if model.__name__ == part)


def _below(model: type[Document]) -> Iterator[type[Document]]:
    for one in model.__subclasses__():
        yield one
        yield from _below(one)


def _heading(title: str) -> str:
    name, comma, rest = title.partition(", ")
    return f"`{name}`{comma}{rest}"


def _slug(title: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
