"""A GitHub on loopback: REST below /api/v3 and git's smart HTTP, for clients that do not know the difference."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.github_face import graph, rest, rest_pulls, rest_settings, shapes
from tests.github_face.hub import Fault, Hub, Repo, User
from tests.github_face.jobs import may
from tests.github_face.openapi import Exchange, github
from tests.github_face.rest import Call, Refused

API = "/api/v3"
GRAPH = "/api/graphql"
LISTS = ("statuses", "secrets", "branch_policies")  # that come page by page in a document
NO_RIGHT = "Resource not accessible by integration"  # what GitHub says to the token of an app or a job


class Cut(Exception):  # noqa: N818 the line breaks
    """The connection is closed without an answer."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: Hub) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub = hub

    @property
    def web(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def api(self) -> str:
        return self.web + API

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no fault of ours; any other exception fails the request with 500 already."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 as in the base
        """Quiet."""

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        self.server.hub.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
        if url.path.startswith(API + "/"):
            self.answer_rest()
        elif url.path == GRAPH:
            self.answer_graph()
        else:
            self.answer_git()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 names of the base

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    # ------------------------------------------------------------ REST

    def answer_rest(self) -> None:
        hub, path = self.server.hub, self.path.removeprefix(API)
        data = self.read_body()
        body = json.loads(data) if data else None
        headers: dict[str, str] = {}
        with hub.lock:
            judged = self.judged(lambda: self.served(path, body, headers))
            if judged is None:
                return
            status, answer, _ = judged
            hub.exchanges.append(Exchange(self.command, path, body, status, answer))
        data = json.dumps(answer).encode() if answer is not None else b""
        self.send(status, {"Content-Type": "application/json; charset=utf-8", **headers}, data)

    def answer_graph(self) -> None:
        hub, body, headers = self.server.hub, json.loads(self.read_body()), dict[str, str]()

        def answered() -> tuple[int, Any]:
            fault = next((f for f in hub.faults if f.strikes(self.command, "/graphql")), None)
            if fault is not None:
                self.fail(fault, headers)
            return 200, graph.answer(hub, self.token(), self.user(), body)

        with hub.lock:
            judged = self.judged(answered)
            if judged is None:
                return
            status, answer, misasked = judged
            hub.misasked += misasked
        self.send(status, {"Content-Type": "application/json; charset=utf-8", **headers}, json.dumps(answer).encode())

    def judged(self, answered: Callable[[], tuple[int, Any]]) -> tuple[int, Any, list[str]] | None:
        """Status, answer, and what a client asked that GitHub would not know; None: the connection is to be cut."""
        try:
            return *answered(), []
        except Cut:
            self.close_connection = True
            return None
        except Refused as e:
            return e.status, e.document, []
        except AssertionError as e:
            return 500, {"message": f"the test's server: {e!r}"}, [repr(e)]

    def served(self, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        hub = self.server.hub
        fault = next((f for f in hub.faults if f.strikes(self.command, path)), None)
        if fault is not None and not fault.after:
            self.fail(fault, headers)
        status, answer = self.routed(path, body)
        if fault is not None:
            self.fail(fault, headers)
        if isinstance(answer, list):
            answer = self.page(path, answer, headers)
        for key in LISTS if isinstance(answer, dict) else ():
            if key in answer:
                answer[key] = self.page(path, answer[key], headers)
        return status, answer

    def fail(self, fault: Fault, headers: dict[str, str]) -> None:
        if fault.status == 0:
            raise Cut
        headers |= fault.headers
        raise Refused(fault.status, fault.message)

    def token(self) -> str:
        """As sent; empty: none."""
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return base64.b64decode(token).decode().partition(":")[2] if kind == "Basic" else token

    def user(self) -> User | None:
        """Who asks; a token that nobody has is refused."""
        if self.headers.get("Authorization") is None:
            return None
        token, hub = self.token(), self.server.hub
        user = hub.jobs[token].user if token in hub.jobs else hub.users.get(token)
        if user is None:
            raise Refused(401, "Bad credentials")
        return user

    def routed(self, path: str, body: Any) -> tuple[int, Any]:
        hub, user, url = self.server.hub, self.user(), urlsplit(path)
        if url.path == "/user":
            if user is None:
                raise Refused(401, "Requires authentication")
            if user.kind == "Bot":
                hub.refused.append((self.token(), self.command, url.path))
                raise Refused(403, NO_RIGHT)
            return 200, shapes.account(user)
        if rest_settings.PACKAGE.match(url.path):
            return rest_settings.get_package(hub, user, url.path)
        if url.path.startswith("/users/"):
            named = hub.user_of(url.path.removeprefix("/users/").replace("%5B", "[").replace("%5D", "]"))
            if named is None:
                raise Refused(404, "Not Found")
            return 200, shapes.account(named)
        parts = url.path.split("/", 4)
        repo = hub.repos.get("/".join(parts[2:4]).lower()) if parts[1] == "repos" and len(parts) > 3 else None
        if repo is None:
            raise Refused(404, "Not Found")
        rest_of = "/" + parts[4] if len(parts) > 4 else ""
        where = f"{self.server.api}/repos/{repo.full_name}"
        for method, pattern, handler in (*rest.ROUTES, *rest_pulls.ROUTES, *rest_settings.ROUTES):
            match = pattern.match(rest_of)
            if match is not None and method == self.command:
                if not may(hub, self.token(), repo, method, rest_of):
                    raise Refused(403, NO_RIGHT)
                query = dict(parse_qsl(url.query))
                return handler(Call(hub, user, repo, where, query, body, match.groups()))
        raise Refused(404, "Not Found")

    def page(self, path: str, items: list[Any], headers: dict[str, str]) -> list[Any]:
        url = urlsplit(path)
        query = dict(parse_qsl(url.query))
        page, size = int(query.get("page", 1)), min(int(query.get("per_page", 30)), 100)
        if page * size < len(items):
            rest_of = "&".join(f"{k}={v.replace(',', '%2C')}" for k, v in (query | {"page": str(page + 1)}).items())
            headers["Link"] = f'<{self.server.api}{url.path}?{rest_of}>; rel="next"'
        return items[(page - 1) * size : page * size]

    # ------------------------------------------------------------ git

    def answer_git(self) -> None:
        hub, url = self.server.hub, urlsplit(self.path)
        body = self.read_body()
        owner, _, rest_of = url.path.lstrip("/").partition("/")
        name, _, service = rest_of.partition("/")
        repo = hub.repos.get(f"{owner}/{name.removesuffix('.git')}".lower())
        writes = "git-receive-pack" in (service, dict(parse_qsl(url.query)).get("service"))
        try:
            user = self.user()
        except Refused:
            self.send(401, {"WWW-Authenticate": 'Basic realm="GitHub"'}, b"Invalid username or password.")
            return
        if repo is None:
            self.send(404, {}, b"Repository not found.")
        elif writes and user is None:
            self.send(401, {"WWW-Authenticate": 'Basic realm="GitHub"'}, b"Authentication required")
        elif writes and not hub.may_write(user, repo):
            self.send(403, {}, b"Permission denied")
        elif not may(hub, self.token(), repo, "PUSH" if writes else "FETCH", ""):
            self.send(403, {}, f"Permission to {repo.full_name}.git denied to {user and user.login}.".encode())
        else:
            status, headers, data = self.backend(repo, service, url.query, body)
            if service == "git-receive-pack":
                with hub.lock:
                    hub.notice()
            self.send(status, headers, data)

    def backend(self, repo: Repo, service: str, query: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        env: Mapping[str, str] = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(repo.path),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": f"/{service}",
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "somebody",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return int(fields.pop("Status", "200").split()[0]), fields, data

    def send(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(hub: Hub) -> Iterator[Server]:
    """A running server; at the end everything that was said is held to GitHub's description."""
    server = Server(hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
    faults = {fault for exchange in hub.exchanges for fault in github().faults(exchange)} | set(hub.misasked)
    assert not faults, "\n".join(sorted(faults))
