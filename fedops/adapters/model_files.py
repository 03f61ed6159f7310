"""Model files: opened by their content, checked before any tensor is read, rewritten canonically."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedops.adapters.durable import reported, stream
from fedops.adapters.model_stream import ModelStream, open_stream
from fedops.adapters.model_writer import CanonicalWriter, writing
from fedops.adapters.npz_files import unpack_npz
from fedops.adapters.positioned import PositionedFile
from fedops.core.casts import storage, widen
from fedops.core.facts import F64, Specs
from fedops.core.findings import Finding, finding
from fedops.core.safetensors_header import LENGTH_BYTES, Header, header_length, parse_header
from fedops.core.settings import Limits
from fedops.core.sniff import SNIFF_BYTES, sniff
from fedops.core.tensors import canonical_layout, is_float
from fedops.ports import BlobReader, OpenModel

_BLOCK_BYTES = 1 << 20


class ModelFile:
    """One open model file (see `OpenModel` in fedops.ports); close it, or use it in a `with`.

    Args:
        file: what was handed in.
        data: safetensors file that holds the tensors: the same one, or the canonical copy of an npz.
        header: of `data`.
        data_start: bytes of `data` in front of its data section.
    """

    def __init__(self, file: PositionedFile, data: PositionedFile, header: Header, data_start: int) -> None:
        self._file, self._data = file, data
        self._offsets = {name: data_start + offset for name, offset in header.offsets.items()}
        self._layout = canonical_layout(header.specs)
        self._starts = [placed.position for placed in self._layout]
        self.specs: Specs = header.specs
        self.format: Literal["safetensors", "npz"] = "safetensors" if data is file else "npz"
        self.in_order = False
        self.has_metadata = header.has_metadata
        self._canonical = all(header.offsets[p.name] == p.position for p in self._layout)
        self._data_start = data_start

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def size(self) -> int:
        """Bytes of the file that was handed in."""
        return self._file.size

    @property
    def head(self) -> bytes | None:
        """Length and header, if with the data in canonical order they are the whole file; else None."""
        if self._data is not self._file or not self._canonical:
            return None
        return self._file.read(0, self._data_start)

    def read(self, name: str, start: int, count: int) -> NDArray[Any]:
        """Read elements start … start+count of one tensor.

        Returns:
            A new 1-D array in C order; float dtypes as float64, others as stored (BOOL: any byte but 0 is true).
        """
        spec = self.specs[name]
        kind = storage(spec.dtype)
        stored = np.empty(count, np.uint8 if spec.dtype == "BOOL" else kind)
        position = self._offsets[name] + start * kind.itemsize
        self._data.read_into(position, stored.view(np.uint8).data)
        if spec.dtype == "BOOL":
            return np.not_equal(stored, 0)
        if not is_float(spec):
            return stored
        values: F64 = np.empty(count, np.float64)
        with np.errstate(invalid="ignore"):  # a signalling NaN in the file
            widen(stored, spec.dtype, values)
        return values

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill a buffer with stored bytes of the canonical data, wherever this file keeps them."""
        if self._canonical:
            self._data.read_into(self._data_start + position, buffer)
            return
        place = bisect_right(self._starts, position) - 1
        done = 0
        while done < len(buffer):
            tensor = self._layout[place]
            inside = position + done - tensor.position
            count = min(tensor.size - inside, len(buffer) - done)
            self._data.read_into(self._offsets[tensor.name] + inside, buffer[done : done + count])
            done += count
            place += 1

    def sha256(self) -> str:
        digest = hashlib.sha256()
        block = memoryview(bytearray(_BLOCK_BYTES))
        for position in range(0, self.size, _BLOCK_BYTES):
            here = block[: min(_BLOCK_BYTES, self.size - position)]
            self._file.read_into(position, here)
            digest.update(here)
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        self._file.check_unchanged()

    def close(self) -> None:
        self._file.close()
        self._data.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ModelFiles:
    """The reader and writer of model files (see `Models` in fedops.ports).

    Args:
        scratch: folder for the unnamed copy of an npz while it is open; None: the system's.
    """

    def __init__(self, scratch: Path | None = None) -> None:
        self._scratch = scratch

    def open(self, path: Path, limits: Limits, where: str) -> tuple[ModelFile | None, tuple[Finding, ...]]:
        """Preflight a file by its content, every number before it is used, and open it.

        Args:
            path: the file.
            limits: of the policy: update_bytes, expanded_bytes, header_bytes, tensors.
            where: for the findings.

        Returns:
            The open model and no finding; or None and all findings of the first stage that found one (size and
            format, then container, then tensors).

        Raises:
            ConfigError: there is no such regular file.
            StoreError: it cannot be read, or changes meanwhile.
        """
        file = PositionedFile.open(path)
        try:
            opened = self._open(file, limits, where)
        except BaseException:
            file.close()
            raise
        if isinstance(opened, ModelFile):
            return opened, ()
        file.close()
        return None, opened

    def _open(self, file: PositionedFile, limits: Limits, where: str) -> ModelFile | tuple[Finding, ...]:
        kind, what = sniff(file.read(0, SNIFF_BYTES), file.size)
        if kind == "pickle":
            return (finding("pickle_refused", where, got=what),)
        if kind in ("empty", "other"):
            return (finding("format_unknown", where, got=what, expected="a safetensors or npz file"),)
        if file.size > limits.update_bytes:
            detail = {"limit": "update_bytes"}
            return (finding("file_too_large", where, got=file.size, expected=limits.update_bytes, detail=detail),)
        if kind == "safetensors":
            return _open_safetensors(file, file, limits, where)
        unpacked = unpack_npz(file, self._scratch, limits, where)
        if not isinstance(unpacked, PositionedFile):
            return unpacked
        # Our own copy of what was just checked: only its header may be longer than the directory of the npz.
        model = _open_safetensors(file, unpacked, limits.model_copy(update={"header_bytes": unpacked.size}), where)
        assert isinstance(model, ModelFile)
        return model

    def stream(
        self, source: BlobReader, size: int, limits: Limits, where: str
    ) -> tuple[ModelStream | None, tuple[Finding, ...]]:
        """Open a canonical file that is only now coming, by its header; the source is closed if it cannot be used."""
        try:
            opened = open_stream(source, size, limits, where)
        except BaseException:
            source.close()
            raise
        if isinstance(opened, ModelStream):
            return opened, ()
        source.close()
        return None, opened

    def digests(self, path: Path) -> tuple[str, str, int]:
        """(sha256 hex, md5 hex, size in bytes) in one pass."""
        with reported(path, "read it"), path.open("rb") as source:
            read = stream(source, md5=True)
        return read.sha256, read.md5, read.size

    def rewrite(self, source: OpenModel, target: Path) -> tuple[str, str, int]:
        """Write the canonical file of a model, without its metadata; returns (sha256 hex, md5 hex, size in bytes)."""
        block = memoryview(bytearray(_BLOCK_BYTES))
        total = sum(placed.size for placed in canonical_layout(source.specs))
        with writing(target, source.specs) as writer:
            for position in range(0, total, _BLOCK_BYTES):
                here = block[: min(_BLOCK_BYTES, total - position)]
                source.read_into(position, here)
                writer.append(here)
            source.check_unchanged()
            return writer.commit()

    def create(self, target: Path, specs: Specs, *, md5: bool = True) -> AbstractContextManager[CanonicalWriter]:
        """Begin the canonical file of a model."""
        return writing(target, specs, md5=md5)


def _open_safetensors(
    file: PositionedFile, data: PositionedFile, limits: Limits, where: str
) -> ModelFile | tuple[Finding, ...]:
    """Preflight a safetensors file.

    Args:
        file: what was handed in.
        data: the safetensors file to read: the same, or the copy of an npz.
    """
    length = header_length(data.read(0, LENGTH_BYTES), data.size, limits, where)
    if not isinstance(length, int):
        return length
    start = LENGTH_BYTES + length
    header = parse_header(data.read(LENGTH_BYTES, length), data.size - start, where, max_tensors=limits.tensors)
    return ModelFile(file, data, header, start) if isinstance(header, Header) else header
