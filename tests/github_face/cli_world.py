"""The command-line federation of tests/cli_world.py, moved to the loopback GitHub: sites have forks, CI a job's token."""

from __future__ import annotations

import datetime as dt
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters import github_http
from fedops.adapters.git_credentials import git_credentials
from tests.cli_world import CLIENT, EXAMPLES, HOOK, SITES, STEPS, TENSORS, Ran, World, environment, git
from tests.github_face.hub import NAME, OWNER, Hub
from tests.github_face.server import Server, serving

LEADS = {"lena": 1}
JOB = "token-of-the-job"


@dataclass(frozen=True)
class GitHubWorld(World):
    """Clones fetch and push over HTTP, each with its own token; the lead's clone is lena's.

    Args:
        server: whose only repository is fed.git.
        sign_in: name -> what its environment has besides, for the store.
    """

    server: Server
    sign_in: Callable[[str], Mapping[str, str]] = lambda who: {}

    @property
    def hub(self) -> Hub:
        return self.server.hub

    def token(self, who: str) -> str:
        return {"lead": "token-of-lena", "ci": JOB}.get(who, f"token-of-{who}")

    def as_(self, who: str) -> AbstractContextManager[None]:
        """The environment of somebody: one token, for the REST API and for git; jobs are CI."""
        name = who if not who.startswith("job-") else "ci"
        token = self.token(name)
        return environment(FEDOPS_TOKEN=token, **git_credentials(self.server.web, token), **self.sign_in(name))

    def __call__(self, who: str, *arguments: str, code: int = 0) -> Ran:
        with self.as_(who):
            return super().__call__(who, *arguments, code=code)

    def git(self, who: str, *arguments: str) -> str:
        with self.as_(who):
            return super().git(who, *arguments)

    def new_clone(self, who: str) -> None:
        with self.as_(who):
            git(self.folder, "clone", "--quiet", f"{self.server.web}/{OWNER}/{NAME}.git", who)

    def approve(self, *numbers: int, who: str = "lead") -> None:
        for number in numbers:
            self(who, "review", str(number), "--approve")

    def job(self, *arguments: str) -> Mapping[str, Any]:
        """One job of CI, in a clone of its own; its document."""
        name = f"job-{arguments[0]}-{len(list(self.folder.iterdir()))}"
        self.new_clone(name)
        return dict(self.json(name, "ci", *arguments))

    def jobs(self) -> Mapping[str, Any]:
        """The jobs of reconcile.yml, one after the other; the merge job's document."""
        verdicts = self("ci", "ci", "inspect", "--format", "json").out
        merged = self.job("merge", "--verdicts", verdicts)
        skipped = ""
        if merged["due"] == "true":
            pinned = ("--input-commit", merged["input_commit"], "--decided-at", merged["decided_at"])
            proposed = self.job("aggregate", *pinned)
            if proposed["proposal"]:
                self.job("publish", *pinned, "--proposal", proposed["proposal"])
        self("ci", "ci", "signal", "--skipped", skipped)
        return merged


@contextmanager
def github_cli(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    review: bool = False,
    store: str | None = None,
    stores: Mapping[str, str] | None = None,
    sign_in: Callable[[str], Mapping[str, str]] = lambda who: {},
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Iterator[GitHubWorld]:
    """A federation at v0 whose three sites are on the roster, each with a fork.

    Args:
        review: a lead approves each submission before it is merged.
        store: URL; default: a folder in OCI layout.
        stores: site -> URL of its own store, for those that have one.
        sign_in: name -> what its environment has besides, for the store.
    """
    monkeypatch.setattr(github_http, "PACE", (0.0, 0.0))
    folder.mkdir()
    hub = Hub(folder, now)
    with serving(hub) as server:
        world = GitHubWorld(folder, server, sign_in)
        for login, number in LEADS.items():
            hub.add_user(login, number, f"token-of-{login}")
        hub.add_job(JOB)
        _found(world, store or f"ocidir:{folder / 'store'}", review=review)
        for site in SITES:
            _join(world, site, (stores or {}).get(site))
        world.new_clone("ci")
        yield world


def _found(world: GitHubWorld, store: str, *, review: bool) -> None:
    git(world.folder, "init", "--quiet", "--bare", "--initial-branch=main", "fed.git")
    world.hub.add_repo(world.origin, set(LEADS))
    world.new_clone("lead")
    key = world.folder / "lena"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lena", "-f", str(key)], check=True)
    world(
        "lead", "init", "--name", "fed", "--forge", f"github:{OWNER}/{NAME}@{world.server.api}", "--store", store,
        "--lead", "lena:1", "--lead-key", "../lena.pub", "--quorum", "2", "--generator", "zeros", *TENSORS,
        "--hyperparameter", "rate=0.1",
    )  # fmt: skip
    if review:
        world.edit("policies/aggregation.yaml", lambda text: text.replace("mode: auto", "mode: review", 1))


def _join(world: GitHubWorld, site: str, store: str | None) -> None:
    number = 1001 + SITES.index(site)
    world.hub.fork(world.hub.add_user(f"{site}-login", number, world.token(site)))
    world.new_clone(site)
    joined = world.json(site, "join", site, "--generate-key", "--login", f"{site}-login", "--id", str(number))
    world("lead", *shlex.split(joined["line"])[1:], *(("--store", store) if store else ()))
    (world.clone(site) / "own.json").write_text(f'{{"step": {STEPS[site]}, "examples": {EXAMPLES[site]}}}')
    (world.clone(site) / "ours.py").write_text(CLIENT)
    (world.clone(site) / "hook.py").write_text(HOOK)
