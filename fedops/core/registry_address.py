"""Where a store in an OCI registry is: `oci://host[:port]/path`, read and written here alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

SCHEME = "oci://"
# NOTE: registries take 255 characters for a whole name; `/sites/<id>` needs up to 70 of them.
MAX_PATH = 128

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?P<name>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{{0,4}}))?\Z")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*\Z")
_LOOPBACK = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])\Z")


@dataclass(frozen=True)
class RegistryAddress:
    """A place in a registry, below which a store keeps its repositories.

    Attributes:
        host: name or number, with its port if that was given: "ghcr.io", "localhost:5000". Credentials belong to it.
        path: "acme/fed".
    """

    host: str
    path: str

    @property
    def url(self) -> str:
        """The address as federation.yaml has it; inverse of `parse_registry_url`."""
        return f"{SCHEME}{self.host}/{self.path}"

    @property
    def is_loopback(self) -> bool:
        """True for this machine itself, which alone is spoken to without TLS."""
        return is_loopback(self.host)

    @property
    def base(self) -> str:
        """Where HTTP requests go, without a path."""
        return f"{'http' if self.is_loopback else 'https'}://{self.host}"

    def name(self, repository: str) -> str:
        """The registry's own name of one repository of the store."""
        return f"{self.path}/{repository}"


def is_loopback(host: str) -> bool:
    """True if `host`, with or without a port, is this machine itself by its name or number."""
    match = _HOST.match(host)
    return match is not None and _LOOPBACK.match(match["name"]) is not None


def parse_registry_url(url: str) -> RegistryAddress:
    """Read an `oci://` URL.

    Raises:
        ValueError: it is none; the text says what is wrong, and never shows a password that somebody put into it.
    """
    rest = url.removeprefix(SCHEME)
    if rest == url:
        raise ValueError("must begin with oci://")
    host, _, path = rest.partition("/")
    if "@" in rest:
        raise ValueError("must not carry a user or password; they are taken from the docker config or the environment")
    match = _HOST.match(host)
    if match is None or int(match["port"] or 1) > 65535:
        raise ValueError("must name a host in lower case, as in oci://ghcr.io/acme/fed")
    if not _PATH.match(path):
        raise ValueError("must have a path of lower-case words, as in oci://ghcr.io/acme/fed")
    if len(path) > MAX_PATH:
        raise ValueError(f"must have a path of at most {MAX_PATH} characters")
    implied = ":80" if is_loopback(host) else ":443"
    return RegistryAddress(host.removesuffix(implied), path)


def store_url_fault(url: str) -> str | None:
    """Say why a text is not the URL of a store; None when it is one."""
    if url.startswith("ocidir:"):
        return None if len(url) > len("ocidir:") else "must be ocidir:PATH"
    if not url.startswith(SCHEME):
        return "must be ocidir:PATH or oci://HOST/NAMESPACE"
    try:
        parse_registry_url(url)
    except ValueError as e:
        return str(e)
    return None
