"""The numbers of the engine against exact rational arithmetic, and what must not change them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedops.app.engine import Aggregated
from fedops.core.facts import Dtype
from fedops.core.norms import BLOCK
from fedops.core.settings import Integers
from tests.core.test_casts import FORMATS, rounded
from tests.model_world import World, file_bytes, world

# The test runner has threads of its own; what is forked here does not touch them.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
RULES = ["max", "keep", "sum_of_deltas", "rounded_mean"]
one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    yield from world(tmp_path)


def values_of(dtype: Dtype, stored: NDArray[Any]) -> list[Fraction]:
    if dtype == "BF16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return [Fraction(float(x)) for x in stored.reshape(-1)]


def long_values(dtype: Dtype, stored: NDArray[Any]) -> NDArray[np.longdouble]:
    if dtype == "BF16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.longdouble)


def random_tensor(rng: np.random.Generator, dtype: Dtype, count: int) -> NDArray[Any]:
    if dtype == "BF16":
        return (rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return rng.standard_normal(count).astype({"F64": "f8", "F32": "f4", "F16": "f2"}[dtype])


class Round:
    """One random aggregation: several dtypes, several base versions, stale and fresh sites, a delta among them."""

    def __init__(self, seed: int, count: int = 60) -> None:
        rng = np.random.Generator(np.random.PCG64(seed))
        self.tensors: dict[str, Dtype] = {"double": "F64", "single": "F32", "half": "F16", "brain": "BF16"}
        self.versions = (3, 5, 6)
        self.current = 6
        self.bases = {v: {n: random_tensor(rng, d, count) for n, d in self.tensors.items()} for v in self.versions}
        self.updates = {}
        self.base_of, self.weight, self.payload = {}, {}, {}
        for i, site in enumerate(("hospital-a", "hospital-b", "clinic-c", "clinic-d", "lab-e")):
            self.updates[site] = {n: random_tensor(rng, d, count) for n, d in self.tensors.items()}
            self.base_of[site] = self.versions[i % 3]
            self.weight[site] = float(rng.integers(1, 5000)) / (1 + self.current - self.base_of[site])
            self.payload[site] = "delta" if site == "clinic-d" else "full"

    def exact(self, name: str, denominator: float) -> list[Fraction]:
        """new = current + sum w (update - base) / D, in exact arithmetic."""
        dtype = self.tensors[name]
        out = values_of(dtype, self.bases[self.current][name])
        for site, update in self.updates.items():
            moved = values_of(dtype, update[name])
            if self.payload[site] == "full":
                base = values_of(dtype, self.bases[self.base_of[site]][name])
                moved = [u - b for u, b in zip(moved, base, strict=True)]
            share = Fraction(self.weight[site]) / Fraction(denominator)
            out = [o + share * m for o, m in zip(out, moved, strict=True)]
        return out

    def norms(self) -> dict[str, float]:
        """L2 norm of each site's delta, in 80-bit floats."""
        found = {}
        for site, update in self.updates.items():
            total = np.longdouble(0)
            for name, dtype in self.tensors.items():
                moved = long_values(dtype, update[name])
                if self.payload[site] == "full":
                    moved = moved - long_values(dtype, self.bases[self.base_of[site]][name])
                total += (moved**2).sum()
            found[site] = float(np.sqrt(total))
        return found

    def run(
        self,
        files: World,
        order: Sequence[str] | None = None,
        scale: float = 1.0,
        hashed: bool = False,
        **how: Any,
    ) -> tuple[Any, Path]:
        def stated(data: bytes) -> str | None:
            return hashlib.sha256(data).hexdigest() if hashed else None

        stored = {v: file_bytes(t, bf16=["brain"]) for v, t in self.bases.items()}
        bases = {v: files.base(data, v, stated(data)) for v, data in stored.items()}
        inputs = [
            files.input(
                site,
                file_bytes(self.updates[site], bf16=["brain"]),
                base=self.base_of[site],
                weight=self.weight[site] * scale,
                payload=self.payload[site],
                sha256=stated(file_bytes(self.updates[site], bf16=["brain"])),
            )
            for site in order or sorted(self.updates)
        ]
        return files.aggregate(self.current, bases, inputs, **how)


def stored_values(path: Path, tensors: Mapping[str, Dtype]) -> dict[str, list[Fraction]]:
    """The tensors of a file by the reference library's byte-level reader."""
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    read: Any = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]  # the library's own
    found = {name: np.frombuffer(bytes(t["data"]), kinds[t["dtype"]]) for name, t in read}
    return {name: values_of(tensors[name], array) for name, array in found.items()}


@pytest.mark.parametrize("seed", range(6))
def test_mean_is_the_correctly_rounded_exact_value(files: World, seed: int) -> None:
    game = Round(seed)
    made, path = game.run(files)
    assert isinstance(made, Aggregated)
    denominator = float(sum(Fraction(w) for w in game.weight.values()))
    got = stored_values(path, game.tensors)
    for name, dtype in game.tensors.items():
        exact = game.exact(name, denominator)
        if dtype == "F64":  # here float64's own rounding of each step shows
            assert max(abs(g - e) for g, e in zip(got[name], exact, strict=True)) < 1e-14
        else:
            assert got[name] == [rounded_fraction(e, dtype) for e in exact], name


def rounded_fraction(x: Fraction, dtype: Dtype) -> Fraction:
    """Nearest number of a format, half to even; the fraction is first shortened far below its last bit."""
    scaled = round(x * 2**200)
    precision, least, _ = FORMATS[dtype]
    exponent = max(abs(scaled).bit_length() - 201, least)
    step = 2 ** (200 + exponent - precision + 1)
    return Fraction(round(Fraction(scaled, step)) * step, 2**200)


def test_reference_of_this_file_agrees_with_the_one_for_floats() -> None:
    for x in (1.1, -3.7e-3, 65503.9, 1e-7):
        for dtype in ("F32", "F16", "BF16"):
            if x != 1e-7 or dtype != "F16":
                assert rounded_fraction(Fraction(x), dtype) == rounded(x, dtype)


@pytest.mark.parametrize("extra", [{}, {"clip_norm": 0.5}, {"want_norms": True}])
@pytest.mark.parametrize("hashed", [False, True])
def test_bytes_depend_neither_on_order_nor_chunks_nor_processes(
    files: World, extra: dict[str, Any], hashed: bool
) -> None:
    game = Round(11, count=BLOCK + 300)
    how: dict[str, Any] = {**extra, "denominator": 5.0}
    results = set()
    for order, two, chunk in [
        (None, True, None),
        (sorted(game.updates, reverse=True), False, None),
        (["clinic-d", "lab-e", "hospital-b", "clinic-c", "hospital-a"], True, 1000),
        (None, True, BLOCK // 2),
        (None, False, 7777),
        (None, True, 10**6),
    ]:
        made, path = game.run(files, order, hashed=hashed, two_processes=two, chunk=chunk, **how)
        assert isinstance(made, Aggregated)
        assert made.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        results.add((made.sha256, tuple(sorted(made.norms.items())), tuple(sorted(made.clip_factors.items()))))
    assert len(results) == 1
    norms = dict(results.pop()[1])
    expected = game.norms() if extra else {}
    assert norms == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("scale", [2.0, 0.125, 2.0**40])
def test_scaling_all_weights_changes_nothing(files: World, scale: float) -> None:
    game = Round(3)
    plain, scaled = game.run(files)[0], game.run(files, scale=scale)[0]
    assert plain.sha256 == scaled.sha256


SMALL = st.floats(-1e4, 1e4, width=32)


@one_folder
@given(data=st.data())
def test_updates_that_changed_nothing_leave_the_model_as_it_is(files: World, data: st.DataObject) -> None:
    row = np.array(data.draw(st.lists(SMALL, min_size=1, max_size=5)), np.float32)
    row[np.abs(row) < 2.0**-20] = 0  # beside a base around 1, float64's own rounding is seen in what is smaller
    sites = data.draw(st.lists(st.integers(1, 10**7), min_size=1, max_size=4))
    bases = {0: files.base(file_bytes({"w": row})), 3: files.base(file_bytes({"w": row + 1}), 3)}
    inputs = [
        files.input(f"s{i}", file_bytes({"w": row + (1 if i % 2 else 0)}), base=3 * (i % 2), weight=n / (1 + i % 2))
        for i, n in enumerate(sites)
    ]
    assert np.array_equal(files.made(0, bases, inputs)["w"], row)


@one_folder
@given(data=st.data())
def test_mean_lies_between_the_updates(files: World, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    rows = [np.array(data.draw(st.lists(SMALL, min_size=count, max_size=count)), np.float32) for _ in range(3)]
    weights = data.draw(st.lists(st.integers(1, 10**7), min_size=3, max_size=3))
    base = np.array(data.draw(st.lists(SMALL, min_size=count, max_size=count)), np.float32)
    inputs = [
        files.input(f"s{i}", file_bytes({"w": r}), weight=w) for i, (r, w) in enumerate(zip(rows, weights, strict=True))
    ]
    got = files.made(0, {0: files.base(file_bytes({"w": base}))}, inputs)["w"]
    # Rounding to nearest cannot leave the interval, but what the base leaves behind may be one last bit.
    slack = np.spacing(np.abs(np.stack([*rows, base])).max(axis=0))
    assert (got >= np.min(rows, axis=0) - slack).all()
    assert (got <= np.max(rows, axis=0) + slack).all()


def test_delta_payload_is_the_update_less_its_base(files: World) -> None:
    base, update = np.array([1.0, 2.0]), np.array([1.5, 0.0])
    full = files.input("a", file_bytes({"w": update}), weight=3)
    delta = files.input("a", file_bytes({"w": update - base}), weight=3, payload="delta")
    bases = {0: files.base(file_bytes({"w": base}))}
    assert files.made(0, bases, [full])["w"].tolist() == files.made(0, bases, [delta])["w"].tolist() == [1.5, 0.0]


def test_current_version_need_not_be_a_base(files: World) -> None:
    bases = {
        4: files.base(file_bytes({"w": np.array([0.0, 0.0])}), 4),
        7: files.base(file_bytes({"w": np.array([1.0, 2.0])}), 7),
    }
    got = files.made(7, bases, [files.input("b", file_bytes({"w": np.array([3.0, -3.0])}), base=4)])
    assert got["w"].tolist() == [4.0, -1.0]


def test_denominator_may_be_larger_than_the_weights(files: World) -> None:
    bases = {0: files.base(file_bytes({"w": np.array([1.0])}))}
    got = files.made(0, bases, [files.input("a", file_bytes({"w": np.array([3.0])}), weight=50)], denominator=100.0)
    assert got["w"].tolist() == [2.0]


def test_large_half_precision_values_do_not_overflow_on_the_way(files: World) -> None:
    bases = {0: files.base(file_bytes({"w": np.zeros(3, np.float16)}))}
    a, b = np.array([60000, 1, -65504], np.float16), np.array([59968, 2, -65504], np.float16)
    inputs = [files.input("a", file_bytes({"w": a}), weight=1000), files.input("b", file_bytes({"w": b}), weight=3000)]
    got = files.made(0, bases, inputs)["w"]
    assert got.dtype == np.float16
    assert [Fraction(float(x)) for x in got] == [
        rounded_fraction(Fraction(1000 * Fraction(float(x)) + 3000 * Fraction(float(y)), 4000), "F16")
        for x, y in zip(a, b, strict=True)
    ]


def test_tensors_without_dimensions_and_without_elements_keep_their_shape(files: World) -> None:
    def arrays(x: float) -> dict[str, Any]:
        return {
            "w": np.array([x, 2 * x], np.float32),
            "scale": np.array(float(x)),
            "queue": np.zeros((0, 4), np.float32),
            "n": np.array(int(x)),
        }

    got = files.made(
        0,
        {0: files.base(file_bytes(arrays(0)))},
        [files.input("a", file_bytes(arrays(4))), files.input("b", file_bytes(arrays(8)))],
    )
    assert {k: (v.dtype.name, v.shape) for k, v in got.items()} == {
        k: (v.dtype.name, v.shape) for k, v in arrays(0).items()
    }
    assert (got["w"].tolist(), got["scale"].item(), got["n"].item()) == ([6.0, 12.0], 6.0, 8)


def test_order_of_tensors_in_the_files_does_not_matter(files: World) -> None:
    arrays = {n: np.arange(5, dtype=np.float32) * (i + 1) for i, n in enumerate("abc")}
    bases = {0: files.base(file_bytes(arrays, order="cab"))}
    inputs = [files.input(o, file_bytes({k: v + 1 for k, v in arrays.items()}, order=o)) for o in ("abc", "bca")]
    got = files.made(0, bases, inputs)
    assert all(np.array_equal(got[n], arrays[n] + 1) for n in arrays)


# ---------------------------------------------------------------- whole numbers


@pytest.mark.parametrize(
    ("rule", "expected"), [("max", 130), ("keep", 100), ("sum_of_deltas", 147), ("rounded_mean", 127)]
)
@pytest.mark.parametrize("payload", ["full", "delta"])
def test_counter_follows_the_rule_of_its_tensor(files: World, rule: Any, expected: int, payload: str) -> None:
    def arrays(n: int) -> dict[str, Any]:
        return {"bn.num": np.array(n), "w": np.zeros(1, np.float32)}

    bases = {4: files.base(file_bytes(arrays(100)), 4)}
    inputs = [
        files.input(site, file_bytes(arrays(n)), base=4, weight=w, payload=payload)
        for site, n, w in (("a", 130, 30.0), ("b", 117, 10.0))
    ]
    got = files.made(4, bases, inputs, integers=Integers(default="keep", tensors={"bn.*": rule}))["bn.num"]
    assert (got.item(), got.shape, got.dtype.name) == (expected, (), "int64")


@one_folder
@given(data=st.data())
def test_whole_numbers_of_all_dtypes_are_exact(files: World, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"]))
    rule: Any = data.draw(st.sampled_from(RULES))
    low, high = (0, 1) if kind == "?" else (int(np.iinfo(kind).min) // 16, int(np.iinfo(kind).max) // 16)
    rows = [data.draw(st.lists(st.integers(low, high), min_size=3, max_size=3)) for _ in range(6)]
    bases = {v: files.base(file_bytes({"n": np.array(rows[v], kind)}), v) for v in (0, 1)}
    weights = data.draw(st.lists(st.integers(1, 100), min_size=3, max_size=3))
    updates = rows[3:]
    inputs = [
        files.input(f"s{i}", file_bytes({"n": np.array(u, kind)}), base=i % 2, weight=w)
        for i, (u, w) in enumerate(zip(updates, weights, strict=True))
    ]
    expected = []
    for i in range(3):
        column = [u[i] for u in updates]
        expected.append(
            {
                "max": max(rows[1][i], *column),
                "keep": rows[1][i],
                "sum_of_deltas": rows[1][i] + sum(u - rows[s % 2][i] for s, u in enumerate(column)),
                "rounded_mean": round(Fraction(sum(w * u for w, u in zip(weights, column, strict=True)), sum(weights))),
            }[rule]
        )
    how: dict[str, Any] = {"integers": Integers(default=rule), "chunk": data.draw(st.integers(1, 4))}
    fits = (lambda x: 0 <= x <= 1) if kind == "?" else (lambda x: np.iinfo(kind).min <= x <= np.iinfo(kind).max)
    if all(map(fits, expected)):
        assert [int(x) for x in files.made(1, bases, inputs, **how)["n"]] == expected
    else:
        (found,) = files.findings(1, bases, inputs, **how)
        assert (found.slug, found.detail) == ("non_finite_result", {"tensor": "n"})


def test_rounded_mean_with_clipping_counts_each_site_once(files: World) -> None:
    def arrays(n: int) -> dict[str, Any]:
        return {"n": np.array(n), "w": np.array([float(n)])}

    bases = {0: files.base(file_bytes(arrays(0)))}
    inputs = [files.input("a", file_bytes(arrays(1)), weight=100), files.input("b", file_bytes(arrays(4)), weight=1)]
    got = files.made(0, bases, inputs, integers=Integers(default="rounded_mean"), clip_norm=2.0, denominator=2.0)
    assert (got["n"].item(), got["w"].item()) == (2, (1.0 + 2.0) / 2)


# ---------------------------------------------------------------- norms


def folded_norm(tensors: list[NDArray[np.float64]]) -> float:
    """The documented norm in plain Python: blocks padded with 0, folded in halves, fsum over blocks."""
    blocks = []
    for tensor in tensors:
        squares = [float(x) * float(x) for x in tensor.reshape(-1)]
        for start in range(0, len(squares), BLOCK):
            row = squares[start : start + BLOCK]
            row += [0.0] * (BLOCK - len(row))
            while len(row) > 1:
                half = len(row) // 2
                row = [a + b for a, b in zip(row[:half], row[half:], strict=True)]
            blocks.append(row[0])
    return math.sqrt(math.fsum(blocks))


def test_norms_are_the_documented_fold_of_all_float_tensors(files: World) -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    shapes = {"a": (BLOCK + 100,), "b": (3, 5), "c": (), "d": (2 * BLOCK,)}
    base: dict[str, Any] = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    update: dict[str, Any] = {
        n: (v + rng.standard_normal(v.shape).astype(np.float32)).astype(np.float32) for n, v in base.items()
    }
    base["n"], update["n"] = np.array(0), np.array(10**6)
    bases = {0: files.base(file_bytes(base)), 2: files.base(file_bytes({**base, "c": np.array(9, np.float32)}), 2)}
    inputs = [
        files.input("full", file_bytes(update)),
        files.input("delta", file_bytes(update), payload="delta"),
        files.input("old", file_bytes({**update, "c": np.array(9, np.float32)}), base=2),
        files.input("same", file_bytes(base)),
    ]
    made, _ = files.aggregate(0, bases, inputs, want_norms=True)
    assert isinstance(made, Aggregated)
    delta = [update[n].astype(np.float64) - base[n].astype(np.float64) for n in shapes]
    no_c = [d for n, d in zip(shapes, delta, strict=True) if n != "c"]
    assert made.norms == {
        "full": folded_norm(delta),
        "delta": folded_norm([update[n].astype(np.float64) for n in shapes]),
        "old": folded_norm(no_c),
        "same": 0.0,
    }
    assert made.clip_factors == {}


def test_clipped_deltas_count_once_and_are_as_long_as_the_limit(files: World) -> None:
    bases = {0: files.base(file_bytes({"w": np.array([1.0, 1.0])}))}
    inputs = [
        files.input("a", file_bytes({"w": np.array([4.0, 5.0])}), weight=1000),  # delta (3, 4): norm 5
        files.input("b", file_bytes({"w": np.array([1.0, 3.0])}), weight=1),  # delta (0, 2): norm 2
        files.input("c", file_bytes({"w": np.array([1.0, 1.0])}), weight=1),
    ]
    made, _ = files.aggregate(0, bases, inputs, clip_norm=2.5, denominator=3.0)
    assert isinstance(made, Aggregated)
    assert made.norms == {"a": 5.0, "b": 2.0, "c": 0.0}
    assert made.clip_factors == {"a": 0.5, "b": 1.0, "c": 1.0}
    got = files.made(0, bases, inputs, clip_norm=2.5, denominator=3.0)["w"]
    assert got == pytest.approx([1 + 1.5 / 3, 1 + (2 + 2) / 3], rel=1e-15)
