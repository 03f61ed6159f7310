"""A training that ends in NaN or infinity: told at its end, kept for looking at, never a result, not repeated in vain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedops.app.pull import pull
from fedops.app.train import Refused, TrainedNow, train
from fedops.app.work import Work
from fedops.core.site_loop import HandedIn, Pause, PulledModel, Refusal, Told
from fedops.ports import TrainingJob
from tests.core.samples import version
from tests.site_loop_world import A, Enough, days, loop
from tests.site_world import World, memory_world, moved

NAN, INF = float("nan"), float("inf")
# What the code leaves, by how often it was called: three of six weights and one of two biases are not finite.
BAD = {"weight": [[1.0, NAN, 3.0], [-INF, INF, 6.0]], "bias": [0.0, NAN]}
POLICY = "schema: fedops.training/v1\nhyperparameters: {{rate: {}}}\n"


class Diverging:
    """A site's code that gives NaN as long as it is told to learn at a rate of 1 or more."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def run(self, job: TrainingJob) -> None:
        rate = job.config["hyperparameters"]["rate"]
        self.rates.append(rate)
        model = load_file(job.model)
        model["weight"] = model["weight"] + np.float32(len(self.rates))
        if rate >= 1:
            model |= {name: np.array(values, np.float32) for name, values in BAD.items()}
        save_file(model, job.update)
        job.result.write_text(json.dumps({"num_examples": 150, "metrics": {"loss": 0.5}}))


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = memory_world(tmp_path)
    set_rate(world, 1)
    return world


def set_rate(world: World, rate: float) -> None:
    world.change({"policies/training.yaml": POLICY.format(rate).encode()})


def work(world: World) -> Work:
    return Work(world.root(A))


def steps(world: World) -> list[object]:
    return [line["step"] for line in work(world).noted()]


def once(world: World, code: Diverging, **wanted: Any) -> TrainedNow | Refused:
    got = train(world.ctx(A), world.root(A), code, site=A, **wanted)
    assert isinstance(got, TrainedNow | Refused)
    return got


def test_it_names_each_tensor_and_how_much_of_it_and_keeps_the_file(world: World) -> None:
    pull(world.ctx(A), world.root(A))
    got = once(world, Diverging())
    assert isinstance(got, Refused)
    assert [(f.id, f.where, f.got, dict(f.detail or {})) for f in got.findings] == [
        ("FO-218", ".fedops/versions/v0/refused.safetensors", "nan", {"tensor": "bias", "index": 1, "values": 1, "of": 2}),
        ("FO-218", ".fedops/versions/v0/refused.safetensors", "nan", {"tensor": "weight", "index": 1, "values": 3, "of": 6}),
    ]  # fmt: skip
    assert load_file(got.kept)["weight"].tolist()[1][1:] == [INF, 6.0]
    assert (work(world).trained(0), steps(world)) == (None, ["pulled"])
    assert sorted(p.name for p in work(world).version(0).iterdir()) == [
        "model.safetensors",
        "refused.json",
        "refused.safetensors",
    ]


def test_a_result_that_was_there_before_stays(world: World) -> None:
    pull(world.ctx(A), world.root(A))
    code = Diverging()
    good = once(world, code, overrides={"rate": 0.5})
    assert isinstance(once(world, code, again=True), Refused)
    assert work(world).trained(0) == good.result if isinstance(good, TrainedNow) else False
    assert steps(world) == ["pulled", "trained"]


def test_after_a_good_training_nothing_of_it_is_left(world: World) -> None:
    pull(world.ctx(A), world.root(A))
    code = Diverging()
    once(world, code)
    assert isinstance(once(world, code, overrides={"rate": 0.5}), TrainedNow), "by hand it is tried as often as asked"
    assert not list(work(world).version(0).glob("refused*"))
    assert code.rates == [1, 0.5]


def test_a_run_tells_it_and_trains_on_the_next_version_and_not_on_this_one_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = Diverging(), list[Told]()
    days(world, monkeypatch, [lambda: None, lambda: world.publish(version(1), moved(1))])
    with pytest.raises(Enough):
        loop(world, code, told=told, once=False)
    assert [type(t) for t in told] == [PulledModel, Refusal, Pause, PulledModel, Refusal, Pause]
    assert [t.version for t in told if isinstance(t, Refusal | Pause)] == [0, 0, 1, 1]
    assert {t.reason for t in told if isinstance(t, Pause)} == {"refused"}
    assert code.rates == [1, 1]


def test_a_timer_does_not_train_in_vain_each_time(world: World) -> None:
    code = Diverging()
    for _ in range(3):
        ran = loop(world, code)
        assert ran.waiting is not None
        assert (ran.waiting.reason, [f.slug for f in ran.findings]) == ("refused", ["non_finite", "non_finite"])
    assert (code.rates, ran.changed) == ([1], False)


@pytest.mark.parametrize("by", ["the lead", "the site", "asking for it"])
def test_it_trains_again_on_this_version_where_that_may_help(by: str, world: World) -> None:
    code = Diverging()
    loop(world, code)
    if by == "the lead":
        set_rate(world, 0.5)
    ran = loop(world, code, overrides={"rate": 0.5} if by == "the site" else None, again=by == "asking for it")
    if by == "asking for it":
        assert ran.waiting is not None
        assert (ran.waiting.reason, code.rates, ran.changed) == ("refused", [1, 1], True)
    else:
        assert (ran.handed_in, code.rates) == ((HandedIn(0, "opened", 1),), [1, 0.5])


def test_an_older_good_update_is_handed_in_whatever_came_after_it(world: World) -> None:
    pull(world.ctx(A), world.root(A))
    code = Diverging()
    once(world, code, overrides={"rate": 0.5})
    once(world, code, again=True)
    assert loop(world, code).handed_in == (HandedIn(0, "opened", 1),)
    assert code.rates == [0.5, 1]


@pytest.mark.parametrize("said", [b"{", b"", b'{"schema": "fedops.refused-training/v1"}'])
def test_a_note_that_cannot_be_read_is_none(said: bytes, world: World) -> None:
    code = Diverging()
    loop(world, code)
    (work(world).version(0) / "refused.json").write_bytes(said)
    loop(world, code)
    assert code.rates == [1, 1]
