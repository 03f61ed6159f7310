"""What is in a commit's tree: one file by the tree objects themselves, which starts no process; all else by `ls-tree`."""

from __future__ import annotations

from functools import lru_cache

from fedops.adapters.git_objects import METADATA_BYTES, ObjectReader, RawObject, corrupt, object_id, parse_entries
from fedops.adapters.git_process import GitProcess
from fedops.core.errors import GitError
from fedops.core.facts import TreeEntry
from fedops.core.ids import BlobId, CommitId, RepoPath, is_hex

LISTINGS = 64  # of commits, that are kept
TREES = 64  # tree objects that are kept
_TREE_BYTES = 256 * 1024  # of a tree that is read here, some 6,000 entries; what a larger one costs is git's to bear
_FILES = {b"100644", b"100755", b"120000"}
_TREE = b"40000"
_ODD = {b"", b".", b".."}  # git takes them out of a path, or refuses it


class Trees:
    """Trees of one repository; safe to share between threads."""

    def __init__(self, git: GitProcess, objects: ObjectReader) -> None:
        self._git, self._objects = git, objects
        self._listing = lru_cache(maxsize=TREES)(self._list)
        # A commit's tree never changes, and one run asks for the same few again and again.
        self._entries = lru_cache(maxsize=LISTINGS)(self._list_entries)

    def entries(self, commit: CommitId, under: str) -> tuple[TreeEntry, ...]:
        """All files at or below a path, "" for the root, sorted by path.

        Raises:
            GitError: object_corrupt.
        """
        return self._entries(commit, under.strip("/"))

    def folders(self, commit: CommitId, under: str) -> tuple[str, ...]:
        """Names of the folders in a folder."""
        listing = self._ls_tree(commit, "-d", f"{under.strip('/')}/")
        paths = (entry.partition(b"\t")[2].decode("utf-8", "replace") for entry in listing.split(b"\0")[:-1])
        return tuple(path.rpartition("/")[2] for path in paths)

    def _list_entries(self, commit: CommitId, under: str) -> tuple[TreeEntry, ...]:
        if under and (found := self.find(CommitId(object_id(commit)), under)) is not None:
            return found
        return parse_entries(self._ls_tree(commit, "-rl", *([under] if under else [])))

    def _ls_tree(self, commit: CommitId, options: str, *paths: str) -> bytes:
        # NOTE: everything after "--" is a name, so that neither a commit nor a path is ever an option.
        output = self._git.run("ls-tree", options, "-z", "--full-tree", "--", object_id(commit), *paths)
        if output.code != 0:
            raise self._objects.explain("git ls-tree", output, [commit])
        return output.out

    def find(self, commit: CommitId, path: str) -> tuple[TreeEntry, ...] | None:
        """The regular file or symlink at a path; empty if nothing is there.

        None: a folder, or anything that git itself would never write; `ls-tree` must be asked.

        Args:
            path: not empty, and without a slash at either end.

        Raises:
            GitError: object_corrupt.
        """
        *folders, name = names = path.encode("utf-8", "surrogateescape").split(b"/")
        if _ODD.intersection(names):
            return None
        raw = RawObject.parse(self._objects.read(commit, "commit", max_bytes=METADATA_BYTES))
        tree = raw.first(b"tree").decode("ascii", "replace")
        if not is_hex(tree, 40):  # git takes capitals too
            return None
        for folder in folders:
            found = self._named(tree, folder)
            if not found:
                return None if found is None else ()
            (mode, tree), *twins = found
            if twins or mode != _TREE:
                return None
        found = self._named(tree, name)
        if not found:
            return None if found is None else ()
        (mode, blob), *twins = found
        if twins or mode not in _FILES:
            return None
        return (TreeEntry(RepoPath(path), mode.decode(), BlobId(blob), self._objects.size(blob)),)

    def _named(self, tree: str, name: bytes) -> tuple[tuple[bytes, str], ...] | None:
        """Mode and id of each entry of that name, of which git writes one; None: the tree is too large to be read here."""
        listing = self._listing(tree)
        return tuple(listing.get(name, ())) if listing is not None else None

    def _list(self, tree: str) -> dict[bytes, list[tuple[bytes, str]]] | None:
        """Name -> its entries, as `_named`."""
        try:
            data, at = self._objects.read(tree, "tree", max_bytes=_TREE_BYTES), 0
        except GitError as e:
            if e.slug == "file_too_large":
                return None
            raise
        listing: dict[bytes, list[tuple[bytes, str]]] = {}
        while at < len(data):
            end = data.find(b"\0", at)
            mode, space, name = data[at:end].partition(b" ")
            at = end + 1 + 20  # the id
            if end < 0 or not space or at > len(data):
                raise corrupt(tree)
            listing.setdefault(name, []).append((mode, data[at - 20 : at].hex()))
        return listing
