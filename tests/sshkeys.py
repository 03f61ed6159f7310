"""SSH keys for tests, made by ssh-keygen without a passphrase."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SshKey:
    private: Path
    public: str  # "ssh-ed25519 AAAA… name"


def public_line(what: str, comment: str) -> str:
    """A public key line of the right form, two strings after their lengths, that no private key belongs to."""
    material = hashlib.sha256(what.encode()).digest()
    wire = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", material))
    return f"ssh-ed25519 {base64.b64encode(wire).decode()} {comment}"


def make_key(folder: Path, name: str, kind: str = "ed25519") -> SshKey:
    private = folder / name
    command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(private)]
    subprocess.run(command, check=True, capture_output=True)
    return SshKey(private, private.with_suffix(".pub").read_text().strip())
