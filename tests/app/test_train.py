from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedops.app.pull import pull
from fedops.app.train import TrainedNow, train
from fedops.app.work import Work
from fedops.core.errors import ConfigError, TrainingError
from fedops.core.findings import Finding
from fedops.core.ids import SiteId
from fedops.ports import TrainingJob
from tests.core.samples import version
from tests.site_world import BASE, World, memory_world

A = SiteId("hospital-a")
B = SiteId("hospital-b")
GOOD: Mapping[str, Any] = {"num_examples": 150, "metrics": {"loss": 0.5}}


class Code:
    """A site's code: adds `step` to the weights; counts how often it ran."""

    def __init__(self, step: float = 1.0, said: Any = GOOD, then: Callable[[TrainingJob], None] | None = None) -> None:
        self.step, self.said, self.then = step, said, then
        self.jobs: list[TrainingJob] = []

    def run(self, job: TrainingJob) -> None:
        self.jobs.append(job)
        job.log.write_text("epoch 1\n")
        model = load_file(job.model)
        model["weight"] = model["weight"] + np.float32(self.step)
        save_file(model, job.update)
        if self.said is not None:
            job.result.write_text(self.said if isinstance(self.said, str) else json.dumps(self.said))
        if self.then is not None:
            self.then(job)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = memory_world(tmp_path)
    pull(world.ctx(A), world.root(A))
    return world


def run(world: World, code: Code, **wanted: Any) -> TrainedNow:
    got = train(world.ctx(A), world.root(A), code, site=wanted.pop("site", A), **wanted)
    assert isinstance(got, TrainedNow)
    return got


def refused(world: World, site: str) -> tuple[Finding, ...]:
    code = Code()
    got = train(world.ctx(A), world.root(A), code, site=SiteId(site))
    assert isinstance(got, tuple)
    assert code.jobs == []
    return got


def work(world: World) -> Work:
    return Work(world.root(A))


def test_a_training_leaves_its_update_its_result_and_a_line_in_the_journal(world: World) -> None:
    code = Code()
    got = run(world, code)
    assert got.changed
    assert (got.result.site, got.result.base_version, got.result.num_examples) == (A, 0, 150)
    assert got.result.metrics == {"loss": 0.5}
    np.testing.assert_array_equal(load_file(got.update)["weight"], BASE["weight"] + 1)
    assert got.result.sha256 == hashlib.sha256(got.update.read_bytes()).hexdigest()
    assert work(world).trained(0) == got.result
    assert got.log.read_text() == "epoch 1\n"
    assert work(world).noted()[-1] == {
        "at": "2026-03-02T09:30:00Z",
        "step": "trained",
        "site": A,
        "version": 0,
        "sha256": got.result.sha256,
        "num_examples": 150,
    }
    names = {p.name for p in work(world).version(0).iterdir()}
    assert names == {"model.safetensors", "update.safetensors", "result.json", "train.log"}


def test_the_code_gets_the_policys_hyperparameters_with_the_sites_own_over_them(world: World) -> None:
    code = Code()
    run(world, code, overrides={"rate": 0.5, "device": "cpu"})
    (job,) = code.jobs
    assert job.config == {"hyperparameters": {"epochs": 2, "rate": 0.5, "device": "cpu"}, "version": 0}
    assert (job.site, job.version, job.model) == (A, 0, work(world).model(0))
    assert all(p.is_absolute() for p in (job.model, job.update, job.result, job.fault, job.log))


def test_a_version_that_was_trained_on_is_not_trained_on_again_unless_asked(world: World) -> None:
    one, two = Code(), Code(step=2.0)
    first = run(world, one)
    again = run(world, two)
    assert (again.changed, again.result, two.jobs) == (False, first.result, [])
    anew = run(world, two, again=True)
    assert anew.changed
    np.testing.assert_array_equal(load_file(anew.update)["weight"], BASE["weight"] + 2)


def test_an_update_that_was_changed_or_is_anothers_is_no_result(world: World) -> None:
    got = run(world, Code())
    got.update.write_bytes(got.update.read_bytes() + b" ")
    assert run(world, Code()).changed
    assert run(world, Code(step=3.0), site=B).result.site == B


def test_a_kill_between_update_and_result_repeats_the_training(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run(world, Code())
    monkeypatch.setattr("fedops.app.train.write_document", _killed)
    with pytest.raises(KeyboardInterrupt):
        run(world, Code(step=2.0), again=True)
    monkeypatch.undo()
    code = Code(step=2.0)
    assert run(world, code).changed
    assert len(code.jobs) == 1


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_newest_pulled_version_is_trained_on_and_a_newer_one_is_told(world: World) -> None:
    world.publish(version(1))
    world.repositories[A].fetch()
    got = run(world, Code())
    assert (got.result.base_version, got.newest) == (0, 1)
    pull(world.ctx(A), world.root(A))
    assert run(world, Code()).result.base_version == 1
    assert run(world, Code(), number=0).result.base_version == 0


def test_a_changed_global_model_is_put_right_before_training(world: World) -> None:
    work(world).model(0).write_bytes(b"changed by hand")
    np.testing.assert_array_equal(load_file(run(world, Code()).update)["weight"], BASE["weight"] + 1)


def test_without_a_pulled_version_the_next_command_is_named(tmp_path: Path) -> None:
    world = memory_world(tmp_path)
    with pytest.raises(ConfigError) as e:
        run(world, Code())
    assert e.value.hint == "fedops pull"


def test_a_base_that_does_not_exist_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="v7: no such version"):
        run(world, Code(), number=7)


@pytest.mark.parametrize(
    ("site", "slug"),
    [("clinic-c", "site_unknown"), ("Hospital", "site_id_invalid"), ("global", "site_id_reserved")],
)
def test_a_site_that_could_not_hand_in_does_not_spend_its_time(site: str, slug: str, world: World) -> None:
    assert [f.slug for f in refused(world, site)] == [slug]


def test_a_suspended_site_does_not_train(world: World) -> None:
    text = memory_text(world).replace("state: active", "state: suspended", 1)
    world.change({"policies/sites.yaml": text.encode()})
    world.repositories[A].fetch()
    assert [f.slug for f in refused(world, A)] == ["site_suspended"]


def memory_text(world: World) -> str:
    from fedops.app.snapshot import main_snapshot
    from fedops.core.ids import SITES_PATH

    return main_snapshot(world.repositories["lena"]).bytes_of(SITES_PATH).decode()


# ---------------------------------------------------------------- code that fails


def _fails(job: TrainingJob) -> None:
    raise TrainingError("ours:C: raised ValueError: no scans", hint=f"all output is in {job.log}")


def test_a_failed_training_leaves_the_result_that_was_there(world: World) -> None:
    before = run(world, Code())

    class Dies:
        def run(self, job: TrainingJob) -> None:
            raise TrainingError("ours:C: was killed", hint="see the log")

    with pytest.raises(TrainingError) as e:
        train(world.ctx(A), world.root(A), Dies(), site=A, again=True)
    assert (e.value.message, e.value.hint) == ("ours:C: was killed", "see the log")
    assert work(world).trained(0) == before.result
    assert not list(work(world).version(0).glob("run-*"))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (Code(said=None), "wrote no result"),
        (Code(said="{"), "FEDOPS_RESULT"),
        (Code(said={"metrics": {}}), "num_examples"),
        (Code(said={"num_examples": 0}), "num_examples"),
        (Code(said={"num_examples": 1.5}), "num_examples"),
        (Code(said={"num_examples": 5, "metrics": {"loss": "low"}}), "metrics.loss"),
        (Code(said='{"num_examples": 5, "metrics": {"loss": NaN}}'), "NaN"),
        (Code(said={"num_examples": 5, "note": "x"}), "note: unknown key"),
        (Code(said=" " * 70_000), "at most 65536"),
        (Code(then=_fails), "no scans"),
    ],
)
def test_an_update_whose_result_is_no_good_is_kept_and_can_be_handed_in(code: Code, says: str, world: World) -> None:
    with pytest.raises(TrainingError) as e:
        run(world, code)
    assert says in e.value.message
    (kept,) = work(world).version(0).glob("run-*/update.safetensors")
    assert f"fedops submit {work(world).show(kept)} --base v0 --examples N" in e.value.hint
    assert work(world).trained(0) is None
    assert all(line["step"] != "trained" for line in work(world).noted())


def _without(name: str) -> Callable[[TrainingJob], None]:
    def change(job: TrainingJob) -> None:
        model = load_file(job.update)
        del model[name]
        save_file(model, job.update)

    return change


def _shaped(job: TrainingJob) -> None:
    save_file(load_file(job.update) | {"bias": np.zeros(3, np.float32)}, job.update)


@pytest.mark.parametrize(
    ("then", "says"),
    [
        (_without("bias"), "FO-211"),
        (_shaped, "tensor bias"),
        (lambda job: job.update.write_text("a,b\n1,2\n"), "FO-201"),
    ],
)
def test_a_file_that_is_not_the_models_update_is_refused_by_its_first_fault(
    then: Callable[[TrainingJob], None], says: str, world: World
) -> None:
    with pytest.raises(TrainingError, match=says):
        run(world, Code(then=then))


def test_several_faults_of_a_file_are_counted(world: World) -> None:
    def change(job: TrainingJob) -> None:
        save_file({"weight": np.zeros((2, 3), np.float64), "bias": np.zeros(2, np.float32)}, job.update)

    with pytest.raises(TrainingError, match="and 1 more"):  # steps is missing, weight has another dtype
        run(world, Code(then=change))


def test_code_that_writes_nothing_is_told_so(world: World) -> None:
    with pytest.raises(TrainingError, match="wrote no update"):
        run(world, Code(then=lambda job: job.update.unlink()))
    assert not list(work(world).version(0).glob("run-*"))


def test_an_opaque_model_is_not_opened(tmp_path: Path) -> None:
    world = memory_world(tmp_path)
    world.change({"federation.yaml": _opaque(world)})
    pull(world.ctx(A), world.root(A))

    class Opaque:
        def run(self, job: TrainingJob) -> None:
            assert job.update.suffix == ".bin"
            job.update.write_bytes(b"anything at all")
            job.result.write_text('{"num_examples": 3}')

    got = train(world.ctx(A), world.root(A), Opaque(), site=A)
    assert isinstance(got, TrainedNow)
    assert (got.result.size, got.result.metrics) == (15, {})


def _opaque(world: World) -> bytes:
    from fedops.app.snapshot import main_snapshot
    from fedops.core.ids import FEDERATION_PATH

    text = main_snapshot(world.repositories["lena"]).bytes_of(FEDERATION_PATH).decode()
    return f"{text}model: {{format: opaque}}\n".encode()
