"""Public keys on the command line: a file, or the line itself."""

from __future__ import annotations

from pathlib import Path

from fedops.core.errors import ConfigError
from fedops.core.ssh_keys import KINDS, normalised_key, public_key_fault

_MAX_BYTES = 16_384


def read_public_key(text: str) -> str:
    """One public key line.

    Raises:
        ConfigError: no such file, or not a public key; a private key is never repeated in the message.
    """
    where = "the key"
    line = text
    if not text.startswith(tuple(f"{kind} " for kind in KINDS)):
        path = Path(text).expanduser()
        if not path.is_file():
            raise ConfigError(f"{text}: no such file -> FILE.pub, or the line `ssh-ed25519 AAAA… comment` in quotes")
        where = text
        with path.open("rb") as file:
            line = file.read(_MAX_BYTES).decode("utf-8", "replace")
    if fault := public_key_fault(line):
        raise ConfigError(f"{where}: {fault}")
    return normalised_key(line)
