"""Files hashed by threads beside what else a verification does, each once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from fedops.app.known_bytes import Identity, KnownBytes, Lying, look
from fedops.core.catalogue import Slug
from fedops.core.errors import StoreError
from fedops.core.findings import finding, hint, message

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Read:
    """What one pass over a file has shown.

    Attributes:
        before: the file as it was before.
        digests: hex, one for each hash that was asked for.
        twin: a second file that was compared with it, byte for byte; None: none was.
        twin_before: that file as it was before.
        is_twin: it holds the same bytes.
    """

    before: Identity | None
    digests: tuple[str, ...]
    twin: Path | None = None
    twin_before: Identity | None = None
    is_twin: bool = False


class ReadAhead:
    """Hashes several files at a time; what was read once is not read again."""

    def __init__(self) -> None:
        # One processor is left to the aggregation, which is what takes longest.
        self._pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1))
        self._reads: dict[tuple[Path, tuple[str, ...]], tuple[Future[Read], Path | None]] = {}  # and the twin
        self.begun: set[int] = set()  # versions whose files are being read

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def begin(self, path: Path, names: Sequence[str], twin: Path | None = None) -> None:
        """Read a file soon, unless it was begun already.

        Args:
            names: of hashes.
            twin: compared with it on the way, which takes a fraction of the time of hashing both. Whoever asks first
                decides whether there is one.
        """
        key = path, tuple(names)
        if key not in self._reads:
            self._reads[key] = self._pool.submit(_read, *key, twin), twin

    def read(self, path: Path, names: Sequence[str], twin: Path | None = None) -> Read:
        """What reading a file has shown; whoever waits for one that no thread has taken up yet reads it.

        Raises:
            StoreError: object_missing.
        """
        self.begin(path, names, twin)
        key = path, tuple(names)
        begun, wanted = self._reads[key]
        if begun.cancel():
            begun = Future()
            try:
                begun.set_result(_read(*key, wanted))
            except StoreError as e:
                begun.set_exception(e)
            self._reads[key] = begun, wanted
        return begun.result()

    def check(self, files: Iterable[Lying], known: KnownBytes) -> None:
        """Hold files against their digests, and note those that are whole; those that are trusted are not read.

        Raises:
            StoreError: slug hash_mismatch; object_missing if one is gone meanwhile.
        """
        unknown = [f for f in files if not known.trusts(f)]
        for lying in unknown:
            self.begin(lying.path, names_of(lying))
        for lying in unknown:
            expected = tuple(d for d in (lying.sha256, lying.md5) if d is not None)
            _hold(lying, self.read(lying.path, names_of(lying)), expected, known)

    def check_copies(self, hashed: Lying, other: Lying | None, known: KnownBytes) -> None:
        """The same for the two copies of one update.

        Args:
            hashed: the copy whose sha256 somebody has taken already: here its md5 is.
            other: compared with it, or hashed where that was not begun.

        Raises:
            StoreError: slug hash_mismatch; object_missing if one is gone meanwhile.
        """
        trusted = other is None or known.trusts(other)
        read = self.read(hashed.path, ["md5"], None if trusted or other is None else other.path)
        _hold(hashed, read, (hashed.md5,), known)
        if trusted or other is None:
            return
        if read.twin != other.path:
            self.check([other._replace(md5=None)], known)
            return
        if not read.is_twin:
            raise refused("hash_mismatch", other.path, f"other bytes than {hashed.path}", other.sha256)
        known.note(other._replace(md5=None), read.twin_before)


def names_of(lying: Lying) -> list[str]:
    """The hashes that must be taken."""
    return ["sha256"] if lying.md5 is None else ["sha256", "md5"]


def _hold(lying: Lying, read: Read, expected: tuple[str | None, ...], known: KnownBytes) -> None:
    if read.digests != expected:
        raise refused("hash_mismatch", lying.path, list(read.digests), list(expected))
    known.note(lying, read.before)


def _read(path: Path, names: Sequence[str], twin: Path | None) -> Read:
    before, twin_before = look(path), look(twin) if twin is not None else None
    try:
        digests, is_twin = digests_of(path, names, twin)
    except OSError as e:
        raise refused("object_missing", path, e.strerror, None) from e
    return Read(before, digests, twin, twin_before, is_twin)


def digests_of(path: Path, names: Iterable[str], twin: Path | None = None) -> tuple[tuple[str, ...], bool]:
    """Hex digests of a file, and whether a second file holds the same bytes, in one pass over both.

    Raises:
        OSError: one of them cannot be read.
    """
    digests = [hashlib.new(name, usedforsecurity=False) for name in names]
    block, other = bytearray(_BLOCK_BYTES), bytearray(_BLOCK_BYTES)
    with path.open("rb", buffering=0) as stream, twin.open("rb") if twin is not None else nullcontext() as second:
        same = second is not None
        while count := stream.readinto(block):
            for digest in digests:
                digest.update(memoryview(block)[:count])
            same = same and second is not None and _goes_on_with(second, block, other, count)
        same = same and second is not None and not second.read(1)
    return tuple(digest.hexdigest() for digest in digests), same


def _goes_on_with(stream: BufferedReader, block: bytearray, room: bytearray, count: int) -> bool:
    """True if the next `count` bytes of the stream are those of the block; `room` is as long as it."""
    if stream.readinto(memoryview(room)[:count]) != count:
        return False
    # NOTE: two whole bytearrays are compared by one call of the C library, memoryviews byte by byte.
    return room == block if count == len(block) else room[:count] == block[:count]


def refused(slug: Slug, path: Path, got: object, expected: object) -> StoreError:
    """What a file is not, as the error that a store raises."""
    found = finding(slug, str(path), got=got, expected=expected)
    return StoreError(message(found), hint=hint(found), slug=slug)
