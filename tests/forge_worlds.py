"""Three people and one federation on each kind of forge, for the tests of the Forge port."""

from __future__ import annotations

import copy
import datetime as dt
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedops.adapters.forge_git import GitForge
from fedops.adapters.git_repo import GitRepository
from fedops.core.facts import Account, RefUpdate
from fedops.core.ids import CommitId, RepoPath
from fedops.ports import Forge, Repository
from tests.fakes_forge import FakeForge, FakeHub
from tests.fakes_repository import FakeOrigin
from tests.sshkeys import SshKey, make_key

START = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
ACCOUNTS = {"lena": Account("lena", 1), "alice": Account("alice-a", 1001), "bob": Account("bob-b", 1002)}
SITES = {"alice": "hospital-a", "bob": "hospital-b"}


class ManualClock:
    """Stands still but for sleeps, which it records."""

    def __init__(self, at: dt.datetime = START) -> None:
        self.at = at
        self.slept: list[float] = []

    def now(self) -> dt.datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += dt.timedelta(seconds=seconds)


class Meddled:
    """A Repository in whose push somebody else comes first, as often as hooks are given."""

    def __init__(self, repository: Repository, before_push: Sequence[Callable[[], object]]) -> None:
        self._repository = repository
        self._before_push = list(before_push)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._repository, name)

    def push(self, updates: Sequence[RefUpdate]) -> bool:
        if self._before_push:
            self._before_push.pop(0)()
        return self._repository.push(updates)


def make_keys(folder: Path) -> dict[str, SshKey]:
    return {who: make_key(folder, who) for who in (*ACCOUNTS, "stranger")}


def roster(keys: Mapping[str, SshKey]) -> bytes:
    lines = ["schema: fedops.sites/v1", f'leads: [{{login: lena, id: 1, keys: ["{keys["lena"].public}"]}}]', "sites:"]
    for who, site in SITES.items():
        account = f"{{login: {ACCOUNTS[who].login}, id: {ACCOUNTS[who].id}}}"
        lines.append(f'  {site}: {{accounts: [{account}], keys: ["{keys[who].public}"], state: active}}')
    return ("\n".join(lines) + "\n").encode()


class World(Protocol):
    """A federation with main, and who takes part in it: "lena" leads, "alice" and "bob" are sites."""

    keys: Mapping[str, SshKey]

    def repository(self, who: str) -> Repository:
        """The one clone of a person."""
        ...

    def new_clone(self, who: str) -> Repository: ...

    def forge_of(self, who: str, repository: Repository) -> Forge: ...

    def state(self) -> object:
        """Everything that the origin (and the forge's server) holds, to be compared with ==."""
        ...


class Clones:
    """What the worlds share."""

    keys: Mapping[str, SshKey]

    def __init__(self, keys: Mapping[str, SshKey]) -> None:
        self.keys = keys
        self._clones: dict[str, Repository] = {}

    def new_clone(self, who: str) -> Repository:
        raise NotImplementedError

    def repository(self, who: str) -> Repository:
        if who not in self._clones:
            self._clones[who] = self.new_clone(who)
        return self._clones[who]


def start(repository: Repository, keys: Mapping[str, SshKey]) -> None:
    """Put the federation's first commit on main."""
    files: dict[RepoPath, bytes | None] = {
        RepoPath("README.md"): b"a federation\n",
        RepoPath("policies/sites.yaml"): roster(keys),
        RepoPath("sites/hospital-b/submission.json"): b"{}\n",
    }
    push_main(repository, files)


class MemoryGitWorld(Clones):
    """forge: git over the repository in memory."""

    def __init__(self, keys: Mapping[str, SshKey]) -> None:
        super().__init__(keys)
        self.origin = FakeOrigin()
        start(self.repository("lena"), keys)

    def new_clone(self, who: str) -> Repository:
        return self.origin.clone(author=(who, f"{who}@example.invalid"))

    def environment(self, who: str) -> Mapping[str, str]:
        """What git finds in a person's environment."""
        return {}

    def forge_of(self, who: str, repository: Repository) -> Forge:
        return GitForge(repository, clock=ManualClock(), key=self.keys[who].private)

    def state(self) -> object:
        return self.refs()

    def refs(self) -> dict[str, str]:
        return dict(self.origin.refs)


class FakeWorld(MemoryGitWorld):
    """The forge in memory."""

    def __init__(self, keys: Mapping[str, SshKey]) -> None:
        self.hub = FakeHub()
        super().__init__(keys)

    def forge_of(self, who: str, repository: Repository) -> Forge:
        return FakeForge(self.hub, repository, ACCOUNTS[who], ManualClock())

    def state(self) -> object:
        hub = self.hub
        return self.refs(), copy.deepcopy(
            (hub.pulls, hub.issues, hub.reviews, hub.statuses, hub.comments, hub.beats),
        )


class GitWorld(Clones):
    """forge: git over a bare origin on disk.

    Args:
        template: what `git_template` made; copying it is much faster than making it.
    """

    def __init__(self, keys: Mapping[str, SshKey], template: Path, folder: Path) -> None:
        super().__init__(keys)
        self._clone = template / "clone"
        self._folder = folder
        self._made = itertools.count()
        shutil.copytree(template / "origin.git", folder / "origin.git")
        self.origin = GitRepository(folder / "origin.git")
        self._open: list[GitRepository] = [self.origin]

    def new_clone(self, who: str) -> Repository:
        path = self._folder / f"{who}-{next(self._made)}"
        shutil.copytree(self._clone, path)
        clone = GitRepository(path, author=(who, f"{who}@example.invalid"), env=self.environment(who))
        self._open.append(clone)
        return clone

    def environment(self, who: str) -> Mapping[str, str]:
        """What git finds in a person's environment."""
        return {}

    def forge_of(self, who: str, repository: Repository) -> Forge:
        return GitForge(repository, clock=ManualClock(), key=self.keys[who].private)

    def state(self) -> object:
        return self.origin._git.check("for-each-ref", "--format=%(objectname) %(refname)")

    def close(self) -> None:
        for repository in self._open:
            repository.close()


def git_template(keys: Mapping[str, SshKey], folder: Path) -> Path:
    """Make an origin with main and one clone of it, which finds its origin beside itself wherever both are."""
    GitRepository.init(folder / "origin.git", bare=True).close()
    url = str(folder / "origin.git")
    with GitRepository.clone(url, folder / "clone", author=("lena", "lena@example.invalid")) as clone:
        clone._git.check("config", "remote.origin.url", "../origin.git")
        start(clone, keys)
    return folder


def worlds(kind: str, keys: Mapping[str, SshKey], template: Path, folder: Path) -> Iterator[World]:
    """One world of a kind (one of KINDS); closed afterwards."""
    if kind == "github":
        from tests.github_face.world import github_world

        yield from github_world(keys, template, folder)
    elif kind == "git":
        world = GitWorld(keys, template, folder)
        yield world
        world.close()
    else:
        yield FakeWorld(keys) if kind == "fake" else MemoryGitWorld(keys)


KINDS = ("git", "git in memory", "fake", "github")


def forge(world: World, who: str) -> Forge:
    """A person's forge on the person's one clone."""
    return world.forge_of(who, world.repository(who))


def main_of(repository: Repository) -> CommitId:
    """Origin's main, fetched."""
    repository.fetch()
    main = repository.resolve("main")
    assert main is not None
    return main


def ref_of(repository: Repository, ref: str) -> CommitId | None:
    """A ref of origin, fetched."""
    repository.fetch()
    return repository.resolve(ref)


def push_main(
    repository: Repository, files: Mapping[RepoPath, bytes | None], message: str = "by hand", *, at: dt.datetime = START
) -> CommitId:
    """Put one commit on top of main, as a person does: once more where somebody else was faster."""
    while True:
        repository.fetch()
        main = repository.resolve("main")
        commit = repository.write_commit((main,) if main is not None else (), files, message, at=at)
        if repository.push((RefUpdate("refs/heads/main", main, commit),)):
            return commit


def submission(
    world: World, who: str, content: str = "1", *, signed: bool = True, clone: Repository | None = None
) -> CommitId:
    """A person's commit with a new record on top of main, in a clone (default: the person's own); not published."""
    repository = clone if clone is not None else world.repository(who)
    path = RepoPath(f"sites/{SITES.get(who, who)}/submission.json")
    key = world.keys[who].private if signed else None
    base = main_of(repository)
    return repository.write_commit((base,), {path: content.encode()}, f"submit: {content}", at=START, key=key)


def files_of(repository: Repository, commit: CommitId) -> dict[str, bytes]:
    """All files of a commit."""
    return {e.path: repository.read(e.blob, max_bytes=2**20) for e in repository.entries(commit)}
