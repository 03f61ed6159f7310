"""A bare origin, a clone and a store folder in tmp_path, for tests of `fedops init` and of the roster."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedops.adapters.git_repo import GitRepository
from fedops.adapters.git_setup import make_origin
from fedops.adapters.model_files import ModelFiles
from fedops.adapters.store_layout import LayoutStore
from fedops.app.context import Context
from fedops.app.first_model import Generated
from fedops.app.founding import Ground, Wanted
from fedops.app.init import init
from fedops.app.scaffold import Scaffold
from fedops.core.facts import RefUpdate, TensorSpec
from fedops.core.settings import Lead
from fedops.ports import Repository, Store

AT = dt.datetime(2026, 3, 2, 10, 0, 0, 123456, tzinfo=dt.UTC)
SPECS = {"coef": TensorSpec("F32", (1, 30)), "intercept": TensorSpec("F32", (1,))}


@dataclass
class FixedClock:
    """Stands still, but for sleeping."""

    at: dt.datetime = AT
    slept: list[float] = field(default_factory=list)

    def now(self) -> dt.datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += dt.timedelta(seconds=seconds)


class Quiet:
    """A Progress that shows nothing."""

    def start(self, what: str, total: int | None, unit: str) -> int:
        return 1

    def advance(self, task: int, amount: int) -> None: ...

    def finish(self, task: int, note: str = "") -> None: ...


class Wrapped:
    """Passes everything on to another object, but for what a test replaces."""

    def __init__(self, inner: Any, **replaced: Any) -> None:
        self._inner = inner
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._inner, name)


@dataclass
class World:
    """Where everything is."""

    folder: Path
    clone: Path
    origin: Path
    clock: FixedClock

    @property
    def store_folder(self) -> Path:
        return self.origin / "store"

    def git(self, *arguments: str, at: Path | None = None) -> str:
        done = subprocess.run(["git", *arguments], cwd=at or self.origin, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def refs(self) -> dict[str, str]:
        """All refs of origin."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split() for line in lines)

    def show(self, path: str, ref: str = "main") -> bytes:
        return subprocess.run(["git", "show", f"{ref}:{path}"], cwd=self.origin, capture_output=True, check=True).stdout

    def paths(self) -> list[str]:
        return self.git("ls-tree", "-r", "--name-only", "main").splitlines()

    def commit(self, files: dict[str, bytes], message: str = "by hand") -> None:
        """Put files on origin's main, as a person would."""
        with GitRepository(self.clone) as repository:
            repository.fetch()
            tip = repository.resolve("main")
            made = repository.write_commit([tip] if tip else [], files, message, at=AT)  # type: ignore[arg-type]  # plain paths
            assert repository.push([RefUpdate("refs/heads/main", tip, made)])

    def store(self, _url: str = "") -> LayoutStore:
        return LayoutStore(self.store_folder)

    @contextmanager
    def ground(
        self, *, store: Store | None = None, wrap: Callable[[Repository], Repository] | None = None
    ) -> Iterator[Ground]:
        """What init is given; `store` and `wrap` put something else into its place."""
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        with GitRepository(self.clone) as repository:
            yield Ground(
                repository=wrap(repository) if wrap else repository,
                stores=lambda url: store or self.store(url),
                models=ModelFiles(),
                clock=self.clock,
                scratch=scratch,
                software={"fedops": "0.1.0", "numpy": "2.0"},
                work_tree=self.clone,
            )

    @contextmanager
    def context(self, *, wrap: Callable[[Repository], Repository] | None = None) -> Iterator[Context]:
        """What the other use cases are given; there is no forge."""
        with self.ground(wrap=wrap) as ground:
            yield Context(
                repository=ground.repository,
                forge=None,  # type: ignore[arg-type]  # the roster asks no forge
                stores=ground.stores,
                models=ground.models,
                clock=ground.clock,
                progress=Quiet(),
                scratch=ground.scratch,
                software=ground.software,
            )


def make_world(folder: Path) -> World:
    world = World(folder, folder / "clone", folder / "origin.git", FixedClock())
    world.clone.mkdir()
    make_origin(world.clone, world.origin, "main")
    world.store_folder.mkdir()
    return world


def wanted(**changes: Any) -> Wanted:
    """A small federation with one lead."""
    scaffold = Scaffold(name="fed", store="ocidir:store", fedops="0.1.0", leads=(Lead(login="lena", id=1),))
    return Wanted(**{"scaffold": scaffold, "model": Generated("normal", 5, SPECS), **changes})


def founded_world(folder: Path) -> World:
    """A world in which `fedops init` has run."""
    world = make_world(folder)
    with world.ground() as ground:
        assert init(ground, wanted()).changed
    return world
