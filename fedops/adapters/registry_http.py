"""Requests to one registry: one exchange each, signed in if asked to, judged by its status; bodies are never held whole.

Of oras-py this uses the session that takes no cookies and the parser of names. Its uploads read the whole file into
memory, its downloads check no digest, its tokens are not renewed, and its retries sleep for two minutes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

import requests
from oras.container import Container
from oras.provider import Registry
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from fedops import __version__
from fedops.adapters.refusals import refusal
from fedops.adapters.registry_auth import Authority, host_of
from fedops.adapters.registry_credentials import Lookup
from fedops.adapters.registry_retry import PassingError, retry_after
from fedops.core.catalogue import Slug
from fedops.core.errors import StoreError
from fedops.core.registry_address import RegistryAddress, is_loopback
from fedops.ports import Clock

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 300.0

_CONNECTIONS = 64  # kept open at once; an aggregation reads as many models side by side
_REDIRECTS = 5
_SIGNED = 3  # without a password, with the one at hand, with a newer one
_MAX_ANSWER_BYTES = 1 << 16
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_CODE = re.compile(r"[A-Z_]{1,40}\Z")
# What reading an answer raises if it is cut, or is none: the libraries let ValueError through, of a chunk's length for one.
BROKEN = (HTTPError, OSError, ValueError)


class Body(Protocol):
    """What is sent: blocks of bytes, and how many bytes they are in all."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]:
        """Objects with the buffer interface; each is valid until the next is taken."""
        ...


Sent = bytes | Callable[[], Body]  # a request may be sent twice, so a stream is begun anew


class AnswerError(StoreError):
    """The registry said no, for good.

    Attributes:
        codes: the error codes of the distribution specification that came with it, such as DIGEST_INVALID.
    """

    def __init__(self, error: StoreError, codes: Sequence[str]) -> None:
        super().__init__(error.message, hint=error.hint, slug=error.slug, cause=error.cause)
        self.codes = codes


class Wire(Registry):  # type: ignore[misc]  # oras has no types
    """HTTP to the host of an address, over TLS unless it is this machine.

    Args:
        lookup: gives the host's credentials, when it asks for them.
        token_hosts: other hosts that may be shown the credentials.
        seconds: how long to wait for a connection, and for the next bytes.
    """

    def __init__(
        self,
        address: RegistryAddress,
        *,
        clock: Clock,
        lookup: Lookup,
        token_hosts: frozenset[str] = frozenset(),
        seconds: tuple[float, float] = (CONNECT_SECONDS, ANSWER_SECONDS),
    ) -> None:
        super().__init__(hostname=_with_port(address), insecure=address.is_loopback)
        self.authority = Authority(address.host, lookup=lookup, ask=self._ask, clock=clock, token_hosts=token_hosts)
        self._address, self._clock, self._seconds = address, clock, seconds
        # NOTE: without a rule of its own, requests sends what ~/.netrc has for a host.
        self.session.auth = _as_it_is
        # NOTE: requests works out where an answer leads also if it is not to go there, and raises if that is no address.
        self.session.get_redirect_target = _nowhere
        self.session.trust_env = not address.is_loopback  # proxies and certificates of the machine
        self.session.headers.update({"User-Agent": f"fedops/{__version__}", "Accept-Encoding": "identity"})
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=_CONNECTIONS))

    def close(self) -> None:
        self.session.close()

    def container(self, name: str) -> Container:
        """The registry's addresses for one repository."""
        return Container(f"{self.hostname}/{name}")

    def url(self, rest: str) -> str:
        """A whole URL of what a Container gives."""
        return f"{self.prefix}://{rest}"

    def location(self, response: requests.Response, where: str) -> str:
        """Where an answer says to go on; the registry's own host is spoken to as the address says.

        Raises:
            StoreError: nowhere, or away from TLS.
        """
        said = response.headers.get("Location", "")
        target = joined(response.url, said)
        host, parts = host_of(target), urlsplit(target)
        if host == self._address.host:
            # A registry behind a proxy that ends TLS may call itself http://.
            return self.url(f"{self.hostname}{parts.path}?{parts.query}".removesuffix("?"))
        lowest = "http" if self._address.is_loopback and is_loopback(host) else "https"
        if not host or parts.scheme not in {"https", lowest}:
            raise refusal("registry_unavailable", where, got=f"goes on at {said[:80]!r}", expected=f"{lowest}://…")
        return target

    def send(
        self,
        method: str,
        url: str,
        where: str,
        names: Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        data: Sent | None = None,
    ) -> requests.Response:
        """One exchange; its answer may have any status but 401, and must be closed or read to its end.

        Args:
            url: at the registry, or where the registry sent us.
            where: repository and digest, for messages.
            names: repositories that it touches, for the token.

        Raises:
            PassingError: no answer.
            StoreError: slug auth_failed, credential_scope, registry_unavailable.
        """
        for _ in range(_REDIRECTS):
            response = self._signed(method, url, where, names, headers or {}, data)
            if response.status_code not in (301, 302, 303, 307, 308):
                return response
            finish(response)
            if method not in ("GET", "HEAD"):
                raise refusal("registry_unavailable", where, got=f"HTTP {response.status_code} to {method}")
            url = self.location(response, where)
        raise refusal("registry_unavailable", where, got=f"{_REDIRECTS} redirects")

    def _signed(
        self, method: str, url: str, where: str, names: Sequence[str], headers: Mapping[str, str], data: Sent | None
    ) -> requests.Response:
        if urlsplit(url).netloc != self.hostname:  # storage elsewhere: nothing of ours is shown there
            response = self._exchange(method, url, headers, data, where)
            if response.status_code == 401:
                finish(response)
                raise refusal("credential_scope", where, got=host_of(url), expected=self._address.host)
            return response
        for attempt in range(_SIGNED):
            sent = self.authority.header(names)
            signed = {**headers, "Authorization": sent} if sent is not None else headers
            response = self._exchange(method, url, signed, data, where)
            if response.status_code != 401:
                return response
            finish(response)
            self.authority.answer(response.headers.get("WWW-Authenticate", ""), names, sent, where, again=attempt > 0)
        raise self.authority.refused(where)

    def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], data: Sent | None, where: str
    ) -> requests.Response:
        body = data() if callable(data) else data
        session: requests.Session = self.session
        try:
            return session.request(
                method, url, headers=dict(headers), data=body, stream=True, allow_redirects=False, timeout=self._seconds
            )
        except BROKEN as e:
            if "CERTIFICATE_VERIFY_FAILED" not in str(e):
                raise no_answer(where, e) from e
            error = refusal("registry_unavailable", where, got=f"no trusted TLS with {host_of(url)}")
            error.hint = "if its certificate is your own authority's, set REQUESTS_CA_BUNDLE to that file"
            raise error from e

    def _ask(self, url: str, *, authorization: str | None, form: bytes | None) -> bytes:
        where = f"{host_of(url)} (tokens)"
        headers = {"Accept": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        response = self._exchange("GET" if form is None else "POST", url, headers, form, where)
        if response.status_code in (400, 401, 403):
            finish(response)
            raise self.authority.refused(where)
        self.check(response, where, 200)
        return read_answer(response, _MAX_ANSWER_BYTES, where)

    def check(
        self, response: requests.Response, where: str, *good: int, missing: Slug = "registry_unavailable"
    ) -> None:
        """Raise what a status means, unless it is a good one; the answer is closed then.

        Args:
            missing: what 404 means here.

        Raises:
            PassingError: slug rate_limited, registry_unavailable.
            AnswerError: slug auth_failed, registry_unavailable, or `missing`.
        """
        status = response.status_code
        if status in good:
            return
        codes = _codes_of(response, where)
        got = " ".join([f"HTTP {status}", *codes])
        if status in (401, 403):
            error = self.authority.refused(where)
            error.message += f" ({got})"
            raise AnswerError(error, codes)
        if status == 404:
            raise AnswerError(refusal(missing, where, got=None if missing == "object_missing" else got), codes)
        slug: Slug = "rate_limited" if status == 429 else "registry_unavailable"
        if status in _PASSING:
            after = retry_after(response.headers.get("Retry-After"), self._clock.now())
            raise PassingError(refusal(slug, where, got=got), after)
        raise AnswerError(refusal(slug, where, got=got, expected=f"HTTP {good[0]}"), codes)


def no_answer(where: str, fault: Exception) -> PassingError:
    """The error for a connection that failed or was cut; its text may hold a URL with a query, so it is not shown."""
    got = "an answer that cannot be read" if isinstance(fault, ValueError) else type(fault).__name__
    return PassingError(refusal("registry_unavailable", where, got=got))


def read_answer(response: requests.Response, max_bytes: int, where: str) -> bytes:
    """The body of an answer, at most one byte more than max_bytes of it; the connection may be used again.

    Raises:
        PassingError: it was cut.
    """
    with response:
        data = bytearray()
        try:
            # NOTE: one read gives less if the connection is cut; only the next one says so.
            while block := response.raw.read(max_bytes + 1 - len(data), decode_content=False):
                data += block
        except BROKEN as e:
            raise no_answer(where, e) from e
    return bytes(data)


def finish(response: requests.Response) -> None:
    """Be done with an answer whose body does not matter."""
    # NOTE: an answer that is closed unread takes its connection along.
    with response, suppress(*BROKEN):
        response.raw.read(_MAX_ANSWER_BYTES, decode_content=False)


def _codes_of(response: requests.Response, where: str) -> list[str]:
    """The error codes of the distribution specification that an answer carries, such as DIGEST_INVALID."""
    try:
        document = json.loads(read_answer(response, _MAX_ANSWER_BYTES, where))
        found = [error["code"] for error in document["errors"]]
    except (PassingError, ValueError, TypeError, KeyError, RecursionError):
        return []
    return [code for code in found if isinstance(code, str) and _CODE.match(code)][:3]


def _with_port(address: RegistryAddress) -> str:
    """The host as the parser of names knows one: by a dot or a colon."""
    plain = not set(".:") & set(address.host)
    return f"{address.host}:{80 if address.is_loopback else 443}" if plain else address.host


def joined(base: str, said: str) -> str:
    """The URL that a header means; "" for none, and for what is none."""
    try:
        target = urljoin(base, said) if said else ""
        urlsplit(target)
    except ValueError:
        return ""
    return target


def _nowhere(response: requests.Response) -> None:  # noqa: ARG001
    return None


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
