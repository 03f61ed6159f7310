"""A proxy before a registry that goes wrong as it is told, and remembers every request."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_BLOCK = 1 << 16


@dataclass(frozen=True)
class Seen:
    """One request as it came in; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def line(self) -> str:
        """Method and path, the changing parts cut off: "POST /v2/acme/fed/global/blobs/uploads/"."""
        path = re.sub(r"uploads/[0-9a-f-]{36}", "uploads/U", self.path.partition("?")[0])
        return f"{self.method} {path}"


@dataclass(frozen=True)
class Answer:
    """Say this and do not ask the registry; the request's body is read before."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class CutRequest:
    """Take so many bytes of the request's body, then reset the connection."""

    after: int


@dataclass(frozen=True)
class CutAnswer:
    """Give the answer's head and so many bytes of its body, then end the connection."""

    after: int


@dataclass(frozen=True)
class Short:
    """Say this, with fewer bytes than announced, and end the connection; length None announces none."""

    status: int
    body: bytes
    length: int | None


@dataclass(frozen=True)
class LoseAnswer:
    """Let the registry do it, and reset the connection instead of telling its answer."""


@dataclass(frozen=True)
class Alter:
    """Give another body."""

    change: Callable[[bytes], bytes]


@dataclass(frozen=True)
class Keep:
    """Do not answer as long as the proxy lives."""


@dataclass(frozen=True)
class Forget:
    """Ask the registry without one header of the request."""

    header: str


@dataclass(frozen=True)
class Head:
    """Give the answer with other headers; None leaves one out."""

    headers: Mapping[str, str | None]


@dataclass(frozen=True)
class Reroute:
    """Ask the registry for another path."""

    change: Callable[[str], str]


Fault = Answer | Short | CutRequest | CutAnswer | LoseAnswer | Alter | Keep | Forget | Head | Reroute


class FaultProxy:
    """Passes everything on to a registry but what a fault is planned for; may be changed while it runs."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.seen: list[Seen] = []
        self.ended = threading.Event()
        self._plan: list[tuple[str, re.Pattern[str], Fault, list[int]]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def plan(self, method: str, path: str, fault: Fault, *, times: int = 1) -> None:
        """Let the next requests of this method, whose path matches a pattern somewhere, meet a fault."""
        self._plan.append((method, re.compile(path), fault, [times]))

    def mend(self) -> None:
        """Plan nothing any more."""
        self._plan.clear()

    def lines(self) -> list[str]:
        """All requests so far, without their changing parts."""
        return [seen.line for seen in self.seen]

    def note(self, seen: Seen) -> Fault | None:
        """Remember a request; gives the fault that it meets."""
        with self._lock:
            self.seen.append(seen)
            for method, path, fault, left in self._plan:
                if method == seen.method and left[0] and path.search(seen.path):
                    left[0] -= 1
                    return fault
        return None

    @contextmanager
    def running(self) -> Iterator[FaultProxy]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.ended.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """A proxy before the registry at `upstream`, for the length of the block."""
    with FaultProxy(upstream).running() as proxy:
        yield proxy


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_any(self) -> None:
            seen = Seen(self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
            fault = proxy.note(seen)
            if isinstance(fault, Keep):
                proxy.ended.wait()
                self.close_connection = True
            elif isinstance(fault, CutRequest):
                self.rfile.read(fault.after)
                self._reset()
            elif isinstance(fault, Answer):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._tell(fault.status, {"Content-Type": "application/json", **fault.headers}, fault.body)
            elif isinstance(fault, Short):
                self.send_response(fault.status)
                if fault.length is not None:
                    self.send_header("Content-Length", str(fault.length))
                self.end_headers()
                self.wfile.write(fault.body)
                self.close_connection = True
            else:
                self._pass_on(fault)

        def _pass_on(self, fault: Fault | None) -> None:
            connection = http.client.HTTPConnection(proxy.upstream, timeout=60)
            try:
                path = fault.change(self.path) if isinstance(fault, Reroute) else self.path
                connection.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():  # the Host too: answers name the proxy
                    if not isinstance(fault, Forget) or name.lower() != fault.header:
                        connection.putheader(name, value)
                connection.endheaders()
                left = int(self.headers.get("Content-Length") or 0)
                while left:
                    block = self.rfile.read(min(left, _BLOCK))
                    if not block:
                        self.close_connection = True
                        return
                    connection.send(block)
                    left -= len(block)
                response = connection.getresponse()
                self._give(fault, response)
            finally:
                connection.close()

        def _give(self, fault: Fault | None, response: http.client.HTTPResponse) -> None:
            if isinstance(fault, LoseAnswer):
                response.read()
                self._reset()
                return
            headers: dict[str, str] = {
                k: v for k, v in response.getheaders() if k.lower() not in ("connection", "transfer-encoding")
            }
            if isinstance(fault, Head):
                for name, value in fault.headers.items():
                    headers.pop(name, None)
                    if value is not None:
                        headers[name] = value
            if isinstance(fault, (CutAnswer, Alter)):
                data = response.read()
                if isinstance(fault, CutAnswer):
                    self._tell(response.status, headers, data[: fault.after], length=len(data))
                    self.close_connection = True
                else:
                    self._tell(response.status, headers, fault.change(data))
                return
            self.send_response(response.status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers and self.command != "HEAD":
                self.send_header("Connection", "close")
            self.end_headers()
            while block := response.read(_BLOCK):
                self.wfile.write(block)

        def _tell(self, status: int, headers: Mapping[str, str], body: bytes, *, length: int | None = None) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() != "content-length":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _reset(self) -> None:
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the client has gone away, or we have
                self.close_connection = True

        def finish(self) -> None:
            try:
                super().finish()
            except (OSError, ValueError):
                return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's word
            """Say nothing."""

    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.do_any)
    return Handler
