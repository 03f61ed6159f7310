"""Hash files with sha256 by two threads and nothing else: the floor of re-checking what goes into an aggregation.

    python bench/hash_files.py FILE...

The work is cut in two equal parts: an odd file out is hashed by both threads, one half after the other.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import Protocol

BLOCK = 1 << 18


class Hash(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


def feed(digest: Hash, path: str, start: int, stop: int) -> None:
    """Hash a range of a file through one buffer."""
    block = memoryview(bytearray(BLOCK))
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while start < stop:
            count = file.readinto(block[: stop - start])
            digest.update(block[:count])
            start += count


def hash_all(paths: Sequence[str]) -> dict[str, str]:
    """The hex digest of each file."""
    digests: dict[str, Hash] = {path: hashlib.sha256() for path in paths}
    pairs, odd = paths[: len(paths) // 2 * 2], paths[len(paths) // 2 * 2 :]
    half_done = threading.Event()

    def first() -> None:
        for path in odd:
            feed(digests[path], path, 0, os.path.getsize(path) // 2)
        half_done.set()
        for path in pairs[::2]:
            feed(digests[path], path, 0, os.path.getsize(path))

    def second() -> None:
        for path in pairs[1::2]:
            feed(digests[path], path, 0, os.path.getsize(path))
        half_done.wait()
        for path in odd:
            feed(digests[path], path, os.path.getsize(path) // 2, os.path.getsize(path))

    threads = [threading.Thread(target=part) for part in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {path: digest.hexdigest() for path, digest in digests.items()}


if __name__ == "__main__":
    for name, value in hash_all(sys.argv[1:]).items():
        print(value, os.path.basename(name))
