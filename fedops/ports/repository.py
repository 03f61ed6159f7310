"""One clone of the federation's git repository."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fedops.core.facts import (
    Change,
    Commit,
    RefUpdate,
    Touched,
    TreeEntry,
    VersionTag,
)
from fedops.core.ids import BlobId, CommitId, RepoPath


class Repository(Protocol):
    """One clone. Reads objects, never a work tree; a missing ref is None, broken git is a GitError."""

    def fetch(self, pulls: Collection[int] | None = None) -> None:
        """Fetch main, global@*, refs/fedops/* and refs/pull/N/head of origin into the same names, pruned.

        main arrives as refs/remotes/origin/main; `resolve("main")` reads that one.

        Args:
            pulls: numbers of the pull requests whose heads are wanted, with what they need; None: of all, of every year.
        """
        ...

    def resolve(self, ref: str) -> CommitId | None:
        """The commit that a ref names ("main" = origin's main), peeled; None if there is none."""
        ...

    def refs_below(self, under: str) -> Mapping[str, str]:
        """All refs below a folder such as "refs/fedops/heartbeat", by one listing: full name -> object id.

        Broken refs are left out; `resolve` says what is wrong with one.
        """
        ...

    def entries(self, commit: CommitId, under: str = "") -> Sequence[TreeEntry]:
        """All files below a folder, by one recursive ls-tree, sorted by path."""
        ...

    def folders(self, commit: CommitId, under: str) -> Sequence[str]:
        """Names of the folders directly below a folder, whatever is in them; none if there is no such folder."""
        ...

    def read(self, blob: BlobId, *, max_bytes: int) -> bytes:
        """The bytes of a blob.

        Raises:
            GitError: the blob is larger than max_bytes (said before reading), missing or corrupt.
        """
        ...

    def changes(self, base: CommitId, head: CommitId) -> Sequence[Change]:
        """What head changes since its merge base with `base`; renames are never detected.

        A criss-cross of merges leaves several bases. What differs from any of them is a change then: a merge may undo it.
        """
        ...

    def commits(self, after: CommitId | None, until: CommitId) -> Iterator[Commit]:
        """First-parent line from `until` back to, and without, `after`; newest first, lazily."""
        ...

    def touched(self, until: CommitId, under: Sequence[str]) -> Iterator[Touched]:
        """The whole first-parent line of `until`, newest first, with what each commit changes below these folders.

        One walk, for those who read all of history. The root is compared with nothing; renames are never detected.

        Raises:
            GitError: object_corrupt, where the line ends at a commit that cannot be read; the newer ones came before.
        """
        ...

    def commit(self, commit: CommitId) -> Commit:
        """One commit's facts."""
        ...

    def merged_into(self, tip: CommitId, commits: Collection[CommitId]) -> frozenset[CommitId]:
        """Those of the commits that are `tip` or come before it; one of which something is missing is none of them."""
        ...

    def versions(self, above: int = -1) -> Sequence[VersionTag]:
        """Tags global@vN.0.0 with N > above, by number; foreign tags are not parsed."""
        ...

    def signer(self, commit: CommitId, keys: Sequence[str]) -> str | None:
        """The one of `keys` ("ssh-ed25519 AAAA… comment") that signed the commit, else None."""
        ...

    def write_commit(
        self,
        parents: Sequence[CommitId],
        files: Mapping[RepoPath, bytes | None],
        message: str,
        *,
        at: dt.datetime,
        key: Path | None = None,
    ) -> CommitId:
        """Write a commit object; no ref moves. Its tree is the first parent's with `files` replaced (None deletes).

        Args:
            at: author and committer date.
            key: SSH private key file that signs the commit.
        """
        ...

    def is_ancestor(self, commit: CommitId, of: CommitId) -> bool: ...

    def write_tag(self, name: str, commit: CommitId, message: str) -> str:
        """Write an annotated tag object whose tagger and date are those of its commit; no ref moves."""
        ...

    def tag_id(self, name: str, commit: CommitId, message: str) -> str:
        """The id of the object that `write_tag` would write; nothing is written."""
        ...

    def push(self, updates: Sequence[RefUpdate]) -> bool:
        """Push all refs to origin in one atomic push with leases; False: the race is lost and nothing moved."""
        ...
