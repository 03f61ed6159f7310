"""The three people of tests/forge_worlds.py on the loopback GitHub: lena may write, alice and bob have forks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from fedops.adapters.forge_github import Clone, GitHubForge
from fedops.adapters.git_credentials import git_credentials
from fedops.core.github_hosts import host_of
from fedops.ports import Forge, Repository
from tests.forge_worlds import ACCOUNTS, START, GitWorld, ManualClock, Meddled
from tests.github_face.hub import NAME, OWNER, Hub
from tests.github_face.server import Server, serving
from tests.sshkeys import SshKey


def token_of(who: str) -> str:
    return f"token-of-{who}"


class FaceWorld(GitWorld):
    """Clones fetch from the folder itself, which is faster; everything else goes over HTTP."""

    def __init__(
        self, keys: Mapping[str, SshKey], template: Path, folder: Path, server: Server, stack: contextlib.ExitStack
    ) -> None:
        self.hub, self.server, self.stack = server.hub, server, stack
        super().__init__(keys, template, folder)
        self.hub.add_repo(folder / "origin.git", {"lena"})
        for who, account in ACCOUNTS.items():
            user = self.hub.add_user(account.login, account.id, token_of(who))
            if who != "lena":
                self.hub.fork(user)

    def environment(self, who: str) -> Mapping[str, str]:
        return git_credentials(self.server.web, token_of(who))

    def forge_of(self, who: str, repository: Repository) -> Forge:
        if isinstance(repository, Meddled):
            self.hub.before_merge = repository._before_push  # on GitHub it is the server whose push comes too late
        forge = GitHubForge(
            cast("Clone", repository),
            host=host_of(self.server.api),
            name=f"{OWNER}/{NAME}",
            token=token_of(who),
            clock=ManualClock(),
            pace=(0, 0),
        )
        self.stack.callback(forge.close)
        return forge

    def state(self) -> object:
        return self.hub.snapshot()


def github_world(keys: Mapping[str, SshKey], template: Path, folder: Path) -> Iterator[FaceWorld]:
    hub = Hub(folder, lambda: START)
    with serving(hub) as server, contextlib.ExitStack() as stack:
        world = FaceWorld(keys, template, folder, server, stack)
        yield world
        world.close()
