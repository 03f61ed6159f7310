"""SSH signatures of commits: which of the given public keys made one, decided offline by ssh-keygen's exit code."""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedops.core.disk import about
from fedops.core.errors import ConfigError

_KEY = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com)"
    r" ([A-Za-z0-9+/]+={0,2})(?: [^\0\r\n]*)?\Z"
)
_ARMOR = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/=\n]+)\n-----END SSH SIGNATURE-----\n*\Z")
_MAGIC = b"SSHSIG\0\0\0\1"  # magic preamble and version 1
_SIGNED_AS = "git"  # the namespace that git signs in


@dataclass(frozen=True)
class Signature:
    payload: bytes  # the commit object without its signature
    armor: bytes
    key: bytes  # public key that the signature names, in SSH wire format


def no_ssh_keygen() -> ConfigError:
    return ConfigError("ssh-keygen: not found; signatures cannot be made or checked", hint="install openssh-client")


def public_key(line: str) -> tuple[str, bytes] | None:
    """Read "type base64 comment" as (type, key in wire format).

    None for anything else: options before the type, several lines, certificates, base64 that names another type. What
    is returned holds no character that could start a field, an option or a line of an allowed-signers file.
    """
    match = _KEY.match(line.strip())
    if match is None:
        return None
    kind = match[1].encode()
    try:
        wire = base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return None
    canonical = base64.b64encode(wire).decode("ascii") == match[2]
    return (match[1], wire) if canonical and _string(wire) == kind else None


def signature_of(commit: bytes) -> Signature | None:
    """Split a commit object into what was signed and its SSH signature; None if it has none, or more than one.

    Args:
        commit: the object's bytes, without git's own header.
    """
    head, blank, message = commit.partition(b"\n\n")
    kept: list[bytes] = []
    armor: list[bytes] = []
    found, inside = 0, False
    for line in head.split(b"\n"):
        starts = line.startswith(b"gpgsig ")
        inside = starts or (inside and line.startswith(b" "))
        found += starts
        if inside:
            armor.append(line.removeprefix(b"gpgsig").removeprefix(b" "))
        else:
            kept.append(line)
    match = _ARMOR.match(b"\n".join(armor) + b"\n")
    if found != 1 or match is None:
        return None
    try:
        blob = base64.b64decode(match[1].replace(b"\n", b""), validate=True)
    except binascii.Error:
        return None
    key = _string(blob.removeprefix(_MAGIC)) if blob.startswith(_MAGIC) else None
    return Signature(b"\n".join(kept) + blank + message, match[0], key) if key is not None else None


def signer_among(commit: bytes, keys: Sequence[str]) -> str | None:
    """The first of `keys` that made the SSH signature of a commit; None if none did.

    Args:
        commit: the commit object's bytes.
        keys: lines "ssh-ed25519 AAAA… comment"; malformed ones are skipped.

    Raises:
        ConfigError: there is no ssh-keygen.
    """
    signature = signature_of(commit)
    if signature is None:
        return None
    for line in keys:
        key = public_key(line)
        if key is not None and key[1] == signature.key:
            return line if _verify(signature, *key) else None
    return None


def _verify(signature: Signature, kind: str, wire: bytes) -> bool:
    """True if the key made the signature; the file of allowed signers holds this key alone."""
    with tempfile.TemporaryDirectory(prefix="fedops-") as folder:
        allowed, armor = Path(folder, "allowed"), Path(folder, "signature")
        encoded = base64.b64encode(wire).decode("ascii")
        with about(folder):
            allowed.write_bytes(f'signer namespaces="{_SIGNED_AS}" {kind} {encoded}\n'.encode())
            armor.write_bytes(signature.armor)
        command = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", "signer", "-n", _SIGNED_AS, "-s", str(armor)]
        try:
            done = subprocess.run(command, input=signature.payload, capture_output=True, check=False)
        except FileNotFoundError as e:
            raise no_ssh_keygen() from e
    return done.returncode == 0


def _string(wire: bytes) -> bytes | None:
    """The first length-prefixed string of SSH wire data; None if it is cut off."""
    size = int.from_bytes(wire[:4], "big")
    return wire[4 : 4 + size] if len(wire) >= 4 + size and len(wire) >= 4 else None
