"""A file that is read at any place, by several threads, and never silently: cut off or changed is an error."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO, cast

from fedops.adapters.durable import reported
from fedops.core.errors import ConfigError, StoreError

_POSITIONED = hasattr(os, "preadv")


class PositionedFile:
    """A regular file, open for reading. Reads go into buffers of the caller, so that memory is used again.

    Not mmap: a mapped file that becomes shorter kills the process.

    Args:
        path: its name, for messages.
        file: open for reading; closed with this object.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self._descriptor = file.fileno()
        self._lock = threading.Lock()
        self._opened = os.fstat(self._descriptor)

    @classmethod
    def open(cls, path: Path) -> PositionedFile:
        """Open a regular file.

        Raises:
            ConfigError: there is none, or it may not be read.
        """
        try:
            # NOTE: O_NONBLOCK, or opening a named pipe would wait for a writer for ever.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except OSError as e:
            raise ConfigError(f"{path}: cannot open the model file, got {e.strerror}", hint="check the path") from e
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ConfigError(f"{path}: not a regular file", hint="give the path of a model file")
        return cls(path, cast("BinaryIO", os.fdopen(descriptor, "rb", buffering=0)))

    @property
    def size(self) -> int:
        """Bytes, when it was opened."""
        return self._opened.st_size

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill a buffer of bytes from a place of the file.

        Raises:
            StoreError: the file ends before the buffer is full, or cannot be read.
        """
        done = 0
        while done < len(buffer):
            try:
                count = self._read_some(position + done, buffer[done:] if done else buffer)
            except OSError:
                with reported(self.path, "read it"):
                    raise
            if not count:
                raise self._changed(f"{position + done} bytes -> at least {position + len(buffer)}")
            done += count

    def _read_some(self, position: int, buffer: memoryview) -> int:
        if _POSITIONED:
            return os.preadv(self._descriptor, [buffer], position)
        with self._lock:  # elsewhere place and read are two steps
            self._file.seek(position)
            data = self._file.read(len(buffer))
            buffer[: len(data)] = data
            return len(data)

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes; fewer if the file was that short when it was opened."""
        data = bytearray(max(0, min(count, self.size - position)))
        self.read_into(position, memoryview(data))
        return bytes(data)

    def check_unchanged(self) -> None:
        """Raise StoreError if size or time of modification are not those of the opening."""
        with reported(self.path, "look at it"):
            now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) != (self._opened.st_size, self._opened.st_mtime_ns):
            raise self._changed(f"{now.st_size} bytes -> {self.size}, or written to")

    def _changed(self, what: str) -> StoreError:
        return StoreError(
            f"{self.path}: changed while it was read, {what}",
            slug="file_changed",
            cause="temporary",
            hint="wait until whoever writes it has finished, then repeat the command",
        )

    def close(self) -> None:
        self._file.close()
