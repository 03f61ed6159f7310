"""A job starts a workflow: what is sent, what a local run answers, and how a refusal is told."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from fedops.adapters.act_api import local_api
from fedops.adapters.actions import Actions
from fedops.core.errors import ForgeError
from fedops.ports import Dispatch

TOKEN = "t" * 40


def test_a_dispatch_arrives_with_its_inputs() -> None:
    with local_api("acme/fed", TOKEN) as api:
        actions = Actions(api.url, "acme/fed", TOKEN)
        actions.dispatch("reconcile.yml", "main", {"attempt": "2"})
        actions.dispatch("audit.yml", "main", {})
        assert api.taken == [Dispatch("reconcile.yml", {"attempt": "2"}), Dispatch("audit.yml", {})]
    assert TOKEN not in repr(actions)


def test_a_repository_without_an_owner_is_one_too() -> None:
    with local_api("none", TOKEN) as api:
        Actions(api.url, "none", TOKEN).dispatch("reconcile.yml", "main", {})
        assert len(api.taken) == 1


@pytest.mark.parametrize(
    ("repository", "token", "cause"), [("acme/fed", "other", "auth"), ("acme/other", TOKEN, "permanent")]
)
def test_another_token_or_repository_starts_nothing(repository: str, token: str, cause: str) -> None:
    with local_api("acme/fed", TOKEN) as api:
        with pytest.raises(ForgeError, match=r"start reconcile\.yml: HTTP 40") as e:
            Actions(api.url, repository, token).dispatch("reconcile.yml", "main", {})
        assert (e.value.cause, api.taken) == (cause, [])
        assert e.value.hint


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"inputs": {}}', b'{"ref": "main", "inputs": {"a": 1}}', b'{"ref": "main", "inputs": []}'],
)
def test_a_body_that_is_no_dispatch_is_refused(body: bytes) -> None:
    with local_api("acme/fed", TOKEN) as api:
        path = f"{api.url}/repos/acme/fed/actions/workflows/x.yml/dispatches"
        headers = {"Authorization": f"token {TOKEN}"}
        assert requests.post(path, data=body, headers=headers, timeout=10).status_code == 422
        assert requests.post(path + "/../x", data=body, headers=headers, timeout=10).status_code == 404
        assert requests.get(path, timeout=10).status_code == 404
        assert requests.post(path, data=iter([b"x"]), headers=headers, timeout=10).status_code == 422
        assert api.taken == []


@contextmanager
def answering(code: int, asked: list[str] | None = None) -> Iterator[str]:
    """A server that answers every request with one status, and notes what was asked."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if asked is not None:
                asked.append(self.path)
            self.send_response(code)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (401, "auth"),
        (403, "auth"),
        (404, "permanent"),
        (422, "permanent"),
        (429, "temporary"),
        (503, "temporary"),
        (302, "permanent"),
    ],
)
def test_a_refusal_says_whether_trying_again_helps(code: int, cause: str) -> None:
    with answering(code) as url, pytest.raises(ForgeError) as e:
        Actions(url, "acme/fed", TOKEN).dispatch("reconcile.yml", "main", {})
    assert (e.value.cause, f"HTTP {code}" in e.value.message) == (cause, True)


def test_newer_servers_answer_with_the_run() -> None:
    asked: list[str] = []
    with answering(200, asked) as url:
        Actions(url, "acme/fed", TOKEN).dispatch("reconcile.yml", "main", {})
    assert asked == ["/repos/acme/fed/actions/workflows/reconcile.yml/dispatches"]


def test_no_answer_is_temporary_and_loses_nothing() -> None:
    with pytest.raises(ForgeError, match="no answer") as e:
        Actions("http://127.0.0.1:1", "acme/fed", TOKEN).dispatch("reconcile.yml", "main", {})
    assert e.value.cause == "temporary"
    assert TOKEN not in e.value.message
