"""How bytes go between DVC and a store: its progress bars, names with an ending, files that vanish when they are closed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from fedops.core.artifacts import EXTENSIONS, format_of_title


class CallbackProgress:
    """A Progress that shows in DVC's own bars; a store that tells nothing on the way is shown at its end."""

    def __init__(self) -> None:
        self._callback: Callback = DEFAULT_CALLBACK

    @contextmanager
    def shown(self, callback: Callback, size_bytes: int) -> Iterator[None]:
        self._callback = callback
        callback.set_size(size_bytes)
        yield
        callback.absolute_update(size_bytes)
        self._callback = DEFAULT_CALLBACK

    def start(self, what: str, total: int | None, unit: str) -> int:  # noqa: ARG002 as the port has it
        return 0

    def advance(self, task: int, amount: int) -> None:  # noqa: ARG002 as the port has it
        self._callback.relative_update(amount)

    def finish(self, task: int, note: str = "") -> None: ...


class PassingFile(FileIO):
    """A file in a folder of its own, both of which are gone when it is closed."""

    def __init__(self, folder: str) -> None:
        super().__init__(Path(folder) / "object")
        self._folder = folder

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def named(file: Path, title: str) -> Iterator[Path]:
    """The file under a name whose ending says its format, which DVC's cache does not keep."""
    extension = EXTENSIONS[format_of_title(title)]
    if extension == EXTENSIONS["safetensors"]:  # what a store takes for granted
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="fedops-") as folder:
        named = Path(folder, title)
        try:
            named.symlink_to(file.resolve())
        except OSError:  # not everybody may make one on Windows
            shutil.copyfile(file, named)
        yield named
