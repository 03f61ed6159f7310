"""The federation of tests/scenario/fed.py on the loopback GitHub: sites hand in from forks, leads may write."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence

from fedops.adapters.forge_github import Clone, GitHubForge
from fedops.adapters.git_credentials import git_credentials
from fedops.adapters.git_repo import GitRepository
from fedops.core.github_hosts import host_of
from fedops.core.ids import RepoPath
from fedops.ports import Clock, Forge, Repository
from tests.github_face.hub import NAME, OWNER, Hub
from tests.github_face.rights import jobs_of, together, workflow
from tests.github_face.server import serving
from tests.scenario.fed import ACCOUNTS, GitFed
from tests.sshkeys import SshKey, make_key


def token_of(who: str) -> str:
    """A person's, or that of the bot, which does in one process what the jobs of reconcile.yml do."""
    return f"token-of-{who}" if who != "bot" else "ghs_all_of_reconcile"


class GitHubFed(GitFed):
    """Everything over HTTP; the folder's bare repository is the only one that has no owner's fork."""

    def _make_keys(self, people: Sequence[str]) -> dict[str, SshKey]:
        folder = self.folder / "keys"
        folder.mkdir()
        self.origin = self.folder / "origin.git"
        GitRepository.init(self.origin, bare=True).close()
        self._open: list[GitRepository] = []
        self._count = itertools.count()
        self.hub = Hub(self.folder, self.clock.now)
        self.stack = contextlib.ExitStack()
        self.server = self.stack.enter_context(serving(self.hub))
        self.hub.add_repo(self.origin, {ACCOUNTS[who].login for who in self.leads})
        self.hub.add_job(token_of("bot"), together(jobs_of(workflow("reconcile.yml"))))
        for who in people:
            user = self.hub.add_user(ACCOUNTS[who].login, ACCOUNTS[who].id, token_of(who))
            if who not in self.leads:
                self.hub.fork(user)
        return {who: make_key(folder, who) for who in people}

    def new_clone(self, who: str) -> GitRepository:
        path = self.folder / f"{who}-{next(self._count)}"
        env = git_credentials(self.server.web, token_of(who))
        url = f"{self.server.web}/{OWNER}/{NAME}.git"
        clone = GitRepository.clone(url, path, author=(who, f"{who}@example.invalid"), env=env)
        self._open.append(clone)
        return clone

    def forge(self, who: str, repository: Repository | None = None, clock: Clock | None = None) -> Forge:
        own = repository if repository is not None else self.repositories[who]
        made = GitHubForge(
            _as_clone(own),
            host=host_of(self.server.api),
            name=f"{OWNER}/{NAME}",
            token=token_of(who),
            clock=clock or self.clock,
            pace=(0, 0),
        )
        self.stack.callback(made.close)
        return made

    def policy_files(self) -> dict[RepoPath, bytes | None]:
        path = RepoPath("federation.yaml")
        files = super().policy_files()
        forge: Mapping[str, str] = {"kind": "github", "repository": f"{OWNER}/{NAME}", "api_url": self.server.api}
        return files | {path: (json.dumps(json.loads(files[path] or b"") | {"forge": forge}) + "\n").encode()}

    def close(self) -> None:
        super().close()
        self.stack.close()


def _as_clone(repository: Repository) -> Clone:
    return repository  # type: ignore[return-value]  # what `new_clone` made, perhaps in a wrapper
