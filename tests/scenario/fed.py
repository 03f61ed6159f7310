"""A federation of a few sites for whole stories: in memory, for schedules by the hundred, or on real git and disk.

What people and sites do is written here by hand, without the use cases under test, so that it can be wrong on purpose.
"""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import itertools
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_repo import GitRepository
from fedops.adapters.model_files import ModelFiles
from fedops.adapters.store_layout import LayoutStore
from fedops.app.context import Context
from fedops.app.reconcile import Reconciled, reconcile
from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.app.verify import Checked, verify
from fedops.core.artifacts import update_annotations
from fedops.core.documents import dump_json
from fedops.core.facts import Account, Pull, RefUpdate
from fedops.core.ids import CommitId, Digest, RepoPath, SiteId
from fedops.core.plan import plan_version
from fedops.core.records import (
    ModelEntry,
    Record,
    Source,
    TensorEntry,
    VersionRecord,
    model_pointer,
    render_pointer,
    update_pointer,
)
from fedops.ports import Clock, Forge, Repository, Store
from tests.core.samples import version
from tests.fakes_forge import FakeForge, FakeHub
from tests.fakes_repository import FakeOrigin, FakeRepository
from tests.fakes_store import FakeStore
from tests.forge_worlds import ManualClock
from tests.site_world import Quiet
from tests.sshkeys import SshKey, make_key

START = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
SITES = ("bank-d", "clinic-c", "hospital-a", "hospital-b")
PEOPLE = ("lena", "leo", *SITES)
ACCOUNTS = {who: Account(f"{who}-login", 1 + i) for i, who in enumerate(PEOPLE)} | {"bot": Account("bot", 99)}
Arrays = Mapping[str, NDArray[Any]]
Rules = dict[str, Any]


def arrays(value: float, steps: int = 0) -> dict[str, NDArray[Any]]:
    """A model of two tensors."""
    return {"steps": np.array(steps, np.int64), "w": np.array([value, -value], np.float32)}


Made = tuple[Sequence[CommitId], Mapping[RepoPath, bytes | None]]  # parents and files of a commit


class Conflict(Exception):  # noqa: N818 what git says, no error of the test
    """Two sides changed the same file."""


@dataclass(frozen=True)
class Upload:
    """Model bytes in a site's store, and the record that describes them."""

    record: Record
    data: bytes


@dataclass
class Scratch:
    """Folders for model files, on the fastest disk there is: hundreds of small files are made durable."""

    folder: Path
    count: itertools.count[int] = field(default_factory=itertools.count)

    def new(self) -> Path:
        path = self.folder / str(next(self.count))
        path.mkdir()
        return path


def fast_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder, in memory where the system has one there."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)


class Fed:
    """One federation; who takes part has a clone and a forge each, a runner (a CI job) one of its own.

    Args:
        folder: for temporary files and real clones.
        rules: policies/aggregation.yaml; `submission` the same for policies/submission.yaml.
        people: who gets a clone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rules: Rules | None = None,
        submission: Rules | None = None,
        base: Arrays | None = None,
        people: Sequence[str] = PEOPLE,
        sites: Sequence[str] = SITES,
    ) -> None:
        self.folder = folder
        self.clock = ManualClock(START)
        self.scratch = Scratch(folder / "scratch")
        self.scratch.folder.mkdir()
        self.rules: Rules = {"trigger": {"quorum": 2}} | (rules or {})
        self.submission: Rules = submission or {}
        self.states = dict.fromkeys(sites, "active")
        self.site_stores: dict[str, str] = {}
        self.leads: tuple[str, ...] = ("lena", "leo")
        self.keys = self._make_keys(people)
        self.store: Store = self._make_store()
        self.repositories = {who: self.new_clone(who) for who in people}
        self.uploads: dict[tuple[str, str], Upload] = {}  # site, manifest
        self._found(base or arrays(0.5))

    # what differs in memory and on disk

    def _make_keys(self, people: Sequence[str]) -> dict[str, SshKey]:
        raise NotImplementedError

    def _make_store(self) -> Store:
        raise NotImplementedError

    def new_clone(self, who: str) -> Repository:
        raise NotImplementedError

    def forge(self, who: str, repository: Repository | None = None, clock: Clock | None = None) -> Forge:
        raise NotImplementedError

    def state(self) -> object:
        """Everything that origin, forge and store hold, to be compared with ==."""
        raise NotImplementedError

    def lose(self, repository: str, digest: Digest, *, damage: bool) -> bool:
        """Delete a blob of the store, or change one bit of it; False: it is not there."""
        raise NotImplementedError

    def close(self) -> None: ...

    # contexts

    def context(
        self,
        *,
        repository: Repository | None = None,
        forge: Forge | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
    ) -> Context:
        """What one run of CI is given: a clone and temporary folder of its own."""
        own = repository if repository is not None else self.new_clone("bot")
        used = store if store is not None else self.store
        return Context(
            repository=own,
            forge=forge if forge is not None else self.forge("bot", own, clock),
            stores=lambda url: used,
            models=ModelFiles(),
            clock=clock if clock is not None else self.clock,
            progress=Quiet(),
            scratch=self.scratch.new(),
            software={"fedops": "0.1.0", "numpy": "2"},
        )

    def reconcile(self, ctx: Context | None = None) -> Reconciled:
        return reconcile(ctx if ctx is not None else self.context(), jitter=lambda: 0.5)

    def verify(self) -> list[Checked]:
        ctx = self.context()
        ctx.repository.fetch()
        return list(verify(ctx, main_snapshot(ctx.repository), None))

    def main(self, who: str = "lena") -> Snapshot:
        """Origin's main, fetched by somebody."""
        self.repositories[who].fetch()
        return main_snapshot(self.repositories[who])

    @property
    def version(self) -> VersionRecord:
        return self.main().version

    # the lead

    def policy_files(self) -> dict[RepoPath, bytes | None]:
        def text(schema: str, content: Rules) -> bytes:
            return (json.dumps({"schema": f"fedops.{schema}/v1"} | content) + "\n").encode()

        def person(who: str) -> Rules:
            return {"login": ACCOUNTS[who].login, "id": ACCOUNTS[who].id}

        leads = [person(who) | {"keys": [self.keys[who].public]} for who in self.leads if who in self.keys]
        sites: Rules = {
            s: {"accounts": [person(s)], "keys": [self.keys[s].public], "state": state}
            | ({"store": self.site_stores[s]} if s in self.site_stores else {})
            for s, state in self.states.items()
        }
        return {
            RepoPath("federation.yaml"): text("federation", {"name": "fed", "fedops": "0.1.0", "store": {"url": "ocidir:store"}}),
            RepoPath("policies/sites.yaml"): text("sites", {"leads": leads, "sites": sites}),
            RepoPath("policies/submission.yaml"): text("submission-policy", self.submission),
            RepoPath("policies/training.yaml"): text("training", {}),
            RepoPath("policies/aggregation.yaml"): text("aggregation", self.rules),
        }  # fmt: skip

    def commit(self, files: Mapping[str, bytes | None], message: str = "by hand", who: str = "lena") -> CommitId:
        """Push a commit to main, on whatever its tip is then."""
        named = {RepoPath(path): data for path, data in files.items()}
        return self._push_main(who, lambda main: ([main], named), message)

    def _push_main(self, who: str, make: Callable[[CommitId], Made | None], message: str) -> CommitId:
        repository = self.repositories[who]
        while True:
            repository.fetch()
            main = repository.resolve("main")
            assert main is not None
            made = make(main)
            if made is None:
                raise Conflict
            commit = repository.write_commit(*made, message, at=self.clock.now(), key=self.keys[who].private)
            if repository.push([RefUpdate("refs/heads/main", main, commit)]):
                return commit

    def set_rules(self, **rules: Any) -> None:
        """Change policies/aggregation.yaml."""
        self.rules = {**self.rules, **rules}
        self.push_policies()

    def set_state(self, site: str, state: str) -> None:
        self.states[site] = state
        self.push_policies()

    def push_policies(self) -> None:
        files = self.policy_files()
        main = self.main()
        changed = {p: d for p, d in files.items() if p not in main.files or main.bytes_of(p) != d}
        if changed:
            self.commit({str(p): d for p, d in changed.items()}, "policy: change")

    def merge_by_hand(self, number: int, message: str = "Merge by hand", *, squash: bool = False) -> bool:
        """Merge a pull request with git, as a person would; False: git would ask to resolve a conflict."""
        repository = self.repositories["lena"]
        pull = self.forge("lena").pull(number)

        def make(main: CommitId) -> Made | None:
            ours = {c.path: c.blob for c in repository.changes(pull.head, main)}
            theirs = {c.path: c.blob for c in repository.changes(main, pull.head)}
            if any(ours.get(path, blob) != blob for path, blob in theirs.items()):
                return None
            files = {p: None if b is None else repository.read(b, max_bytes=2**24) for p, b in theirs.items()}
            return [main] if squash else [main, pull.head], files

        try:
            self._push_main("lena", make, message)
        except Conflict:
            return False
        return True

    def _found(self, base: Arrays) -> None:
        repository = self.repositories["lena"]
        data = save({n: np.asarray(a) for n, a in base.items()})
        path = self.scratch.new() / "model.safetensors"
        path.write_bytes(data)
        stored = self.store.put("global", path, {"fl.version": "0"})
        names = {"float32": "F32", "int64": "I64"}
        tensors = {n: TensorEntry(dtype=names[a.dtype.name], shape=a.shape) for n, a in base.items()}  # type: ignore[arg-type]
        model = ModelEntry(
            format="safetensors",
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            md5=hashlib.md5(data, usedforsecurity=False).hexdigest(),
            manifest=stored.manifest,
            tensors=tensors,
        )
        # The policy digest by the words of the contract.
        rows = sorted((p, hashlib.sha256(d or b"").hexdigest()) for p, d in self.policy_files().items())
        digest = hashlib.sha256("".join(f"{sha256}  {p}\n" for p, sha256 in rows).encode()).hexdigest()
        made = {"source": Source(), "model": model, "policy": f"sha256:{digest}"}
        first = version(0, kind="init").model_copy(update=made)
        step = plan_version(
            first, model_pointer(first, "safetensors"), CommitId("0" * 40), extension="safetensors", at=START
        )
        commit = repository.write_commit([], {**self.policy_files(), **step.files}, step.commit_message, at=START)
        tag = repository.write_tag(step.tag, commit, step.tag_message)
        updates = [RefUpdate("refs/heads/main", None, commit), RefUpdate(f"refs/tags/{step.tag}", None, tag)]
        assert repository.push(updates)

    # a site

    def upload(
        self,
        site: str,
        base: int,
        model: Arrays | bytes,
        *,
        num_examples: int = 10,
        created_at: str | None = None,
        config: bytes = b"{}",
        annotations: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Record:
        """Put an update into the site's store; returns the record that belongs to it, with other `fields` where given."""
        data = model if isinstance(model, bytes) else save({n: np.asarray(a) for n, a in model.items()})
        created = created_at or self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        path = self.scratch.new() / "update.safetensors"
        path.write_bytes(data)
        said = update_annotations(site=SiteId(site), base_version=base, num_examples=num_examples, created_at=created)
        stored = self.store.put(f"sites/{site}", path, said if annotations is None else annotations, config)
        values: dict[str, Any] = {
            "site": site,
            "base_version": base,
            "num_examples": num_examples,
            "format": "safetensors",
            "payload": "full",
            "sha256": hashlib.sha256(data).hexdigest(),
            "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
            "size": len(data),
            "manifest": stored.manifest,
            "metrics": {"loss": 0.25},
            "created_at": created,
        }
        record = Record(**values | fields)
        self.uploads[site, record.manifest] = Upload(record, data)
        return record

    def handed_in(self, record: Record) -> dict[RepoPath, bytes | None]:
        """The two files of a submission."""
        return {
            RepoPath(f"sites/{record.site}/submission.json"): dump_json(record),
            RepoPath(f"sites/{record.site}/update.safetensors.dvc"): render_pointer(update_pointer(record, "safetensors")),
        }  # fmt: skip

    def open_pull(
        self,
        who: str,
        files: Mapping[RepoPath, bytes | None],
        *,
        branch: str | None = None,
        message: str = "submit",
        signed: bool = True,
        parents: Sequence[CommitId] | None = None,
    ) -> Pull:
        """Open a pull request of one commit on main (or on `parents`), or move the open one of that branch."""
        repository = self.repositories[who]
        repository.fetch()
        main = repository.resolve("main")
        assert main is not None
        key = self.keys[who].private if signed else None
        at = self.clock.now()
        head = repository.write_commit(parents if parents is not None else [main], files, message, at=at, key=key)
        return self.forge(who).submit_pull(head, branch or f"submit/{who}", f"submit({who})", "")

    def submit(
        self,
        site: str,
        model: Arrays | float,
        *,
        base: int | None = None,
        num_examples: int = 10,
        signed: bool = True,
        parents: Sequence[CommitId] | None = None,
    ) -> Pull:
        """Hand in an update on a version (default: the current one)."""
        on = base if base is not None else self.main(site).version.version
        values = model if not isinstance(model, float) else arrays(model)
        record = self.upload(site, on, values, num_examples=num_examples)
        return self.open_pull(site, self.handed_in(record), signed=signed, parents=parents)

    def model(self, number: int | None = None) -> dict[str, NDArray[Any]]:
        """The tensors of a version, read by the reference library."""
        from safetensors.numpy import load

        main = self.main()
        record = main.version
        if number is not None and number != record.version:
            commit = main.repository.resolve(f"refs/tags/global@v{number}.0.0")
            assert commit is not None
            entry = next(e for e in main.repository.entries(commit, "global") if e.path == "global/version.json")
            record = VersionRecord.model_validate_json(main.repository.read(entry.blob, max_bytes=2**24))
        target = self.scratch.new() / "model.safetensors"
        artifact = self.store.manifest("global", Digest(record.model.manifest))
        self.store.get("global", artifact.layer, target)
        return dict(load(target.read_bytes()))


class MemoryFed(Fed):
    """Everything in memory but temporary model files; the forge too."""

    store: FakeStore

    def _make_keys(self, people: Sequence[str]) -> dict[str, SshKey]:
        folder = self.folder / "keys"
        folder.mkdir()
        self._public = {f"private key of {who}\n": f"ssh-ed25519 AAAA{who.encode().hex()} {who}" for who in people}
        for who in people:
            (folder / who).write_text(f"private key of {who}\n")
        self.origin, self.hub = FakeOrigin(), FakeHub()
        return {who: SshKey(folder / who, self._public[f"private key of {who}\n"]) for who in people}

    def _make_store(self) -> Store:
        return FakeStore()

    def new_clone(self, who: str) -> FakeRepository:
        return self.origin.clone(author=(who, f"{who}@example.invalid"), public_keys=self._public)

    def forge(self, who: str, repository: Repository | None = None, clock: Clock | None = None) -> Forge:
        own = repository if repository is not None else self.repositories[who]
        key = self.keys[who].private if who in self.keys else None
        return FakeForge(self.hub, own, ACCOUNTS[who], clock or self.clock, key=key)

    def lose(self, repository: str, digest: Digest, *, damage: bool) -> bool:
        if digest.removeprefix("sha256:") not in self.store._blobs[repository]:
            return False
        (self.store.damage if damage else self.store.lose)(repository, digest)
        return True

    def state(self) -> object:
        hub = self.hub
        return (
            dict(self.origin.refs),
            copy.deepcopy((hub.pulls, hub.issues, hub.reviews, hub.statuses, hub.comments)),
            {name: dict(blobs) for name, blobs in self.store._blobs.items() if blobs},
            {name: dict(tags) for name, tags in self.store._tags.items() if tags},
        )


class GitFed(Fed):
    """Real git, the forge inside of it, and a store in OCI layout."""

    def _make_keys(self, people: Sequence[str]) -> dict[str, SshKey]:
        folder = self.folder / "keys"
        folder.mkdir()
        self.origin = self.folder / "origin.git"
        GitRepository.init(self.origin, bare=True).close()
        self._open: list[GitRepository] = []
        self._count = itertools.count()
        return {who: make_key(folder, who) for who in people}

    def _make_store(self) -> Store:
        (self.origin / "store").mkdir()
        return LayoutStore(self.origin / "store")

    def new_clone(self, who: str) -> GitRepository:
        path = self.folder / f"{who}-{next(self._count)}"
        clone = GitRepository.clone(str(self.origin), path, author=(who, f"{who}@example.invalid"))
        self._open.append(clone)
        return clone

    def forge(self, who: str, repository: Repository | None = None, clock: Clock | None = None) -> Forge:
        own = repository if repository is not None else self.repositories[who]
        key = self.keys[who].private if who in self.keys else None
        return GitForge(own, clock=clock or self.clock, key=key, jitter=random.random)

    def lose(self, repository: str, digest: Digest, *, damage: bool) -> bool:
        path = self.origin / "store" / repository / "blobs" / "sha256" / digest.removeprefix("sha256:")
        if not path.is_file():
            return False
        data = path.read_bytes()
        path.unlink()
        if damage:
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        return True

    def state(self) -> object:
        refs = self._open[0]._git.check("-C", str(self.origin), "for-each-ref", "--format=%(objectname) %(refname)")
        files = {
            str(p.relative_to(self.origin)): p.read_bytes()
            for p in sorted((self.origin / "store").rglob("*"))
            if p.is_file()
        }
        return refs, files

    def close(self) -> None:
        for repository in self._open:
            repository.close()


Meddler = Callable[[str], None]


class Watched:
    """A port of which every call is announced before, and if wished after, it is made."""

    def __init__(self, inner: Any, name: str, before: Meddler, after: Meddler | None = None) -> None:
        self._inner, self._name, self._before, self._after = inner, name, before, after

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._inner, attribute)
        if not callable(value):
            return value
        name = f"{self._name}.{attribute}"

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before(name)
            result = value(*args, **kwargs)
            if self._after is not None:
                self._after(name)
            return result

        return call


def watched(fed: Fed, before: Meddler, after: Meddler | None = None, *, ctx: Context | None = None) -> Context:
    """The context of a run whose every port call is announced."""
    plain = ctx if ctx is not None else fed.context()
    store = Watched(fed.store, "store", before, after)
    return Context(
        repository=Watched(plain.repository, "repository", before, after),
        forge=Watched(plain.forge, "forge", before, after),
        stores=lambda url: store,
        models=plain.models,
        clock=Watched(plain.clock, "clock", before, after),
        progress=plain.progress,
        scratch=plain.scratch,
        software=plain.software,
    )
