"""A small federation as its sites see it: two sites, one lead, a v0 with real bytes; in memory, or on git and disk."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_repo import GitRepository
from fedops.adapters.model_files import ModelFiles
from fedops.adapters.model_writer import save_arrays
from fedops.adapters.store_layout import LayoutStore
from fedops.app.context import Context
from fedops.app.snapshot import main_snapshot
from fedops.core.facts import Account, Pull, RefUpdate, Submission
from fedops.core.ids import CommitId, Digest, RepoPath, SiteId
from fedops.core.plan import plan_version
from fedops.core.records import Contribution, ModelEntry, Source, TensorEntry, VersionRecord, model_pointer
from fedops.ports import Forge, Repository, Store
from tests.core.samples import contribution, version
from tests.fakes_forge import FakeForge, FakeHub
from tests.fakes_repository import FakeOrigin
from tests.fakes_store import FakeStore
from tests.forge_worlds import ManualClock
from tests.sshkeys import SshKey, make_key, public_line

START = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
SITES = ("hospital-a", "hospital-b")
ACCOUNTS = {"lena": Account("lena", 1), "hospital-a": Account("alice-a", 1001), "hospital-b": Account("bob-b", 1002)}
BASE: Mapping[str, NDArray[Any]] = {
    "bias": np.array([0.5, -0.25], np.float32),
    "steps": np.array(7, np.int64),
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 8,
}


def moved(step: float, model: Mapping[str, NDArray[Any]] = BASE) -> dict[str, NDArray[Any]]:
    """A model whose values are all larger by `step`."""
    return {name: np.asarray(array + np.asarray(step, array.dtype)) for name, array in model.items()}


class Quiet:
    """Progress that only counts."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int | None, str]] = []
        self.advanced: dict[int, int] = {}
        self.finished: list[str] = []

    def start(self, what: str, total: int | None, unit: Literal["bytes", "sites", "commits", "steps"]) -> int:
        self.started.append((what, total, unit))
        return len(self.started)

    def advance(self, task: int, amount: int) -> None:
        self.advanced[task] = self.advanced.get(task, 0) + amount

    def finish(self, task: int, note: str = "") -> None:
        self.finished.append(note)


@dataclass
class World:
    """What all share, and one clone for each who.

    Attributes:
        roots: who -> work tree.
    """

    folder: Path
    clock: ManualClock
    keys: Mapping[str, SshKey]
    store: Store
    repositories: Mapping[str, Repository]
    forges: Mapping[str, Forge]
    progress: Quiet = field(default_factory=Quiet)

    def root(self, who: str) -> Path:
        return self.folder / who

    def ctx(self, who: str) -> Context:
        scratch = self.folder / "scratch" / who
        scratch.mkdir(parents=True, exist_ok=True)
        return Context(
            repository=self.repositories[who],
            forge=self.forges[who],
            stores=lambda url: self.store,
            models=ModelFiles(),
            clock=self.clock,
            progress=self.progress,
            scratch=scratch,
            software={"fedops": "0.1.0", "numpy": "2.4.6"},
        )

    def key(self, who: str) -> Path:
        return self.keys[who].private

    def close(self) -> None:
        for repository in self.repositories.values():
            if isinstance(repository, GitRepository):
                repository.close()

    # what the lead and CI do

    def put_model(self, arrays: Mapping[str, NDArray[Any]], number: int) -> ModelEntry:
        """Have a model in the global store."""
        path = self.folder / f"v{number}.safetensors"
        sha256, md5, size = save_arrays(path, arrays)
        artifact = self.store.put("global", path, {"fl.version": str(number)})
        names = {"float32": "F32", "int64": "I64"}
        tensors = {n: TensorEntry(dtype=names[a.dtype.name], shape=a.shape) for n, a in arrays.items()}  # type: ignore[arg-type]
        return ModelEntry(
            format="safetensors", size=size, sha256=sha256, md5=md5, manifest=artifact.manifest, tensors=tensors
        )

    def publish(
        self,
        record: VersionRecord,
        arrays: Mapping[str, NDArray[Any]] = BASE,
        *,
        files: Mapping[RepoPath, bytes] | None = None,
        tag: bool = True,
    ) -> CommitId:
        """Make a version of these tensors on main, as CI does, under its tag."""
        record = record.model_copy(update={"model": self.put_model(arrays, record.version)})
        repository = self.repositories["lena"]
        repository.fetch()
        parent = repository.resolve("main")
        pointer = model_pointer(record, "safetensors")
        plan = plan_version(record, pointer, parent or CommitId("0" * 40), extension="safetensors", at=self.clock.now())
        parents = [parent] if parent is not None else []
        commit = repository.write_commit(
            parents, {**(files or {}), **plan.files}, plan.commit_message, at=plan.at, key=self.key("lena")
        )
        updates = [RefUpdate("refs/heads/main", parent, commit)]
        if tag:
            name = repository.write_tag(plan.tag, commit, plan.tag_message)
            updates.append(RefUpdate(f"refs/tags/{plan.tag}", None, name))
        assert repository.push(updates)
        return commit

    def change(self, files: Mapping[str, bytes | None], message: str = "policy: change") -> None:
        """Push a commit of the lead to main."""
        repository = self.repositories["lena"]
        repository.fetch()
        main = repository.resolve("main")
        assert main is not None
        named = {RepoPath(path): data for path, data in files.items()}
        commit = repository.write_commit([main], named, message, at=self.clock.now(), key=self.key("lena"))
        assert repository.push([RefUpdate("refs/heads/main", main, commit)])

    def merge(self, pull: int) -> None:
        """Merge a pull request as it is."""
        forge = self.forges["lena"]
        one: Pull = forge.pull(pull)
        assert forge.merge(pull, one.head, f"merge: {one.title} (#{pull})") == "merged"
        self.repositories["lena"].fetch()

    def contribution_of(self, site: str, staleness: int = 0, share: float = 1.0) -> Contribution:
        """What a version says of the site's record on main."""
        repository = self.repositories["lena"]
        repository.fetch()
        main = main_snapshot(repository)
        data = json.loads(main.bytes_of(RepoPath(f"sites/{site}/submission.json")))
        blobs = main.site_blobs(SiteId(site))
        assert blobs is not None
        one = Submission(
            site=SiteId(site),
            base_version=data["base_version"],
            num_examples=data["num_examples"],
            payload="full",
            sha256=data["sha256"],
            md5=data["md5"],
            size=data["size"],
            manifest=Digest(data["manifest"]),
            record_blob=blobs[0],
            pointer_blob=blobs[1],
            commit=main.commit,
            merged_at=START,
        )
        return contribution(one, staleness=staleness, weight=float(one.num_examples), share=share)


def federation_files(keys: Mapping[str, SshKey], *, quorum: int = 2) -> dict[RepoPath, bytes]:
    """federation.yaml and policies/ of the two sites."""
    rows = "".join(
        f"  {s}: {{accounts: [{{login: {ACCOUNTS[s].login}, id: {ACCOUNTS[s].id}}}], "
        f'keys: ["{keys[s].public}"], state: active}}\n'
        for s in SITES
    )
    texts = {
        "federation.yaml": (
            'schema: fedops.federation/v1\nname: breast-cancer\nfedops: "0.1.0"\nstore: {url: "ocidir:store"}\n'
        ),
        "policies/sites.yaml": (
            f'schema: fedops.sites/v1\nleads: [{{login: lena, id: 1, keys: ["{keys["lena"].public}"]}}]\nsites:\n{rows}'
        ),
        "policies/submission.yaml": "schema: fedops.submission-policy/v1\n",
        "policies/training.yaml": "schema: fedops.training/v1\nhyperparameters: {epochs: 2, rate: 0.1}\n",
        "policies/aggregation.yaml": f"schema: fedops.aggregation/v1\ntrigger: {{quorum: {quorum}}}\n",
        ".gitignore": ".fedops/\n",
    }
    return {RepoPath(path): text.encode() for path, text in texts.items()}


def first(number: int = 0) -> VersionRecord:
    """The record of v0."""
    return version(number, kind="init").model_copy(update={"source": Source()})


def memory_world(folder: Path, *, people: Sequence[str] = ("lena", *SITES)) -> World:
    """Everything in memory but the model files and the sites' folders."""
    clock = ManualClock(START)
    keys = {who: _fake_key(folder, who) for who in ("lena", *SITES, "stranger")}
    origin, hub = FakeOrigin(), FakeHub()
    repositories: dict[str, Repository] = {who: origin.clone() for who in people}
    forges: dict[str, Forge] = {who: FakeForge(hub, repositories[who], ACCOUNTS[who], clock) for who in people}
    world = World(folder, clock, keys, FakeStore(), repositories, forges)
    return _found(world)


def git_world(folder: Path) -> World:
    """Real git, the forge inside of it, and a store in OCI layout."""
    clock = ManualClock(START)
    key_folder = folder / "keys"
    key_folder.mkdir()
    keys = {who: make_key(key_folder, who) for who in ("lena", *SITES, "stranger")}
    origin = folder / "origin.git"
    GitRepository.init(origin, bare=True).close()
    (origin / "store").mkdir()
    repositories: dict[str, Repository] = {
        who: GitRepository.clone(str(origin), folder / who) for who in ("lena", *SITES)
    }
    forges: dict[str, Forge] = {
        who: GitForge(repositories[who], clock=clock, key=keys[who].private, jitter=lambda: 0.0)
        for who in ("lena", *SITES)
    }
    world = _found(World(folder, clock, keys, LayoutStore(origin / "store"), repositories, forges))
    for repository in repositories.values():
        assert isinstance(repository, GitRepository)
        repository.fetch()
        assert repository.checkout_main() == "fast_forwarded"
    return world


def _fake_key(folder: Path, who: str) -> SshKey:
    """A key file that only the fake repository takes for one."""
    private = folder / "keys" / who
    private.parent.mkdir(exist_ok=True)
    public = public_line(who, who)
    private.write_text(f"private key of {who}\n")
    private.with_name(f"{who}.pub").write_text(public + "\n")
    return SshKey(private, public)


def _found(world: World) -> World:
    world.publish(first(), files=federation_files(world.keys))
    for who, repository in world.repositories.items():
        repository.fetch()
        world.root(who).mkdir(exist_ok=True)
    return world
