"""What DVC draws of a version record: one bar for each contribution."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dvc.render.converter.vega as vega
import pytest

from fedops.adapters.dvc_plots import VERSION_SCHEMA, extend_plots, rows_of
from fedops.core.documents import plain
from tests.core import samples

RECORD = samples.version(
    contributions=[samples.contribution(samples.submission(site), share=0.5) for site in ("a", "b")],
    excluded=[samples.excluded_entry(samples.submission("c"))],
)


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> Any:
    """DVC's converter, extended for this test."""
    monkeypatch.setattr(vega, "get_datapoints", vega.get_datapoints)
    extend_plots(vega)
    return vega


def bars(document: Any) -> list[dict[str, Any]]:
    """What DVC puts into the plot that dvc.yaml of a federation asks for."""
    properties = {"x": "share", "y": {"global/version.json": "site"}, "template": "bar_horizontal"}
    rows, _ = vega.VegaConverter("shares", {"global/version.json": document}, properties).flat_datapoints("v8")
    return [{key: row[key] for key in ("site", "share", "rev")} for row in rows]


def test_each_contribution_is_a_bar_and_nothing_else_is(extended: Any) -> None:
    assert bars(plain(RECORD)) == [{"site": "a", "share": 0.5, "rev": "v8"}, {"site": "b", "share": 0.5, "rev": "v8"}]


def test_a_version_without_contributions_has_an_empty_bar(extended: Any) -> None:
    assert bars(plain(samples.version(0, kind="init"))) == [{"site": "none", "share": 0.0, "rev": "v8"}]
    (row,) = rows_of(plain(samples.version(0, kind="init"))) or []
    assert set(row) <= set(plain(RECORD)["contributions"][0])


def test_the_record_is_known_by_its_schema() -> None:
    assert plain(RECORD)["schema"] == VERSION_SCHEMA


def test_a_flat_map_of_numbers_is_one_row() -> None:
    assert rows_of({"loss": 0.5, "n": 3}) == [{"loss": 0.5, "n": 3}]


@pytest.mark.parametrize("other", [[{"a": 1}], {}, {"a": {"b": 1}}, {"a": "x"}, "text", None])
def test_all_else_is_left_to_dvc(other: Any) -> None:
    assert rows_of(other) is None


def test_extending_twice_is_extending_once(extended: Any) -> None:
    once = extended.get_datapoints
    extend_plots(extended)
    assert extended.get_datapoints is once
    assert once([{"a": 1}]) == [{"a": 1}]


def test_a_dvc_that_draws_otherwise_is_left_alone() -> None:
    newer = SimpleNamespace()
    extend_plots(newer)
    assert not vars(newer)
