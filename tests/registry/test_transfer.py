"""What goes over the network to a real registry, request by request."""

from __future__ import annotations

import gc
import hashlib
import tempfile
import tracemalloc
from pathlib import Path

import pytest

from fedops.adapters.store_layout import LayoutStore
from fedops.adapters.store_registry import RegistryStore
from fedops.core.errors import StoreError
from fedops.core.ids import Digest
from tests.fakes_store import FakeStore
from tests.registry.proxy import Alter, Answer, FaultProxy, Head, Reroute, fault_proxy
from tests.registry.server import RegistryServer, registry_server
from tests.registry.worlds import NotedProgress, registry_store

A, ARCHIVE, GLOBAL = "sites/hospital-a", "archive", "global"
BYTES = b"eight floats of hospital-a"
LAYER = f"/v2/acme/fed/{A}/blobs/sha256:{hashlib.sha256(BYTES).hexdigest()}"
EMPTY = f"/v2/acme/fed/{A}/blobs/sha256:{hashlib.sha256(b'{}').hexdigest()}"
UPLOADS = f"/v2/acme/fed/{A}/blobs/uploads/"
MANIFESTS = f"/v2/acme/fed/{A}/manifests/"
MD5_TAG = f"md5-{hashlib.md5(BYTES).hexdigest()}"


def m_tag(digest: Digest) -> str:
    return f"m-{digest.removeprefix('sha256:')}"


def test_upload_asks_sends_once_and_tags_twice(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    put = store.put(A, update, {})
    assert proxy.lines() == [
        f"HEAD {LAYER}", f"POST {UPLOADS}", f"PUT {UPLOADS}U",
        f"HEAD {EMPTY}", f"POST {UPLOADS}", f"PUT {UPLOADS}U",
        f"PUT {MANIFESTS}{m_tag(put.manifest)}", f"PUT {MANIFESTS}{MD5_TAG}",
    ]  # fmt: skip


def test_second_upload_sends_nothing(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    put = store.put(A, update, {})
    proxy.seen.clear()
    assert store.put(A, update, {}) == put
    tags = [f"HEAD {MANIFESTS}{m_tag(put.manifest)}", f"HEAD {MANIFESTS}{MD5_TAG}"]
    assert proxy.lines() == [f"HEAD {LAYER}", f"HEAD {EMPTY}", *tags]


def test_reading_takes_one_request_once_the_empty_config_is_known(
    store: RegistryStore, proxy: FaultProxy, update: Path
) -> None:
    first, second = store.put(A, update, {"n": "1"}), store.put(A, update, {"n": "2"})
    proxy.seen.clear()
    assert [store.manifest(A, put.manifest) for put in (first, second)] == [first, second]
    assert proxy.lines() == [f"GET {MANIFESTS}{first.manifest}", f"GET {EMPTY}", f"GET {MANIFESTS}{second.manifest}"]


def test_a_tag_that_somebody_moved_is_set_again(store: RegistryStore, update: Path) -> None:
    first = store.put(A, update, {"n": "1"})
    second = store.put(A, update, {"n": "2"})
    assert store.resolve(f"{A}:{MD5_TAG}") == second.manifest
    store.put(A, update, {"n": "1"})
    assert store.resolve(f"{A}:{MD5_TAG}") == first.manifest


def test_a_registry_that_does_not_say_what_a_tag_names_is_read(
    store: RegistryStore, proxy: FaultProxy, update: Path
) -> None:
    put = store.put(A, update, {})
    for said in (None, "sha256:short"):
        proxy.plan("HEAD", "manifests/m-", Head({"Docker-Content-Digest": said}))
        assert store.resolve(f"{A}:{m_tag(put.manifest)}") == put.manifest


# copies


def test_copy_inside_a_registry_lends_the_bytes(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    put = store.put(A, update, {})
    proxy.seen.clear()
    store.copy(store, A, put.manifest, ARCHIVE)
    assert [seen.method for seen in proxy.seen if seen.method == "PUT"] == ["PUT"], "the manifest alone is sent"
    lent = [seen.path for seen in proxy.seen if seen.method == "POST"]
    assert f"mount=sha256%3A{put.layer.sha256}&from=acme%2Ffed%2Fsites%2Fhospital-a" in lent[0]


def test_copy_between_paths_of_one_registry_lends_too(proxy: FaultProxy, store: RegistryStore, update: Path) -> None:
    other = registry_store(proxy.host, path="alice-a/fed")
    put = other.put(A, update, {})
    proxy.seen.clear()
    assert store.copy(other, A, put.manifest, ARCHIVE).manifest == put.manifest
    assert "from=alice-a%2Ffed%2Fsites" in next(seen.path for seen in proxy.seen if seen.method == "POST")
    other.close()


def test_copy_sends_the_bytes_where_the_registry_lends_none(
    store: RegistryStore, proxy: FaultProxy, update: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.put(A, update, {})
    proxy.plan("POST", "archive/.*mount=", Reroute(lambda path: path.partition("?")[0]))
    monkeypatch.setattr(tempfile, "TemporaryDirectory", None)  # nothing goes over the disk
    assert store.copy(store, A, put.manifest, ARCHIVE).manifest == put.manifest
    store.get(ARCHIVE, put.layer, out / "x")
    assert (out / "x").read_bytes() == BYTES


def test_copy_sends_the_bytes_where_lending_is_forbidden(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    put = store.put(A, update, {})
    proxy.plan("POST", "mount=", Answer(403))
    assert store.copy(store, A, put.manifest, ARCHIVE).manifest == put.manifest


def test_copy_from_a_folder_or_another_registry_goes_through_no_file(
    tmp_path: Path, store: RegistryStore, update: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layout").mkdir()
    layout = LayoutStore(tmp_path / "layout")
    monkeypatch.setattr(tempfile, "TemporaryDirectory", None)
    with registry_server(tmp_path / "second") as server:
        other = registry_store(server.host)
        for source in (layout, other):
            put = source.put(A, update, {"from": type(source).__name__})
            assert store.copy(source, A, put.manifest, ARCHIVE).manifest == put.manifest
        other.close()


def test_copy_of_bytes_that_are_wrong_elsewhere_stores_nothing(
    tmp_path: Path, store: RegistryStore, server: RegistryServer, update: Path
) -> None:
    with registry_server(tmp_path / "second") as second:
        other = registry_store(second.host)
        put = other.put(A, update, {})
        blob = second.blob(Digest(f"sha256:{put.layer.sha256}"))
        blob.write_bytes(BYTES[:-1] + b"?")
        with pytest.raises(StoreError) as caught:
            store.copy(other, A, put.manifest, ARCHIVE)
        other.close()
    assert caught.value.slug == "hash_mismatch"
    assert not server.blob(Digest(f"sha256:{put.layer.sha256}")).exists()
    assert store.resolve(f"{ARCHIVE}:{m_tag(put.manifest)}") is None


def test_copy_from_a_store_without_streams_asks_it_for_the_file_once(
    store: RegistryStore, proxy: FaultProxy, update: Path
) -> None:
    source = FakeStore()
    put = source.put(A, update, {})
    proxy.plan("PUT", "uploads", Answer(502))  # so that it must be sent twice
    assert store.copy(source, A, put.manifest, ARCHIVE).manifest == put.manifest
    store.copy(source, A, put.manifest, ARCHIVE)
    assert source.calls["get"] == 1


# deletion


def test_drop_takes_its_own_blobs_and_no_shared_ones(
    store: RegistryStore, proxy: FaultProxy, tmp_path: Path, update: Path, out: Path
) -> None:
    gone = store.put(A, update, {}, b"a proposal of its own")
    other = tmp_path / "other"
    other.write_bytes(b"other bytes")
    stays = store.put(A, other, {})
    proxy.seen.clear()
    assert store.drop(A, gone.manifest)
    deleted = {seen.path.rpartition("/")[2] for seen in proxy.seen if seen.method == "DELETE"}
    config = f"sha256:{hashlib.sha256(b'a proposal of its own').hexdigest()}"
    assert deleted == {gone.manifest, f"sha256:{gone.layer.sha256}", config}
    assert store.manifest(A, stays.manifest) == stays


def test_archive_keeps_what_a_site_drops(store: RegistryStore, update: Path, out: Path) -> None:
    put = store.put(A, update, {})
    store.copy(store, A, put.manifest, ARCHIVE)
    assert store.drop(A, put.manifest)
    store.get(ARCHIVE, store.manifest(ARCHIVE, put.manifest).layer, out / "x")
    assert (out / "x").read_bytes() == BYTES


def test_registry_without_deletion_is_asked_once(tmp_path: Path, update: Path) -> None:
    with registry_server(tmp_path / "fixed", delete=False) as server, fault_proxy(server.host) as proxy:
        store = registry_store(proxy.host)
        put = store.put(A, update, {})
        assert store.drop(A, put.manifest) is False
        proxy.seen.clear()
        assert store.drop(A, put.manifest) is False
        assert proxy.seen == []
        assert store.manifest(A, put.manifest) == put
        store.close()


def test_account_without_the_right_to_delete_changes_nothing(
    store: RegistryStore, proxy: FaultProxy, update: Path
) -> None:
    put = store.put(A, update, {})
    proxy.plan("DELETE", "manifests", Answer(403))
    assert store.drop(A, put.manifest) is False
    assert store.manifest(A, put.manifest) == put


def test_blobs_that_cannot_be_deleted_are_left_to_the_registry(
    store: RegistryStore, proxy: FaultProxy, update: Path
) -> None:
    put = store.put(A, update, {})
    proxy.plan("DELETE", "blobs", Answer(405), times=9)
    proxy.seen.clear()
    assert store.drop(A, put.manifest)
    assert len([seen for seen in proxy.seen if seen.method == "DELETE"]) == 2


def test_many_drops_read_each_other_manifest_once(store: RegistryStore, proxy: FaultProxy, tmp_path: Path) -> None:
    put = []
    for i in range(4):
        file = tmp_path / f"{i}.safetensors"
        file.write_bytes(b"bytes %d" % i)
        put.append(store.put(A, file, {}))
    store.tag(A, put[3].manifest, "v3")
    proxy.seen.clear()
    for one in put[:3]:
        assert store.drop(A, one.manifest)
    reads = [seen.path for seen in proxy.seen if seen.method == "GET" and "/manifests/" in seen.path]
    assert len(reads) == 3 + 3, "each of the dropped, and the three others of the first"


def test_tags_come_page_by_page(store: RegistryStore, proxy: FaultProxy, update: Path) -> None:
    put, other = store.put(A, update, {"n": "1"}), store.put(A, update, {"n": "2"})
    link = {"Link": f'</v2/acme/fed/{A}/tags/list?n=1&last=a>; rel="next"'}
    for _ in range(2):
        proxy.plan("GET", "tags/list$", Answer(200, link, b'{"name": "x", "tags": ["%s"]}' % MD5_TAG.encode()))
        page = b'{"tags": ["m-%s"]}' % put.manifest.removeprefix("sha256:").encode()
        proxy.plan("GET", "tags/list.n=1", Answer(200, {}, page))
    assert store.drop(A, other.manifest)
    assert store.resolve(f"{A}:{MD5_TAG}") == put.manifest, "the heir was on the second page"


@pytest.mark.parametrize(
    ("headers", "body", "slug"),
    [
        ({"Link": '<http://127.0.0.1:9/v2/x>; rel="next"'}, b"{}", "credential_scope"),
        ({"Link": '<http://[::1>; rel="next"'}, b"{}", "credential_scope"),
        ({"Link": '</v2/acme/fed/sites/hospital-a/tags/list>; rel="next"'}, b"{}", "registry_unavailable"),
        ({}, b"<html>", "registry_unavailable"),
    ],
)
def test_a_list_of_tags_that_leads_away_or_nowhere_is_refused(
    store: RegistryStore,
    proxy: FaultProxy,
    update: Path,
    headers: dict[str, str],
    body: bytes,
    slug: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedops.adapters.registry_client._MAX_PAGES", 3)
    put = store.put(A, update, {})
    proxy.plan("GET", "tags/list", Answer(200, headers, body), times=9)
    with pytest.raises(StoreError) as caught:
        store.drop(A, put.manifest)
    assert caught.value.slug == slug
    assert store.manifest(A, put.manifest) == put


def test_what_another_removed_meanwhile_is_no_fault(
    store: RegistryStore, proxy: FaultProxy, tmp_path: Path, update: Path
) -> None:
    put, listed = store.put(A, update, {}), store.put(A, update, {"n": "2"})
    proxy.plan("GET", f"manifests/{listed.manifest}", Answer(404))
    assert store.drop(A, put.manifest), "a tag was listed whose manifest is gone"
    proxy.plan("GET", "tags/list", Answer(404))
    proxy.plan("DELETE", "manifests", Answer(404))
    assert store.drop(A, listed.manifest)
    assert store.drop(A, Digest("sha256:" + "0" * 64))


def test_damaged_neighbour_keeps_what_it_names_and_inherits_nothing(
    store: RegistryStore, proxy: FaultProxy, update: Path, out: Path
) -> None:
    gone, other = store.put(A, update, {"n": "1"}), store.put(A, update, {"n": "2"})
    store.put(A, update, {"n": "1"})  # its md5 tag again
    proxy.plan("GET", f"manifests/{other.manifest}", Alter(lambda data: data.replace(b'"n"', b'"o"')))
    assert store.drop(A, gone.manifest)
    assert store.resolve(f"{A}:{MD5_TAG}") is None
    store.get(A, other.layer, out / "x")


@pytest.mark.parametrize("step", ["GET", "DELETE", "neighbour"])
def test_drop_of_a_registry_that_is_down_is_an_error(
    store: RegistryStore, proxy: FaultProxy, update: Path, step: str
) -> None:
    put, other = store.put(A, update, {}), store.put(A, update, {"n": "2"})
    if step == "neighbour":
        proxy.plan("GET", f"manifests/{other.manifest}", Answer(503), times=3)
    else:
        proxy.plan(step, f"manifests/{put.manifest}", Answer(503), times=3)
    with pytest.raises(StoreError) as caught:
        store.drop(A, put.manifest)
    assert caught.value.cause == "temporary"
    assert store.manifest(A, put.manifest) == put


# the right to write


def test_question_for_the_right_to_write_leaves_nothing(
    store: RegistryStore, proxy: FaultProxy, server: RegistryServer
) -> None:
    assert store.write_fault(A) is None
    assert proxy.lines() == [f"POST {UPLOADS}", f"DELETE {UPLOADS}U"]
    assert not list(server.root.rglob("data"))
    assert store.resolve(f"{A}:v1") is None


def test_right_to_write_that_is_denied_is_said(store: RegistryStore, proxy: FaultProxy) -> None:
    proxy.plan("POST", "uploads", Answer(403, {}, b'{"errors": [{"code": "DENIED", "message": "\\u001b[31m"}]}'))
    fault = store.write_fault(A)
    assert fault is not None
    assert "HTTP 403 DENIED" in fault
    assert "\x1b" not in fault


def test_registry_that_is_down_is_no_answer_about_rights(store: RegistryStore, proxy: FaultProxy) -> None:
    proxy.plan("POST", "uploads", Answer(503), times=3)
    with pytest.raises(StoreError) as caught:
        store.write_fault(A)
    assert caught.value.cause == "temporary"


# progress and memory


def test_progress_tells_the_bytes_that_moved(proxy: FaultProxy, tmp_path: Path, out: Path) -> None:
    progress = NotedProgress()
    store = registry_store(proxy.host, progress=progress)
    file = tmp_path / "big.safetensors"
    file.write_bytes(bytes(3_000_000))
    put = store.put(A, file, {})
    assert progress.told == [("start", f"upload to {A}", 3_000_000, "bytes"), ("finish", 3_000_000)]
    store.put(A, file, {})
    assert len(progress.told) == 2, "nothing moved"
    store.get(A, put.layer, out / "x")
    assert progress.told[2:] == [("start", f"download from {A}", 3_000_000, "bytes"), ("finish", 3_000_000)]
    store.close()


def test_memory_does_not_grow_with_the_model(server: RegistryServer, tmp_path: Path, out: Path) -> None:
    store = registry_store(server.host)
    file = tmp_path / "big.safetensors"
    with file.open("wb") as handle:
        handle.truncate(48 << 20)
    store.write_fault(A)  # imports and a connection
    gc.collect()
    tracemalloc.start()
    try:
        put = store.put(A, file, {})
        store.get(A, put.layer, out / "x")
        with store.open_blob(A, put.layer) as reader:
            buffer = memoryview(bytearray(1 << 16))
            while reader.readinto(buffer):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    store.close()
    assert peak < 6 << 20
