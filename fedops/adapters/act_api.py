"""The one call of GitHub's API that a job makes on forge git: start a workflow. Answered on this machine."""

from __future__ import annotations

import hmac
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fedops.ports import Dispatch

MAX_BODY_BYTES = 65_536
_PATH = re.compile(r"/repos/([^?#]+)/actions/workflows/([A-Za-z0-9._-]+)/dispatches\Z")


class LocalApi:
    """Takes dispatches of one run's token, for one repository.

    Attributes:
        url: for GITHUB_API_URL.
        taken: what was asked for, in order.
    """

    def __init__(self, repository: str, token: str) -> None:
        self.taken: list[Dispatch] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(repository, token, self.taken))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def local_api(repository: str, token: str) -> Iterator[LocalApi]:
    """Serve on a free port of the loopback address while the block runs."""
    api = LocalApi(repository, token)
    thread = threading.Thread(target=api.serve, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.close()
        thread.join()


def _handler(repository: str, token: str, taken: list[Dispatch]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """POST …/dispatches and nothing else."""

        def do_POST(self) -> None:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ").removeprefix("token ")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
                self._answer(401, "Bad credentials")
                return
            match = _PATH.match(self.path)
            if match is None or match[1] != repository:
                self._answer(404, "Not Found")
                return
            dispatch = _parse(match[2], self._body())
            if dispatch is None:
                self._answer(422, "Invalid request")
                return
            taken.append(dispatch)
            self._answer(204, "")

        def do_GET(self) -> None:
            self._answer(404, "Not Found")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 as in the library
            """Nothing on stderr."""

        def _body(self) -> bytes:
            length = self.headers.get("Content-Length", "0")
            return self.rfile.read(min(int(length), MAX_BODY_BYTES)) if length.isdigit() else b""

        def _answer(self, code: int, message: str) -> None:
            body = json.dumps({"message": message}).encode() if message else b""
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _parse(file: str, body: bytes) -> Dispatch | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    inputs = value.get("inputs", {}) if isinstance(value, dict) and isinstance(value.get("ref"), str) else None
    if not isinstance(inputs, dict) or not all(isinstance(v, str) for v in inputs.values()):
        return None
    return Dispatch(file, {str(name): v for name, v in inputs.items()})
