"""Where a GitHub is: the REST address from federation.yaml, and the web address that belongs to it, which git uses."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

from fedops.core.errors import ConfigError

DEFAULT_API = "https://api.github.com"
_PART = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,100}\Z")
_SCP = re.compile(r"[A-Za-z0-9._-]+@([A-Za-z0-9.-]+):(?!//)(.+)\Z")


@dataclass(frozen=True)
class Host:
    """One GitHub.

    Attributes:
        api: REST address without a slash at its end: "https://api.github.com", "https://ghe.example/api/v3".
        web: where repositories are cloned from: "https://github.com", "https://ghe.example".
    """

    api: str
    web: str

    def clone_url(self, repository: str) -> str:
        """The HTTPS address of a repository "owner/name"."""
        return f"{self.web}/{quote(repository)}.git"

    def repository_of(self, url: str) -> str | None:
        """The "owner/name" that a git address on this host names, by HTTPS or ssh; None for any other address."""
        scp = _SCP.match(url)
        parts = _split(f"ssh://{scp[1]}/{scp[2]}" if scp else url)
        if (
            parts is None
            or parts.hostname != urlsplit(self.web).hostname
            or parts.scheme not in ("https", "http", "ssh")
        ):
            return None
        name = parts.path.strip("/").removesuffix(".git")
        return name if is_name(name) else None


def is_name(repository: str) -> bool:
    """True for "owner/name"."""
    parts = repository.split("/")
    return len(parts) == 2 and all(_PART.match(part) for part in parts)


def host_of(api_url: str | None) -> Host:
    """The host of a REST address; None is github.com.

    Raises:
        ConfigError: a token must not be sent there: no https (but on this machine), or credentials in the address.
    """
    api = (api_url or DEFAULT_API).rstrip("/")
    parts = _split(api)
    host = parts.hostname if parts is not None else None
    if parts is None or host is None or not _may_have_token(parts, host):
        raise ConfigError(
            f"federation.yaml: forge.api_url: got {api_url!r} -> an address like {DEFAULT_API} or https://HOST/api/v3",
            hint="the token is sent there, so it must be https and hold no credentials",
            slug="credential_scope",
        )
    is_dotcom = host == "api.github.com" or (host.startswith("api.") and host.endswith(".ghe.com"))
    return Host(api, f"{parts.scheme}://{parts.netloc.removeprefix('api.') if is_dotcom else parts.netloc}")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read for its check alone
    except ValueError:
        return None
    return parts


def _may_have_token(parts: SplitResult, host: str) -> bool:
    plain = parts.scheme == "http" and _is_this_machine(host)
    return (parts.scheme == "https" or plain) and not ("@" in parts.netloc or parts.query or parts.fragment)


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
