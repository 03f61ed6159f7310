"""SSH keys for tests, made by ssh-keygen without a passphrase."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SshKey:
    private: Path
    public: str  # "ssh-ed25519 AAAA… name"


def make_key(folder: Path, name: str, kind: str = "ed25519") -> SshKey:
    private = folder / name
    command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(private)]
    subprocess.run(command, check=True, capture_output=True)
    return SshKey(private, private.with_suffix(".pub").read_text().strip())
