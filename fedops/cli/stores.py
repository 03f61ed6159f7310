"""Stores in registries, and what this machine's environment says of who we are there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedops.core.errors import ConfigError
from fedops.core.registry_address import SCHEME, parse_registry_url

if TYPE_CHECKING:
    from fedops.adapters.registry_credentials import Credentials, Lookup
    from fedops.adapters.store_registry import RegistryStore
    from fedops.ports import Clock, Progress

USERNAME, PASSWORD = "FEDOPS_REGISTRY_USERNAME", "FEDOPS_REGISTRY_PASSWORD"
HOST, TOKEN_HOST = "FEDOPS_REGISTRY_HOST", "FEDOPS_REGISTRY_TOKEN_HOST"
_GITHUB_REGISTRY, _GITHUB_API = "ghcr.io", "https://api.github.com"


class Registries:
    """Opens stores in registries, each once: whoever asks again goes on with its token and its connections.

    Args:
        environ: of the process.
        home: URL of the federation's own store: the password in the environment is for its host alone, unless
            FEDOPS_REGISTRY_HOST names another. A store that the roster names elsewhere never gets it.
        progress: told of the bytes that move.
    """

    def __init__(
        self, environ: Mapping[str, str], *, home: str | None, clock: Clock, progress: Progress | None = None
    ) -> None:
        self._environ, self._home, self._clock, self._progress = environ, home, clock, progress
        self._opened: dict[str, RegistryStore] = {}

    def open(self, url: str) -> RegistryStore:
        """The store of an `oci://` URL.

        Raises:
            ConfigError: the URL is none, or half of a user and password is set.
        """
        if url not in self._opened:
            from fedops.adapters.store_registry import RegistryStore

            try:
                address = parse_registry_url(url)
            except ValueError as e:
                raise ConfigError(f"store {url}: {e}", hint="see federation.yaml: store.url") from e
            self._opened[url] = RegistryStore(
                address,
                clock=self._clock,
                lookup=registry_lookup(self._environ, self._home, asked=address.host),
                token_hosts=frozenset(self._environ.get(TOKEN_HOST, "").split()),
                progress=self._progress,
            )
        return self._opened[url]

    def close(self) -> None:
        """Close the connections of all."""
        for store in self._opened.values():
            store.close()
        self._opened.clear()


def registry_lookup(environ: Mapping[str, str], home: str | None, *, asked: str = "HOST") -> Lookup:
    """Who we are to a host: the environment's user for its one host, then the docker configuration, then a job's token.

    Args:
        asked: the host that is about to be asked, for the hint; whether the password is for it only its owner knows.

    Raises:
        ConfigError: a user without a password, or the other way round, or for no known host.
    """
    from fedops.adapters.registry_credentials import Credentials, DockerConfig, bound_to

    folder = environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    docker = DockerConfig(Path(folder, "config.json"))

    def saved(host: str) -> Credentials | None:
        return docker(host) or _job_token(environ, host)

    username, password = environ.get(USERNAME, ""), environ.get(PASSWORD, "")
    if not username and not password:
        return saved
    if not username or not password:
        absent = PASSWORD if username else USERNAME
        hint = "set both, or none and `docker login`"
        raise ConfigError(f"{absent}: not set, but its twin is", hint=hint, slug="credentials_incomplete")
    host = environ.get(HOST) or (parse_registry_url(home).host if home is not None and home.startswith(SCHEME) else "")
    if not host:
        hint = (
            f"export {HOST}={asked} if it is for that one; else unset {USERNAME} {PASSWORD}, and `docker login {asked}`"
        )
        raise ConfigError(f"{USERNAME}: for which registry?", hint=hint, slug="credential_scope")
    return bound_to(host, Credentials(username, password), saved)


def _job_token(environ: Mapping[str, str], host: str) -> Credentials | None:
    """In a job on github.com, its own token is a password of GitHub's registry."""
    from fedops.adapters.registry_credentials import Credentials

    on_github = environ.get("GITHUB_ACTIONS") == "true" and environ.get("GITHUB_API_URL", _GITHUB_API) == _GITHUB_API
    token = environ.get("GITHUB_TOKEN", "")
    if host != _GITHUB_REGISTRY or not on_github or not token:
        return None
    return Credentials(environ.get("GITHUB_ACTOR") or "github-actions", token)
