"""A token service as Docker Hub, Harbor and GitHub have one: password in, token for a scope out; and htpasswd files.

Source: the token specification of the CNCF distribution project; JSON Web Tokens by RFC 7519, RS256 with `x5c`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

SERVICE, ISSUER = "registry.test", "tokens.test"


def htpasswd(folder: Path, users: Mapping[str, str]) -> dict[str, Any]:
    """The `auth:` section of a registry that asks for one of these users and their passwords."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{user}:{bcrypt.hashpw(secret.encode(), bcrypt.gensalt(4)).decode()}\n" for user, secret in users.items()]
    (folder / "htpasswd").write_text("".join(lines))
    return {"htpasswd": {"realm": "basic-realm", "path": str(folder / "htpasswd")}}


class TokenService:
    """Gives tokens to users; `asked` are the scopes of each request, in order.

    Args:
        users: name -> password.
        rights: (user or "", repository) -> actions.
        refresh: identity tokens -> user.
    """

    def __init__(
        self, users: Mapping[str, str], rights: Mapping[tuple[str, str], str], refresh: Mapping[str, str] | None = None
    ) -> None:
        self.users, self.rights, self.refresh = users, rights, refresh or {}
        self.asked: list[list[str]] = []
        self.fails: list[int] = []  # statuses of the next requests
        self.seconds = 300
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def realm(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    @property
    def host(self) -> str:
        return urlsplit(self.realm).netloc

    def auth(self, folder: Path, realm: str | None = None) -> dict[str, Any]:
        """The `auth:` section of a registry that takes this service's tokens."""
        folder.mkdir(parents=True, exist_ok=True)
        bundle = folder / "tokens.pem"
        bundle.write_bytes(self._certificate().public_bytes(serialization.Encoding.PEM))
        section = {"realm": realm or self.realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(bundle)}
        return {"token": section}

    def answer(self, query: Mapping[str, list[str]], authorization: str | None) -> tuple[int, dict[str, Any]]:
        scopes = [scope for text in query.get("scope", []) for scope in text.split()]
        self.asked.append(scopes)
        if self.fails:
            return self.fails.pop(0), {}
        user = ""
        if authorization is not None:
            user, _, password = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            if self.users.get(user) != password:
                return 401, {}
        elif "refresh_token" in query:
            user = self.refresh.get(query["refresh_token"][0], "")
            if not user:
                return 401, {}
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            granted = [a for a in actions.split(",") if a in self.rights.get((user, name), "").split(",")]
            access.append({"type": kind, "name": name, "actions": granted})
        return 200, {"token": self._token(user, access), "expires_in": self.seconds}

    def _token(self, user: str, access: list[dict[str, Any]]) -> str:
        now = int(dt.datetime.now(dt.UTC).timestamp())
        der = self._certificate().public_bytes(serialization.Encoding.DER)
        head = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
        claims = {"iss": ISSUER, "sub": user, "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now}
        signed = f"{_part(head)}.{_part({**claims, 'jti': str(len(self.asked)), 'access': access})}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_text(signature)}"

    def _certificate(self) -> x509.Certificate:
        if not hasattr(self, "_made"):
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ISSUER)])
            today = dt.datetime.now(dt.UTC)
            builder = x509.CertificateBuilder(name, name, self._key.public_key(), x509.random_serial_number())
            builder = builder.not_valid_before(today - dt.timedelta(days=1)).not_valid_after(
                today + dt.timedelta(days=1)
            )
            self._made = builder.sign(self._key, hashes.SHA256())
        return self._made

    @contextmanager
    def running(self) -> Iterator[TokenService]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _part(document: Mapping[str, Any]) -> str:
    return _text(json.dumps(document).encode())


def _handler(service: TokenService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._tell(*service.answer(parse_qs(urlsplit(self.path).query), self.headers.get("Authorization")))

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._tell(*service.answer(parse_qs(form), None))

        def _tell(self, status: int, document: Mapping[str, Any]) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's word
            """Say nothing."""

    return Handler
