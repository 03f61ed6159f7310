from __future__ import annotations

import errno
import hashlib
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oras.layout import Layout

from fedops.adapters import durable
from fedops.adapters.store_layout import LayoutStore
from fedops.core.artifacts import manifest_digest
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact
from fedops.core.ids import Digest
from fedops.ports import InPlace
from tests.adapters.layout_checks import assert_valid, index_of, tags_of
from tests.fakes_store import FakeStore

A, GLOBAL, ARCHIVE = "sites/hospital-a", "global", "archive"
UPDATE = b"eight floats of hospital-a"
EMPTY_SHA256 = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.fixture
def store(tmp_path: Path) -> LayoutStore:
    (tmp_path / "store").mkdir()
    return LayoutStore(tmp_path / "store")


@pytest.fixture
def update(tmp_path: Path) -> Path:
    path = tmp_path / "trained.safetensors"
    path.write_bytes(UPDATE)
    return path


def _snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Inode, time of change and bytes of every file; the lock, which is always empty, aside."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


# the standard layout


def test_each_repository_is_one_standard_layout(store: LayoutStore, update: Path) -> None:
    put = store.put(A, update, {"fl.client-id": "hospital-a"})
    store.tag(A, put.manifest, "v8")
    folder = store.root / "sites" / "hospital-a"
    assert (folder / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}'
    index = json.loads((folder / "index.json").read_bytes())
    assert (index["schemaVersion"], index["mediaType"]) == (2, "application/vnd.oci.image.index.v1+json")
    assert tags_of(folder) == {
        "m-" + put.manifest.removeprefix("sha256:"): put.manifest,
        "md5-" + hashlib.md5(UPDATE).hexdigest(): put.manifest,
        "v8": put.manifest,
    }
    manifest = put.manifest.removeprefix("sha256:")
    assert {p.name for p in (folder / "blobs" / "sha256").iterdir()} == {manifest, put.layer.sha256, EMPTY_SHA256}
    assert (folder / "blobs" / "sha256" / put.layer.sha256).read_bytes() == UPDATE
    assert (folder / "blobs" / "sha256" / EMPTY_SHA256).read_bytes() == b"{}"
    assert_valid(folder)


def test_oras_reads_the_layout_by_each_tag(store: LayoutStore, update: Path) -> None:
    put = store.put(GLOBAL, update, {}, b"a proposal")
    store.tag(GLOBAL, put.manifest, "v9")
    layout = Layout(str(store.root / "global"))
    layout.validate()
    config = "sha256:" + hashlib.sha256(b"a proposal").hexdigest()
    for tag in ("v9", "md5-" + hashlib.md5(UPDATE).hexdigest(), "m-" + put.manifest.removeprefix("sha256:")):
        assert layout.get_ordered_blobs(tag) == ["sha256:" + put.layer.sha256, config, put.manifest]
    assert layout.digest_to_blob_path("sha256:" + put.layer.sha256).read_bytes() == UPDATE


def test_files_are_readable_for_others_as_the_umask_says(store: LayoutStore, update: Path, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        put = store.put(A, update, {})
        store.get(A, put.layer, tmp_path / "x")
    finally:
        os.umask(old)
    for path in (store.root / A / "blobs" / "sha256" / put.layer.sha256, store.root / A / "index.json", tmp_path / "x"):
        assert path.stat().st_mode & 0o777 == 0o640


# doing it again


def test_second_time_changes_nothing_on_disk(store: LayoutStore, update: Path) -> None:
    def everything() -> None:
        put = store.put(A, update, {"n": "1"}, b"a config")
        store.tag(A, put.manifest, "v8")
        store.copy(store, A, put.manifest, ARCHIVE)
        store.drop(A, Digest("sha256:" + "0" * 64))

    everything()
    before = _snapshot(store.root)
    everything()
    assert _snapshot(store.root) == before


def test_entries_of_other_tools_are_kept(store: LayoutStore, update: Path) -> None:
    put = store.put(GLOBAL, update, {})
    path = store.root / "global" / "index.json"
    document = json.loads(path.read_bytes())
    foreign = {"mediaType": "x", "digest": put.manifest, "size": 9, "platform": {"os": "linux"}}
    document["manifests"] = [foreign, *document["manifests"], foreign | {"annotations": {"by": "skopeo"}}]
    path.write_text(json.dumps(document, indent=3))
    store.tag(GLOBAL, put.manifest, "v9")
    assert [e for e in index_of(store.root / "global") if e["mediaType"] == "x"] == [
        foreign,
        foreign | {"annotations": {"by": "skopeo"}},
    ]
    assert store.resolve("global:v9") == put.manifest


# room


def test_dropping_frees_the_blobs_that_nothing_else_needs(store: LayoutStore, tmp_path: Path, update: Path) -> None:
    empty = _blobs(store, A)
    first = store.put(A, update, {"n": "1"})
    after_first = _blobs(store, A)
    (tmp_path / "two").write_bytes(b"two")
    second = store.put(A, tmp_path / "two", {"n": "2"})
    store.drop(A, second.manifest)
    assert _blobs(store, A) == after_first
    store.drop(A, first.manifest)
    assert _blobs(store, A) == empty == set()
    assert_valid(store.root / A)


def _blobs(store: LayoutStore, repository: str) -> set[str]:
    folder = store.root / repository / "blobs" / "sha256"
    return {p.name for p in folder.iterdir()} if folder.exists() else set()


def test_archive_shares_no_file_with_the_sites_repository(store: LayoutStore, update: Path) -> None:
    put = store.put(A, update, {})
    store.copy(store, A, put.manifest, ARCHIVE)
    ours, theirs = (store.root / r / "blobs" / "sha256" / put.layer.sha256 for r in (ARCHIVE, A))
    assert ours.stat().st_ino != theirs.stat().st_ino
    theirs.write_bytes(b"overwritten by the site")
    assert ours.read_bytes() == UPDATE


@pytest.mark.parametrize("size_mb", [64])
def test_memory_does_not_grow_with_the_model(store: LayoutStore, tmp_path: Path, size_mb: int) -> None:
    model = tmp_path / "model.safetensors"
    with model.open("wb") as handle:
        for i in range(size_mb):
            handle.write(bytes([i]) * (1 << 20))
    tracemalloc.start()
    try:
        put = store.put(GLOBAL, model, {})
        store.get(GLOBAL, put.layer, tmp_path / "copy", md5=_md5(model))
        store.copy(store, GLOBAL, put.manifest, ARCHIVE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "copy").stat().st_size == put.layer.size == size_mb << 20
    assert peak < 4 << 20


def _md5(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "md5").hexdigest()


# places that are broken


def _fault(call: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value


def _every_call(store: LayoutStore, update: Path, put: Artifact, target: Path) -> list[Callable[[], object]]:
    return [
        lambda: store.put(A, update, {"another": "manifest"}),
        lambda: store.tag(A, put.manifest, "v8"),
        lambda: store.drop(A, put.manifest),
        lambda: store.copy(store, A, put.manifest, ARCHIVE),
        lambda: store.manifest(A, put.manifest),
        lambda: store.get(A, put.layer, target),
        lambda: store.resolve(f"{A}:v8"),
    ]


@pytest.mark.parametrize("what", ["absent", "a file"])
def test_store_whose_folder_is_not_there_is_broken_not_empty(
    store: LayoutStore, update: Path, tmp_path: Path, what: str
) -> None:
    put = store.put(A, update, {})
    store.root.rename(tmp_path / "unmounted")
    if what == "a file":
        store.root.write_text("x")
    for call in _every_call(store, update, put, tmp_path / "x"):
        error = _fault(call)
        assert (error.slug, error.cause) == ("registry_unavailable", "temporary")
        assert str(store.root) in error.message
        assert "mount" in error.hint
    assert what == "a file" or not store.root.exists()


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (errno.ENOSPC, "temporary"),
        (errno.EDQUOT, "temporary"),
        (errno.EIO, "temporary"),
        (errno.ESTALE, "temporary"),
        (errno.EACCES, "auth"),
        (errno.EPERM, "auth"),
        (errno.EROFS, "permanent"),
    ],
)
def test_what_the_system_refuses_is_told_with_its_cause(
    store: LayoutStore, update: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, cause: str
) -> None:
    put = store.put(A, update, {})

    def refuse(*_: object, **__: object) -> object:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "open", refuse)
    for call in _every_call(store, update, put, tmp_path / "x"):
        error = _fault(call)
        assert (error.slug, error.cause) == ("registry_unavailable", cause)
        assert os.strerror(code) in error.message
        assert error.hint
    assert isinstance(error.__cause__, OSError)


def test_full_disk_in_the_middle_of_a_model_leaves_nothing(
    store: LayoutStore, update: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.put(A, update, {})
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "out").mkdir()
    before = _snapshot(store.root)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    error = _fault(lambda: store.put(A, tmp_path / "new", {}))
    assert error.cause == "temporary"
    assert str(store.root / A) in error.message
    assert _fault(lambda: store.get(A, put.layer, tmp_path / "out" / "x")).cause == "temporary"
    assert _snapshot(store.root) == before
    assert list((tmp_path / "out").iterdir()) == []


def test_file_that_is_not_there_is_named(store: LayoutStore, tmp_path: Path) -> None:
    error = _fault(lambda: store.put(A, tmp_path / "nowhere.safetensors", {}))
    assert str(tmp_path / "nowhere.safetensors") in error.message
    assert "No such file" in error.message


@pytest.mark.parametrize("link", ["sites", "sites/hospital-a", "sites/hospital-a/blobs"])
def test_link_that_leads_out_of_the_store_is_not_followed(
    store: LayoutStore, update: Path, tmp_path: Path, link: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (store.root / link).parent.mkdir(parents=True, exist_ok=True)
    (store.root / link).symlink_to(outside)
    assert "link" in _fault(lambda: store.put(A, update, {})).message
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"manifests":{}}', b'{"manifests":[7]}', b'{"manifests":[{"digest":"x","size":1}]}', b"\xff",
     b"[" * 100_000, b'{"manifests":[{"digest":"sha256:' + b"0" * 64 + b'","size":"1"}]}'],
)  # fmt: skip
def test_damaged_index_is_told_and_models_are_still_read(
    store: LayoutStore, update: Path, tmp_path: Path, data: bytes
) -> None:
    put = store.put(A, update, {})
    index = store.root / A / "index.json"
    index.write_bytes(data)
    for call in (
        lambda: store.resolve(f"{A}:v8"),
        lambda: store.put(A, update, {}),
        lambda: store.drop(A, put.manifest),
    ):
        error = _fault(call)
        assert (error.slug, error.cause) == ("registry_unavailable", "permanent")
        assert str(index) in error.message
    assert index.read_bytes() == data, "what a person may still rescue is not overwritten"
    assert store.manifest(A, put.manifest) == put
    store.get(A, put.layer, tmp_path / "x")


def test_lost_index_lists_all_manifests_again_so_that_a_drop_takes_no_shared_blob(
    store: LayoutStore, update: Path, tmp_path: Path
) -> None:
    first = store.put(A, update, {"n": "1"})
    (store.root / A / "index.json").unlink()
    (tmp_path / "new").write_bytes(b"new")
    second = store.put(A, tmp_path / "new", {})
    assert store.resolve(f"{A}:m-{first.manifest.removeprefix('sha256:')}") == first.manifest
    store.drop(A, second.manifest)
    assert store.manifest(A, first.manifest) == first
    assert_valid(store.root / A)


def test_huge_objects_are_not_read_into_memory(store: LayoutStore, update: Path) -> None:
    put = store.put(A, update, {})
    blob = store.root / A / "blobs" / "sha256" / put.manifest.removeprefix("sha256:")
    with blob.open("ab") as handle:
        handle.truncate(1 << 40)
    assert _fault(lambda: store.manifest(A, put.manifest)).slug == "digest_mismatch"


def test_what_killed_writers_left_is_removed_after_an_hour(store: LayoutStore, update: Path, tmp_path: Path) -> None:
    put = store.put(A, update, {})
    folder = store.root / A
    target = tmp_path / "out" / "x"
    target.parent.mkdir()
    target.with_name("x.part-notes").write_text("of a person")
    stale = [folder / "blob.part-0123456789abcdef", folder / "index.json.part-0123456789abcdef",
             folder / "blob.part-0123456789abcdef.part-0123456789abcdef",
             target.with_name("x.part-0123456789abcdef")]  # fmt: skip
    young = [folder / "blob.part-fedcba9876543210", target.with_name("x.part-fedcba9876543210"),
             target.with_name("y.part-0123456789abcdef")]  # fmt: skip
    for path in (*stale, *young):
        path.write_bytes(b"half a mod")
    two_hours_ago = time.time() - 7200
    for path in (*stale, young[-1], target.with_name("x.part-notes")):
        os.utime(path, (two_hours_ago, two_hours_ago))
    store.put(A, update, {})
    store.get(A, put.layer, target)
    assert [path for path in stale if path.exists()] == []
    assert [path for path in young if not path.exists()] == []
    assert target.with_name("x.part-notes").exists()


@pytest.mark.parametrize("change", ["tag", "drop"])
def test_what_a_writer_killed_in_a_tag_left_goes_with_whatever_changes_the_index_next(
    change: str, store: LayoutStore, update: Path
) -> None:
    put = store.put(A, update, {})
    stale, young = (store.root / A / f"index.json.part-{letter * 16}" for letter in "0f")
    for path in (stale, young):
        path.write_bytes(b"half an index")
    os.utime(stale, (time.time() - 7200,) * 2)
    if change == "tag":
        store.tag(A, put.manifest, "v8")
    else:
        store.drop(A, put.manifest)
    assert (stale.exists(), young.exists()) == (False, True)


def test_download_larger_than_declared_stops_early(tmp_path: Path) -> None:
    with (tmp_path / "blob").open("wb") as handle:
        handle.truncate(64 << 20)
    with (tmp_path / "blob").open("rb") as source, (tmp_path / "x").open("xb") as target:
        got = durable.stream(source, target, limit=(1 << 20) + 5)
        assert source.tell() == got.size == 2 << 20, "one block beyond the limit is read"
    assert (tmp_path / "x").stat().st_size == 1 << 20, "and not written"


# a source that does not keep the rules


class _Rewriting(FakeStore):
    """A store that tells other annotations than those its digest covers."""

    def manifest(self, repository: str, digest: Digest) -> Artifact:
        return replace(super().manifest(repository, digest), annotations={"fl.num-examples": "999999"})


def test_copy_from_a_store_that_tells_something_else_is_refused(store: LayoutStore, update: Path) -> None:
    source = _Rewriting()
    put = source.put(A, update, {"fl.num-examples": "1"})
    assert _fault(lambda: store.copy(source, A, put.manifest, ARCHIVE)).slug == "digest_mismatch"
    assert not (store.root / ARCHIVE).exists()


def test_a_layer_can_be_read_where_it_lies(tmp_path: Path) -> None:
    store = LayoutStore(tmp_path)
    file = tmp_path / "update.safetensors"
    file.write_bytes(b"a model")
    put = store.put("sites/hospital-a", file, {"fl.base-version": "1"})
    assert isinstance(store, InPlace)
    assert store.layer_file("sites/hospital-a", put.layer).read_bytes() == b"a model"
    manifest, config = store.small_files("sites/hospital-a", put)
    assert manifest_digest(manifest.read_bytes()) == put.manifest
    assert config.read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("change", "slug"),
    [({"sha256": "0" * 64}, "object_missing"), ({"size": 6}, "size_mismatch"), ({"sha256": "../x"}, "hash_mismatch")],
)
def test_a_layer_that_does_not_lie_there_is_refused(tmp_path: Path, change: dict[str, Any], slug: str) -> None:
    store = LayoutStore(tmp_path)
    file = tmp_path / "update.safetensors"
    file.write_bytes(b"a model")
    layer = store.put("sites/hospital-a", file, {}).layer
    with pytest.raises(StoreError) as e:
        store.layer_file("sites/hospital-a", replace(layer, **change))
    assert e.value.slug == slug
