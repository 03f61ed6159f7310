"""Rewrites a bare repository as somebody would who has it on disk: objects and refs by hand, no check, no fedops."""

from __future__ import annotations

import hashlib
import subprocess
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

Files = dict[str, tuple[str, str]]  # path -> mode, blob id


class Forger:
    """One bare repository; everything in it is read at once."""

    def __init__(self, origin: Path) -> None:
        self.origin = origin
        self.objects: dict[str, tuple[str, bytes]] = {}
        self._read_objects()
        listed = self.git("for-each-ref", "--format=%(objectname) %(refname)").splitlines()
        self.refs = {ref: name for name, ref in (line.split(" ") for line in listed)}

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(self.origin), *arguments], capture_output=True, check=True)
        return done.stdout.decode()

    def _read_objects(self) -> None:
        command = ["git", "-C", str(self.origin), "cat-file", "--batch-all-objects", "--batch"]
        data = subprocess.run(command, capture_output=True, check=True).stdout
        start = 0
        while start < len(data):
            end = data.index(b"\n", start)
            name, kind, size = data[start:end].decode().split()
            self.objects[name] = (kind, data[end + 1 : end + 1 + int(size)])
            start = end + 2 + int(size)

    # objects

    def put(self, kind: str, data: bytes) -> str:
        """Write an object, whatever it says; returns its id."""
        raw = f"{kind} {len(data)}\0".encode() + data
        name = hashlib.sha1(raw, usedforsecurity=False).hexdigest()
        if name not in self.objects:
            path = self.origin / "objects" / name[:2] / name[2:]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(zlib.compress(raw))
            self.objects[name] = (kind, data)
        return name

    def tree_of(self, commit: str) -> str:
        return self.objects[commit][1].split(b"\n", 1)[0].decode().removeprefix("tree ")

    def parents(self, commit: str) -> list[str]:
        head = self.objects[commit][1].split(b"\n\n", 1)[0].decode("utf-8", "replace")
        return [line.removeprefix("parent ") for line in head.splitlines() if line.startswith("parent ")]

    def message(self, commit: str) -> str:
        return self.objects[commit][1].split(b"\n\n", 1)[1].decode("utf-8", "replace")

    def files(self, commit: str) -> Files:
        return dict(self._walk(self.tree_of(commit), ""))

    def _walk(self, tree: str, under: str) -> Iterable[tuple[str, tuple[str, str]]]:
        data = self.objects[tree][1]
        while data:
            head, data = data.split(b"\0", 1)
            mode, name = head.decode().split(" ", 1)
            child, data = data[:20].hex(), data[20:]
            if mode == "40000":
                yield from self._walk(child, f"{under}{name}/")
            else:
                yield under + name, (mode, child)

    def read(self, commit: str, path: str) -> bytes:
        return self.objects[self.files(commit)[path][1]][1]

    def write_tree(self, files: Mapping[str, tuple[str, str]]) -> str:
        folders: dict[str, Files] = {}
        rows: list[tuple[bytes, bytes]] = []
        for path, (mode, name) in files.items():
            first, slash, rest = path.partition("/")
            if slash:
                folders.setdefault(first, {})[rest] = (mode, name)
            else:
                rows.append((first.encode(), f"{mode} {first}\0".encode() + bytes.fromhex(name)))
        for folder, inside in folders.items():
            entry = f"40000 {folder}\0".encode() + bytes.fromhex(self.write_tree(inside))
            rows.append((f"{folder}/".encode(), entry))
        return self.put("tree", b"".join(entry for _, entry in sorted(rows)))

    def recommit(self, old: str, files: Files, parents: list[str]) -> str:
        """The same commit with another tree and other parents; author, dates, message and signature stay."""
        head, body = self.objects[old][1].split(b"\n\n", 1)
        rest = [line for line in head.split(b"\n") if not line.startswith((b"tree ", b"parent "))]
        lines = [f"tree {self.write_tree(files)}".encode(), *(f"parent {p}".encode() for p in parents), *rest]
        return self.put("commit", b"\n".join(lines) + b"\n\n" + body)

    # history

    def line(self) -> list[str]:
        """Main's first-parent line, oldest first."""
        names = [self.refs["refs/heads/main"]]
        while parents := self.parents(names[-1]):
            names.append(parents[0])
        return names[::-1]

    def version(self, number: int) -> str:
        """The commit of a version, by its tag."""
        tag = self.objects[self.refs[f"refs/tags/global@v{number}.0.0"]][1]
        return tag.split(b"\n", 1)[0].decode().removeprefix("object ")

    def commit(self, subject: str, nth: int = 0) -> str:
        """A commit of main by the beginning of its message."""
        return [name for name in self.line() if self.message(name).startswith(subject)][nth]

    def rewrite(
        self,
        edits: Mapping[str, Mapping[str, bytes | None]] | None = None,
        *,
        drop: Iterable[str] = (),
        extra: Mapping[str, Mapping[str, bytes | None]] | None = None,
        second_parent: Mapping[str, str] | None = None,
        mode: str = "100644",
        tags: bool = True,
    ) -> dict[str, str]:
        """Rewrite main: the commits named are changed, and all later ones re-created on them as they were.

        Args:
            edits: commit -> path -> new bytes, None deletes.
            drop: commits that shall never have been.
            extra: commit -> files of one more commit right after it.
            second_parent: commit -> one more parent.
            mode: of the files in `edits`; with 160000 their bytes are the id of a commit.
            tags: re-create version tags on the new commits, message and tagger as they were.

        Returns:
            Old commit -> new one.
        """
        edits, extra, second_parent = edits or {}, extra or {}, second_parent or {}
        dropped = set(drop)
        new: dict[str, str] = {}
        tip: str | None = None
        before: str | None = None
        for old in self.line():
            files = self.files(tip) if tip is not None else {}
            was, now = (self.files(before) if before is not None else {}), self.files(old)
            for path in was.keys() - now.keys():
                files.pop(path, None)
            files |= {path: entry for path, entry in now.items() if was.get(path) != entry}
            before = old
            if old in dropped:
                continue
            self._apply(files, edits.get(old, {}), mode)
            parents = ([tip] if tip is not None else []) + self.parents(old)[1:]
            if old in second_parent:
                parents.append(second_parent[old])
            tip = self.recommit(old, files, parents)
            new[old] = tip
            if old in extra:
                self._apply(files, extra[old], "100644")
                raw = self.objects[old][1].split(b"\n\n", 1)[0]
                plain = b"\n".join(x for x in raw.split(b"\n") if x.startswith((b"author ", b"committer ")))
                head = f"tree {self.write_tree(files)}\nparent {tip}\n".encode()
                tip = self.put("commit", head + plain + b"\n\none more\n")
        assert tip is not None
        self.set_ref("refs/heads/main", tip)
        if tags:
            for ref, name in list(self.refs.items()):
                if ref.startswith("refs/tags/global@"):
                    self.retag(ref, name, new)
        return new

    def _apply(self, files: Files, changes: Mapping[str, bytes | None], mode: str) -> None:
        for path, data in changes.items():
            if data is None:
                files.pop(path, None)
            else:
                files[path] = (mode, data.decode() if mode == "160000" else self.put("blob", data))

    def follow(self, old: str, new: str) -> None:
        """Let a commit of main's line be another one, and re-create what comes after it, and its tags."""
        line, made, tip = self.line(), {old: new}, new
        for later in line[line.index(old) + 1 :]:
            tip = made[later] = self.recommit(later, self.files(later), [tip, *self.parents(later)[1:]])
        self.set_ref("refs/heads/main", tip)
        for ref, name in list(self.refs.items()):
            if ref.startswith("refs/tags/"):
                self.retag(ref, name, made)

    def retag(self, ref: str, tag: str, new: Mapping[str, str]) -> None:
        head, rest = self.objects[tag][1].split(b"\n", 1)
        commit = head.decode().removeprefix("object ")
        if new.get(commit, commit) != commit:
            self.set_ref(ref, self.put("tag", f"object {new[commit]}\n".encode() + rest))

    def set_ref(self, ref: str, name: str | None) -> None:
        if name is None:
            self.git("update-ref", "-d", ref)
            del self.refs[ref]
        else:
            self.git("update-ref", ref, name)
            self.refs[ref] = name
