"""A deploy key as text: the private key by which a job pushes where a rule keeps its token out, and whom it is shown to."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from fedops.core.errors import ConfigError
from fedops.core.github_hosts import Host
from fedops.core.ssh_keys import KINDS, public_key_fault

KEY = "FEDOPS_DEPLOY_KEY"
HOST_KEYS = "FEDOPS_DEPLOY_HOST_KEYS"

_PEM = re.compile(r"-----BEGIN ((?:[A-Z]+ )?)PRIVATE KEY-----\n([A-Za-z0-9+/=\n]+)-----END \1PRIVATE KEY-----\n\Z")
_OPENSSH = b"openssh-key-v1\0"
_HINT = "ssh-keygen -t ed25519 -N '' -f deploy-key, and its whole private file as the secret"


def private_key(text: str) -> str:
    """The file that ssh reads, of a secret's text: one line end at the end, none of another system.

    Raises:
        ConfigError: no private key, or one with a passphrase, which nobody could type.
    """
    key = "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"
    if "ENCRYPTED" in key or _has_passphrase(key):
        raise ConfigError(f"{KEY}: has a passphrase -> a key without", hint=_HINT)
    if not _PEM.match(key):
        raise ConfigError(f"{KEY}: not a private key -> from -----BEGIN to -----END, both included", hint=_HINT)
    return key


def _has_passphrase(key: str) -> bool:
    """True for a key in OpenSSH's own form that names a cipher."""
    found = _PEM.match(key)
    try:
        data = base64.b64decode(found[2]) if found is not None else b""
    except binascii.Error:
        return False  # ssh says what it makes of it
    cipher = data.removeprefix(_OPENSSH)
    return data.startswith(_OPENSSH) and not cipher.startswith(b"\0\0\0\4none")


def host_key_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Public keys of a server, "ssh-ed25519 AAAA…" each; of a line of known_hosts without its host."""
    words = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    keys = (" ".join(w[1:3] if w[0] not in KINDS else w[:2]) for w in words)
    return tuple(key for key in keys if public_key_fault(key) is None)


def known_hosts(host: str, keys: Iterable[str]) -> str:
    """The file in which ssh looks the server up; it is spoken to under no other key.

    Raises:
        ConfigError: there is no key.
    """
    text = "".join(f"{host} {key}\n" for key in keys)
    if not text:
        hint = f"of its administrator, as lines `ssh-ed25519 AAAA…`: the variable {HOST_KEYS}"
        raise ConfigError(f"{host}: it does not tell its ssh host keys, so it cannot be known by them", hint=hint)
    return text


def ssh_host(host: Host) -> str:
    """The server's name for ssh."""
    return str(urlsplit(host.web).hostname)


def push_url(host: Host, repository: str) -> str:
    """Where `owner/name` is pushed to by ssh."""
    return f"ssh://git@{ssh_host(host)}/{quote(repository)}.git"
