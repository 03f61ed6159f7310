"""A federation with a past, made once by the real use cases on real git and disk, for auditors to look at.

v0  from a generator
v1  hospital-a, hospital-b on v0; hospital-a had handed in twice, so that its first is superseded
v2  hospital-a on v1 and clinic-c on v0
v3  hospital-a on v2, by max_wait; hospital-b on v1 excluded for its bytes (the lead had lowered the norm since it was
    merged), clinic-c on v2 unavailable (its bytes were deleted after the merge)
v4  hospital-a on v3, by max_wait; hospital-b on v3 excluded by the tree (suspended), clinic-c still unavailable;
    something else was pushed between decision and publication, so its input_commit is not its parent
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_repo import GitRepository
from fedops.adapters.model_files import ModelFiles
from fedops.adapters.store_layout import LayoutStore
from fedops.app.first_model import Generated
from fedops.app.founding import Ground, Wanted
from fedops.app.init import init
from fedops.app.merged import merged_state
from fedops.app.offer import Wanted as Update
from fedops.app.propose import propose
from fedops.app.publish import Published, publish
from fedops.app.reconcile import reconcile
from fedops.app.scaffold import Scaffold
from fedops.app.snapshot import main_snapshot, snapshot
from fedops.app.submit import Submitted, submit
from fedops.core.facts import TensorSpec
from fedops.core.ids import Digest, SiteId
from fedops.core.settings import Lead, Person, Site
from tests.forge_worlds import ManualClock
from tests.site_world import World
from tests.sshkeys import make_key

START = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
SITES = ("clinic-c", "hospital-a", "hospital-b")
PEOPLE = ("lena", *SITES)
SPECS = {"bias": TensorSpec("F32", (3,)), "steps": TensorSpec("I64", ()), "weight": TensorSpec("F32", (4, 3))}
NEWEST = 4
RULES = """\
schema: fedops.aggregation/v1
trigger: {quorum: 2, max_wait_hours: 24, quorum_after_wait: 1}
staleness: {kind: inverse, max: 1}
"""


class Past:
    """The federation while it is made."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "keys").mkdir()
        keys = {who: make_key(folder / "keys", who) for who in PEOPLE}
        self.origin = folder / "origin.git"
        GitRepository.init(self.origin, bare=True).close()
        (self.origin / "store").mkdir()
        clones = {
            who: stack.enter_context(
                GitRepository.clone(str(self.origin), folder / who, author=(who, f"{who}@example.invalid"))
            )
            for who in PEOPLE
        }
        clock = ManualClock(START)
        forges = {who: GitForge(clones[who], clock=clock, key=keys[who].private, jitter=lambda: 0.0) for who in PEOPLE}
        self.world = World(folder, clock, keys, LayoutStore(self.origin / "store"), clones, forges)
        self.clock = clock

    def found(self) -> None:
        world = self.world
        sites = {
            site: Site(accounts=(Person(login=f"{site}-user", id=1001 + n),), keys=(world.keys[site].public,))
            for n, site in enumerate(SITES)
        }
        lead = Lead(login="lena", id=1, keys=(world.keys["lena"].public,))
        scaffold = Scaffold(
            name="breast-cancer", store="ocidir:store", fedops="0.1.0", leads=(lead,), sites=sites, quorum=2
        )
        ctx = world.ctx("lena")
        ground = Ground(
            ctx.repository, ctx.stores, ModelFiles(), self.clock, ctx.scratch, ctx.software, world.root("lena")
        )
        assert init(ground, Wanted(scaffold, Generated("normal", 5, SPECS), key=world.key("lena"))).changed
        self.rule({"policies/aggregation.yaml": RULES})
        for repository in world.repositories.values():
            assert isinstance(repository, GitRepository)
            repository.fetch()
            repository.checkout_main()

    def rule(self, files: Mapping[str, str], message: str = "policy: change") -> None:
        """A commit of the lead."""
        self.world.change({path: text.encode() for path, text in files.items()}, message)
        self.later()

    def text(self, path: str) -> str:
        self.world.repositories["lena"].fetch()
        main = main_snapshot(self.world.repositories["lena"])
        return main.bytes_of(next(p for p in main.files if p == path)).decode()

    def later(self, **time: float) -> None:
        self.clock.at += dt.timedelta(**(time or {"minutes": 5}))

    def model(self, number: int) -> dict[str, NDArray[Any]]:
        repository = self.world.repositories["lena"]
        commit = repository.resolve(f"refs/tags/global@v{number}.0.0")
        assert commit is not None
        record = snapshot(repository, commit).version
        artifact = self.world.store.manifest("global", Digest(record.model.manifest))
        target = self.world.folder / f"read-v{number}.safetensors"
        self.world.store.get("global", artifact.layer, target)
        return dict(load_file(target))

    def hand_in(self, site: str, base: int, step: float, examples: int = 100) -> None:
        """Train: every value grows by `step`; then submit."""
        trained = {n: np.asarray(a + np.asarray(step, a.dtype)) for n, a in self.model(base).items()}
        file = self.world.folder / f"{site}-{base}-{step}.safetensors"
        save_file(trained, file)
        wanted = Update(SiteId(site), file, base, examples, {"loss": 1 / (1 + step)})
        done = submit(self.world.ctx(site), self.world.root(site), wanted, key=self.world.key(site))
        assert isinstance(done, Submitted), done
        self.later()

    def reconcile(self) -> list[int]:
        """What CI does; numbers of the versions that it published."""
        self.world.repositories["lena"].fetch()
        done = reconcile(self.world.ctx("lena"), jitter=lambda: 0.0)
        self.later()
        return [record.version for record in done.published]

    def manifest_of(self, site: str) -> Digest:
        """Of a site's record on main."""
        return Digest(json.loads(self.text(f"sites/{site}/submission.json"))["manifest"])


def make_past(folder: Path) -> Path:
    """Make the federation; returns its bare origin, in which the store lies."""
    with ExitStack() as stack:
        past = Past(folder, stack)
        past.found()
        past.hand_in("hospital-a", 0, 0.25, examples=90)
        assert past.reconcile() == []
        past.hand_in("hospital-a", 0, 0.5, examples=150)
        assert past.reconcile() == []
        past.hand_in("hospital-b", 0, 1.0)
        assert past.reconcile() == [1]
        past.hand_in("hospital-a", 1, 0.5, examples=150)
        past.hand_in("clinic-c", 0, 0.75, examples=40)
        assert past.reconcile() == [2]
        _third(past)
        _fourth(past)
        return past.origin


def _third(past: Past) -> None:
    past.hand_in("hospital-b", 1, 50.0)
    assert past.reconcile() == []
    policy = past.text("policies/submission.yaml")
    assert "update_norm_max: null" in policy
    past.rule({"policies/submission.yaml": policy.replace("update_norm_max: null", "update_norm_max: 10.0")})
    past.hand_in("clinic-c", 2, 0.5)
    assert past.reconcile() == []  # with hospital-b left out, one is not enough
    _keep(past, "clinic-c")
    assert past.world.store.drop("sites/clinic-c", past.manifest_of("clinic-c"))
    past.hand_in("hospital-a", 2, 0.125, examples=150)
    assert past.reconcile() == []
    past.later(hours=30)
    assert past.reconcile() == [3]


def _keep(past: Past, site: str) -> None:
    """Put a copy of a site's store aside, beside the origin."""
    shutil.copytree(past.origin / "store" / "sites" / site, past.world.folder / "kept" / site)


def _fourth(past: Past) -> None:
    past.hand_in("hospital-b", 3, 0.5)
    assert past.reconcile() == []
    roster = past.text("policies/sites.yaml")
    at = roster.index("state: active", roster.index("hospital-b:"))
    past.rule({"policies/sites.yaml": roster[:at] + "state: suspended" + roster[at + len("state: active") :]})
    past.hand_in("hospital-a", 3, 0.25, examples=150)
    assert past.reconcile() == []
    past.later(hours=30)
    ctx, repository = past.world.ctx("lena"), past.world.repositories["lena"]
    repository.fetch()
    main = main_snapshot(repository)
    decided_at = past.clock.now()
    plan = propose(ctx, main, merged_state(repository, main), decided_at, unavailable={})
    assert plan.manifest is not None
    past.world.change({"NOTES.md": b"Something else, pushed meanwhile.\n"}, "docs: notes")
    assert isinstance(publish(ctx, main.commit, decided_at, plan.manifest, jitter=lambda: 0.0), Published)
    past.later()
    assert past.reconcile() == []


def isolated(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """The environment of every test, for what is made once for all of them."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "FEDOPS_", "SSH_AUTH_SOCK", "XDG_")):
            monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
