"""How the pass over all files is divided between two processes, and what it holds."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedops.app import engine, lanes
from fedops.app.engine import Aggregated, Input, Rule, aggregate
from fedops.app.feeds import Feed
from fedops.app.lanes import Beside
from fedops.app.write_pass import Reading
from fedops.core.chunks import plan_chunks
from fedops.core.errors import FedopsError
from fedops.core.facts import F64
from fedops.core.ids import SiteId
from fedops.core.norms import BLOCK
from fedops.core.settings import Integers, StrategySettings
from fedops.core.strategies import make_strategy
from fedops.core.tensors import canonical_layout
from tests.app.test_engine import Median
from tests.model_world import World, file_bytes, world

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only on another system are there no forks"),
    # The test runner has threads of its own; what is forked here does not touch them.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
HERE = os.getpid()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    yield from world(tmp_path)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Beside]:
    """Every second process that is started."""
    found: list[Beside] = []
    before = Beside.__init__

    def init(self: Beside, *arguments: Any) -> None:
        before(self, *arguments)
        found.append(self)

    monkeypatch.setattr(Beside, "__init__", init)
    return found


@pytest.mark.parametrize(("large", "safe", "expected"), [(True, True, 1), (False, True, 0), (True, False, 0)])
def test_second_process_is_used_for_large_models_where_it_is_safe(
    files: World, started: list[Beside], monkeypatch: pytest.MonkeyPatch, large: bool, safe: bool, expected: int
) -> None:
    data = file_bytes({"w": np.zeros(1000, np.float32)})
    monkeypatch.setattr(engine, "_LARGE_BYTES", 2 * 4000 + (0 if large else 1))
    monkeypatch.setattr(engine, "can_fork", lambda: safe)
    files.made(0, {0: files.base(data)}, [files.input("a", data)])
    assert len(started) == expected


def test_norms_alone_cost_no_pass_of_their_own(files: World, started: list[Beside]) -> None:
    data = file_bytes({"w": np.ones(1000)})
    given = [files.input("a", data)]
    bases = {0: files.base(file_bytes({"w": np.zeros(1000)}))}
    made, _ = files.aggregate(0, bases, given, want_norms=True, two_processes=True)
    assert isinstance(made, Aggregated)
    assert made.norms == {"a": 1000**0.5}
    assert len(started) == 1
    files.aggregate(0, bases, given, clip_norm=1.0, two_processes=True)
    assert len(started) == 3


@pytest.mark.parametrize("digests", [False, True])
def test_one_process_does_it_all_where_no_second_one_may_be_started(
    files: World, monkeypatch: pytest.MonkeyPatch, digests: bool
) -> None:
    def refused(*_: Any) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(lanes.Beside, "__init__", refused)
    base, update = file_bytes({"w": np.zeros(3000)}), file_bytes({"w": np.arange(3000.0)})
    given = files.input("a", update, sha256=sha(update) if digests else None)
    got = files.made(0, {0: files.base(base)}, [given], two_processes=True, chunk=700)
    assert got["w"].tolist() == list(range(3000))


@pytest.mark.parametrize("digests", [False, True])
def test_killed_second_process_leaves_nothing_behind(files: World, digests: bool) -> None:
    class Killed(Median):
        def prepare(self, *_: Any) -> Any:
            def combine(deltas: Iterator[F64], out: F64, state: Any) -> None:
                for child in multiprocessing.active_children():
                    assert child.pid is not None
                    os.kill(child.pid, signal.SIGKILL)
                    child.join()
                if os.getpid() != HERE:
                    os.kill(os.getpid(), signal.SIGKILL)
                out[...] = next(deltas)

            return combine

    data = file_bytes({"w": np.zeros(10_000)})
    given = files.input("a", data, sha256=sha(data) if digests else None)
    with pytest.raises(FedopsError, match="was killed") as raised:
        files.aggregate(0, {0: files.base(data)}, [given], strategy=Killed(), chunk=100, two_processes=True)
    assert raised.value.slug == "process_lost"
    assert multiprocessing.active_children() == []
    assert [p.name for p in files.folder.iterdir() if not p.name.endswith(".model")] == []


@pytest.mark.parametrize("number", [1, 30, 300])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_shared_memory_does_not_grow_with_the_number_of_sites(
    files: World, monkeypatch: pytest.MonkeyPatch, number: int, kind: Any
) -> None:
    data = file_bytes({"w": np.zeros(10, kind)})
    one = files.input("a", data, sha256=sha(data))
    inputs = []
    for i in range(number):
        submission = replace(one.weighted.submission, site=SiteId(f"s{i}"))
        inputs.append(Input(replace(one.weighted, submission=submission), one.model, "x", one.sha256))

    class Stop(Exception):  # noqa: N818
        pass

    class Sink:
        def append(self, data: memoryview) -> None:
            raise Stop

        def commit(self) -> tuple[str, str, int]:
            raise AssertionError

    rule = Rule(make_strategy(StrategySettings()), float(number), Integers())
    sizes: list[int] = []
    ring = lanes.Ring.__init__

    def init(self: lanes.Ring, rooms: int, size: int) -> None:
        sizes.append(rooms * size)
        ring(self, rooms, size)

    monkeypatch.setattr(lanes.Ring, "__init__", init)
    with pytest.raises(Stop):
        aggregate(0, {0: files.base(data, 0, sha(data))}, inputs, rule, Sink(), two_processes=True)
    assert sum(sizes) <= 25 << 20
    assert max(sizes) >= 2 * BLOCK * np.dtype(kind).itemsize


def test_second_process_reads_its_files_into_their_places_and_hashes_them(files: World) -> None:
    stored = [file_bytes({"w": np.arange(50.0) * k, "n": np.arange(9)}) for k in (1, 2)]
    models = [files.open(data) for data in stored]
    feeds = [Feed(model, sha(data)) for model, data in zip(models, stored, strict=True)]
    places = [np.zeros(800, np.uint8), np.zeros(800, np.uint8)]
    reading = Reading(feeds, [lambda _, place=place: place for place in places])  # type: ignore[misc]  # of a loop
    read = [b"", b""]
    for chunk in plan_chunks(canonical_layout(models[0].specs), {"n": "max"}, 30):
        reading.work(chunk)
        for i, place in enumerate(places):
            read[i] += place.tobytes()[: chunk.count * 8]
    assert all(data.endswith(got) and len(got) == 8 * 59 for data, got in zip(stored, read, strict=True))
    assert reading.told() == [sha(data) for data in stored]
