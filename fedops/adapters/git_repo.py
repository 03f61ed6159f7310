"""The Repository port over a clone, by GitPython: refs, exit codes and object ids; never a work tree, never git's prose."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from fedops.adapters.git_access import no_access
from fedops.adapters.git_history import changes, merged_into, touched
from fedops.adapters.git_objects import METADATA_BYTES, ObjectReader, object_id
from fedops.adapters.git_process import GitProcess, failure, of_another_user
from fedops.adapters.git_refs import commit_of_ref, refs_below, version_tags
from fedops.adapters.git_remote import Remote
from fedops.adapters.git_send import send_branch
from fedops.adapters.git_signing import signer_among
from fedops.adapters.git_trees import Trees
from fedops.adapters.git_upkeep import CheckoutDone, damaged_objects, fast_forward, is_ancestor
from fedops.adapters.git_write import tag_id, write_commit, write_tag
from fedops.core.errors import GitError
from fedops.core.facts import Change, Commit, RefUpdate, Touched, TreeEntry, VersionTag
from fedops.core.ids import BlobId, CommitId, RepoPath, is_hex

_NAME = re.compile(r"(?![-/])[^\0-\x20\x7f~^:?*\[\\]+\Z")


class GitRepository:
    """One clone; a context manager that ends its git processes. Safe to share between threads.

    Args:
        path: top of the work tree, or the folder of a bare repository.
        main: the federation's main branch.
        remote: the remote that is the federation.
        env: added to the environment of each git process.
        author: name and e-mail of what is written here; None takes the user's git configuration.

    Raises:
        GitError: path is no repository, or one that does not name objects by sha1.
    """

    def __init__(
        self,
        path: Path,
        *,
        main: str = "main",
        remote: str = "origin",
        env: Mapping[str, str] | None = None,
        author: tuple[str, str] | None = None,
    ) -> None:
        self.path = path.absolute()
        self.main = main
        # NOTE: without the ceiling git would take a repository that merely contains the folder.
        self._git = GitProcess(self.path, {"GIT_CEILING_DIRECTORIES": str(self.path.parent), **(env or {})})
        self._objects = ObjectReader(self._git)
        self._trees = Trees(self._git, self._objects)
        self._remote = Remote(self._git, remote, main)
        self._author = author
        self._signers: dict[tuple[CommitId, tuple[str, ...]], str | None] = {}
        self._check()

    @classmethod
    def clone(
        cls,
        url: str,
        path: Path,
        *,
        main: str = "main",
        remote: str = "origin",
        env: Mapping[str, str] | None = None,
        author: tuple[str, str] | None = None,
    ) -> Self:
        """Clone url into a new folder, fetch what a federation needs, and check out main if there is one.

        Raises:
            GitError: permanent (the folder is not empty, the address wrong), auth (the remote refuses the account), temporary.
        """
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise GitError(f"{path}: is not an empty folder", hint="name a new folder")
        options = ("--quiet", "--no-checkout", "--no-tags", "--template=", f"--origin={remote}")
        output = GitProcess(None, env).run("clone", *options, "--", url, str(path.absolute()))
        if output.code != 0:
            raise no_access("git clone", output, url, start=Path.cwd())
        repository = cls(path, main=main, remote=remote, env=env, author=author)
        repository.fetch()
        if repository.resolve(main) is not None:
            repository._git.check("checkout", "--quiet", "-B", main, "--track", repository._remote.tracking)
        return repository

    @classmethod
    def init(
        cls,
        path: Path,
        main: str = "main",
        *,
        bare: bool = False,
        shared: bool = False,
        env: Mapping[str, str] | None = None,
        author: tuple[str, str] | None = None,
    ) -> Self:
        """Make a new, empty repository; one that is there already stays as it is.

        Args:
            shared: what anybody writes into it, the folder's group may write.
        """
        kind = [*(["--bare"] if bare else []), *(["--shared=group"] if shared else [])]
        options = ("--quiet", "--template=", f"--initial-branch={main}", *kind)
        GitProcess(None, env).check("init", *options, "--", str(path.absolute()))
        return cls(path, main=main, env=env, author=author)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the reading processes; harmless when repeated."""
        self._objects.close()

    def _check(self) -> None:
        output = self._git.run("rev-parse", "--show-object-format", "--absolute-git-dir")
        if output.code != 0:
            what = f"{self.path}: " + ("not used" if of_another_user(output) else "not a git repository")
            raise failure(what, output, hint="git clone URL", slug="not_a_repository")
        kind, folder = output.out.decode("utf-8", "surrogateescape").split("\n")[:2]
        if kind != "sha1":
            raise GitError(f"{self.path}: object names are {kind} -> expected sha1", slug="not_a_repository")
        inside = self.path / ".git"
        # A GIT_DIR that a hook or a script left in the environment would silently name another repository.
        if Path(folder).resolve() != (inside if inside.is_dir() else self.path).resolve() and not inside.is_file():
            raise GitError(f"{self.path}: git looks at {folder} instead", hint="unset GIT_DIR", slug="not_a_repository")

    def fetch(self, pulls: Collection[int] | None = None) -> None:
        self._remote.fetch(pulls)

    def push(self, updates: Sequence[RefUpdate]) -> bool:
        return self._remote.push(updates)

    def seen_main(self) -> Sequence[CommitId]:
        """What origin's main has been, as this clone has met it."""
        return self._remote.seen()

    def send(self, where: str, commit: CommitId, branch: str) -> None:
        """Publish a branch at another address, such as a fork's."""
        send_branch(self._git, where, commit, branch)

    def remote_url(self) -> str | None:
        """Where the remote is; a relative folder as an absolute one; None if there is no remote."""
        return self._remote.url()

    def resolve(self, ref: str) -> CommitId | None:
        """The commit that a ref, a tag's or branch's short name, HEAD or an id names; None if there is none.

        "main" is origin's main branch as last fetched, whatever its real name, and so is that name; in a repository
        without origin, its own.

        Raises:
            GitError: the ref is there, but broken or its object is not.
        """
        if ref == "HEAD" or is_hex(ref, 40):
            return self._objects.peel(ref)
        if not _NAME.match(ref):
            return None
        local = f"refs/heads/{self.main}"
        if ref in ("main", self.main, local):
            found = self._ref(self._remote.tracking)
            return found if found is not None or self.remote_url() is not None else self._ref(local)
        if ref.startswith("refs/"):
            return self._ref(ref)
        names = (f"refs/tags/{ref}", f"refs/heads/{ref}", f"refs/remotes/{ref}")
        return next((found for name in names if (found := self._ref(name)) is not None), None)

    def _ref(self, ref: str) -> CommitId | None:
        return commit_of_ref(self._git, self._objects, ref)

    def refs_below(self, under: str) -> Mapping[str, str]:
        return refs_below(self._git, under)

    def entries(self, commit: CommitId, under: str = "") -> Sequence[TreeEntry]:
        return self._trees.entries(commit, under)

    def folders(self, commit: CommitId, under: str) -> Sequence[str]:
        return self._trees.folders(commit, under)

    def blob_of(self, commit: CommitId, path: str) -> BlobId | None:
        """The blob of one regular file; None for a missing path, a folder, a symlink, a submodule."""
        return next(
            (e.blob for e in self.entries(commit, path) if e.path == path and e.mode.startswith("100")),
            None,
        )

    def read(self, blob: BlobId, *, max_bytes: int) -> bytes:
        return self._objects.read(blob, "blob", max_bytes=max_bytes)

    def changes(self, base: CommitId, head: CommitId) -> Sequence[Change]:
        """What head changes since its merge base with `base`, or since any of several; renames are never detected.

        Raises:
            GitError: lineage_broken, if the two have no common ancestor, or very many.
        """
        return changes(self._git, self._objects, base, head)

    def commits(self, after: CommitId | None, until: CommitId) -> Iterator[Commit]:
        """First-parent line from `until` back to, and without, `after`; newest first, read one by one.

        The objects themselves are read, not `git log`: their size frames them, whatever a message holds, nothing is
        read that is not asked for, and stopping early leaves no process behind.

        Raises:
            GitError: lineage_broken, if the line ends and `after` was not on it.
        """
        current: CommitId | None = until
        while current is not None and current != after:
            commit = self.commit(current)
            yield commit
            current = commit.parents[0] if commit.parents else None
        if current is None and after is not None:
            raise GitError(
                f"git: {after} is not on the first-parent line of {until}",
                hint="fetch again; in a shallow clone: git fetch --unshallow",
                slug="lineage_broken",
            )

    def touched(self, until: CommitId, under: Sequence[str]) -> Iterator[Touched]:
        return touched(self._git, self._objects, until, under)

    def commit(self, commit: CommitId) -> Commit:
        return self._objects.commit(commit)

    def is_ancestor(self, commit: CommitId, of: CommitId) -> bool:
        return is_ancestor(self._git, self._objects, CommitId(object_id(commit)), CommitId(object_id(of)))

    def merged_into(self, tip: CommitId, commits: Collection[CommitId]) -> frozenset[CommitId]:
        return merged_into(self._git, self._objects, tip, commits)

    def versions(self, above: int = -1) -> Sequence[VersionTag]:
        return version_tags(self._git, self._objects, above)

    def signer(self, commit: CommitId, keys: Sequence[str]) -> str | None:
        """The one of `keys` that made the commit's SSH signature; None if unsigned, of another key, or not valid.

        Raises:
            ConfigError: there is no ssh-keygen.
        """
        known = (commit, tuple(keys))
        if known not in self._signers:
            data = self._objects.read(commit, "commit", max_bytes=METADATA_BYTES)
            self._signers[known] = signer_among(data, keys)
        return self._signers[known]

    def write_commit(
        self,
        parents: Sequence[CommitId],
        files: Mapping[RepoPath, bytes | None],
        message: str,
        *,
        at: dt.datetime,
        key: Path | None = None,
    ) -> CommitId:
        return write_commit(self._git, parents, files, message, at=at, author=self._author, key=key)

    def write_tag(self, name: str, commit: CommitId, message: str) -> str:
        return write_tag(self._git, self._objects, name, commit, message)

    def tag_id(self, name: str, commit: CommitId, message: str) -> str:
        return tag_id(self._objects, name, commit, message)

    def config_get(self, key: str) -> str | None:
        """The value of a configuration key, the last one if there are several; None if it is not set."""
        output = self._git.run("config", "-z", "--get", key)
        if output.code not in (0, 1):
            raise failure(f"git config {key}", output)
        return output.out.decode("utf-8", "replace").removesuffix("\0") if output.code == 0 else None

    def fsck(self) -> list[str]:
        """Ids of objects that are missing or corrupt, each once; the whole repository is read."""
        return damaged_objects(self._git, self._objects)

    def checkout_main(self) -> CheckoutDone:
        """Fast-forward the work tree to origin's main, if it is on main and has no changes; says what was done."""
        return fast_forward(self._git, self._objects, self.main, self.resolve(self.main))


def discover(start: Path) -> Path | None:
    """Top of the work tree that holds a folder; None outside of one; GitError if it is another user's."""
    output = GitProcess(start.absolute()).run("rev-parse", "--show-toplevel")
    if of_another_user(output):
        raise failure(f"{start.absolute()}: not used", output)
    return Path(output.out.decode("utf-8", "surrogateescape").removesuffix("\n")) if output.code == 0 else None
