"""Files that were read to their end and hashed: by this run, and by earlier ones, which only a run that trusts believes.

A file is known by device, inode, size and time of modification. Whoever changes bytes and sets the time back is not
seen by that: so nothing is trusted unless somebody asked for it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from fedops.app.work import write_through
from fedops.core.documents import Document, load_json_document
from fedops.core.errors import ConfigError
from fedops.core.records import Hex32, Hex64

MAX_ENTRIES = 100_000
MAX_BYTES = 64 << 20  # of the list
_SETTLED_NS = 2_000_000_000  # a file may change twice within one tick of a coarse clock

Proven = Literal["inputs", "lineage"]


class Identity(NamedTuple):
    """What tells a file from another, and from itself after somebody wrote to it."""

    device: int
    inode: int
    size: int  # bytes
    mtime_ns: int

    @property
    def is_settled(self) -> bool:
        """False for a file that was written just now: the next change might leave the same time."""
        return self.mtime_ns < time.time_ns() - _SETTLED_NS


def look(path: Path) -> Identity | None:
    """A file as it is now; None if there is none, or it may not be looked at."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return Identity(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)


class Lying(NamedTuple):
    """A file of a store, and what must be in it.

    Attributes:
        sha256, md5: hex; None: not asked.
    """

    path: Path
    sha256: str
    md5: str | None = None


class KnownList(Document):
    """`.fedops/cache/verified.json`: what earlier verifications of this clone have read and recomputed.

    Attributes:
        files: identity, sha256 and md5 (or "") of each file.
        made: digests over all that a version's numbers depend on, where they came out as they must.
        proofs: digest of a version and all that pins it -> how far it was recomputed, and the files that were read.
    """

    schema_: Literal["fedops.verified/v1"] = Field(default="fedops.verified/v1", alias="schema")
    files: tuple[tuple[int, int, int, int, Hex64, Hex32 | Literal[""]], ...]
    made: tuple[Hex64, ...]
    proofs: dict[Hex64, tuple[Proven, tuple[tuple[str, int, int, int, int], ...]]]


class KnownBytes:
    """What is known of files, and which versions came out as their records say.

    Args:
        path: where it is kept from run to run; None: nowhere. A list that cannot be read is an empty one.
        trust: believe what earlier runs noted.
    """

    def __init__(self, path: Path | None = None, *, trust: bool = False) -> None:
        self._path, self._trust = path, trust
        self._files: dict[Identity, tuple[str, str]] = {}
        self._made: dict[str, None] = {}
        self._proofs: dict[str, tuple[Proven, dict[str, Identity]]] = {}
        self._reading: dict[str, Identity] | None = None  # of the version at hand; None: it leaves no proof
        self._now: dict[Identity, str] = {}  # sha256 of what this run has read
        self._spared: dict[str, int] = {}  # path -> bytes
        listed = _read(path) if path is not None else None
        if listed is not None:
            self._files = {Identity(*f[:4]): f[4:] for f in listed.files}
            self._made = dict.fromkeys(listed.made)
            self._proofs = {k: (level, {f[0]: Identity(*f[1:]) for f in files}) for k, (level, files) in listed.proofs.items()}  # fmt: skip

    @property
    def spared(self) -> tuple[int, int]:
        """How many files, and bytes, were not read again."""
        return len(self._spared), sum(self._spared.values())

    # ---------------------------------------------------------------- files

    def has(self, lying: Lying) -> bool:
        """True if this file need not be read: an earlier run has, and it does not look as if it had changed since."""
        now = look(lying.path) if self._trust else None
        known = self._files.get(now) if now is not None else None
        return known is not None and known[0] == lying.sha256 and lying.md5 in (None, known[1])

    def has_read(self, lying: Lying) -> bool:
        """True if this run itself has read a file to its end, it was whole, and is as it was then."""
        now = look(lying.path)
        return now is not None and self._now.get(now) == lying.sha256

    def trusts(self, lying: Lying) -> bool:
        """The same, and the file counts as one that was not read again."""
        if not self.has(lying):
            return False
        now = look(lying.path)
        self._spared[str(lying.path)] = now.size if now is not None else 0
        self.saw(lying.path, now)
        return True

    def note(self, lying: Lying, before: Identity | None) -> None:
        """Keep that a file holds what it must.

        Args:
            before: the file as it was before it was read.
        """
        if before is not None and before == look(lying.path) and before.is_settled:
            old = self._files.pop(before, ("", ""))
            self._files[before] = lying.sha256, lying.md5 or (old[1] if old[0] == lying.sha256 else "")
            self._now[before] = lying.sha256
        self.saw(lying.path, before)

    def saw(self, path: Path, now: Identity | None) -> None:
        """The version at hand rests on this file as it was then."""
        if now is None or not now.is_settled:
            self.spoil()
        elif self._reading is not None:
            self._reading[str(path)] = now

    # ---------------------------------------------------------------- versions

    def made(self, key: str) -> bool:
        """True if an earlier run has recomputed this (see `note_made`), and this one believes that."""
        return self._trust and key in self._made

    def note_made(self, key: str) -> None:
        """Keep that something came out as it must; the key is a sha256 over everything that it depends on."""
        self._made.pop(key, None)
        self._made[key] = None

    def begin(self) -> None:
        """From now on all files that are looked at belong to one version."""
        self._reading = {}

    def spoil(self) -> None:
        """The version at hand rests on more than files that lie here, or on the absence of one: it leaves no proof."""
        self._reading = None

    def prove(self, key: str, level: Proven) -> None:
        """Keep that the version at hand holds, with the files that were looked at since `begin`.

        Args:
            key: a sha256 over everything else that this depends on.
        """
        if self._reading is not None:
            self._proofs.pop(key, None)
            self._proofs[key] = level, self._reading

    def proven(self, key: str) -> Proven | None:
        """How far an earlier run has recomputed a version all of whose files are as they were; None: not known."""
        found = self._proofs.get(key) if self._trust else None
        if found is None or any(look(Path(path)) != then for path, then in found[1].items()):
            return None
        self._spared |= {path: then.size for path, then in found[1].items()}
        return found[0]

    def save(self) -> None:
        """Write it for later runs; the oldest entries go where it grows too long."""
        if self._path is None:
            return
        value = {
            "schema": "fedops.verified/v1",
            "files": [[*identity, *digests] for identity, digests in list(self._files.items())[-MAX_ENTRIES:]],
            "made": list(self._made)[-MAX_ENTRIES:],
            "proofs": {k: [level, [[path, *i] for path, i in files.items()]] for k, (level, files) in self._proofs.items()},
        }  # fmt: skip
        data = json.dumps(value, separators=(",", ":")).encode()
        if len(data) <= MAX_BYTES:
            write_through(self._path, lambda part: part.write_bytes(data))


def _read(path: Path) -> KnownList | None:
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_BYTES else b""
        return load_json_document(data, KnownList, path.name, max_bytes=MAX_BYTES)
    except (OSError, ConfigError):
        return None


def fingerprint(parts: Iterable[str]) -> str:
    """Sha256 over texts, each with its length, so that none runs into the next."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "backslashreplace")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
