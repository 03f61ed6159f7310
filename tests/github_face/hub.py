"""What a GitHub keeps, in memory, and its repositories, which are ordinary bare ones on disk."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.github_face.openapi import Exchange
from tests.github_face.rights import Rights
from tests.github_face.settings import Settings

OWNER, NAME = "fed-org", "demo"


@dataclass(frozen=True)
class User:
    login: str
    id: int
    kind: Literal["User", "Bot", "Organization"] = "User"


@dataclass(frozen=True)
class Job:
    """Who a workflow's job is, and what its token may do here; nothing elsewhere."""

    user: User
    rights: Rights


@dataclass
class Repo:
    owner: User
    name: str
    id: int
    path: Path
    parent: Repo | None = None
    writers: set[str] = field(default_factory=set)

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"


@dataclass
class Item:
    """An issue, and what a pull request has in common with one."""

    number: int
    author: User
    title: str
    body: str
    at: dt.datetime
    touched: dt.datetime
    state: Literal["open", "closed"] = "open"
    reason: str | None = None
    labels: list[str] = field(default_factory=list)


@dataclass
class PullItem(Item):
    source: Repo | None = None
    ref: str = ""
    head: str = ""
    draft: bool = False
    merged_at: dt.datetime | None = None
    merge_commit: str | None = None


@dataclass
class Comment:
    id: int
    number: int
    author: User
    body: str
    at: dt.datetime
    edited: dt.datetime | None = None

    @property
    def touched(self) -> dt.datetime:
        return self.edited or self.at


@dataclass
class ReviewItem:
    id: int
    number: int
    author: User
    body: str
    state: str
    commit: str


@dataclass
class StatusItem:
    id: int
    sha: str
    context: str
    state: str
    description: str
    creator: User


@dataclass
class Release:
    id: int
    tag: str
    name: str
    body: str


@dataclass
class Fault:
    """What the server does instead of a right answer, so many times.

    Args:
        after: the request is carried out first, and only its answer is lost.
        status: 0 cuts the connection.
    """

    method: str
    path: str  # a pattern
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "Server Error"
    after: bool = False
    times: int = 1

    def strikes(self, method: str, path: str) -> bool:
        hit = self.times > 0 and method == self.method and re.search(self.path, path) is not None
        self.times -= hit
        return hit


class Hub:
    """One GitHub with one organisation, its repository, and forks.

    Args:
        folder: of the bare repositories.
        now: the server's clock.
    """

    def __init__(self, folder: Path, now: Callable[[], dt.datetime]) -> None:
        self.folder = folder
        self.now = now
        self.lock = threading.RLock()
        self.users: dict[str, User] = {}  # by token
        self.jobs: dict[str, Job] = {}  # by token
        self.bots: dict[str, User] = {}  # by login
        self.repos: dict[str, Repo] = {}  # by name in lower case
        self.items: dict[int, Item] = {}
        self.comments: dict[int, Comment] = {}
        self.reviews: list[ReviewItem] = []
        self.statuses: list[StatusItem] = []
        self.labels: dict[str, str] = {}
        self.releases: list[Release] = []
        self.faults: list[Fault] = []
        self.settings = Settings()
        self.before_merge: list[Callable[[], object]] = []
        self.exchanges: list[Exchange] = []
        self.requests: list[tuple[str, str, str]] = []  # method, path, Authorization: of git too
        self.questions: list[int] = []  # by GraphQL: of how many things each asked
        self.misasked: list[str] = []  # questions that nobody has written down here
        self.has_graph = True
        self.minted: list[str] = []  # tokens of jobs, gone or not
        self.refused: list[tuple[str, str, str]] = []  # token of a job, method, path: what it had no right to
        self.dispatches: list[tuple[str, Mapping[str, str]]] = []  # workflow file, inputs
        self._ids = itertools.count(1001)

    # ------------------------------------------------------------ accounts and repositories

    def add_user(self, login: str, number: int, token: str) -> User:
        user = User(login, number)
        self.users[token] = user
        return user

    def add_job(self, token: str, rights: Rights, login: str = "github-actions[bot]", number: int = 41898282) -> User:
        """A token without a user, as a workflow's job has one."""
        bot = self.bots[login] = User(login, number, "Bot")
        self.jobs[token] = Job(bot, rights)
        return bot

    def add_repo(self, path: Path, writers: set[str], owner: User | None = None, parent: Repo | None = None) -> Repo:
        """Serve a bare repository that is there already."""
        owner = owner or User(OWNER, 900, "Organization")
        repo = Repo(owner, NAME, 5000 + len(self.repos), path, parent, writers)
        self.repos[repo.full_name.lower()] = repo
        for key, value in (("http.receivepack", "true"), ("receive.hideRefs", "refs/pull")):
            self.git(repo, "config", key, value)
        return repo

    def fork(self, user: User) -> Repo:
        path = self.folder / f"{user.login}.git"
        self.run("git", "init", "--quiet", "--bare", "--initial-branch=main", str(path))
        # As on GitHub, a fork shares the objects of its network.
        (path / "objects/info/alternates").write_text(f"{self.upstream.path / 'objects'}\n")
        return self.add_repo(path, {user.login}, user, self.upstream)

    @property
    def upstream(self) -> Repo:
        return self.repos[f"{OWNER}/{NAME}"]

    def user_of(self, login: str) -> User | None:
        known = [*self.users.values(), *self.bots.values(), *(repo.owner for repo in self.repos.values())]
        return next((u for u in known if u.login.lower() == login.lower()), None)

    def may_write(self, user: User | None, repo: Repo) -> bool:
        """True for who has the role; of a job's token what it may do was asked before (jobs.py)."""
        return user is not None and (user.login in repo.writers or (user.kind == "Bot" and repo is self.upstream))

    # ------------------------------------------------------------ items

    def next_id(self) -> int:
        return next(self._ids)

    def next_number(self) -> int:
        return len(self.items) + 1

    def pull(self, number: int) -> PullItem | None:
        item = self.items.get(number)
        return item if isinstance(item, PullItem) else None

    def pulls(self) -> list[PullItem]:
        return [i for i in self.items.values() if isinstance(i, PullItem)]

    # ------------------------------------------------------------ git

    def run(self, *command: str, stdin: str | None = None, env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, env=env)
        return done.stdout.strip()

    def git(self, repo: Repo, *args: str) -> str:
        return self.run("git", "-C", str(repo.path), *args)

    def ref(self, repo: Repo, ref: str) -> str | None:
        found = subprocess.run(
            ["git", "-C", str(repo.path), "rev-parse", "--verify", "--quiet", ref], capture_output=True, text=True
        )
        return found.stdout.strip() or None

    def has_commit(self, sha: str) -> bool:
        return self.ref(self.upstream, f"{sha}^{{commit}}") is not None

    def is_ancestor(self, one: str, of: str) -> bool:
        command = ["git", "-C", str(self.upstream.path), "merge-base", "--is-ancestor", one, of]
        return subprocess.run(command, capture_output=True).returncode == 0

    def notice(self) -> None:
        """What GitHub works out after a push: heads of open pull requests, and which of them came to main."""
        main = self.ref(self.upstream, "refs/heads/main")
        for pull in self.pulls():
            if pull.state != "open":
                continue
            head = self.ref(pull.source, f"refs/heads/{pull.ref}") if pull.source is not None else None
            if head is not None and head != pull.head:
                self.take_head(pull, head)
            if main is not None and self.is_ancestor(pull.head, main):
                pull.state, pull.merged_at, pull.merge_commit = "closed", self.now(), main

    def take_head(self, pull: PullItem, head: str) -> None:
        assert pull.source is not None
        if pull.source is not self.upstream:
            self.git(self.upstream, "fetch", "--quiet", "--no-tags", str(pull.source.path), f"refs/heads/{pull.ref}")
        self.git(self.upstream, "update-ref", f"refs/pull/{pull.number}/head", head)
        pull.head = head

    def merged_tree(self, base: str, head: str) -> str | None:
        """Tree of a merge, None for a conflict."""
        command = ["git", "-C", str(self.upstream.path), "merge-tree", "--write-tree", base, head]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout.split("\n")[0] if done.returncode == 0 else None

    def commit(self, tree: str, parents: list[str], message: str, author: User, env: Mapping[str, str]) -> str:
        at = f"{int(self.now().timestamp())} +0000"
        names = {"NAME": author.login, "EMAIL": f"{author.id}@users.noreply.invalid", "DATE": at}
        who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in names.items()}
        options = [option for parent in parents for option in ("-p", parent)]
        command = ["git", "-C", str(self.upstream.path), "commit-tree", tree, *options]
        return self.run(*command, stdin=message, env={**env, **who})

    def snapshot(self) -> Any:
        """Everything that is kept, to be compared with ==."""
        refs = {name: self.git(repo, "for-each-ref") for name, repo in self.repos.items()}
        kept = (self.items, self.comments, self.reviews, self.statuses, self.labels, self.releases)
        return refs, repr(kept)
