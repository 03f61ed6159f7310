"""Pieces that no real registry brings about on demand."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import io
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedops.adapters.meter import Meter
from fedops.adapters.registry_http import Wire
from fedops.adapters.store_parts import CheckedReader
from fedops.adapters.store_registry import RegistryStore
from fedops.core.errors import StoreError
from fedops.core.facts import Layer
from fedops.core.registry_address import RegistryAddress
from tests.registry.proxy import FaultProxy, Short
from tests.registry.worlds import NotedProgress, StillClock, nobody, registry_store

A = "sites/hospital-a"


def test_stream_that_ends_too_early_is_a_size_mismatch() -> None:
    layer = Layer(hashlib.sha256(b"whole").hexdigest(), 5, "update.safetensors")
    with CheckedReader(io.BytesIO(b"who"), layer, "here") as reader:
        assert reader.readinto(memoryview(bytearray(10))) == 3
        with pytest.raises(StoreError) as caught:
            reader.readinto(memoryview(bytearray(10)))
    assert caught.value.slug == "size_mismatch"


@pytest.mark.parametrize(
    ("number", "cause"), [(errno.EIO, "temporary"), (errno.EACCES, "auth"), (errno.ENOENT, "permanent")]
)
def test_a_folder_that_fails_in_mid_stream_is_a_store_that_does(number: int, cause: str) -> None:
    class Failing(io.BytesIO):
        def readinto(self, buffer: Any, /) -> int:
            raise OSError(number, os.strerror(number))

    layer = Layer("0" * 64, 5, "model.safetensors")
    with CheckedReader(Failing(), layer, "global@sha256:00") as reader, pytest.raises(StoreError) as caught:
        reader.readinto(memoryview(bytearray(5)))
    assert caught.value.cause == cause
    assert caught.value.message == f"global@sha256:00: cannot read it, got {os.strerror(number)}"


def test_bytes_that_are_sent_again_are_told_once() -> None:
    progress = NotedProgress()
    meter = Meter(progress, "upload", 10)
    for position in (4, 8, 4, 8, 10):
        meter.at(position)
    meter.finish()
    assert progress.told == [("start", "upload", 10, "bytes"), ("finish", 10)]
    Meter(None, "upload", 10).finish()


def test_bytes_of_no_known_length_that_end_too_early_are_a_size_mismatch(
    store: RegistryStore, proxy: FaultProxy, update: Path, tmp_path: Path
) -> None:
    put = store.put("global", update, {}, b"a proposal")
    proxy.plan("GET", "blobs", Short(200, b"a prop", None), times=2)
    calls: list[Callable[[], object]] = [
        lambda: store.manifest("global", put.manifest),
        lambda: store.get("global", put.layer, tmp_path / "x"),
    ]
    for call in calls:
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.slug == "size_mismatch"
    assert store.manifest("global", put.manifest) == put


@pytest.mark.parametrize(
    ("address", "hostname", "prefix"),
    [
        (RegistryAddress("ghcr.io", "acme.d/fed"), "ghcr.io", "https"),
        (RegistryAddress("registry", "acme.d/fed"), "registry:443", "https"),
        (RegistryAddress("localhost", "acme.d/fed"), "localhost:80", "http"),
        (RegistryAddress("[::1]:5000", "acme.d/fed"), "[::1]:5000", "http"),
    ],
)
def test_host_is_never_taken_from_the_name(address: RegistryAddress, hostname: str, prefix: str) -> None:
    wire = Wire(address, clock=StillClock(), lookup=nobody)
    url = wire.url(wire.container(address.name("global")).manifest_url("v1"))
    wire.close()
    assert url == f"{prefix}://{hostname}/v2/acme.d/fed/global/manifests/v1"


@pytest.fixture
def untrusted(tmp_path: Path) -> Iterator[str]:
    """A host with a certificate that nobody signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
    pem = tmp_path / "host.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # the client hangs up
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_certificate_that_is_not_trusted_ends_it(untrusted: str, update: Path) -> None:
    clock = StillClock()
    store = registry_store(untrusted, clock=clock)
    store._client.wire.prefix = "https"  # as for a host that is not this machine
    with pytest.raises(StoreError) as caught:
        store.put(A, update, {})
    store.close()
    assert (caught.value.cause, clock.slept) == ("permanent", [])
    assert "REQUESTS_CA_BUNDLE" in caught.value.hint
