"""A registry, or the way to it, that breaks in the middle: nothing wrong is kept, nothing is asked for without end."""

from __future__ import annotations

import datetime as dt
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from email.utils import format_datetime
from pathlib import Path

import pytest

from fedops.adapters.registry_retry import retry_after
from fedops.adapters.store_registry import RegistryStore
from fedops.core.errors import StoreError
from fedops.core.facts import Layer
from fedops.core.ids import Digest
from tests.registry.proxy import (
    Alter,
    Answer,
    CutAnswer,
    CutRequest,
    FaultProxy,
    Forget,
    Head,
    Keep,
    LoseAnswer,
    Short,
    fault_proxy,
)
from tests.registry.server import RegistryServer
from tests.registry.worlds import NOW, StillClock, registry_store

A = "sites/hospital-a"
BYTES = b"eight floats of hospital-a"
BLOB = "blobs/sha256:[0-9a-f]{64}$"
LONG = bytes(range(256)) * 12_000  # 3 MiB in round figures: more than one block


def refused(call: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value


def read_whole(store: RegistryStore, layer: Layer) -> bytes:
    """A layer through the stream, block by block."""
    got, buffer = bytearray(), memoryview(bytearray(1 << 18))
    with store.open_blob(A, layer) as reader:
        while count := reader.readinto(buffer):
            got += buffer[:count]
    return bytes(got)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that gives every connection the same bytes; its host."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1 << 16)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def long(store: RegistryStore, proxy: FaultProxy, tmp_path: Path) -> Layer:
    """A layer of several blocks that is stored; the proxy has forgotten how it came there."""
    file = tmp_path / "long.safetensors"
    file.write_bytes(LONG)
    layer = store.put(A, file, {}).layer
    proxy.seen.clear()
    return layer


# what may pass


def test_three_tries_one_second_and_half_as_much_again(
    store: RegistryStore, proxy: FaultProxy, clock: StillClock, update: Path
) -> None:
    proxy.plan("HEAD", "blobs", Answer(503), times=2)
    store.put(A, update, {})
    assert clock.slept == [1.0, 1.5]


@pytest.mark.parametrize(("status", "slug"), [(500, "registry_unavailable"), (502, "registry_unavailable"),
                                              (503, "registry_unavailable"), (429, "rate_limited")])  # fmt: skip
def test_fourth_try_is_never_made(
    store: RegistryStore, proxy: FaultProxy, clock: StillClock, update: Path, status: int, slug: str
) -> None:
    proxy.plan("POST", "uploads", Answer(status), times=99)
    error = refused(lambda: store.put(A, update, {}))
    assert (error.slug, error.cause) == (slug, "temporary")
    assert len([line for line in proxy.lines() if line.startswith("POST")]) == 3
    assert clock.slept == [1.0, 1.5]
    assert A in error.message
    assert hashlib.sha256(BYTES).hexdigest() in error.message


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_server_that_asks_to_wait_is_waited_for(
    store: RegistryStore, proxy: FaultProxy, clock: StillClock, update: Path, method: str
) -> None:
    put = store.put(A, update, {})
    date = format_datetime(clock.now() + dt.timedelta(seconds=40), usegmt=True)
    for asked in ("7", date):
        proxy.plan(method, "manifests", Answer(429, {"Retry-After": asked}))
    store.manifest(A, put.manifest)
    store.resolve(f"{A}:m-{put.manifest.removeprefix('sha256:')}")
    assert clock.slept[0] == 7.0
    assert clock.slept[1] in (33.0, 40.0)  # the date is 40 s after the first wait began


def test_server_that_asks_for_too_long_a_wait_ends_the_job(
    store: RegistryStore, proxy: FaultProxy, clock: StillClock
) -> None:
    proxy.plan("HEAD", "manifests", Answer(429, {"Retry-After": "3600"}))
    error = refused(lambda: store.resolve(f"{A}:v1"))
    assert (error.slug, error.cause, clock.slept, len(proxy.seen)) == ("rate_limited", "temporary", [], 1)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 0), ("", 0), ("soon", 0), ("-5", 0), ("5", 5), ("²", 0), ("9" * 40, 999_999_999),
     ("Mon, 02 Mar 2026 10:01:00 GMT", 60), ("Mon, 02 Mar 2026 09:00:00 GMT", 0), ("Mon, 02 Mar 2026 10:01:00", 60)],
)  # fmt: skip
def test_retry_after_is_read_in_both_forms(header: str | None, seconds: float) -> None:
    assert retry_after(header, NOW) == seconds


def test_nobody_there_is_a_store_that_does_not_answer(clock: StillClock, update: Path) -> None:
    with fault_proxy("127.0.0.1:9") as proxy:
        host = proxy.host
    store = registry_store(host, clock=clock)
    error = refused(lambda: store.put(A, update, {}))
    store.close()
    assert (error.slug, error.cause, clock.slept) == ("registry_unavailable", "temporary", [1.0, 1.5])


def test_silence_ends_with_the_patience(proxy: FaultProxy, clock: StillClock) -> None:
    store = registry_store(proxy.host, clock=clock, seconds=(1.0, 0.1))
    proxy.plan("HEAD", "manifests", Keep(), times=3)
    error = refused(lambda: store.resolve(f"{A}:v1"))
    store.close()
    assert (error.cause, len(proxy.seen)) == ("temporary", 3)


@pytest.mark.parametrize("status", [400, 404, 405, 413, 418])
def test_what_repeating_cannot_change_is_not_repeated(
    store: RegistryStore, proxy: FaultProxy, clock: StillClock, update: Path, status: int
) -> None:
    proxy.plan("POST", "uploads", Answer(status, {}, b'{"errors": [{"code": "NAME_UNKNOWN"}, {"code": 5}]}'))
    error = refused(lambda: store.put(A, update, {}))
    assert (error.slug, error.cause, clock.slept) == ("registry_unavailable", "permanent", [])
    assert f"HTTP {status}" in error.message


# uploads


@pytest.mark.parametrize("fault", [CutRequest(100_000), Answer(502), LoseAnswer()])
def test_broken_upload_begins_again_from_its_start(
    store: RegistryStore, proxy: FaultProxy, tmp_path: Path, out: Path, fault: CutRequest | Answer | LoseAnswer
) -> None:
    file = tmp_path / "long.safetensors"
    file.write_bytes(LONG)
    proxy.plan("PUT", "uploads", fault)
    layer = store.put(A, file, {}).layer
    store.get(A, layer, out / "x")
    assert (out / "x").read_bytes() == LONG
    layer_lines = [line.partition(" ")[0] for line in proxy.lines()][:6]
    if isinstance(fault, LoseAnswer):  # it had arrived: asking first shows that
        assert layer_lines[:4] == ["HEAD", "POST", "PUT", "HEAD"]
        assert len([s for s in proxy.seen if s.method == "PUT" and s.headers["content-length"] == str(len(LONG))]) == 1
    else:
        assert layer_lines == ["HEAD", "POST", "PUT", "HEAD", "POST", "PUT"]


def test_upload_that_the_registry_forgot_begins_again(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    for code in ("BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID"):
        body = b'{"errors": [{"code": "%s"}]}' % code.encode()
        proxy.plan("PUT", "uploads", Answer(404 if code.endswith("UNKNOWN") else 400, {}, body))
    store.put(A, update, {})
    assert len([line for line in proxy.lines() if line.startswith("POST")]) == 4


def test_file_that_changes_while_it_is_sent_is_not_kept(
    store: RegistryStore, proxy: FaultProxy, server: RegistryServer, update: Path
) -> None:
    def change(body: bytes) -> bytes:
        update.write_bytes(BYTES.upper())
        return body

    proxy.plan("POST", "uploads", Alter(change))
    error = refused(lambda: store.put(A, update, {}))
    assert (error.slug, error.cause) == ("digest_mismatch", "permanent")
    assert "changed" in error.hint
    assert not server.blob(Digest(f"sha256:{hashlib.sha256(BYTES).hexdigest()}")).exists()


def _gone(file: Path, body: bytes) -> bytes:
    file.unlink()
    return body


def test_file_that_shrinks_or_goes_while_it_is_sent_is_an_error(
    store: RegistryStore, proxy: FaultProxy, update: Path
) -> None:
    proxy.plan("POST", "uploads", Alter(lambda body: body if update.write_bytes(b"e") else b""))
    assert refused(lambda: store.put(A, update, {})).slug == "size_mismatch"
    update.write_bytes(BYTES)
    proxy.plan("POST", "uploads", Alter(lambda body: _gone(update, body)))
    error = refused(lambda: store.put(A, update, {}))
    assert "No such file" in error.message


def test_blob_that_the_registry_only_believes_to_have_is_sent_again(
    store: RegistryStore, proxy: FaultProxy, update: Path, out: Path
) -> None:
    proxy.plan("HEAD", "blobs", Answer(200, {}), times=2)  # its collection took them; its cache does not know
    put = store.put(A, update, {})
    store.get(A, put.layer, out / "x")
    assert (out / "x").read_bytes() == BYTES


def test_registry_that_loses_every_blob_is_given_up(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    body = b'{"errors": [{"code": "MANIFEST_BLOB_UNKNOWN"}]}'
    proxy.plan("PUT", "manifests", Answer(400, {}, body), times=9)
    assert refused(lambda: store.put(A, update, {})).slug == "object_missing"
    assert len([line for line in proxy.lines() if "PUT /v2/acme/fed/sites/hospital-a/manifests" in line]) == 2


def test_manifest_that_the_registry_refuses_or_rewrites_is_an_error(
    store: RegistryStore, proxy: FaultProxy, update: Path
) -> None:
    proxy.plan("PUT", "manifests", Answer(400, {}, b'{"errors": [{"code": "MANIFEST_INVALID"}]}'))
    error = refused(lambda: store.put(A, update, {}))
    assert (error.slug, "MANIFEST_INVALID" in error.message) == ("registry_unavailable", True)
    proxy.plan("PUT", "manifests", Head({"Docker-Content-Digest": "sha256:" + "0" * 64}))
    assert refused(lambda: store.put(A, update, {"n": "2"})).slug == "digest_mismatch"


def test_answers_that_lead_nowhere_are_errors(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    for headers in (
        {},
        {"Location": "ftp://127.0.0.1/x"},
        {"Location": "http://registry.example/x"},
        {"Location": "http://[::1"},
    ):
        proxy.plan("POST", "uploads", Answer(202, headers))
        error = refused(lambda: store.put(A, update, {}))
        assert (error.slug, error.cause) == ("registry_unavailable", "permanent")
    proxy.plan("PUT", "uploads", Answer(307, {"Location": "/elsewhere"}))
    assert "HTTP 307" in refused(lambda: store.put(A, update, {})).message
    proxy.plan("PUT", "uploads", Answer(413, {}, b'{"errors": [{"code": "SIZE_INVALID"}]}'))
    assert "HTTP 413 SIZE_INVALID" in refused(lambda: store.put(A, update, {})).message


# downloads


@pytest.mark.parametrize("ranges", [True, False])
def test_cut_download_goes_on_where_it_stopped(
    store: RegistryStore, proxy: FaultProxy, clock: StillClock, out: Path, long: Layer, ranges: bool
) -> None:
    proxy.plan("GET", BLOB, CutAnswer(1_500_000))
    if not ranges:  # a registry that gives all or nothing
        proxy.plan("GET", BLOB, Forget("range"))
    store.get(A, long, out / "x", md5=hashlib.md5(LONG).hexdigest())
    assert (out / "x").read_bytes() == LONG
    assert [seen.headers.get("range") for seen in proxy.seen] == [None, "bytes=1500000-"]
    assert clock.slept == [1.0]


def test_download_that_never_gets_further_is_given_up(
    store: RegistryStore, proxy: FaultProxy, clock: StillClock, out: Path, long: Layer
) -> None:
    proxy.plan("GET", BLOB, CutAnswer(0), times=99)
    error = refused(lambda: store.get(A, long, out / "x"))
    assert (error.slug, error.cause, len(proxy.seen)) == ("registry_unavailable", "temporary", 3)
    assert list(out.iterdir()) == []


def test_line_that_breaks_often_still_carries_a_large_model(
    store: RegistryStore, proxy: FaultProxy, out: Path, long: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedops.adapters.registry_stream._PROGRESS_BYTES", 1 << 18)
    proxy.plan("GET", BLOB, CutAnswer(700_000), times=99)
    assert read_whole(store, long) == LONG
    assert len(proxy.seen) > 3


def test_skipping_may_be_cut_too(store: RegistryStore, proxy: FaultProxy, out: Path, long: Layer) -> None:
    proxy.plan("GET", BLOB, CutAnswer(2_500_000))
    proxy.plan("GET", BLOB, Short(200, LONG[:2_000_000], len(LONG)))
    store.get(A, long, out / "x")
    assert (out / "x").read_bytes() == LONG


def test_another_range_than_asked_for_is_refused(
    store: RegistryStore, proxy: FaultProxy, out: Path, long: Layer
) -> None:
    proxy.plan("GET", BLOB, CutAnswer(1_500_000))
    proxy.plan("GET", BLOB, Head({"Content-Range": f"bytes 0-9/{len(LONG)}"}))
    error = refused(lambda: store.get(A, long, out / "x"))
    assert (error.slug, list(out.iterdir())) == ("registry_unavailable", [])


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "hash_mismatch"),
        (lambda data: data[:-7], "size_mismatch"),
        (lambda data: data + b"!", "size_mismatch"),
        (lambda data: b"", "size_mismatch"),
    ],
)
def test_wrong_bytes_are_never_at_their_place(
    store: RegistryStore, proxy: FaultProxy, out: Path, long: Layer, change: Callable[[bytes], bytes], slug: str
) -> None:
    (out / "x").write_bytes(b"older")
    proxy.plan("GET", BLOB, Alter(change), times=9)
    assert refused(lambda: store.get(A, long, out / "x")).slug == slug
    assert refused(lambda: read_whole(store, long)).slug == slug
    assert [(p.name, p.read_bytes()) for p in out.iterdir()] == [("x", b"older")]
    assert len(proxy.seen) == 2, "wrong bytes are not asked for again"


def test_length_that_is_not_said_is_counted(store: RegistryStore, proxy: FaultProxy, out: Path, long: Layer) -> None:
    proxy.plan("GET", BLOB, Head({"Content-Length": None, "content-length": None}))
    store.get(A, long, out / "x")
    assert (out / "x").read_bytes() == LONG


def test_endless_manifest_or_cut_manifest_is_no_manifest(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    put = store.put(A, update, {})
    proxy.plan("GET", "manifests", Answer(200, {}, b" " * (2 << 20)))
    assert refused(lambda: store.manifest(A, put.manifest)).slug == "digest_mismatch"
    proxy.plan("GET", "manifests", CutAnswer(10))
    assert store.manifest(A, put.manifest) == put


# other hosts


@pytest.fixture
def storage(server: RegistryServer) -> Iterator[FaultProxy]:
    """Another host, to which blobs may be redirected."""
    with fault_proxy(server.host) as running:
        yield running


def test_redirected_download_is_followed(
    store: RegistryStore, proxy: FaultProxy, storage: FaultProxy, out: Path, long: Layer
) -> None:
    there = f"http://{storage.host}/v2/acme/fed/{A}/blobs/sha256:{long.sha256}?signature=s"
    proxy.plan("GET", BLOB, Answer(307, {"Location": there}))
    store.get(A, long, out / "x")
    assert (out / "x").read_bytes() == LONG
    assert len(storage.seen) == 1


def test_redirects_in_a_circle_end(store: RegistryStore, proxy: FaultProxy, out: Path, long: Layer) -> None:
    proxy.plan("GET", BLOB, Answer(302, {"Location": f"/v2/acme/fed/{A}/blobs/sha256:{long.sha256}"}), times=99)
    assert refused(lambda: store.get(A, long, out / "x")).slug == "registry_unavailable"
    assert len(proxy.seen) == 5


@pytest.mark.parametrize("location", ["http://[::1", "http://\xe9.example/", "http://:0:0/"])
def test_redirect_to_what_is_no_address_is_a_store_that_does_not_answer(
    store: RegistryStore, proxy: FaultProxy, out: Path, long: Layer, location: str
) -> None:
    proxy.plan("GET", BLOB, Answer(307, {"Location": location}), times=9)
    assert refused(lambda: store.get(A, long, out / "x")).slug == "registry_unavailable"
    assert not (out / "x").exists()


def test_chunk_of_a_negative_length_is_a_line_that_broke(clock: StillClock, out: Path, long: Layer) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello"
    with answering(answer) as host, closing(registry_store(host, clock=clock)) as store:
        error = refused(lambda: store.get(A, long, out / "x"))
    assert (error.slug, error.cause) == ("registry_unavailable", "temporary")
    assert clock.slept == [1.0, 1.5]


def test_redirect_that_is_no_longer_good_is_asked_for_anew(
    store: RegistryStore, proxy: FaultProxy, storage: FaultProxy, out: Path, long: Layer
) -> None:
    there = f"http://{storage.host}/v2/acme/fed/{A}/blobs/sha256:{long.sha256}"
    proxy.plan("GET", BLOB, Answer(307, {"Location": there}))
    storage.plan("GET", BLOB, Answer(503))
    store.get(A, long, out / "x")
    assert (out / "x").read_bytes() == LONG
