"""Median, trimmed mean and Krum over real model files: exact values, the same bits, and nobody's NaN hidden."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedops.app.delta_norms import DeltaDistances, square_table, squares_of
from fedops.app.engine import Aggregated
from fedops.core.chunks import Chunk, Piece
from fedops.core.errors import StoreError
from fedops.core.norms import BLOCK
from fedops.core.settings import Integers
from fedops.core.strategies import Strategy
from tests.app.test_engine_numbers import Round, long_values, rounded_fraction, stored_values, values_of
from tests.core.test_robust_strategies import exact_median, exact_trimmed
from tests.core.test_strategies import made
from tests.model_world import World, file_bytes, world

F32 = np.float32
RULES: dict[str, dict[str, Any]] = {"median": {}, "trimmed_mean": {"beta": "0.2"}, "krum": {"f": 1}}
MAX = sys.float_info.max
# The test runner has threads of its own; what is forked here does not touch them.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    yield from world(tmp_path)


def rule(name: str) -> Strategy:
    return made(name, **RULES[name])


def deltas_of(game: Round, name: str) -> dict[str, list[Fraction]]:
    """Each site's change of a tensor against the version it was trained on, exact."""
    found = {}
    for site, update in game.updates.items():
        found[site] = values_of(game.tensors[name], update[name])
        if game.payload[site] == "full":
            base = values_of(game.tensors[name], game.bases[game.base_of[site]][name])
            found[site] = [u - b for u, b in zip(found[site], base, strict=True)]
    return found


def distances(game: Round) -> dict[tuple[str, str], np.longdouble]:
    """Squared distances between the sites' changes, in 80-bit floats."""
    moved: dict[str, list[Any]] = {site: [] for site in game.updates}
    for name, dtype in game.tensors.items():
        for site, update in game.updates.items():
            values = long_values(dtype, update[name])
            if game.payload[site] == "full":
                values = values - long_values(dtype, game.bases[game.base_of[site]][name])
            moved[site].append(values)
    flat = {site: np.concatenate(parts) for site, parts in moved.items()}
    return {(a, b): ((flat[a] - flat[b]) ** 2).sum() for a in flat for b in flat if a != b}


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_new_values_are_the_exact_ones_rounded_once(files: World, name: str, seed: int) -> None:
    """Of four dtypes, of sites on three versions, of which two are old, with a change in place of a model among them."""
    game = Round(seed)
    made_, path = game.run(files, strategy=rule(name))
    assert isinstance(made_, Aggregated)
    got = stored_values(path, game.tensors)
    for tensor, dtype in game.tensors.items():
        moved = deltas_of(game, tensor)
        if name == "krum":
            new = moved[min(made_.scores, key=lambda s: (made_.scores[s], s))]
        else:
            column = list(zip(*moved.values(), strict=True))
            new = [exact_median(c) if name == "median" else exact_trimmed(c, Fraction(1, 5)) for c in column]
        current = values_of(dtype, game.bases[game.current][tensor])
        exact = [c + d for c, d in zip(current, new, strict=True)]
        if dtype == "F64":  # here float64's own rounding of each step shows
            assert max(abs(g - e) for g, e in zip(got[tensor], exact, strict=True)) < 1e-14
        else:
            assert got[tensor] == [rounded_fraction(e, dtype) for e in exact], tensor


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_the_paper(files: World, seed: int) -> None:
    game = Round(seed, count=BLOCK + 77)
    made_, _ = game.run(files, strategy=rule("krum"))
    assert isinstance(made_, Aggregated)
    apart = distances(game)
    near = {a: sorted(d for (x, _), d in apart.items() if x == a)[: 5 - 1 - 2] for a in game.updates}
    assert dict(made_.scores) == pytest.approx({a: float(sum(d)) for a, d in near.items()}, rel=1e-13)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("hashed", [False, True])
def test_bytes_depend_neither_on_order_nor_chunks_nor_processes_nor_weights(
    files: World, name: str, hashed: bool
) -> None:
    game = Round(11, count=BLOCK + 300)
    results = set()
    for order, two, chunk, scale in [
        (None, True, None, 1.0),
        (sorted(game.updates, reverse=True), False, None, 1.0),
        (["clinic-d", "lab-e", "hospital-b", "clinic-c", "hospital-a"], True, 1000, 3.0),
        (None, True, BLOCK // 2, 1e9),
        (None, False, 7777, 1.0),
        (None, True, 10**6, 1.0),
    ]:
        game.weight["lab-e"] *= scale
        made_, path = game.run(files, order, hashed=hashed, two_processes=two, chunk=chunk, strategy=rule(name))
        assert isinstance(made_, Aggregated)
        assert made_.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        results.add((made_.sha256, tuple(sorted(made_.scores.items()))))
    assert len(results) == 1
    assert bool(results.pop()[1]) == (name == "krum")


def test_norms_are_measured_beside_scores_if_they_are_wanted(files: World) -> None:
    game = Round(5)
    for name in RULES:
        made_, _ = game.run(files, strategy=rule(name), want_norms=True)
        assert isinstance(made_, Aggregated)
        assert dict(made_.norms) == pytest.approx(game.norms(), rel=1e-13)
        plain, _ = game.run(files, strategy=rule(name))
        assert isinstance(plain, Aggregated)
        assert (plain.norms, plain.scores, plain.sha256) == ({}, made_.scores, made_.sha256)


@pytest.mark.parametrize("name", RULES)
def test_integer_tensors_follow_the_policys_rules_over_all_updates(files: World, name: str) -> None:
    def data(i: int, step: int) -> bytes:
        mask = np.array([i == 2, False])
        return file_bytes({"w": np.array([float(i)]), "max": np.array([step]), "sum": np.array([step]), "mask": mask})

    inputs = [files.input(f"s{i}", data(i, 10 + i), weight=i + 1.0) for i in range(5)]
    integers = Integers(default="max", tensors={"sum": "sum_of_deltas"})
    got = files.made(0, {0: files.base(data(0, 10))}, inputs, strategy=rule(name), integers=integers)
    assert (got["max"].tolist(), got["sum"].tolist(), got["mask"].tolist()) == (
        [14],
        [10 + 0 + 1 + 2 + 3 + 4],
        [True, False],
    )


def test_integer_tensors_take_no_part_in_distances(files: World) -> None:
    def inputs(steps: Sequence[int]) -> list[Any]:
        rows = ([1.0, 1.0], [2.0, 1.0], [2.0, 3.0], [5.0, 5.0], [-90.0, 40.0])
        return [
            files.input(f"s{i}", file_bytes({"w": np.array(row, F32), "n": np.array(step)}))
            for i, (row, step) in enumerate(zip(rows, steps, strict=True))
        ]

    bases = {0: files.base(file_bytes({"w": np.zeros(2, F32), "n": np.array(0)}))}
    scores = []
    for steps in ([1, 2, 3, 4, 5], [10**9, 0, -(10**9), 7, 8]):
        made_, _ = files.aggregate(0, bases, inputs(steps), strategy=rule("krum"))
        assert isinstance(made_, Aggregated)
        scores.append(made_.scores)
    assert scores[0] == scores[1] == {"s0": 6.0, "s1": 5.0, "s2": 9.0, "s3": 38.0, "s4": 19635.0}


# ---------------------------------------------------------------- what is wrong with values


def row(x: float, n: int = 3) -> bytes:
    return file_bytes({"w": np.full(n, x, F32), "z": np.array([x], np.float64)})


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("two", [False, True])
def test_a_value_that_is_not_finite_is_named_although_the_rule_would_leave_it_out(
    files: World, name: str, bad: float, two: bool
) -> None:
    broken = {"w": np.array([1, bad, 1], F32), "z": np.array([1.0])}
    inputs = [files.input(f"s{i}", row(i)) for i in range(4)] + [files.input("bad", file_bytes(broken))]
    found = files.findings(0, {0: files.base(row(0))}, inputs, strategy=rule(name), two_processes=two)
    assert [(f.slug, f.where, f.detail) for f in found] == [
        ("non_finite", "sites/bad", {"site": "bad", "tensor": "w", "index": 1})
    ]


@pytest.mark.parametrize("name", ["median", "trimmed_mean"])
def test_a_change_without_a_value_is_the_sites_although_both_models_have_one(files: World, name: str) -> None:
    inputs = [files.input(f"s{i}", file_bytes({"a": np.zeros(2), "w": np.array([1.0])})) for i in range(4)]
    inputs.append(files.input("far", file_bytes({"a": np.zeros(2), "w": np.array([MAX])}), base=3))
    bases = {0: files.base(file_bytes({"a": np.zeros(2), "w": np.zeros(1)}))}
    bases[3] = files.base(file_bytes({"a": np.zeros(2), "w": np.array([-MAX])}), 3)
    found = files.findings(0, bases, inputs, strategy=rule(name))
    assert [(f.slug, f.where, f.detail) for f in found] == [
        ("non_finite_result", "sites/far", {"site": "far", "tensor": "w"})
    ]


def test_absurd_updates_do_not_keep_krum_from_choosing(files: World) -> None:
    """Their distances, and even their changes, have no float64 value."""
    bases = {0: files.base(file_bytes({"w": np.zeros(1)})), 3: files.base(file_bytes({"w": np.array([-MAX])}), 3)}
    values = [1.0, 1.25, 3.0, 1.5, 2.5]  # three nearest of 1.5: 0.0625 + 0.25 + 1
    inputs = [files.input(f"s{i}", file_bytes({"w": np.array([x])})) for i, x in enumerate(values)]
    inputs += [files.input(f"t{i}", file_bytes({"w": np.array([MAX])}), base=3) for i in (0, 1)]
    made_, path = files.aggregate(0, bases, inputs, strategy=made("krum", f=2))
    assert isinstance(made_, Aggregated)
    assert stored_values(path, {"w": "F64"})["w"] == [Fraction(1.5)]
    assert {site: score for site, score in made_.scores.items() if score == MAX} == {"t0": MAX, "t1": MAX}
    limited = files.findings(0, bases, inputs, strategy=made("krum", f=2), want_norms=True)
    assert [(f.slug, f.where) for f in limited] == [
        ("non_finite_result", "sites/t0"),
        ("non_finite_result", "sites/t1"),
    ]


def test_nothing_is_chosen_of_updates_of_which_all_are_absurd(files: World) -> None:
    inputs = [files.input(f"s{i}", file_bytes({"w": np.array([i * 1e200])})) for i in range(5)]
    (found,) = files.findings(0, {0: files.base(file_bytes({"w": np.zeros(1)}))}, inputs, strategy=rule("krum"))
    assert (found.slug, found.where) == ("non_finite_result", "policies/aggregation.yaml")


@pytest.mark.parametrize(
    ("strategy", "n", "slug"),
    [(made("krum", f=1), 4, "krum_too_few"), (made("trimmed_mean", beta="0.5"), 2, "trim_too_large")],
)
def test_too_few_are_refused_before_anything_is_read(files: World, strategy: Strategy, n: int, slug: str) -> None:
    inputs = [files.input(f"s{i}", row(i)) for i in range(n)]
    bases = {0: files.base(row(0))}
    for path in files.folder.glob("*.model"):
        os.truncate(path, 10)
    (found,) = files.findings(0, bases, inputs, strategy=strategy)
    assert found.slug == slug


@pytest.mark.parametrize("digest", [None, "right"])
def test_what_changes_between_the_two_passes_is_an_error_although_its_digest_is_right(
    files: World, digest: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Krum ranks by what it read first."""
    stated = hashlib.sha256(row(1)).hexdigest() if digest else None
    inputs = [files.input(f"s{i}", row(1), sha256=stated) for i in range(5)]
    bases = {0: files.base(row(0))}
    strategy: Any = rule("krum")
    plain = strategy.prepare

    def prepare(*given: Any) -> Any:
        os.utime(next(p for p in files.folder.iterdir() if p.read_bytes() == row(1)), (1, 1))
        return plain(*given)

    monkeypatch.setattr(strategy, "prepare", prepare)
    with pytest.raises(StoreError, match="changed"):
        files.aggregate(0, bases, inputs, strategy=strategy)
    assert not list(files.folder.glob("out-*"))


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("two", [False, True])
def test_thirty_sites_take_some_chunks_of_memory_whatever_the_model(files: World, name: str, two: bool) -> None:
    data = [file_bytes({"w": np.full(5 * BLOCK, i, F32)}) for i in range(3)]
    inputs = [files.input(f"s{i:02}", data[i % 3], sha256=hashlib.sha256(data[i % 3]).hexdigest()) for i in range(30)]
    bases = {0: files.base(data[0])}
    tracemalloc.start()
    try:
        made_, _ = files.aggregate(0, bases, inputs, strategy=rule(name), two_processes=two)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(made_, Aggregated)
    assert peak < 50e6


def test_distances_of_a_large_model_are_kept_in_a_few_numbers() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    found, scratch, chunk = DeltaDistances(3), np.empty(1), Chunk(0, 0, "F64", None, (Piece("w", 0, 1),))
    rows = rng.standard_normal((3, 5000))
    for i in range(rows.shape[1]):
        found.add(chunk, np.ascontiguousarray(rows[:, i : i + 1]), scratch)
    assert max(map(len, found.blocks)) < 1000
    exact = [
        float(sum(((Fraction(float(d)) ** 2) for d in rows[a] - rows[b]), Fraction(0)))
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    got = squares_of([found.blocks])
    assert got == pytest.approx(exact, rel=1e-13)
    parts = [[[x] for x in got], [[0.0]] * 3]
    assert squares_of(parts) == got
    assert square_table(3, got) == ((0.0, got[0], got[1]), (got[0], 0.0, got[2]), (got[1], got[2], 0.0))


@pytest.mark.parametrize("counts", [(1, 5, 2048, 2049), (BLOCK, 3), (700,) * 9])
def test_tensors_of_any_size_are_measured_block_by_block(counts: tuple[int, ...]) -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    rows = rng.standard_normal((4, sum(counts)))
    pieces = tuple(Piece(f"t{i}", 0, count) for i, count in enumerate(counts))
    found = DeltaDistances(4)
    found.add(Chunk(0, 0, "F64", None, pieces), rows.copy(), np.empty(rows.shape[1]))
    got = square_table(4, squares_of([found.blocks]))
    wide = rows.astype(np.longdouble)
    for a in range(4):
        for b in range(4):
            assert got[a][b] == pytest.approx(float(((wide[a] - wide[b]) ** 2).sum()), rel=1e-13)
