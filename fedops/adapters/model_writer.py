"""Canonical safetensors files: hashed while they are written, whole or not there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.adapters.durable import part, reported, sync_folder
from fedops.core.casts import storage
from fedops.core.errors import ConfigError
from fedops.core.facts import Dtype, Specs, TensorSpec
from fedops.core.safetensors_header import encode_header
from fedops.core.tensors import DTYPES, canonical_layout, data_bytes, tensor_name_fault

_BY_NAME: dict[str, Dtype] = {
    np.dtype(facts.storage).name: dtype for dtype, facts in DTYPES.items() if dtype != "BF16"
}  # fmt: skip


_BEHIND_BYTES = 16 << 20  # what is written goes to the disk in steps of this size


class CanonicalWriter:
    """Writes header and data in order under a name of its own; see `writing`."""

    def __init__(self, target: Path, temporary: Path, specs: Specs, md5_pool: ThreadPoolExecutor | None) -> None:
        self._target, self._temporary = target, temporary
        self._pool = md5_pool
        self._sha256, self._md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        head = encode_header(specs)
        self._size = len(head) + data_bytes(specs)
        self._written = self._sent = 0
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
        with reported(temporary, "create it"):
            self._file = os.fdopen(os.open(temporary, flags, 0o644), "wb", buffering=0)
        # Not by way of the pool: its thread must not be there yet when the engine forks.
        self._sha256.update(head)
        self._md5.update(head)
        self._write(memoryview(head))

    def append(self, data: memoryview) -> None:
        """Write the next bytes; they may be overwritten when this returns."""
        # md5 is slower than sha256 and would double the time of one thread.
        weak = self._pool.submit(self._md5.update, data) if self._pool is not None else None
        self._sha256.update(data)
        self._write(data)
        if weak is not None:
            weak.result()

    def _write(self, data: memoryview) -> None:
        with reported(self._temporary, "write it"):
            done = 0
            while done < len(data):
                done += self._file.write(data[done:])
        self._written += len(data)
        if self._written - self._sent >= _BEHIND_BYTES:
            self._send_behind()

    def _send_behind(self) -> None:
        """Let the system begin to write to the disk, without waiting, so that `commit` need not wait for everything."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(
                self._file.fileno(), self._sent, self._written - self._sent, os.POSIX_FADV_DONTNEED
            )  # what is not yet on the disk stays in memory
        self._sent = self._written

    def commit(self) -> tuple[str, str, int]:
        """Make the file durable under its name, mode 0644; returns (sha256 hex, md5 hex or "", size in bytes)."""
        assert self._written == self._size, f"{self._written} bytes -> {self._size}"
        with reported(self._target, "write it"):
            self._temporary.chmod(0o644)  # whatever the umask: others read it too
            os.fsync(self._file.fileno())
            self.close()
            self._temporary.replace(self._target)
            sync_folder(self._target.parent)
        return self._sha256.hexdigest(), self._md5.hexdigest() if self._pool is not None else "", self._size

    def close(self) -> None:
        self._file.close()


@contextmanager
def writing(target: Path, specs: Specs, *, md5: bool = True) -> Iterator[CanonicalWriter]:
    """Begin a canonical file beside `target`; what is not committed at the end of the block is removed.

    Raises:
        StoreError: the folder cannot be written to.
    """
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1)) if md5 else None
        writer = CanonicalWriter(target, stack.enter_context(part(target)), specs, pool)
        stack.callback(writer.close)
        yield writer


def save_arrays(target: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, str, int]:
    """Write numpy arrays as a canonical file, each in C order whatever its layout in memory.

    Args:
        target: the file.
        arrays: tensor name -> array or numpy scalar of a supported dtype; BF16 as ml_dtypes' `bfloat16`.

    Returns:
        (sha256 hex, md5 hex, size in bytes).

    Raises:
        ConfigError: no arrays, a name that is not allowed, or a dtype that is not supported, such as object.
    """
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    specs = {name: _spec_of(name, array) for name, array in plain.items()}
    if not specs:
        raise ConfigError(f"{target}: no arrays -> at least one", slug="empty_update")
    with writing(target, specs) as writer:
        for placed in canonical_layout(specs):
            array = plain[placed.name]
            stored = array.dtype if placed.spec.dtype == "BF16" else storage(placed.spec.dtype)
            # NOTE: order="C" copies Fortran-ordered and strided arrays; the reference library writes them wrongly.
            ordered = np.ascontiguousarray(array.astype(stored, order="C", copy=False))
            writer.append(ordered.reshape(-1).view(np.uint8).data)
        return writer.commit()


def _spec_of(name: str, array: NDArray[Any]) -> TensorSpec:
    if fault := tensor_name_fault(name):
        raise ConfigError(f"tensor {name!r}: {fault} -> a plain name", slug="tensor_name_invalid")
    dtype: Dtype | None = "BF16" if array.dtype.name == "bfloat16" else _BY_NAME.get(array.dtype.name)
    if dtype is None:
        raise ConfigError(
            f"tensor {name!r}: dtype {array.dtype} -> one of {', '.join(DTYPES)}",
            slug="dtype_unsupported",
            hint="convert it with astype; fedops averages plain numbers only",
        )
    return TensorSpec(dtype, array.shape)
