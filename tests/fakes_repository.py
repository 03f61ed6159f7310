"""The Repository port in memory: real git ids and the real one's rules, no process, so that schedules by the hundred run."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import Change, Commit, RefUpdate, Touched, TreeEntry, VersionTag
from fedops.core.ids import BlobId, CommitId, GlobalVersion, RepoPath, is_hex

Tree = Mapping[str, tuple[str, str]]  # path -> mode, object id

_REF = re.compile(r"refs/[^\0-\x20\x7f~^:?*\[\\]+\Z")
_FETCHED = re.compile(r"refs/(tags/global@.*|pull/.*/head|fedops/.*)\Z")
_KEY = re.compile(r"(ssh-[a-z0-9-]+|ecdsa-[a-z0-9-]+) ([A-Za-z0-9+/]+={0,2})(?: [^\0\r\n]*)?\Z")


@dataclass(frozen=True)
class StoredCommit:
    facts: Commit
    tree: Tree
    signed_by: str | None  # "ssh-ed25519 AAAA", without the comment


@dataclass(frozen=True)
class StoredTag:
    commit: CommitId
    message: str


Stored = bytes | StoredCommit | StoredTag


class FakeOrigin:
    """A bare origin; push is a compare-and-swap under one lock."""

    def __init__(self, main: str = "main") -> None:
        self.main = main
        self.refs: dict[str, str] = {}
        self.objects: dict[str, Stored] = {}
        self.lock = threading.Lock()

    def clone(
        self,
        *,
        author: tuple[str, str] = ("Test", "test@example.invalid"),
        public_keys: Mapping[str, str] | None = None,
    ) -> FakeRepository:
        """A new clone, fetched."""
        repository = FakeRepository(self, author=author, public_keys=public_keys)
        repository.fetch()
        return repository


class FakeRepository:
    """One clone of a FakeOrigin; has only the objects that it wrote or fetched.

    Args:
        origin: shared with other clones, also across threads.
        author: name and e-mail of what is written here.
        public_keys: text of a private key file -> its public key line; else `<key>.pub` is read.
    """

    def __init__(
        self,
        origin: FakeOrigin,
        *,
        author: tuple[str, str] = ("Test", "test@example.invalid"),
        public_keys: Mapping[str, str] | None = None,
    ) -> None:
        self.origin = origin
        self.refs: dict[str, str] = {}
        self.objects: dict[str, Stored] = {}
        self._author = author
        self._public_keys = public_keys or {}
        self._main = f"refs/heads/{origin.main}"
        self._tracking = f"refs/remotes/origin/{origin.main}"

    def fetch(self, pulls: Collection[int] | None = None) -> None:
        with self.origin.lock:
            self.objects.update(self.origin.objects)
            there = dict(self.origin.refs)
        wanted = None if pulls is None else {f"refs/pull/{number}/head" for number in pulls}

        def fetched(ref: str) -> bool:
            passed_over = wanted is not None and ref.startswith("refs/pull/") and ref not in wanted
            return _FETCHED.match(ref) is not None and not passed_over

        # Refs outside of these patterns are left as they are, as git does.
        self.refs = {ref: name for ref, name in self.refs.items() if not fetched(ref) and ref != self._tracking}
        self.refs |= {ref: name for ref, name in there.items() if fetched(ref)}
        if self._main in there:
            self.refs[self._tracking] = there[self._main]

    def resolve(self, ref: str) -> CommitId | None:
        if is_hex(ref, 40):
            return self._peel(ref)
        names = [ref] if ref.startswith("refs/") else [f"refs/tags/{ref}", f"refs/heads/{ref}", f"refs/remotes/{ref}"]
        if ref in ("main", self.origin.main, self._main):
            names = [self._tracking]
        return next((self._peel(self.refs[name]) for name in names if name in self.refs), None)

    def refs_below(self, under: str) -> Mapping[str, str]:
        return {ref: name for ref, name in self.refs.items() if ref.startswith(under.rstrip("/") + "/")}

    def entries(self, commit: CommitId, under: str = "") -> Sequence[TreeEntry]:
        under = under.strip("/")
        return tuple(
            TreeEntry(RepoPath(path), mode, BlobId(name), self._size(mode, name))
            for path, (mode, name) in sorted(self._commit(commit).tree.items())
            if not under or path == under or path.startswith(under + "/")
        )

    def folders(self, commit: CommitId, under: str) -> Sequence[str]:
        top = f"{under.strip('/')}/"
        inside = (path.removeprefix(top) for path in self._commit(commit).tree if path.startswith(top))
        return tuple(sorted({path.partition("/")[0] for path in inside if "/" in path}))

    def read(self, blob: BlobId, *, max_bytes: int) -> bytes:
        data = self.objects.get(_checked(blob))
        if not isinstance(data, bytes):
            raise _corrupt(blob)
        if len(data) > max_bytes:
            raise GitError(f"fake: blob {blob}, {len(data)} -> at most {max_bytes} bytes", slug="file_too_large")
        return data

    def changes(self, base: CommitId, head: CommitId) -> Sequence[Change]:
        after = self._commit(head).tree
        found = {c.path: c for old in self._merge_bases(base, head) for c in _changes(self._commit(old).tree, after)}
        return tuple(found[path] for path in sorted(found))

    def commits(self, after: CommitId | None, until: CommitId) -> Iterator[Commit]:
        current: CommitId | None = until
        while current is not None and current != after:
            commit = self.commit(current)
            yield commit
            current = commit.parents[0] if commit.parents else None
        if current is None and after is not None:
            raise GitError(f"fake: {after} is not on the line of {until}", slug="lineage_broken")

    def touched(self, until: CommitId, under: Sequence[str]) -> Iterator[Touched]:
        for commit in self.commits(None, until):
            before = self._commit(commit.parents[0]).tree if commit.parents else {}
            changes = _changes(before, self._commit(commit.id).tree)
            inside = (c for c in changes if any(f"{c.path}/".startswith(f"{folder}/") for folder in under))
            yield Touched(commit.id, tuple(inside))

    def commit(self, commit: CommitId) -> Commit:
        return self._commit(commit).facts

    def is_ancestor(self, commit: CommitId, of: CommitId) -> bool:
        self._commit(commit)
        return commit in self._ancestors(of)

    def merged_into(self, tip: CommitId, commits: Collection[CommitId]) -> frozenset[CommitId]:
        below = self._ancestors(tip)
        return frozenset(commit for commit in commits if commit in below)

    def versions(self, above: int = -1) -> Sequence[VersionTag]:
        tags = []
        for ref, name in self.refs.items():
            tag = ref.removeprefix("refs/tags/")
            version = GlobalVersion.from_tag(tag)
            if version is None or version.number <= above:
                continue
            stored = self.objects[name]
            message = stored.message if isinstance(stored, StoredTag) else ""
            commit = self._peel(name) or CommitId(name)
            tags.append(VersionTag(version.number, tag, name, commit, isinstance(stored, StoredTag), message))
        return tuple(sorted(tags, key=lambda tag: tag.version))

    def signer(self, commit: CommitId, keys: Sequence[str]) -> str | None:
        signed_by = self._commit(commit).signed_by
        return next((key for key in keys if signed_by is not None and _bare_key(key) == signed_by), None)

    def write_commit(
        self,
        parents: Sequence[CommitId],
        files: Mapping[RepoPath, bytes | None],
        message: str,
        *,
        at: dt.datetime,
        key: Path | None = None,
    ) -> CommitId:
        tree = dict(self._commit(parents[0]).tree) if parents else {}
        for path, data in files.items():
            if data is None:
                tree.pop(path, None)
        for path, data in files.items():
            if data is not None:
                _check_path(path, tree)
                tree[path] = ("100644", self._store("blob", data, data))
        return self._write(parents, tree, message, at, self._public(key))

    def plant(
        self,
        parents: Sequence[CommitId],
        entries: Mapping[str, tuple[str, bytes]],
        message: str = "planted",
        *,
        at: dt.datetime,
        key: Path | None = None,
    ) -> CommitId:
        """Write a commit of exactly these entries, path -> (mode, bytes), as no honest fedops would.

        The bytes of a submodule (mode 160000) are the 40 hex digits of its commit.
        """
        tree = {
            path: (mode, data.decode() if mode == "160000" else self._store("blob", data, data))
            for path, (mode, data) in entries.items()
        }
        return self._write(parents, tree, message, at, self._public(key))

    def write_tag(self, name: str, commit: CommitId, message: str) -> str:
        return self._store("tag", self._raw_tag(name, commit, message), StoredTag(commit, message))

    def tag_id(self, name: str, commit: CommitId, message: str) -> str:
        return _name("tag", self._raw_tag(name, commit, message))

    def _raw_tag(self, name: str, commit: CommitId, message: str) -> bytes:
        facts = self._commit(commit).facts
        if re.search(r"[\0-\x20~^:?*\[\\]", name):
            raise GitError(f"fake: tag name {name!r}")
        tagger = f"{facts.committer} {int(facts.committed_at.timestamp())} +0000"
        return f"object {commit}\ntype commit\ntag {name}\ntagger {tagger}\n\n{message}\n".encode()

    def push(self, updates: Sequence[RefUpdate]) -> bool:
        for update in updates:
            if not _REF.match(update.ref):
                raise GitError(f"fake: {update.ref!r} is no full ref name")
            if update.new is not None and _checked(update.new) not in self.objects:
                raise _corrupt(update.new)
        with self.origin.lock:
            there = self.origin.refs
            now = [(update, there.get(update.ref)) for update in updates]
            if not all(value == update.new for update, value in now):
                if any(value != update.old and (value is None or value != update.new) for update, value in now):
                    return False
                self.origin.objects.update(self.objects)
                _move(there, updates)
        followed = [u for u in updates if not u.ref.startswith("refs/heads/")]
        followed += [RefUpdate(self._tracking, u.old, u.new) for u in updates if u.ref == self._main]
        _move(self.refs, followed)
        return True

    def _write(
        self, parents: Sequence[CommitId], tree: Tree, message: str, at: dt.datetime, signed_by: str | None
    ) -> CommitId:
        if at.tzinfo is None:
            raise ValueError("the date of a commit needs a time zone")
        for parent in parents:
            self._commit(parent)
        who = f"{self._author[0]} <{self._author[1]}>"
        date = dt.datetime.fromtimestamp(int(at.timestamp()), dt.UTC)
        stamp = f"{who} {int(at.timestamp())} +0000"
        lines = [f"tree {tree_id(tree)}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {stamp}", f"committer {stamp}", *([f"gpgsig {signed_by}"] if signed_by else [])]
        raw = ("\n".join(lines) + f"\n\n{message}\n").encode("utf-8", "replace")
        name = CommitId(_name("commit", raw))
        self.objects[name] = StoredCommit(Commit(name, tuple(parents), who, who, date, message), tree, signed_by)
        return name

    def _store(self, kind: str, raw: bytes, value: Stored) -> str:
        name = _name(kind, raw)
        self.objects[name] = value
        return name

    def _public(self, key: Path | None) -> str | None:
        if key is None:
            return None
        if not key.is_file():
            raise ConfigError(f"{key}: no such key file")
        text = key.read_text()
        line = self._public_keys.get(text)
        return _bare_key(line if line is not None else key.with_name(key.name + ".pub").read_text())

    def _commit(self, name: str) -> StoredCommit:
        stored = self.objects.get(_checked(name))
        if not isinstance(stored, StoredCommit):
            raise _corrupt(name)
        return stored

    def _peel(self, name: str) -> CommitId | None:
        stored = self.objects.get(name)
        if isinstance(stored, StoredTag):
            return stored.commit
        return CommitId(name) if isinstance(stored, StoredCommit) else None

    def _size(self, mode: str, name: str) -> int:
        data = self.objects.get(name)
        return len(data) if mode != "160000" and isinstance(data, bytes) else 0

    def _ancestors(self, name: CommitId) -> set[CommitId]:
        seen: set[CommitId] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current not in seen:
                seen.add(current)
                waiting.extend(self._commit(current).facts.parents)
        return seen

    def _merge_bases(self, base: CommitId, head: CommitId) -> list[CommitId]:
        common = self._ancestors(base) & self._ancestors(head)
        if not common:
            raise GitError(f"fake: {base} and {head} have no common ancestor", slug="lineage_broken")
        # A best one is no ancestor of another common ancestor.
        lesser = {parent for name in common for parent in self._commit(name).facts.parents}
        best = sorted(common - lesser)
        if len(best) > 8:
            raise GitError(f"fake: {len(best)} merge bases", slug="lineage_broken")
        return best


def _changes(old: Tree, new: Tree) -> tuple[Change, ...]:
    changes = []
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        if after is None:
            changes.append(Change(RepoPath(path), "D", "000000", None))
        elif before is None:
            changes.append(Change(RepoPath(path), "A", after[0], BlobId(after[1])))
        else:
            kept_type = before[0][:2] == after[0][:2]  # 10 file, 12 symlink, 16 submodule
            changes.append(Change(RepoPath(path), "M" if kept_type else "T", after[0], BlobId(after[1])))
    return tuple(changes)


def tree_id(tree: Tree) -> str:
    """The id of a git tree with these files."""
    folders: dict[str, dict[str, tuple[str, str]]] = {}
    rows: list[tuple[bytes, bytes]] = []  # sort key, entry
    for path, (mode, name) in tree.items():
        first, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(first, {})[rest] = (mode, name)
        else:
            rows.append((_raw(first), _raw(f"{mode} {first}\0") + bytes.fromhex(name)))
    for folder, inside in folders.items():
        rows.append((_raw(f"{folder}/"), _raw(f"40000 {folder}\0") + bytes.fromhex(tree_id(inside))))
    return _name("tree", b"".join(entry for _, entry in sorted(rows)))


def _raw(path: str) -> bytes:
    """A path as git stores it, which need not be UTF-8."""
    return path.encode("utf-8", "surrogateescape")


def _name(kind: str, raw: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(raw)}\0".encode() + raw, usedforsecurity=False).hexdigest()


def _move(refs: dict[str, str], updates: Sequence[RefUpdate]) -> None:
    for update in updates:
        if update.new is None:
            refs.pop(update.ref, None)
        else:
            refs[update.ref] = update.new


def _check_path(path: str, tree: Tree) -> None:
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") or part.lower() in (".git", "git~1") for part in parts):
        raise GitError(f"fake: git refuses the path {path!r}")
    above = {"/".join(parts[:n]) for n in range(1, len(parts))}
    if above & tree.keys() or any(other.startswith(path + "/") for other in tree):
        raise GitError(f"fake: {path!r} is a file and a folder")


def _checked(name: str) -> str:
    if not is_hex(name, 40):
        raise GitError(f"fake: {name!r} is no object id")
    return name


def _corrupt(name: str) -> GitError:
    return GitError(f"fake: object {name} is missing or corrupt", slug="object_corrupt")


def _bare_key(line: str) -> str | None:
    match = _KEY.match(line.strip())
    return f"{match[1]} {match[2]}" if match else None
