"""The page of documents says something of every field, and nothing that the models do not say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fedops.core.documents import Document
from tests.documents_page import DOCUMENTS, Page, Row, documents_page
from tests.generate import SCHEMAS

PAGE = documents_page()["docs/reference/documents.md"].decode()


def rows(title: str) -> dict[str, Row]:
    """The rows of one document alone, as if no other had been shown before it."""
    [model] = [model for name, model, _, _ in DOCUMENTS if name == title]
    return {row.path: row for row in Page().rows(title, model)}


def named(model: type[Document]) -> Iterator[str]:
    """Names of all fields of a model and of the models in it, by the schema alone."""
    whole = model.model_json_schema()
    parts: list[Mapping[str, Any]] = [whole, *whole.get("$defs", {}).values()]
    for part in parts:
        yield from part.get("properties", {})


@pytest.mark.parametrize(("title", "model"), [row[:2] for row in DOCUMENTS], ids=[row[0] for row in DOCUMENTS])
def test_every_field_has_a_row_with_a_meaning(title: str, model: type[Document]) -> None:
    found = rows(title)
    last = {path.rpartition(".")[2] for path in found}
    assert last - {"…"} == set(named(model))
    assert [path for path, row in found.items() if not row.meaning or not row.type] == []


def test_the_documents_are_those_that_have_a_schema_and_the_starter() -> None:
    assert {schema: model for _, model, schema, _ in DOCUMENTS if schema} == SCHEMAS
    assert [title for title, _, schema, _ in DOCUMENTS if schema is None] == ["hospital-a.yaml, a site's starter"]


def test_types_and_defaults_are_the_models() -> None:
    policy, record, sites = (
        rows(t) for t in ("policies/aggregation.yaml", "sites/<id>/submission.json", "policies/sites.yaml")
    )
    told = {path: (policy[path].type, policy[path].default) for path in ("trigger.quorum", "weights.max_share", "stop")}
    assert told == {
        "trigger.quorum": ("integer ≥ 1", "`3`"),
        "weights.max_share": ("number > 0, ≤ 1 or null", "`null`"),
        "stop": ("fields below", "as below"),
    }
    assert (record["sha256"].type, record["sha256"].default) == ("64 hex digits", "required")
    assert (record["software"].type, record["software"].default) == ("map of name to text or null", "absent")
    assert (sites["sites"].type, sites["sites"].default) == ("map of name to fields below", "empty")
    assert sites["sites.<name>.accounts[].id"].type == "integer ≥ 0"


def test_what_was_shown_before_is_linked_and_not_repeated() -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith("| `rule.staleness` |"))
    assert "as in [policies/aggregation.yaml](#policiesaggregationyaml)" in line
    assert "`rule.staleness.kind`" not in PAGE
    anchors = {re.sub(r"[^a-z0-9 _-]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.*)$", PAGE, re.M)}
    assert set(re.findall(r"\(#([^)]*)\)", PAGE)) <= anchors


def test_every_row_has_four_cells() -> None:
    table = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert len(table) > 100
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {5}
