"""One path of a commit's tree, found in the tree objects themselves: no process is started for it.

Only what is plain is answered here. A folder, and anything that git itself would never write, is left to `ls-tree`.
"""

from __future__ import annotations

from functools import lru_cache

from fedops.adapters.git_objects import METADATA_BYTES, ObjectReader, RawObject, corrupt
from fedops.core.facts import TreeEntry
from fedops.core.ids import BlobId, CommitId, RepoPath

TREES = 256  # tree objects that are kept
_FILES = {b"100644", b"100755", b"120000"}
_TREE = b"40000"
_ODD = {b"", b".", b".."}  # git takes them out of a path, or refuses it


class Trees:
    """Looks up paths; safe to share between threads."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects
        self._listing = lru_cache(maxsize=TREES)(self._list)

    def find(self, commit: CommitId, path: str) -> tuple[TreeEntry, ...] | None:
        """The regular file or symlink at a path; empty if nothing is there; None: `ls-tree` must be asked.

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
        for folder in folders:
            found = self._listing(tree).get(folder, ())
            if not found:
                return ()
            if len(found) > 1 or found[0][0] != _TREE:
                return None
            tree = found[0][1]
        found = self._listing(tree).get(name, ())
        if len(found) == 1 and found[0][0] in _FILES:
            mode, blob = found[0]
            return (TreeEntry(RepoPath(path), mode.decode(), BlobId(blob), self._objects.size(blob)),)
        return None if found else ()

    def _list(self, tree: str) -> dict[bytes, tuple[tuple[bytes, str], ...]]:
        """Name -> mode and id of each entry of that name; git writes one."""
        listing: dict[bytes, tuple[tuple[bytes, str], ...]] = {}
        data, at = self._objects.read(tree, "tree", max_bytes=METADATA_BYTES), 0
        while at < len(data):
            end = data.find(b"\0", at)
            mode, space, name = data[at:end].partition(b" ")
            at = end + 1 + 20  # the id
            if end < 0 or not space or at > len(data):
                raise corrupt(tree)
            listing[name] = (*listing.get(name, ()), (mode, data[at - 20 : at].hex()))
        return listing
