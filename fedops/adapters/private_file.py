"""Files that hold a secret for a while."""

from __future__ import annotations

import os
from pathlib import Path

from fedops.core.disk import about


def write_private(path: Path, text: str) -> None:
    """Write a new file that its owner alone may read, from the first moment on and whatever the umask.

    Raises:
        FileExistsError: something is there already.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with about(path), open(descriptor, "w", encoding="utf-8", newline="\n") as file:  # noqa: PTH123 a descriptor
        file.write(text)
