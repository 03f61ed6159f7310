"""Reads git objects by one persistent `cat-file`, checks their hashes, and parses what anybody may have written in them."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

from fedops.adapters.git_process import GitProcess, Output, failure
from fedops.core.errors import GitError
from fedops.core.facts import Change, Commit, TreeEntry
from fedops.core.ids import BlobId, CommitId, RepoPath, is_hex

METADATA_BYTES = 16 * 1024 * 1024  # largest commit or tag object that is read
_CHUNK = 1024 * 1024
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DATE = re.compile(rb" (\d{1,12}) [-+]\d{1,6}\Z")
# A pack's name looks like an object id; loose objects are also named by their path ab/cdef….
_ID_IN_TEXT = re.compile(r"(?<![0-9a-f])(?<!pack-)([0-9a-f]{2})/?([0-9a-f]{38})(?![0-9a-f])")

Kind = Literal["commit", "tag", "blob", "tree"]


def object_id(text: str) -> str:
    """Return text if it is an object id.

    Raises:
        GitError: anything else, so that no text from outside is ever read as a command, an option or a revision.
    """
    if not is_hex(text, 40):
        raise GitError(f"git: got {text[:60]!r} -> expected an object id of 40 hex digits")
    return text


def corrupt(name: str) -> GitError:
    """The error that names an object which git cannot give back."""
    return GitError(
        f"git: object {name} is missing or corrupt",
        hint="clone again from a good copy; `git fsck` lists the damage",
        slug="object_corrupt",
    )


class ObjectReader:
    """Objects of one repository; safe to share between threads."""

    def __init__(self, git: GitProcess) -> None:
        self._git = git
        self._lock = threading.Lock()
        self._processes: dict[str, Any] = {}

    def close(self) -> None:
        """End the processes; a later read starts new ones."""
        with self._lock:
            for option in list(self._processes):
                self._drop(option)

    def peel(self, name: str) -> CommitId | None:
        """The commit behind an object id or HEAD; None if there is none."""
        with self._lock:
            header, _ = self._ask("--batch-check", name + "^{commit}")
        return CommitId(header[0]) if len(header) == 3 else None

    def read(self, name: str, kind: Kind, *, max_bytes: int) -> bytes:
        """The bytes of one object, equal to its id by hash.

        Raises:
            GitError: file_too_large (said before reading), object_corrupt (also: missing, or of another kind).
        """
        with self._lock:
            header, stream = self._ask("--batch", object_id(name))
            if len(header) != 3:
                raise corrupt(name)
            if header[1] != kind:
                self._drop("--batch")
                raise GitError(f"git: object {name} is a {header[1]} -> expected a {kind}", slug="object_corrupt")
            size = int(header[2])
            if size > max_bytes:
                self._drop("--batch")  # else the pipe still holds the bytes that nobody wants
                raise GitError(
                    f"git: {kind} {name} is too large, {size} -> at most {max_bytes} bytes", slug="file_too_large"
                )
            data = stream.read(size)
            if len(data) != size or stream.read(1) != b"\n":
                self._drop("--batch")
                raise corrupt(name)
        if _hash(kind, size, [data]) != name:
            raise corrupt(name)
        return data

    def size(self, blob: str) -> int:
        """The size of a blob in bytes; it is not read.

        Raises:
            GitError: object_corrupt: missing, or of another kind.
        """
        with self._lock:
            header, _ = self._ask("--batch-check", object_id(blob))
        if len(header) != 3 or header[1] != "blob":
            raise corrupt(blob)
        return int(header[2])

    def damaged(self, name: str) -> bool:
        """True if the object is missing or its bytes do not have its hash; reads in chunks."""
        with self._lock:
            header, stream = self._ask("--batch", object_id(name))
            if len(header) != 3:
                return True
            size = int(header[2])
            rest = [min(_CHUNK, size - start) for start in range(0, size, _CHUNK)]
            good = _hash(header[1], size, (stream.read(n) for n in rest)) == name
            if stream.read(1) != b"\n":
                self._drop("--batch")
                return True
        return not good

    def commit(self, name: str) -> Commit:
        """Parse one commit."""
        return parse_commit(CommitId(name), self.read(name, "commit", max_bytes=METADATA_BYTES))

    def explain(self, what: str, output: Output, commits: Sequence[str]) -> GitError:
        """The error for a failed reading command: names the damaged object, if one is found.

        Args:
            what: the command, such as "git ls-tree".
            output: what it left; its words serve only as a list of ids to look at.
            commits: whose trees it read.
        """
        for name in (*ids_in(output.err), *commits):
            if self.damaged(name):
                return corrupt(name)
        for name in commits:  # git does not always name a tree or blob that it cannot read
            raw = RawObject.parse(self.read(name, "commit", max_bytes=METADATA_BYTES))
            if (below := self._damaged_below(raw.first(b"tree").decode("ascii", "replace"))) is not None:
                return corrupt(below)
        return failure(what, output)

    def _damaged_below(self, tree: str) -> str | None:
        """The first of a tree, and of all that is in it, that cannot be read."""
        left = [(True, tree)]
        while left:
            is_tree, name = left.pop()
            if self.damaged(name):
                return name
            left += inside(self.read(name, "tree", max_bytes=METADATA_BYTES)) if is_tree else ()
        return None

    def _ask(self, option: str, name: str) -> tuple[list[str], IO[bytes]]:
        """Fields of the answer's first line: three if there is such an object; and the stream that holds the rest."""
        for _ in range(2):  # a process that was killed since the last question is no fault of the object
            process = self._processes.get(option)
            if process is None:
                process = self._processes[option] = self._git.start("cat-file", option)
            stream: IO[bytes] = process.stdout
            with contextlib.suppress(BrokenPipeError):  # the answer is empty then
                process.stdin.write(name.encode() + b"\n")
                process.stdin.flush()
            header = stream.readline().decode("ascii", "replace").split()
            if len(header) == 3:
                break
            # NOTE: git complains of damage on stderr, a pipe that nobody reads: a fresh process, so that it never fills.
            self._drop(option)
            if header:
                break
        return header, stream

    def _drop(self, option: str) -> None:
        process = self._processes.pop(option, None)
        if process is not None:
            process.__del__()  # GitPython's way to end a process: closes the pipes, terminates, waits


def _hash(kind: str, size: int, chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha1(b"%s %d\0" % (kind.encode(), size), usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def ids_in(text: str) -> tuple[str, ...]:
    """Object ids that a text of git mentions, each once, in order; not the zeros by which git says "none"."""
    names = dict.fromkeys(first + rest for first, rest in _ID_IN_TEXT.findall(text))
    return tuple(name for name in names if name.strip("0"))


@dataclass(frozen=True)
class RawObject:
    """A commit or tag, as stored: name and value of each header line in order, and the message."""

    headers: tuple[tuple[bytes, bytes], ...]  # a continuation line has an empty name
    message: bytes

    @classmethod
    def parse(cls, data: bytes) -> RawObject:
        head, _, message = data.partition(b"\n\n")
        fields = (line.partition(b" ") for line in head.split(b"\n"))
        return cls(tuple((name, value) for name, _, value in fields), message)

    def first(self, name: bytes) -> bytes:
        """Value of the first header of that name, else empty."""
        return next((value for key, value in self.headers if key == name), b"")

    @property
    def text(self) -> str:
        """The message without its one final newline; invalid UTF-8 becomes U+FFFD."""
        return self.message.removesuffix(b"\n").decode("utf-8", "replace")


def parse_commit(name: CommitId, data: bytes) -> Commit:
    """Read a commit object; whatever its author wrote, there is an answer.

    A committer date that is missing, not a number or after the year 9999 becomes 1970-01-01, as git shows it.
    """
    raw = RawObject.parse(data)
    parents: list[CommitId] = []
    # git takes as parents only the lines that directly follow the tree; a later one is decoration.
    for key, value in raw.headers[1:]:
        if key != b"parent":
            break
        parent = value.decode("ascii", "replace")
        if not is_hex(parent, 40):
            raise corrupt(name)
        parents.append(CommitId(parent))
    author, _ = _identity(raw.first(b"author"))
    committer, at = _identity(raw.first(b"committer"))
    return Commit(name, tuple(parents), author, committer, at, raw.text)


def _identity(line: bytes) -> tuple[str, dt.datetime]:
    match = _DATE.search(line)
    who = line[: match.start()] if match else line
    try:
        at = _EPOCH + dt.timedelta(seconds=int(match[1]) if match else 0)
    except OverflowError:
        at = _EPOCH
    return who.decode("utf-8", "replace"), at


def inside(tree: bytes) -> list[tuple[bool, str]]:
    """What a tree object lists, but for other repositories: (it is a tree, id); nothing if it is no tree."""
    found = []
    while tree:
        facts, _, rest = tree.partition(b"\0")
        if not facts.startswith(b"160000 "):
            found.append((facts.startswith(b"40000 "), rest[:20].hex()))
        tree = rest[20:]
    return found


def parse_entries(listing: bytes) -> tuple[TreeEntry, ...]:
    """Read `ls-tree -r -z -l`, sorted by path.

    Raises:
        GitError: object_corrupt, where git cannot tell a blob's size.
    """
    entries = []
    for record in listing.split(b"\0")[:-1]:
        facts, _, path = record.partition(b"\t")
        mode, _, name, size = facts.decode("ascii").split()
        if size == "BAD":
            raise corrupt(name)
        entries.append(TreeEntry(_path(path), mode, BlobId(name), 0 if size == "-" else int(size)))
    return tuple(sorted(entries, key=lambda entry: entry.path))


def parse_changes(listing: bytes) -> tuple[Change, ...]:
    """Read `diff-tree -r -z --raw --no-abbrev`, sorted by path."""
    fields = listing.split(b"\0")[:-1]
    changes = []
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        _, mode, _, name, letter = facts.decode("ascii").split()
        status = cast("Literal['A', 'M', 'D', 'T']", letter)
        changes.append(Change(_path(path), status, mode, None if status == "D" else BlobId(name)))
    return tuple(sorted(changes, key=lambda change: change.path))


def _path(raw: bytes) -> RepoPath:
    return RepoPath(raw.decode("utf-8", "replace"))
