"""Files hashed by threads beside what else a verification does, each once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fedops.app.known_bytes import Identity, KnownBytes, Lying, digests_of, look
from fedops.core.catalogue import Slug
from fedops.core.errors import StoreError
from fedops.core.findings import finding, hint, message

Read = tuple[Identity | None, tuple[str, ...]]  # the file before it was read, and its digests


class ReadAhead:
    """Hashes as many files at a time as there are processors; what was read once is not read again."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._reads: dict[tuple[Path, tuple[str, ...]], Future[Read]] = {}
        self.begun: set[int] = set()  # versions whose files are being read

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def begin(self, path: Path, names: Sequence[str]) -> Future[Read]:
        """Read a file soon, or find that it is being read; `names` of hashes."""
        key = path, tuple(names)
        if key not in self._reads:
            self._reads[key] = self._pool.submit(_read, *key)
        return self._reads[key]

    def md5(self, path: Path) -> str:
        """Hex md5 of a file."""
        return self.begin(path, ["md5"]).result()[1][0]

    def check(self, files: Iterable[Lying], known: KnownBytes) -> None:
        """Hold files against their digests, and note those that are whole; those that are trusted are not read.

        Raises:
            StoreError: slug hash_mismatch; object_missing if one is gone meanwhile.
        """
        reads = [(f, self.begin(f.path, names_of(f))) for f in files if not known.trusts(f)]
        for lying, read in reads:
            before, got = read.result()
            expected = tuple(d for d in (lying.sha256, lying.md5) if d is not None)
            if got != expected:
                raise refused("hash_mismatch", lying.path, list(got), list(expected))
            known.note(lying, before)


def names_of(lying: Lying) -> list[str]:
    """The hashes that must be taken."""
    return ["sha256"] if lying.md5 is None else ["sha256", "md5"]


def _read(path: Path, names: Sequence[str]) -> Read:
    before = look(path)
    try:
        return before, digests_of(path, names)
    except OSError as e:
        raise refused("object_missing", path, e.strerror, None) from e


def refused(slug: Slug, path: Path, got: object, expected: object) -> StoreError:
    """What a file is not, as the error that a store raises."""
    found = finding(slug, str(path), got=got, expected=expected)
    return StoreError(message(found), hint=hint(found), slug=slug)
