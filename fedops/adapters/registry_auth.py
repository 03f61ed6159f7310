"""Signing in to one registry: basic, or tokens for a scope; nothing secret goes to another host.

Source: the token specification of the CNCF distribution project (`auth: token`), and RFC 9110 section 11.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from fedops.adapters.refusals import refusal
from fedops.adapters.registry_credentials import Credentials, Lookup
from fedops.core.errors import StoreError
from fedops.core.registry_address import is_loopback
from fedops.ports import Clock

PULL, PUSH, DELETE = "pull", "push", "delete"

# Token services of registries that have theirs on another host; more are named by FEDOPS_REGISTRY_TOKEN_HOST.
_TOKEN_HOSTS: Mapping[str, str] = {
    "docker.io": "auth.docker.io",
    "registry-1.docker.io": "auth.docker.io",
    "registry.gitlab.com": "gitlab.com",
}
_DEFAULT_SECONDS = 60  # what the specification says of a token without expires_in
_MARGIN_SECONDS = 10
_PART = re.compile(r'([A-Za-z][\w-]*)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,]*)|([A-Za-z][\w-]*)')
_TOKEN = re.compile(r"[\x21-\x7e]+\Z")


class Ask(Protocol):
    """Sends one request to a token service: no body is a GET, a body is a POST of a form; gives its JSON text."""

    def __call__(self, url: str, *, authorization: str | None, form: bytes | None) -> bytes: ...


def host_of(url: str) -> str:
    """Host and port of a URL as an address has them: lower case, without a port that the scheme implies; "" for none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name
    return name if port in (None, {"https": 443, "http": 80}.get(parts.scheme)) else f"{name}:{port}"


def challenges(header: str) -> dict[str, dict[str, str]]:
    """Read a WWW-Authenticate header: scheme in lower case -> its parameters."""
    found: dict[str, dict[str, str]] = {}
    parameters: dict[str, str] = {}
    for match in _PART.finditer(header):
        if match[3] is not None:
            parameters = found.setdefault(match[3].lower(), {})
        else:
            value = match[2]
            quoted = value.startswith('"')
            parameters[match[1].lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return found


@dataclass(frozen=True)
class _Token:
    value: str
    until: dt.datetime


class Authority:
    """What is sent along with requests to one host, and how a refusal of it is answered; used by several threads.

    Args:
        host: of the registry.
        lookup: gives its credentials; asked once, when the registry asks.
        ask: sends requests to token services.
        token_hosts: other hosts that may be shown the credentials, because a person said so.
    """

    def __init__(
        self, host: str, *, lookup: Lookup, ask: Ask, clock: Clock, token_hosts: frozenset[str] = frozenset()
    ) -> None:
        self._host = host
        self._lookup, self._ask, self._clock = lookup, ask, clock
        self._token_hosts = token_hosts | {host} | {_TOKEN_HOSTS[h] for h in [host] if h in _TOKEN_HOSTS}
        self._lock = threading.RLock()
        self._known: list[Credentials | None] = []  # empty: not looked up yet
        self._basic = False
        self._service: tuple[str, str] | None = None  # realm and service of the last challenge for a token
        self._needs: dict[str, frozenset[str]] = {}  # repository -> actions that any request of ours needed so far
        self._tokens: dict[tuple[str, ...], _Token] = {}

    def need(self, name: str, *actions: str) -> None:
        """Let all later tokens for a repository allow these actions, so that one serves for all of an upload."""
        with self._lock:
            self._needs[name] = self._needs.get(name, frozenset()) | set(actions)

    def header(self, names: Sequence[str]) -> str | None:
        """The Authorization header for a request that touches these repositories; None: none is known to be needed.

        Raises:
            StoreError: a new token was needed and not given.
        """
        with self._lock:
            if self._basic:
                credentials = self._credentials()
                return credentials.basic if credentials is not None else None
            if self._service is None:
                return None
            scopes = self._scopes(names)
            token = self._tokens.get(scopes)
            if token is None or self._clock.now() >= token.until:
                token = self._tokens[scopes] = self._fetch(scopes)
            return f"Bearer {token.value}"

    def answer(self, challenge: str, names: Sequence[str], sent: str | None, where: str, *, again: bool) -> None:
        """Learn from a 401 what `header` must give from now on.

        Args:
            challenge: the WWW-Authenticate header.
            sent: the Authorization header that was refused.
            where: for messages.
            again: the same request was refused before: a new token did not help, and no third one will.

        Raises:
            StoreError: slug auth_failed (there is nothing better to send), credential_scope.
        """
        asked = challenges(challenge)
        with self._lock:
            if "bearer" in asked and again:
                raise self._refused(where, self._credentials())
            if "bearer" in asked:
                self._take_bearer(asked["bearer"], names, sent, where)
            elif "basic" in asked:
                credentials = self._credentials()
                if credentials is not None and sent == credentials.basic:
                    credentials = self._other_than(credentials)
                if credentials is None:
                    raise self._refused(where, self._credentials())
                self._basic = True
            else:
                raise refusal(
                    "auth_failed", where, got=challenge[:80] or "nothing", expected="Basic or Bearer", cause="auth"
                )

    def refused(self, where: str) -> StoreError:
        """The error for an answer that no other credentials of ours would change."""
        with self._lock:
            return self._refused(where, self._credentials())

    def _refused(self, where: str, credentials: Credentials | None) -> StoreError:
        error = refusal("auth_failed", where, got="no credentials" if credentials is None else None, cause="auth")
        error.hint = f"docker login {self._host}, or set FEDOPS_REGISTRY_USERNAME and FEDOPS_REGISTRY_PASSWORD"
        error.hint += " (and FEDOPS_REGISTRY_HOST, if this is not the federation's own registry)"
        if credentials is not None:
            error.hint = f"check that this account may do it; else docker login {self._host} with another"
        return error

    def _credentials(self) -> Credentials | None:
        if not self._known:
            self._known.append(self._lookup(self._host))
        return self._known[0]

    def _other_than(self, refused: Credentials) -> Credentials | None:
        """Look up once more what was refused: helpers of clouds give passwords that end after hours."""
        self._known.clear()
        found = self._credentials()
        return found if found != refused else None

    def _take_bearer(self, asked: Mapping[str, str], names: Sequence[str], sent: str | None, where: str) -> None:
        realm = asked.get("realm", "")
        host = host_of(realm)
        lowest = "http" if is_loopback(self._host) and is_loopback(host) else "https"
        if not host or urlsplit(realm).scheme not in {"https", lowest} or "@" in urlsplit(realm).netloc:
            raise refusal("credential_scope", where, got=realm[:80], expected=f"{lowest}://{self._host}")
        if host not in self._token_hosts and self._credentials() is not None:
            error = refusal("credential_scope", where, got=host, expected=self._host)
            error.hint = f"if {host} is this registry's own, set FEDOPS_REGISTRY_TOKEN_HOST to it"
            raise error
        self._service = realm, asked.get("service", "")
        for scope in asked.get("scope", "").split():
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            if kind == "repository" and name in names:  # for anything else no right is asked
                self.need(name, *actions.split(","))
        for scopes in [s for s, token in self._tokens.items() if sent == f"Bearer {token.value}"]:
            del self._tokens[scopes]

    def _scopes(self, names: Sequence[str]) -> tuple[str, ...]:
        order = {PULL: "0", PUSH: "1", DELETE: "2"}
        return tuple(
            f"repository:{name}:{','.join(sorted(self._needs.get(name, ()), key=lambda a: order.get(a, a)))}"
            for name in sorted(set(names))
        )

    def _fetch(self, scopes: Sequence[str]) -> _Token:
        credentials = self._credentials()
        try:
            return self._exchange(credentials, scopes)
        except StoreError as e:
            other = self._other_than(credentials) if e.cause == "auth" and credentials is not None else None
            if other is None:
                raise
            return self._exchange(other, scopes)

    def _exchange(self, credentials: Credentials | None, scopes: Sequence[str]) -> _Token:
        assert self._service is not None
        realm, service = self._service
        if credentials is not None and credentials.identity_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": credentials.identity_token,
                "client_id": "fedops",
                "service": service,
                "scope": " ".join(scopes),
            }
            text = self._ask(realm, authorization=None, form=urlencode(form).encode())
        else:
            query = urlencode([*([("service", service)] if service else []), *(("scope", s) for s in scopes)])
            url = f"{realm}{'&' if '?' in realm else '?'}{query}"
            text = self._ask(url, authorization=None if credentials is None else credentials.basic, form=None)
        return _read_token(text, host_of(realm), self._clock.now())


def _read_token(text: bytes, where: str, now: dt.datetime) -> _Token:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    document = document if isinstance(document, dict) else {}
    value = document.get("token") or document.get("access_token")
    if not isinstance(value, str) or not _TOKEN.match(value):
        raise refusal("auth_failed", where, got="no token", expected="JSON with a token", cause="auth")
    seconds = document.get("expires_in")
    life = float(seconds) if type(seconds) is int and 0 < seconds < 10**7 else float(_DEFAULT_SECONDS)
    return _Token(value, now + dt.timedelta(seconds=max(life - _MARGIN_SECONDS, life / 2)))
