"""Layers that are used while they come: the Streaming port of both stores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedops.adapters.store_layout import LayoutStore
from fedops.adapters.store_registry import RegistryStore
from fedops.core.errors import StoreError
from fedops.core.facts import Layer
from fedops.ports import BlobReader, Store, Streaming
from tests.registry.proxy import CutAnswer, FaultProxy
from tests.registry.server import RegistryServer
from tests.registry.worlds import registry_store

A = "sites/hospital-a"
BYTES = bytes(range(256)) * 5_000
BLOCK = 100_003  # no divisor of the whole


@pytest.fixture(params=["registry", "layout"])
def stream_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RegistryStore | LayoutStore]:
    if request.param == "layout":
        (tmp_path / "store").mkdir()
        yield LayoutStore(tmp_path / "store")
        return
    server: RegistryServer = request.getfixturevalue("server")
    store = registry_store(server.host)
    yield store
    store.close()


@pytest.fixture
def layer(stream_store: Store, tmp_path: Path) -> Layer:
    (tmp_path / "x.safetensors").write_bytes(BYTES)
    return stream_store.put(A, tmp_path / "x.safetensors", {}).layer


def read_on(reader: BlobReader) -> bytes:
    got, buffer = bytearray(), memoryview(bytearray(BLOCK))
    while count := reader.readinto(buffer):
        got += buffer[:count]
    return bytes(got)


def test_bytes_come_in_order_and_end(stream_store: RegistryStore | LayoutStore, layer: Layer) -> None:
    assert isinstance(stream_store, Streaming)
    with stream_store.open_blob(A, layer, md5=hashlib.md5(BYTES).hexdigest()) as reader:
        assert read_on(reader) == BYTES
        assert reader.readinto(memoryview(bytearray(10))) == 0
        assert reader.readinto(memoryview(b"")) == 0


def test_several_are_read_side_by_side(stream_store: RegistryStore | LayoutStore, layer: Layer) -> None:
    readers = [stream_store.open_blob(A, layer) for _ in range(4)]
    got, buffer = [bytearray() for _ in readers], memoryview(bytearray(BLOCK))
    while sum(map(len, got)) < len(readers) * len(BYTES):
        for reader, mine in zip(readers, got, strict=True):
            mine.extend(buffer[: reader.readinto(buffer)])
    for reader in readers:
        reader.close()
    assert set(map(bytes, got)) == {BYTES}


def test_last_bytes_are_not_given_out_if_any_was_wrong(stream_store: RegistryStore | LayoutStore, layer: Layer) -> None:
    reader = stream_store.open_blob(A, layer, md5="0" * 32)
    got, buffer = 0, memoryview(bytearray(BLOCK))
    with pytest.raises(StoreError) as caught:  # noqa: PT012 the call that raises is the last of many
        while True:
            got += reader.readinto(buffer)
    reader.close()
    assert caught.value.slug == "hash_mismatch"
    assert got == len(BYTES) - len(BYTES) % BLOCK


def test_another_size_or_no_object_is_said_before_any_byte(
    stream_store: RegistryStore | LayoutStore, layer: Layer
) -> None:
    for wrong, slug in (
        (Layer(layer.sha256, layer.size + 1, layer.title), "size_mismatch"),
        (Layer(layer.sha256, 1, layer.title), "size_mismatch"),
        (Layer("0" * 64, layer.size, layer.title), "object_missing"),
        (Layer("../../x", layer.size, layer.title), "hash_mismatch"),
    ):
        with pytest.raises(StoreError) as caught:
            stream_store.open_blob(A, wrong)
        assert caught.value.slug == slug
    with pytest.raises(StoreError) as caught:
        stream_store.open_blob("../global", layer)
    assert caught.value.slug == "path_not_allowed"


def test_reader_may_be_closed_early_and_the_store_goes_on(
    stream_store: RegistryStore | LayoutStore, layer: Layer
) -> None:
    with stream_store.open_blob(A, layer) as reader:
        reader.readinto(memoryview(bytearray(10)))
    with stream_store.open_blob(A, layer) as reader:
        assert read_on(reader) == BYTES


def test_cut_connections_are_no_fault_of_the_bytes(store: RegistryStore, proxy: FaultProxy, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(BYTES)
    layer = store.put(A, tmp_path / "x.safetensors", {}).layer
    proxy.plan("GET", "blobs", CutAnswer(300_001), times=2)
    with store.open_blob(A, layer) as reader:
        assert read_on(reader) == BYTES
