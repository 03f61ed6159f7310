"""What the engine says no to, and that a "no" or an error leaves nothing behind."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedops.adapters.model_files import ModelFiles
from fedops.app.engine import Aggregated, Base, Input, Rule, aggregate
from fedops.core.errors import StoreError
from fedops.core.facts import F64, Scan, Weighted
from fedops.core.findings import Finding, finding
from fedops.core.norms import BLOCK
from fedops.core.settings import Integers, StrategySettings
from fedops.core.strategies import Combine, Strategy, make_strategy
from tests.model_world import World, file_bytes, world

F32 = np.float32
# The test runner has threads of its own; what is forked here does not touch them.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    yield from world(tmp_path)


def facts(found: Sequence[Finding]) -> list[tuple[str, str, Any]]:
    return [(f.slug, f.where, f.detail) for f in found]


# ---------------------------------------------------------------- what is not finite


def arrays(x: float, n: int = 0) -> dict[str, Any]:
    return {"w": np.full(3, x, F32), "b": np.full((2, 2), float(x)), "n": np.array(n)}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("how", [{}, {"want_norms": True}, {"clip_norm": 1.0}])
def test_each_site_with_a_value_that_is_not_finite_is_named_with_all_its_tensors(
    files: World, bad: float, how: dict[str, Any]
) -> None:
    twice, once = arrays(1), arrays(2)
    twice["w"][1] = twice["b"][1, 0] = once["b"][0, 1] = bad
    inputs = [
        files.input("c", file_bytes(twice)),
        files.input("a", file_bytes(once)),
        files.input("b", file_bytes(arrays(3))),
    ]
    found = files.findings(0, {0: files.base(file_bytes(arrays(0)))}, inputs, **how)
    assert facts(found) == [
        ("non_finite", "sites/a", {"site": "a", "tensor": "b", "index": 1}),
        ("non_finite", "sites/c", {"site": "c", "tensor": "b", "index": 2}),
        ("non_finite", "sites/c", {"site": "c", "tensor": "w", "index": 1}),
    ]
    assert {f.got for f in found} == {str(bad)}


def test_two_infinities_that_cancel_are_found(files: World) -> None:
    inputs = [files.input("a", file_bytes(arrays(np.inf))), files.input("b", file_bytes(arrays(-np.inf)))]
    found = files.findings(0, {0: files.base(file_bytes(arrays(0)))}, inputs)
    assert {f.slug for f in found} == {"non_finite"}


def test_base_that_is_not_finite_is_named_by_its_version(files: World) -> None:
    bases = {0: files.base(file_bytes(arrays(0))), 3: files.base(file_bytes(arrays(np.nan)), 3)}
    found = files.findings(0, bases, [files.input("a", file_bytes(arrays(1)), base=3)])
    assert facts(found)[0] == ("non_finite", "v3", {"version": 3, "tensor": "b", "index": 0})


def test_signalling_nan_of_bfloat16_is_found(files: World) -> None:
    base = file_bytes({"w": np.zeros(2, np.uint16)}, bf16=["w"])
    update = file_bytes({"w": np.array([0, 0x7F81], np.uint16)}, bf16=["w"])
    (found,) = files.findings(0, {0: files.base(base)}, [files.input("a", update)])
    assert found.detail == {"site": "a", "tensor": "w", "index": 1}


@pytest.mark.parametrize(("kind", "top"), [(np.float16, 65504.0), (np.float32, 3e38), (np.float64, 1.7e308)])
def test_result_beyond_the_dtype_is_a_finding_and_nothing_is_written(files: World, kind: Any, top: float) -> None:
    def tensors(x: float) -> bytes:
        return file_bytes({"a": np.zeros(2, kind), "w": np.array([0, x], kind)})

    bases = {0: files.base(tensors(top / 2)), 1: files.base(tensors(0), 1)}
    found = files.findings(0, bases, [files.input("a", tensors(top), base=1)])
    assert facts(found) == [("non_finite_result", "v0", {"tensor": "w"})]


def test_bfloat16_result_beyond_its_range_is_found(files: World) -> None:
    def tensors(bits: int) -> bytes:
        return file_bytes({"w": np.array([bits], np.uint16)}, bf16=["w"])

    bases = {0: files.base(tensors(0x7F7F)), 1: files.base(tensors(0), 1)}
    found = files.findings(0, bases, [files.input("a", tensors(0x7F7F), base=1)])
    assert facts(found) == [("non_finite_result", "v0", {"tensor": "w"})]


def test_norm_without_a_float64_value_is_the_sites(files: World) -> None:
    base, update = file_bytes({"w": np.zeros(1)}), file_bytes({"w": np.array([1e200])})
    found = files.findings(0, {0: files.base(base)}, [files.input("a", update)], clip_norm=1.0)
    assert [(f.slug, f.where, f.got) for f in found] == [("non_finite_result", "sites/a", "inf")]


def test_counter_that_leaves_its_dtype_is_found(files: World) -> None:
    bases = {0: files.base(file_bytes(arrays(0, 2**62))), 1: files.base(file_bytes(arrays(0, 0)), 1)}
    inputs = [files.input("a", file_bytes(arrays(0, 2**62)), base=1)]
    found = files.findings(0, bases, inputs, integers=Integers(default="sum_of_deltas"))
    assert facts(found) == [("non_finite_result", "v0", {"tensor": "n"})]


# ---------------------------------------------------------------- digests in passing


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("strategy", ["fedavg", "median", "first"])
def test_right_digests_are_no_obstacle(files: World, two: bool, strategy: str) -> None:
    def big(x: float) -> bytes:
        return file_bytes({"w": np.full(3000, x, F32), "n": np.arange(500), "mask": np.array([True])})

    bases = {v: files.base(big(v), v, sha(big(v))) for v in (0, 1, 2, 5, 8)}
    inputs = [files.input(f"s{i}", big(i), base=i % 3, sha256=sha(big(i))) for i in range(5)]
    rule = Integers(default="keep")
    made, _ = files.aggregate(
        5, bases, inputs, two_processes=two, chunk=700, strategy=STRATEGIES[strategy](), integers=rule
    )
    assert isinstance(made, Aggregated)


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("order", [None, "bwa"])
def test_wrong_digest_of_a_site_or_base_is_named_and_nothing_is_written(files: World, order: Any, two: bool) -> None:
    def data(x: float) -> bytes:
        return file_bytes({n: np.full(500, x, F32) for n in "abw"}, order=order)

    right, wrong = sha(data(1)), "0" * 64
    inputs = [
        files.input("a", data(1), sha256=right),
        files.input("b", data(1), sha256=wrong),
        files.input("c", data(1)),
    ]
    found = files.findings(0, {0: files.base(data(0), 0, wrong)}, inputs, two_processes=two)
    assert facts(found) == [("hash_mismatch", "sites/b", {"site": "b"}), ("hash_mismatch", "v0", {"version": 0})]
    assert (found[0].got, found[0].expected) == (right, wrong)


# ---------------------------------------------------------------- a broken machine


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("digest", [None, "0" * 64])
def test_file_that_becomes_shorter_meanwhile_is_an_error_and_nothing_hangs(
    files: World, two: bool, digest: str | None
) -> None:
    data = file_bytes({"w": np.zeros(100_000, F32)})
    bases, given = {0: files.base(data)}, files.input("a", data, sha256=digest)
    os.truncate(files.folder / "2.model", len(data) - 8)  # the second that was opened
    with pytest.raises(StoreError, match="changed while it was read") as raised:
        files.aggregate(0, bases, [given], chunk=1000, two_processes=two)
    assert (raised.value.slug, raised.value.cause) == ("file_changed", "temporary")
    assert [p.name for p in files.folder.iterdir() if not p.name.endswith(".model")] == []


@pytest.mark.parametrize("digest", [None, "right"])
def test_file_that_was_touched_meanwhile_is_an_error_unless_its_digest_was_checked(files: World, digest: Any) -> None:
    data = file_bytes({"w": np.zeros(10, F32)})
    bases, given = {0: files.base(data)}, files.input("a", data, sha256=sha(data) if digest else None)
    os.utime(files.folder / "2.model", (1, 1))  # the second that was opened
    if digest:
        assert isinstance(files.aggregate(0, bases, [given])[0], Aggregated)
    else:
        with pytest.raises(StoreError, match="changed"):
            files.aggregate(0, bases, [given])


class BrokenSink:
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.chunks = 0

    def append(self, data: memoryview) -> None:
        self.chunks += 1
        if self.chunks == 3:
            raise self.error

    def commit(self) -> tuple[str, str, int]:
        raise AssertionError("committed after an error")


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("error", [StoreError("disk full"), KeyboardInterrupt()])
def test_error_of_the_sink_ends_the_run(files: World, error: BaseException, two: bool) -> None:
    data = file_bytes({"w": np.zeros(10_000, F32)})
    given = files.input("a", data)
    rule = Rule(make_strategy(StrategySettings()), 1.0, Integers())
    with pytest.raises(type(error)):
        aggregate(0, {0: files.base(data)}, [given], rule, BrokenSink(error), chunk=100, two_processes=two)


@pytest.mark.parametrize("broken", ["none", "twice", "base", "payload", "shape", "clip", "state"])
def test_what_earlier_stages_must_have_seen_to_is_a_bug_here(files: World, broken: str) -> None:
    data = file_bytes({"w": np.zeros(3, F32)})
    bases = {0: files.base(data)}
    inputs: dict[str, list[Input]] = {
        "none": [],
        "twice": [files.input("a", data), files.input("a", data)],
        "base": [files.input("a", data, base=7)],
        "payload": [files.input("a", data, payload="topk")],
        "shape": [files.input("a", file_bytes({"w": np.zeros((1, 3), F32)}))],
        "clip": [files.input("a", data)],
        "state": [files.input("a", data)],
    }
    strategy: Any = Median()
    strategy.state = ("m",) if broken == "state" else ()
    clip = 1.0 if broken == "clip" else None
    with pytest.raises(AssertionError):
        files.aggregate(0, bases, inputs[broken], strategy=strategy, denominator=1.0, clip_norm=clip)


# ---------------------------------------------------------------- strategies that want all deltas


class Median:
    """A rule only for these tests: numpy's median of the deltas."""

    name = "median"
    parameters: Mapping[str, Any] = {}
    linear = False
    scan: Literal["none", "norms", "distances"] = "none"
    state: tuple[str, ...] = ()
    least = 1

    def __init__(self) -> None:
        self.seen: list[tuple[float, ...]] = []
        self.prepared: tuple[list[str], float, Scan | None] | None = None

    def refuses(self, n: int) -> Finding | None:
        return None

    def withstands(self, n: int) -> int:
        return 0

    def buffers(self, n: int) -> int:
        return n

    def scores(self, scan: Scan | None) -> tuple[float, ...]:
        return ()

    def prepare(self, weights: Sequence[Weighted], denominator: float, scan: Scan | None) -> Combine | Finding:
        self.prepared = ([w.submission.site for w in weights], denominator, scan)
        if len(weights) < 3:
            return finding("too_few_updates", "strategy", got=len(weights), expected=3)

        def combine(deltas: Iterator[F64], out: F64, state: Mapping[str, F64]) -> None:
            assert not state
            rows = [d.copy() for d in deltas]
            self.seen.append(tuple(float(r[0]) for r in rows))
            out[...] = np.median(rows, axis=0)

        return combine


class First(Median):
    """Takes the first site's delta and does not look at the others."""

    name = "first"

    def prepare(self, weights: Sequence[Weighted], denominator: float, scan: Scan | None) -> Combine | Finding:
        def combine(deltas: Iterator[F64], out: F64, state: Mapping[str, F64]) -> None:
            out[...] = next(deltas)

        return combine


def fedavg() -> Strategy:
    return make_strategy(StrategySettings())


STRATEGIES: dict[str, Any] = {"fedavg": fedavg, "median": Median, "first": First}


@pytest.mark.parametrize("chunk", [None, 1000])
def test_strategy_gets_each_sites_delta_to_its_own_base_in_site_order(files: World, chunk: int | None) -> None:
    rng = np.random.Generator(np.random.PCG64(2))
    rows = {name: rng.standard_normal(5000).astype(F32) for name in ("v3", "v4", "v9", "a", "b", "c", "d")}

    def data(name: str) -> bytes:
        return file_bytes({"w": rows[name], "n": np.array(ord(name[-1]))})

    bases = {v: files.base(data(f"v{v}"), v) for v in (3, 4, 9)}
    inputs = [
        files.input("d", data("d"), base=9),
        files.input("b", data("b"), base=3),
        files.input("c", data("c"), payload="delta", base=4),
        files.input("a", data("a"), base=4),
    ]
    median = Median()
    got = files.made(9, bases, inputs, strategy=median, chunk=chunk, two_processes=False, denominator=7.0)
    wide = {name: row.astype(np.float64) for name, row in rows.items()}
    deltas = [wide["a"] - wide["v4"], wide["b"] - wide["v3"], wide["c"], wide["d"] - wide["v9"]]
    assert np.array_equal(got["w"], (wide["v9"] + np.median(deltas, axis=0)).astype(F32))
    assert got["n"].item() == ord("d")
    assert median.prepared == (["a", "b", "c", "d"], 7.0, None)
    assert tuple(float(d[0]) for d in deltas) in median.seen


def test_strategy_gets_the_norms_it_asks_for(files: World) -> None:
    base = file_bytes({"w": np.zeros(2)})
    inputs = [files.input(s, file_bytes({"w": np.array([3.0, 4.0]) * k})) for s, k in (("a", 1), ("b", 2), ("c", 0))]
    median = Median()
    median.scan = "norms"
    made, path = files.aggregate(0, {0: files.base(base)}, inputs, strategy=median)
    assert median.prepared is not None
    assert median.prepared[2] == Scan((5.0, 10.0, 0.0))
    assert isinstance(made, Aggregated)
    assert made.norms == {"a": 5.0, "b": 10.0, "c": 0.0}
    assert load_file(path)["w"].tolist() == [3.0, 4.0]


def test_strategy_that_refuses_so_few_updates_is_a_finding(files: World) -> None:
    data = file_bytes({"w": np.zeros(2)})
    (found,) = files.findings(0, {0: files.base(data)}, [files.input("a", data)], strategy=Median())
    assert found.slug == "too_few_updates"


def test_strategy_need_not_look_at_all_deltas(files: World) -> None:
    data = [file_bytes({"w": np.array([x, x])}) for x in (0.0, 1.0, 2.0)]
    inputs = [files.input("a", data[1]), files.input("b", data[2])]
    assert files.made(0, {0: files.base(data[0])}, inputs, strategy=First())["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("strategy", ["fedavg", "first"])
def test_base_that_nobody_was_trained_on_is_not_looked_at(files: World, strategy: str) -> None:
    bases = {0: files.base(file_bytes(arrays(0))), 3: files.base(file_bytes(arrays(np.nan)), 3)}
    got = files.made(0, bases, [files.input("a", file_bytes(arrays(2)))], strategy=STRATEGIES[strategy]())
    assert got["w"].tolist() == [2, 2, 2]


# ---------------------------------------------------------------- what a caller gets


def test_what_was_made_is_told(files: World) -> None:
    made, path = files.aggregate(0, {0: files.base(file_bytes(arrays(0)))}, [files.input("a", file_bytes(arrays(1)))])
    assert isinstance(made, Aggregated)
    data = path.read_bytes()
    assert (made.sha256, made.md5, made.size) == (sha(data), hashlib.md5(data).hexdigest(), len(data))
    assert made.specs.keys() == {"w", "b", "n"}
    assert (made.norms, made.clip_factors) == ({}, {})


def test_result_is_the_canonical_file(files: World) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    tensors = {"big": rng.standard_normal(2 * BLOCK + 5).astype(F32), **arrays(1, 3), "flag": np.array([True, False])}
    _, path = files.aggregate(0, {0: files.base(file_bytes(tensors))}, [files.input("a", file_bytes(tensors))])
    model = files.open(path)
    again = files.folder / "again"
    ModelFiles().rewrite(model, again)
    assert path.read_bytes() == again.read_bytes() == file_bytes(tensors)


def test_base_and_input_may_be_the_same_open_file(files: World) -> None:
    model = files.open(file_bytes(arrays(1)))
    given = files.input("a", file_bytes(arrays(5)))
    same = Input(given.weighted, model, "x")
    assert files.made(0, {0: Base(model, "v0")}, [same])["w"].tolist() == [1, 1, 1]
