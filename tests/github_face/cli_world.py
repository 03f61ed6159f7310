"""The command-line federation of tests/cli_world.py, moved to the loopback GitHub: sites have forks, jobs their tokens."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters import github_http
from fedops.adapters.git_credentials import git_credentials
from tests.cli_world import CLIENT, EXAMPLES, HOOK, SITES, STEPS, TENSORS, Ran, World, environment, git
from tests.github_face.hub import NAME, OWNER, Hub
from tests.github_face.jobs import minted, rights_on_main
from tests.github_face.rights import jobs_of, together, workflow
from tests.github_face.server import Server, serving

LEADS = {"lena": 1}
# Of a run that does in one process what the jobs of reconcile.yml do.
JOB = "ghs_all_of_reconcile"
REGISTRY = {"write": "ci", "read": "auditor"}  # right to packages -> account of the registry


@dataclass(frozen=True)
class GitHubWorld(World):
    """Clones fetch and push over HTTP, each with its own token; the lead's clone is lena's.

    Args:
        server: whose only repository is fed.git.
        sign_in: name -> what its environment has besides, for the store.
        at_work: clone -> environment of the job that is at work in it.
    """

    server: Server
    sign_in: Callable[[str], Mapping[str, str]] = lambda who: {}
    at_work: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def hub(self) -> Hub:
        return self.server.hub

    def token(self, who: str) -> str:
        return {"lead": "token-of-lena", "ci": JOB}.get(who, f"token-of-{who}")

    def as_(self, who: str) -> AbstractContextManager[None]:
        """The environment of somebody: one token, for the REST API and for git, and an account of the registry."""
        if who in self.at_work:
            return environment(**self.at_work[who])
        token = self.token(who)
        return environment(FEDOPS_TOKEN=token, **git_credentials(self.server.web, token), **self.sign_in(who))

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

    def unsign(self, site: str, number: int) -> None:
        """Push a site's pull request again as it is, but for the signature of its commit."""
        pull = self.hub.pull(number)
        assert pull is not None
        assert pull.source is not None
        bare = self.git(site, "commit-tree", f"{pull.head}^{{tree}}", "-p", f"{pull.head}^", "-m", "submit")
        fork = f"{self.server.web}/{pull.source.full_name}.git"
        self.git(site, "push", "--quiet", "--force", fork, f"{bare}:refs/heads/{pull.ref}")
        assert pull.head == bare

    def job(
        self, job: str, *arguments: str, file: str = "reconcile.yml", command: str = "", code: int = 0
    ) -> Mapping[str, Any]:
        """One job of CI, in a clone of its own, with the rights that its workflow file gives it.

        Args:
            command: of `fedops ci`; default: the job's name.
            code: how it ends.

        Returns:
            Its document; empty if it printed none.
        """
        name = f"job-{job}-{len(list(self.folder.iterdir()))}"
        account = REGISTRY.get(rights_on_main(self.hub, file)[job].get("packages", ""))
        with minted(self.hub, file, job) as token:
            self.at_work[name] = {
                "GITHUB_TOKEN": token,
                "GITHUB_REPOSITORY": f"{OWNER}/{NAME}",
                "GITHUB_API_URL": self.server.api,
                **git_credentials(self.server.web, token),
                **(self.sign_in(account) if account is not None else {}),
            }
            self.new_clone(name)
            ran = self(name, "ci", command or job, *arguments, "--format", "json", code=code)
        return dict(ran.json) if ran.out else {}

    def verdicts(self) -> str:
        """Output of the job `inspect`."""
        return json.dumps(self.job("inspect"))

    def jobs(self) -> Mapping[str, Any]:
        """The jobs of reconcile.yml, one after the other, on its conditions; the merge job's document."""
        merged = self.job("merge", "--verdicts", self.verdicts())
        skipped: dict[str, str] = {}
        again = merged["left"] == "true"
        if merged["due"] == "true":
            pinned = pin(merged)
            proposed = self.job("aggregate", *pinned)
            skipped = proposed["skipped"]
            if proposed["proposal"]:
                again |= self.job("publish", *pinned, "--proposal", proposed["proposal"])["again"]
        again |= self.job("signal", "--skipped", json.dumps(skipped) if skipped else "")["left"]
        if again:
            self.job("again", "--attempt", "0")
        return merged

    def validate(self, number: int) -> Mapping[str, Any]:
        """The job of validate.yml for a pull request."""
        pull = self.hub.pull(number)
        assert pull is not None
        return self.job("validate", "--pull", str(number), "--head", pull.head, file="validate.yml", command="inspect")


def pin(merged: Mapping[str, Any]) -> tuple[str, ...]:
    """What the jobs after `merge` are given."""
    return ("--input-commit", merged["input_commit"], "--decided-at", merged["decided_at"])


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
    """A federation at v0 that asks for signatures, whose three sites are on the roster, each with a fork.

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
        hub.add_job(JOB, together(jobs_of(workflow("reconcile.yml"))))
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
    world.edit("policies/submission.yaml", lambda text: text.replace("require_signed: false", "require_signed: true"))
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
