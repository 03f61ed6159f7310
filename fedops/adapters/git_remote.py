"""The other side of a clone: fetch and atomic push, judged by exit codes, porcelain and the remote's refs."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from fedops.adapters.git_objects import object_id
from fedops.adapters.git_process import GitProcess, Output, failure, printable
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import RefUpdate

_log = logging.getLogger(__name__)

# NOTE: one refspec without a wildcard that matches nothing fails the whole fetch; wildcards do not.
_WILDCARDS = ("refs/tags/global@*", "refs/pull/*/head", "refs/fedops/*")
_REF = re.compile(r"refs/[^\0-\x20\x7f~^:?*\[\\]+\Z")
_REFUSED = re.compile(rb"!\t[^\t]*:([^\t]*)\t\[remote rejected\] \((.*)\)")
# receive-pack's fixed words for "another push holds or just moved this ref"; never translated.
_CONTENTION = re.compile(rb"atomic transaction failed|atomic push failure|cannot lock ref|failed to (lock|update ref)")
_CHECKED_OUT = b"branch is currently checked out"


class Remote:
    """One remote of one clone.

    Args:
        git: runs in the clone.
        name: such as "origin".
        main: the main branch's short name.
    """

    def __init__(self, git: GitProcess, name: str, main: str) -> None:
        self._git = git
        self._name = name
        self._main = f"refs/heads/{main}"
        self.tracking = f"refs/remotes/{name}/{main}"

    def url(self) -> str | None:
        """Where the remote is, after git's own rewriting; a relative folder becomes absolute. None: no such remote."""
        found = self._git.run("config", "--get", f"remote.{self._name}.url")
        if found.code == 1:
            return None
        if found.code != 0:
            raise failure("git config", found)
        url = self._git.check("ls-remote", "--get-url", self._name).decode("utf-8", "replace").strip()
        folder = Path(self._git.directory or ".", url)
        return str(folder.resolve()) if folder.is_dir() and not Path(url).is_absolute() else url

    def fetch(self) -> None:
        """Bring main, global@*, refs/pull/*/head and refs/fedops/* to what the remote has, moved and removed ones too.

        Raises:
            GitError: temporary, where the remote cannot be read; nothing moved then.
        """
        output = self._fetch((self._main, self.tracking), *((ref, ref) for ref in _WILDCARDS))
        if output.code == 0:
            return
        self._demand_remote()
        # Exit code 2 alone means: the remote answers, and it has no such ref.
        if self._git.run("ls-remote", "--exit-code", "--refs", self._name, self._main).code == 2:
            output = self._fetch(*((ref, ref) for ref in _WILDCARDS))
            if output.code == 0:
                self._git.check("update-ref", "-d", self.tracking)
                return
        raise failure(f"{self._name}: fetch", output, hint="check the connection, then repeat", cause="temporary")

    def _fetch(self, *refs: tuple[str, str]) -> Output:
        return self._git.run(
            "fetch",
            *("--prune", "--no-tags", "--atomic", "--refmap=", "--no-write-fetch-head", "--no-recurse-submodules"),
            self._name,
            *(f"+{there}:{here}" for there, here in refs),
        )

    def refs(self, names: Sequence[str]) -> dict[str, str]:
        """What the remote's refs of these full names are now; those that it does not have are left out."""
        output = self._git.run("ls-remote", "--refs", self._name, *names)
        if output.code != 0:
            raise failure(f"{self._name}: reading refs", output, hint="check the connection", cause="temporary")
        pairs = (line.split("\t", 1) for line in output.out.decode("utf-8", "replace").splitlines())
        return {ref: name for name, ref in pairs if ref in names}  # ls-remote matches by the tail of a name

    def push(self, updates: Sequence[RefUpdate]) -> bool:
        """Move all refs or none, each only from its `old`; True also where all of them are at `new` already.

        Returns:
            False: another push was first (or holds the lock), and nothing moved.

        Raises:
            GitError: permanent (the remote refuses), auth (reading works, writing does not), temporary.
        """
        if not updates:
            return True
        for update in updates:
            _check(update)
        output = self._push(updates)
        if output.code != 0 and not self._arrived_or_lost(updates, output):
            return False
        self._follow(updates)
        return True

    def _push(self, updates: Sequence[RefUpdate], *options: str) -> Output:
        return self._git.run(
            *("-c", f"remote.{self._name}.mirror=false"),
            *("push", "--porcelain", "--atomic", "--no-verify", "--no-signed", "--no-follow-tags"),
            "--recurse-submodules=no",
            *options,
            *(f"--force-with-lease={update.ref}:{update.old or ''}" for update in updates),
            self._name,
            *(f"{update.new or ''}:{update.ref}" for update in updates),
        )

    def _arrived_or_lost(self, updates: Sequence[RefUpdate], output: Output) -> bool:
        """After a failed push: True if the refs are at `new` all the same, False if the race is lost."""
        self._demand_remote()
        now = self.refs([update.ref for update in updates])
        if all(now.get(update.ref) == update.new for update in updates):
            return True  # an earlier try won, and its answer was lost on the way
        if any(now.get(update.ref) != update.old for update in updates):
            return False
        missing = [u.new for u in updates if u.new and self._git.run("cat-file", "-e", u.new).code != 0]
        if missing:
            raise failure(f"{self._name}: push, not in this clone: {missing}", output, slug="object_corrupt")
        if not any(line.startswith(b"!\t") for line in output.out.splitlines()):
            raise self._unreachable(updates, output)
        refused = [(ref, why) for ref, why in _REFUSED.findall(output.out) if not _CONTENTION.search(why)]
        if refused:
            raise self._refusal(refused, output)
        _log.info("push: %s holds a lock on one of %s", self._name, [update.ref for update in updates])
        return False

    def _refusal(self, refused: Sequence[tuple[bytes, bytes]], output: Output) -> GitError:
        said = printable(b"; ".join(ref + b": " + why for ref, why in refused).decode("utf-8", "replace"))
        hint = "see the rules of the repository (`fedops doctor` names the one that blocks)"
        if any(why == _CHECKED_OUT for _, why in refused):
            hint = "use a bare repository as origin, or there: git config receive.denyCurrentBranch updateInstead"
        return failure(f"{self._name}: push refused, {said}", output, hint=hint, slug="push_refused")

    def _unreachable(self, updates: Sequence[RefUpdate], output: Output) -> GitError:
        # The refs could be read just now. If even a dry run cannot begin to write, it is the right to write that lacks.
        if self._push(updates, "--dry-run").code > 1:
            hint = "log in with an account that may write; `fedops doctor` checks it"
            return failure(f"{self._name}: push", output, hint=hint, slug="auth_failed", cause="auth")
        return failure(f"{self._name}: push", output, hint="check the connection, then repeat", cause="temporary")

    def _follow(self, updates: Sequence[RefUpdate]) -> None:
        """Move our own copies of pushed refs, so that the new state is seen without a fetch."""
        lines = []
        for update in updates:
            ref = self.tracking if update.ref == self._main else update.ref
            if ref.startswith("refs/heads/"):
                continue  # the user's own branch
            lines.append(f"update {ref}\0{update.new}\0\0" if update.new else f"delete {ref}\0\0")
        self._git.check("update-ref", "-z", "--stdin", stdin="".join(lines).encode())

    def _demand_remote(self) -> None:
        if self.url() is None:
            raise ConfigError(f"git: no remote {self._name!r}", hint=f"git remote add {self._name} URL")


def _check(update: RefUpdate) -> None:
    if not _REF.match(update.ref):
        raise GitError(f"git: got {update.ref!r} -> expected a full ref name")
    for name in (update.old, update.new):
        if name is not None:
            object_id(name)
