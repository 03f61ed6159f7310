"""Traps 1 and 2 of tests/core/test_traps.py, with real model files: what the engine writes is the documented mean."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedops.adapters.model_files import ModelFiles
from fedops.app.engine import Aggregated, Base, Input, Rule, aggregate
from fedops.core.settings import Aggregation, Limits
from fedops.core.strategies import make_strategy
from fedops.core.weights import Weighing, weigh
from fedops.ports import OpenModel
from tests.core.samples import policy, submission

GLOBALS = {4: [0.0, 0.0], 7: [1.0, 2.0]}


def opened(path: Path, values: list[float]) -> OpenModel:
    save_file({"w": np.array(values, dtype=np.float32)}, path)
    model, findings = ModelFiles().open(path, Limits(), path.name)
    assert model is not None, findings
    return model


def next_version(folder: Path, rule: Aggregation, updates: dict[str, tuple[int, int, list[float]]]) -> list[float]:
    """Aggregate onto v7. updates: site -> (base version, num_examples, values)."""
    bases = {v: Base(opened(folder / f"v{v}.safetensors", values), f"v{v}") for v, values in GLOBALS.items()}
    weighing = weigh(rule, [submission(s, base, n) for s, (base, n, _) in updates.items()], 7)
    assert isinstance(weighing, Weighing)
    inputs = [
        Input(w, opened(folder / f"{w.submission.site}.safetensors", updates[w.submission.site][2]), "update")
        for w in weighing.weighted
    ]
    how = Rule(make_strategy(rule.strategy), weighing.denominator, rule.integers)
    out = folder / "v8.safetensors"
    with ModelFiles().create(out, bases[7].model.specs) as sink:
        assert isinstance(aggregate(7, bases, inputs, how, sink), Aggregated)
    for model in (*(b.model for b in bases.values()), *(i.model for i in inputs)):
        model.close()
    return [float(x) for x in load_file(out)["w"]]


def rounded(values: list[Fraction]) -> list[float]:
    return [float(np.float32(float(v))) for v in values]


def test_1_a_stale_update_counts_from_its_own_base(tmp_path: Path) -> None:
    updates = {"hospital-a": (7, 100, [2.0, 2.0]), "hospital-b": (4, 100, [3.0, -3.0])}
    got = next_version(tmp_path, policy(staleness={"kind": "polynomial", "alpha": 0.5, "max": 5}), updates)
    # Weights 100 and 100 / sqrt(4): deltas (1, 0) and (3, -3).
    assert got == rounded([1 + Fraction(100 * 1 + 50 * 3, 150), 2 + Fraction(50 * -3, 150)])
    against_current = rounded([1 + Fraction(100 * 1 + 50 * 2, 150), 2 + Fraction(50 * -5, 150)])
    assert got != against_current


@pytest.mark.parametrize(("normalize", "part"), [("weights", Fraction(1)), ("count", Fraction(1, 4))])
def test_2_only_with_count_do_equally_stale_updates_shorten_the_step(
    tmp_path: Path, normalize: str, part: Fraction
) -> None:
    updates = {"hospital-a": (4, 100, [2.0, 0.0]), "hospital-b": (4, 300, [4.0, -8.0])}
    got = next_version(tmp_path, policy(weights={"normalize": normalize}), updates)
    assert got == rounded([1 + part * Fraction(1400, 400), 2 + part * Fraction(-2400, 400)])


HONEST = {"hospital-a": [1.5, 2.25], "hospital-b": [1.0, 2.5], "hospital-c": [2.0, 2.0], "hospital-d": [1.25, 2.75]}
ROBUST = [{"name": "median"}, {"name": "trimmed_mean", "beta": "0.2"}, {"name": "krum", "f": 1}]


@pytest.mark.parametrize("site", ["a-first", "z-last"])
@pytest.mark.parametrize("strategy", ROBUST, ids=lambda s: s["name"])
def test_12_an_absurd_claim_of_examples_counts_for_nothing_in_a_robust_strategy(
    tmp_path: Path, strategy: dict[str, object], site: str
) -> None:
    attack = [1e6, -1e6]

    def made(n: int, name: str, rules: dict[str, object]) -> list[float]:
        (tmp_path / name).mkdir()
        updates = {s: (7, 10, v) for s, v in HONEST.items()} | {site: (7, n, attack)}
        return next_version(tmp_path / name, policy(strategy=rules), updates)

    got = made(10**9, "robust", strategy)
    assert got == made(1, "modest", strategy)
    for i, value in enumerate(got):
        assert min(v[i] for v in HONEST.values()) <= value <= max(v[i] for v in HONEST.values())
    mean = made(10**9, "mean", {"name": "fedavg"})
    assert mean == pytest.approx(attack, rel=1e-6), "the attacker owns the mean"
