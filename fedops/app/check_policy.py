"""Check a file that leads write, as CI will read it on main: before it is proposed."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from fedops.app.check import Checked
from fedops.app.rules import WRITTEN, refuse_unusable
from fedops.core.documents import MAX_DOCUMENT_BYTES
from fedops.core.errors import ConfigError
from fedops.core.findings import finding

# By their names: a file of another name is none of them, whatever it says of itself.
_BY_NAME = {PurePosixPath(path).name: path for path in WRITTEN}


def check_policy(file: Path) -> Checked:
    """Whether a document of main could be used as it is written in this file.

    Raises:
        ConfigError: the file cannot be read, or no document of main has its name.
    """
    path = _BY_NAME.get(file.name)
    if path is None:
        raise ConfigError(f"{file}: no document of main has this name -> {', '.join(sorted(_BY_NAME))}")
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as e:
        raise ConfigError(f"{file}: cannot be read: {e.strerror}") from e
    try:
        refuse_unusable(path, data, str(file))
    except ConfigError as e:
        return Checked(str(file), "policy", {}, (finding("policy_invalid", str(file), got=e.message),))
    return Checked(str(file), "policy", {}, ())
