"""Pull requests on GitHub: listed, read, handed in from a fork or a branch, closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from fedops.adapters.github_http import GitHubApi
from fedops.adapters.github_people import People
from fedops.adapters.github_shapes import pull_of, same_text
from fedops.core.errors import ForgeError
from fedops.core.facts import Pull
from fedops.core.ids import CommitId

FORK_REMOTE = "fork"
_UNTIL_SHOWN = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds; GitHub shows a push to a pull request some time later


class Sender(Protocol):
    """A clone that can publish a branch elsewhere than on its origin."""

    def remote_url(self) -> str | None: ...

    def config_get(self, key: str) -> str | None: ...

    def send(self, where: str, commit: CommitId, branch: str) -> None: ...


class Pulls:
    """Pull requests whose target is main.

    Args:
        main: short name of the main branch.
    """

    def __init__(self, api: GitHubApi, people: People, clone: Sender, main: str) -> None:
        self._api = api
        self._people = people
        self._clone = clone
        self._main = main

    def open(self) -> Sequence[Pull]:
        """Oldest first; a draft is not handed in yet."""
        found = self._api.pages("/pulls", state="open", base=self._main, sort="created", direction="asc")
        pulls = [pull_of(p) for p in found if not p.get("draft")]
        return tuple(sorted(pulls, key=lambda pull: pull.number))

    def read(self, number: int) -> Pull:
        return pull_of(self._api.get(f"/pulls/{number}"))

    def close(self, number: int) -> None:
        if self.read(number).state == "open":
            self._api.patch(f"/pulls/{number}", {"state": "closed"})

    def submit(self, head: CommitId, branch: str, title: str, body: str) -> Pull:
        """Publish head on the account's branch, and open the branch's pull request or move the open one."""
        owner, where = self._place()
        name = f"{owner}:{branch}"
        mine = self._of(name)
        opened = next((p for p in mine if p["state"] == "open"), None)
        if opened is None:
            done = next((p for p in mine if p["merged_at"] and p["head"]["sha"] == head), None)
            if done is not None:
                return pull_of(done)
        if opened is None or opened["head"]["sha"] != head:
            self._clone.send(where, head, branch)
        if opened is None:
            # NOTE: without maintainer_can_modify nobody but the account can push to the branch of a fork.
            body_of = {"title": title, "head": name, "base": self._main, "body": body, "maintainer_can_modify": False}
            opened = self._api.create("/pulls", body_of, lambda: self._open_one(name), accept=(422,))
        return self._moved(opened, head, title, body)

    def _of(self, name: str) -> list[dict[str, Any]]:
        """The newest pull requests of "owner:branch"; an open one is among them, since a branch has at most one."""
        which = {"state": "all", "head": name, "base": self._main}
        return list(self._api.get("/pulls", **which, sort="created", direction="desc", per_page=100))

    def _open_one(self, name: str) -> dict[str, Any] | None:
        return next((p for p in self._of(name) if p["state"] == "open"), None)

    def _moved(self, pull: Mapping[str, Any], head: CommitId, title: str, body: str) -> Pull:
        number = int(pull["number"])
        if pull["title"] != title or not same_text(pull["body"], body):
            pull = self._api.patch(f"/pulls/{number}", {"title": title, "body": body})
        for pause in _UNTIL_SHOWN:
            if pull["head"]["sha"] == head:
                return pull_of(pull)
            self._api.clock.sleep(pause)
            pull = self._api.get(f"/pulls/{number}")
        if pull["head"]["sha"] == head:
            return pull_of(pull)
        shown = pull_of(pull)
        if shown.state == "open":
            # The branch is there with the new commit: everybody will see it, only not yet.
            return replace(shown, head=head)
        raise ForgeError(
            f"GitHub: pull request #{number} was {shown.state} at {shown.head[:12]} -> {head[:12]}",
            hint="hand in again: `fedops submit`",
            cause="temporary",
        )

    def _place(self) -> tuple[str, str]:
        """Whose branch it is, and where that is pushed to.

        The remote `fork`, if the clone has one; else the repository itself for who may write there; else the account's
        own fork.

        Raises:
            ForgeError: there is none of these.
        """
        host = self._api.host
        named = self._clone.config_get(f"remote.{FORK_REMOTE}.url")
        if named is not None:
            repository = host.repository_of(named)
            if repository is None:
                raise ForgeError(
                    f"remote `{FORK_REMOTE}`: not a repository on {host.web}",
                    hint=f"git remote set-url {FORK_REMOTE} {host.web}/OWNER/NAME.git",
                )
            return repository.split("/")[0], named
        facts = self._api.facts()
        # Of an app's token GitHub does not say what it may do here; it has no fork in any case.
        if facts.get("permissions", {}).get("push") or not self._people.has_user():
            return str(facts["owner"]["login"]), self._clone.remote_url() or host.clone_url(self._api.name)
        fork = self._fork()
        return fork.split("/")[0], host.clone_url(fork)

    def _fork(self) -> str:
        me = self._people.me()
        usual = f"{me.login}/{self._api.name.split('/')[1]}"
        answer = self._api.anywhere(f"/repos/{usual}", accept=(404,))
        if answer.ok:
            parents = (answer.data.get(key) or {} for key in ("parent", "source"))
            if any(str(p.get("full_name")).casefold() == self._api.name.casefold() for p in parents):
                return str(answer.data["full_name"])
        mine = (f for f in self._api.pages("/forks") if f["owner"]["id"] == me.id)
        fork = next(mine, None)
        if fork is None:
            raise ForgeError(
                f"GitHub: {me.login} may not write to {self._api.name}, and has no fork of it",
                hint=f"fork it once: {self._api.host.web}/{self._api.name}/fork",
            )
        return str(fork["full_name"])
