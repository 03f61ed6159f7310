"""What the tests of a site's loop need: code that counts its trainings, days on which others act, and kills."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedops.app.context import Context
from fedops.app.run import Asked, Ran, run
from fedops.core.ids import SiteId
from fedops.core.site_loop import Told
from fedops.ports import Store, Trainer, TrainingJob
from tests.site_world import World

A = SiteId("hospital-a")
B = SiteId("hospital-b")


class Code:
    """A site's code: adds 1 to the weights of each version, 2 at the second training on it, and so on."""

    def __init__(self, point: Callable[[], None] = lambda: None, metrics: Mapping[str, float] | None = None) -> None:
        self.begun: list[int] = []
        self.metrics = {"loss": 0.5} if metrics is None else metrics
        self._point = point

    def run(self, job: TrainingJob) -> None:
        self._point()
        self.begun.append(job.version)
        model = load_file(job.model)
        model["weight"] = model["weight"] + np.float32(self.begun.count(job.version))
        save_file(model, job.update)
        self._point()
        job.result.write_text(json.dumps({"num_examples": 150, "metrics": self.metrics}))
        self._point()


class Enough(BaseException):
    """No further day was planned."""


def days(world: World, monkeypatch: pytest.MonkeyPatch, actions: Sequence[Callable[[], object]]) -> list[float]:
    """Let others act, one action in each sleep of anybody; ends the test's run after the last. Gives the sleeps."""
    left, slept = list(actions), world.clock.slept

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not left:
            raise Enough
        left.pop(0)()

    monkeypatch.setattr(world.clock, "sleep", sleep)
    return slept


def loop(
    world: World,
    code: Trainer,
    *,
    site: SiteId = A,
    told: list[Told] | None = None,
    ctx: Context | None = None,
    **asked: Any,
) -> Ran:
    """One `fedops run` of a site, whose waits have no jitter."""
    values: dict[str, Any] = {"site": site, "key": world.key(site), "once": True}
    told = [] if told is None else told
    return run(
        ctx or world.ctx(site),
        world.root(site),
        code,
        Asked(**values | asked),
        tell=told.append,
        jitter=lambda: 0.5,
    )


# ---------------------------------------------------------------- kills


class Killed(BaseException):
    """What a run sees when its machine goes away; no code may catch it."""


class Doom:
    """Counts the points of a run; at point `at` it dies, and so does everything that it tries to do afterwards."""

    def __init__(self, at: int | None = None) -> None:
        self.count = 0
        self._at = at
        self._dead = False

    def point(self) -> None:
        if not self._dead:
            self.count += 1
            self._dead = self.count == self._at
        if self._dead:
            raise Killed


class Doomed:
    """A port of which each call is a point."""

    def __init__(self, inner: object, doom: Doom) -> None:
        self._inner, self._doom = inner, doom

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **more: Any) -> Any:
            self._doom.point()
            return value(*args, **more)

        return call


def doomed_context(world: World, doom: Doom, site: SiteId = A) -> Context:
    ctx = world.ctx(site)
    return replace(
        ctx,
        repository=cast("Any", Doomed(ctx.repository, doom)),
        forge=cast("Any", Doomed(ctx.forge, doom)),
        models=cast("Any", Doomed(ctx.models, doom)),
        clock=cast("Any", Doomed(ctx.clock, doom)),
        stores=lambda url: cast("Store", Doomed(ctx.stores(url), doom)),
    )


@contextmanager
def doomed_files(doom: Doom) -> Iterator[None]:
    """Every change of a file or folder is a point; what a dead run would clean up stays."""
    changes: Sequence[tuple[Any, str]] = (
        (os, "fsync"),
        *((Path, name) for name in ("replace", "unlink", "hardlink_to", "mkdir", "write_bytes", "write_text")),
        *((shutil, name) for name in ("rmtree", "copyfile")),
    )
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in changes:
            patch.setattr(owner, name, _guarded(getattr(owner, name), doom))
        yield


def _guarded(real: Callable[..., Any], doom: Doom) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        doom.point()
        return real(*args, **more)

    return call
