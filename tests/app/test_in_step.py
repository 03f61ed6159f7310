"""Aggregation of models that come over the network: the same bytes as from files, a few chunks in memory, once read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedops.adapters.model_files import ModelFiles
from fedops.adapters.model_stream import ModelStream
from fedops.app import write_pass
from fedops.app.engine import Aggregated, Base, Input
from fedops.core.errors import StoreError
from fedops.core.norms import BLOCK
from fedops.core.settings import IntegerRule, Integers
from tests.adapters.test_model_stream import Line
from tests.model_world import Arrays, World, file_bytes, roomy, world

COUNT = 5 * BLOCK + 77  # chunks of one block


def model(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "steps": np.array([seed, 3], np.int64),
        "half": rng.normal(size=40).astype(np.float16),
        "on": np.array([seed % 2 == 0, True]),
        "w": rng.normal(size=COUNT).astype(np.float32),
    }


SITES = {f"site-{i:02d}": (file_bytes(model(i)), (1, 4)[i % 2]) for i in range(7)}
GLOBALS = {v: file_bytes(model(100 + v)) for v in (1, 4)}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    yield from world(tmp_path)


def stream(line: Line, where: str) -> ModelStream:
    opened, found = ModelFiles().stream(line, len(line.data), roomy(), where)
    assert opened is not None, found
    return opened


def as_streams(files: World, lines: dict[str, Line]) -> tuple[dict[int, Base], list[Input]]:
    """The same models, coming."""
    bases = {v: Base(stream(lines[f"v{v}"], f"v{v}"), f"v{v}", None) for v in GLOBALS}
    inputs = []
    for site, (data, base) in SITES.items():
        plain = files.input(site, data, base=base, weight=float(base + len(site)))
        inputs.append(Input(plain.weighted, stream(lines[site], site), plain.where, None))
    return bases, inputs


def lines_of(piece: int = 50_000) -> dict[str, Line]:
    given = {site: data for site, (data, _) in SITES.items()} | {f"v{v}": data for v, data in GLOBALS.items()}
    return {name: Line(data, piece=piece) for name, data in given.items()}


@pytest.mark.parametrize("rule", ["rounded_mean", "keep", "sum_of_deltas"])
@pytest.mark.parametrize("want_norms", [True, False])
def test_the_result_is_that_of_files(files: World, rule: IntegerRule, want_norms: bool) -> None:
    integers = Integers(default=rule, tensors={"on": "max"})  # a sum of deltas of a bool does not fit
    how: dict[str, Any] = {"integers": integers, "want_norms": want_norms}
    bases = {v: files.base(data, v) for v, data in GLOBALS.items()}
    inputs = [files.input(s, data, base=b, weight=float(b + len(s))) for s, (data, b) in SITES.items()]
    expected, _ = files.aggregate(4, bases, inputs, two_processes=False, **how)
    assert isinstance(expected, Aggregated)

    lines = lines_of()
    before = threading.active_count()
    made, _ = files.aggregate(4, *as_streams(files, lines), **how)
    assert made == expected
    assert len(expected.norms) == (len(SITES) if want_norms else 0)
    assert all(line.asked == len(line.data) for line in lines.values())
    assert threading.active_count() == before


def test_no_model_is_more_than_a_few_chunks_ahead(files: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_pass, "_AHEAD_BYTES", 0)  # the least: two chunks
    lines = lines_of()
    bases, inputs = as_streams(files, lines)
    most = 0

    class Noting(Line):
        def readinto(self, buffer: memoryview, /) -> int:
            nonlocal most
            asked = [line.asked for line in lines.values()]
            most = max(most, max(asked) - min(asked))
            return super().readinto(buffer)

    for line in lines.values():
        line.__class__ = Noting
    made, _ = files.aggregate(4, bases, inputs)
    assert isinstance(made, Aggregated)
    chunk = 4 * BLOCK
    assert chunk <= most <= 3 * chunk  # and the files have more than five


@pytest.mark.parametrize("bad", ["site-03", "v1"])
def test_wrong_bytes_leave_nothing_behind(files: World, bad: str) -> None:
    lines = lines_of()
    lines[bad].error = StoreError(f"{bad}: wrong", slug="hash_mismatch")
    bases, inputs = as_streams(files, lines)
    with pytest.raises(StoreError, match=bad):
        files.aggregate(4, bases, inputs)
    assert not list(files.folder.glob("out-*"))
    assert not list(files.folder.glob("*.part-*"))


def test_a_value_that_is_not_finite_makes_no_model_and_names_nobody(files: World) -> None:
    lines = lines_of()
    broken = dict(model(3))
    broken["w"] = broken["w"].copy()
    broken["w"][COUNT - 1] = np.nan
    lines["site-03"] = Line(file_bytes(broken), piece=50_000)
    bases, inputs = as_streams(files, lines)
    found = files.findings(4, bases, inputs)
    assert [(f.slug, f.where) for f in found] == [("non_finite_result", "v4")]


def test_a_rule_that_reads_twice_is_not_given_what_is_read_once(files: World) -> None:
    bases, inputs = as_streams(files, lines_of())
    with pytest.raises(AssertionError, match="read once"):
        files.aggregate(4, bases, inputs, clip_norm=1.0)
