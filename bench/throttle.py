"""A link of limited bandwidth: passes TCP connections on to a server on this machine.

    python bench/throttle.py HOST:PORT MB_PER_SECOND

Prints its own port. All connections share the bandwidth of a direction. The bytes stay in the kernel (splice), so the link
itself costs little of the two processors.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time
from contextlib import suppress

PIECE = 1 << 18
F_SETPIPE_SZ = 1031


class Bucket:
    """Lets so many bytes through per second, in all."""

    def __init__(self, rate: float) -> None:
        self._rate, self._next, self._lock = rate, 0.0, threading.Lock()

    def take(self, count: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now - 0.005) + count / self._rate
            late = self._next - now
        if late > 0.002:
            time.sleep(late)


def pass_on(source: socket.socket, target: socket.socket, bucket: Bucket) -> None:
    """One direction of a connection, to its end."""
    read, write = os.pipe()
    fcntl.fcntl(write, F_SETPIPE_SZ, PIECE)
    try:
        while count := os.splice(source.fileno(), write, PIECE):
            bucket.take(count)
            while count:
                count -= os.splice(read, target.fileno(), count)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):  # the other direction ends too
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(read)
        os.close(write)


def main(target: str, rate: float) -> None:
    host, _, port = target.rpartition(":")
    down, up = Bucket(rate * 1e6), Bucket(rate * 1e6)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        client, _ = listener.accept()
        server = socket.create_connection((host, int(port)))
        for one, other, bucket in ((server, client, down), (client, server, up)):
            threading.Thread(target=pass_on, args=(one, other, bucket), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
