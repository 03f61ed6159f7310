"""Who we are to a registry: the docker configuration and its helpers, each looked up by the one host it is for."""

from __future__ import annotations

import base64
import binascii
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedops.core.errors import ConfigError, StoreError

_MAX_CONFIG_BYTES = 1 << 20
_HELPER_SECONDS = 60
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_TOKEN_USER = "<token>"  # noqa: S105 what helpers call the user of an identity token
# Docker's own registry has three names, and its credentials are kept under a fourth.
_DOCKER_HOSTS = frozenset({"docker.io", "registry-1.docker.io", "index.docker.io"})
_DOCKER_KEY = "https://index.docker.io/v1/"


@dataclass(frozen=True)
class Credentials:
    """A user and password, or an identity token that is exchanged for access tokens; never shown."""

    username: str = field(repr=False)
    password: str = field(repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The Authorization header of HTTP basic authentication."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")


Lookup = Callable[[str], Credentials | None]


def bound_to(host: str, credentials: Credentials, otherwise: Lookup) -> Lookup:
    """Look up credentials that are for one host, and those of all others elsewhere."""
    return lambda asked: credentials if asked == host else otherwise(asked)


class DockerConfig:
    """The config.json that `docker login` and `oras login` write; it may be absent.

    Args:
        path: of the file.
        run: runs a credential helper: (program, host) -> (exit code, stdout).
    """

    def __init__(self, path: Path, run: Callable[[str, str], tuple[int, bytes]] | None = None) -> None:
        self._path = path
        self._run = run or _run_helper

    def __call__(self, host: str) -> Credentials | None:
        """The credentials of a host; None if there are none.

        Raises:
            ConfigError: the file cannot be read.
            StoreError: its helper failed (auth).
        """
        document = self._document()
        helpers, store = document.get("credHelpers"), document.get("credsStore")
        keys = [_DOCKER_KEY, host] if host in _DOCKER_HOSTS else [host]
        for key in keys:
            helper = helpers.get(key) if isinstance(helpers, dict) else None
            helper = helper or store
            found = self._from_helper(helper, key) if isinstance(helper, str) and helper else None
            found = found or self._from_file(document.get("auths"), key)
            if found is not None:
                return found
        return None

    def _document(self) -> dict[str, Any]:
        try:
            with self._path.open("rb") as handle:
                data = handle.read(_MAX_CONFIG_BYTES)
            document = json.loads(data)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as e:
            what = e.strerror if isinstance(e, OSError) else "is not JSON"
            raise ConfigError(f"{self._path}: {what}", hint="mend it, or log in again with docker or oras") from e
        return document if isinstance(document, dict) else {}

    def _from_file(self, auths: Any, key: str) -> Credentials | None:
        if not isinstance(auths, dict):
            return None
        entry = next((auths[name] for name in auths if isinstance(name, str) and _same_place(name, key)), None)
        if not isinstance(entry, dict):
            return None
        username, password = entry.get("username"), entry.get("password")
        if isinstance(text := entry.get("auth"), str) and text:
            try:
                username, _, password = base64.b64decode(text, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError) as e:
                raise ConfigError(f"{self._path}: auths {key}: auth is not base64", hint="log in again") from e
        token = entry.get("identitytoken")
        if isinstance(token, str) and token:
            return Credentials("", "", token)
        if isinstance(username, str) and isinstance(password, str) and username:
            return Credentials(username, password.rstrip("\0"))
        return None

    def _from_helper(self, helper: str, key: str) -> Credentials | None:
        program = f"docker-credential-{helper}"
        hint = f"check `{program}`, or log in again; {self._path} names it"
        if not _HELPER.match(helper):
            raise ConfigError(f"{self._path}: {helper!r}: not the name of a credential helper")
        try:
            code, out = self._run(program, key)
        except (OSError, subprocess.SubprocessError) as e:
            raise StoreError(f"{program}: cannot be run", hint=hint, slug="auth_failed", cause="auth") from e
        if code != 0 and b"not found" in out:  # its words for: I know nobody there
            return None
        try:
            answer = json.loads(out)
            username, secret = answer["Username"], answer["Secret"]
        except (ValueError, TypeError, KeyError) as e:
            what = f"{program} get: no credentials, exit code {code}"
            raise StoreError(what, hint=hint, slug="auth_failed", cause="auth") from e
        if username == _TOKEN_USER:
            return Credentials("", "", secret)
        return Credentials(username, secret) if username else None


def _same_place(name: str, key: str) -> bool:
    """True if a key of `auths` means this host; old versions wrote it with a scheme and a path."""
    return name == key or name.removeprefix("https://").removeprefix("http://").partition("/")[0] == key


def _run_helper(program: str, key: str) -> tuple[int, bytes]:
    done = subprocess.run(
        [program, "get"], input=key.encode(), capture_output=True, timeout=_HELPER_SECONDS, check=False
    )
    return done.returncode, done.stdout
