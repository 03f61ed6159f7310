"""The other side of a clone: fetch and atomic push, judged by exit codes, porcelain and the remote's refs."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path

from fedops.adapters.git_access import no_access
from fedops.adapters.git_locks import git_folder, locks, remove_stale_locks
from fedops.adapters.git_objects import object_id
from fedops.adapters.git_process import GitProcess, Output, failure
from fedops.adapters.git_refusals import refusal, refusals
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import RefUpdate
from fedops.core.ids import CommitId, is_hex

_log = logging.getLogger(__name__)

# NOTE: one refspec without a wildcard that matches nothing fails the whole fetch; wildcards do not.
_WILDCARDS = ("refs/tags/global@*", "refs/fedops/*")
_PULLS = "refs/pull/{}/head"
_TRIES = 3
_REF = re.compile(r"refs/[^\0-\x20\x7f~^:?*\[\\]+\Z")


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

    def fetch(self, pulls: Collection[int] | None = None) -> None:
        """Bring main, global@*, refs/fedops/* and heads of pulls to what the remote has, moved and removed ones too.

        Args:
            pulls: whose refs/pull/N/head are brought; None: of all. A forge keeps those of every year.

        Raises:
            GitError: auth, where the remote refuses the account; permanent, where its address or the host's key is
                wrong; temporary, where it cannot be read. Nothing moved then.
        """
        try:
            self._fetch_all(pulls)
        except GitError:
            if not self._unlock():
                raise
            self._fetch_all(pulls)

    def _fetch_all(self, pulls: Collection[int] | None) -> None:
        wildcards = [(ref, ref) for ref in (*_WILDCARDS, *([_PULLS.format("*")] if pulls is None else ()))]
        named = {self._main: self.tracking} | {ref: ref for ref in map(_PULLS.format, sorted(pulls or ()))}
        output = self._fetch(*named.items(), *wildcards)
        for _ in range(_TRIES):  # refs may come and go between two looks
            if output.code == 0:
                break
            self._demand_remote()
            listed = self._git.run("ls-remote", "--refs", self._name, *named)
            if listed.code != 0:
                break
            there = _listed(listed)
            output = self._fetch(*((ref, here) for ref, here in named.items() if ref in there), *wildcards)
            for ref in [ref for ref in named if ref not in there and output.code == 0]:
                self._git.check("update-ref", "-d", named[ref])
        if output.code != 0:
            raise self._unreadable("fetch", output)

    def _fetch(self, *refs: tuple[str, str]) -> Output:
        # NOTE: git takes the end of a shallow clone for the beginning of history, and answers by it without a word.
        shallow = (self._own / "shallow").is_file()
        return self._git.run(
            "fetch",
            *("--prune", "--no-tags", "--atomic", "--refmap=", "--no-write-fetch-head", "--no-recurse-submodules"),
            # A clone without blobs fetches each old one when it is asked for; new ones are wanted at once, all together.
            *("--no-filter", *(["--unshallow"] if shallow else [])),
            self._name,
            *(f"+{there}:{here}" for there, here in refs),
        )

    def seen(self) -> tuple[CommitId, ...]:
        """What main has been on the remote, as this clone has met it, newest first; no older than git's own notes."""
        path = self._git.check("rev-parse", "--git-path", f"logs/{self.tracking}").decode("utf-8", "surrogateescape")
        try:
            lines = Path(self._git.directory or ".", path.rstrip("\n")).read_text("utf-8", "replace").splitlines()
        except OSError:  # a clone may keep no notes, and a fresh one has none yet
            return ()
        values = (value for line in reversed(lines) for value in reversed(line.split(" ", 2)[:2]))
        return tuple(dict.fromkeys(CommitId(v) for v in values if is_hex(v, 40) and v.strip("0")))

    def refs(self, names: Sequence[str]) -> dict[str, str]:
        """What the remote's refs of these full names are now; those that it does not have are left out."""
        output = self._git.run("ls-remote", "--refs", self._name, *names)
        if output.code != 0:
            raise self._unreadable("reading refs", output)
        return {ref: name for ref, name in _listed(output).items() if ref in names}

    def _unreadable(self, what: str, output: Output) -> GitError:
        url, start = self.url() or self._name, Path(self._git.directory or ".")
        return no_access(f"{self._name}: {what}", output, url, start=start, temporary=self._when_held)

    def _when_held(self) -> str:
        """What to do where reading may work later: whose lock is in the way, or the connection."""
        held = next((str(lock) for folder in self._folders() for lock in locks(folder)), None)
        if held is None:
            return "check the connection, then repeat; `fedops status --no-fetch` looks at this clone as it is"
        return f"{held}: another git is at work, or was killed; repeat, after ten minutes it is removed"

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
        refused = refusals(output)
        if refused:
            raise self._refusal(refused, output)
        # The caller tries again.
        if not self._unlock():
            _log.info("push: %s holds a lock on one of %s", self._name, [update.ref for update in updates])
        return False

    def _refusal(self, refused: Sequence[tuple[bytes, bytes]], output: Output) -> GitError:
        return refusal(
            self._name,
            refused,
            output,
            hint="see the rules of the repository (`fedops doctor` names the one that blocks)",
            of_workflows="use a token that may change workflows (classic: the scope `workflow`)",
        )

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
        done = self._git.run("update-ref", "-z", "--stdin", stdin="".join(lines).encode())
        if done.code != 0 and self._unlock():
            done = self._git.run("update-ref", "-z", "--stdin", stdin="".join(lines).encode())
        if done.code != 0:  # the push is won; the next fetch brings what could not be noted here
            _log.warning("after the push: %s", failure("git update-ref", done).message)

    @cached_property
    def _own(self) -> Path:
        """Where this clone keeps its refs, also if this is a linked work tree of it."""
        out = self._git.check("rev-parse", "--path-format=absolute", "--git-common-dir")
        return Path(out.decode("utf-8", "surrogateescape").removesuffix("\n"))

    def _folders(self) -> list[Path]:
        """Where this clone, and the remote if it is a folder, keep their refs."""
        url = self.url()
        origin = git_folder(Path(url.removeprefix("file://"))) if url is not None else None
        return [self._own, *([origin] if origin is not None else [])]

    def _unlock(self) -> bool:
        """Remove locks that killed processes left; True if there were any."""
        return sum(map(remove_stale_locks, self._folders())) > 0

    def _demand_remote(self) -> None:
        if self.url() is None:
            raise ConfigError(f"git: no remote {self._name!r}", hint=f"git remote add {self._name} URL")


def _listed(output: Output) -> dict[str, str]:
    """Refs that `ls-remote` tells of; more than were asked for, since it matches by the tail of a name."""
    pairs = (line.split("\t", 1) for line in output.out.decode("utf-8", "replace").splitlines())
    return {ref: name for name, ref in pairs}


def _check(update: RefUpdate) -> None:
    if not _REF.match(update.ref):
        raise GitError(f"git: got {update.ref!r} -> expected a full ref name")
    for name in (update.old, update.new):
        if name is not None:
            object_id(name)
