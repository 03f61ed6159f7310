"""SSH public keys as text: what the roster holds, and what is refused before it gets there."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_ED25519_BYTES = 51  # two length prefixes, the name of the type, 32 bytes of key
_COMMENT = re.compile(r"[\x20-\x7e]{0,200}\Z")


def public_key_fault(text: str) -> str | None:
    """Say what is wrong with a public key line `ssh-ed25519 AAAA… comment`; None when it is good."""
    if "PRIVATE KEY" in text:
        return "this is a private key; it must never leave its owner -> the file that ends in .pub"
    line = text.strip()
    if not _COMMENT.match(line.partition(" ")[2].partition(" ")[2]):
        return "more than one line, or a comment that is not plain ASCII of at most 200 characters"
    kind, _, rest = line.partition(" ")
    if kind not in KINDS:
        return f"starts with {kind[:40]!r} -> a line such as `ssh-ed25519 AAAA… comment`, with no options before"
    try:
        wire = base64.b64decode(rest.partition(" ")[0], validate=True)
    except binascii.Error:
        return f"the key after {kind} is not base64"
    name = kind.encode()
    if wire[:4] != len(name).to_bytes(4, "big") or wire[4 : 4 + len(name)] != name:
        return f"the key after {kind} is one of another type, or cut off"
    if kind == "ssh-ed25519" and len(wire) != _ED25519_BYTES:
        return f"the key after {kind} has {len(wire)} bytes -> {_ED25519_BYTES}"
    return None


def key_body(key: str) -> str:
    """Type and key material of a public key line, without its comment: what makes two lines the same key."""
    return " ".join(key.split()[:2])


def fingerprint(key: str) -> str:
    """A public key as `ssh-keygen -l` shows it: SHA256 in base64, then the comment in brackets if there is one.

    Raises:
        ValueError: not a public key line.
    """
    words = key.split(maxsplit=2)
    if len(words) < 2:
        raise ValueError("not a public key line")
    digest = hashlib.sha256(base64.b64decode(words[1], validate=True)).digest()
    shown = "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")
    return f"{shown} ({words[2].strip()})" if len(words) > 2 else shown


def normalised_key(text: str) -> str:
    """One public key line with single spaces and no line break."""
    return " ".join(text.split())
