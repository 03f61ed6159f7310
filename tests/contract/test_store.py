"""What every Store must do; the stores are in store_backends.py."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedops.core.errors import StoreError
from fedops.core.facts import Artifact, Layer
from fedops.core.ids import Digest
from fedops.ports import Store
from tests.contract.store_backends import BACKENDS, HEALING, Backend
from tests.fakes_store import FakeStore

A, B, GLOBAL, ARCHIVE = "sites/hospital-a", "sites/hospital-b", "global", "archive"
UPDATE = b"eight floats of hospital-a"
ANNOTATIONS = {
    "fl.timestamp": "2026-03-02T09:30:00Z",
    "fl.num-examples": "150",
    "fl.client-id": "hospital-a",
    "fl.base-version": "8",
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    yield from BACKENDS[request.param](tmp_path)


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def update(tmp_path: Path) -> Path:
    path = tmp_path / "trained.safetensors"
    path.write_bytes(UPDATE)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder for what is downloaded."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def _digest(data: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def _slug(call: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        call()
    assert str(caught.value), "a person must be able to read what went wrong"
    return caught.value.slug


def _layer_digest(artifact: Artifact) -> Digest:
    return Digest("sha256:" + artifact.layer.sha256)


def _drop(store: Store, repository: str, digest: Digest) -> None:
    if not store.drop(repository, digest):
        pytest.skip("this store cannot drop")


# put and manifest


def test_put_bytes_are_read_back_by_the_manifest_digest(store: Store, update: Path) -> None:
    put = store.put(A, update, ANNOTATIONS)
    read = store.manifest(A, put.manifest)
    assert read.layer == Layer(hashlib.sha256(UPDATE).hexdigest(), len(UPDATE), "update.safetensors")
    assert (read.annotations, read.config, read.manifest) == (ANNOTATIONS, b"{}", put.manifest)
    assert (put.layer, put.annotations, put.config) == (read.layer, read.annotations, read.config)
    assert put.ref == read.ref == f"{A}@{put.manifest}"


def test_manifest_bytes_are_the_same_in_every_store(store: Store, update: Path) -> None:
    expected = (
        '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",'
        '"artifactType":"application/vnd.fedops.model.v1","config":{"mediaType":"application/vnd.oci.empty.v1+json",'
        '"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},'
        '"layers":[{"mediaType":"application/vnd.fedops.model.v1+safetensors","digest":"sha256:'
        + hashlib.sha256(UPDATE).hexdigest()
        + '","size":26,"annotations":{"org.opencontainers.image.title":"update.safetensors"}}],'
        '"annotations":{"fl.base-version":"8","fl.client-id":"hospital-a","fl.num-examples":"150",'
        '"fl.timestamp":"2026-03-02T09:30:00Z"}}'
    )
    assert store.put(A, update, ANNOTATIONS).manifest == _digest(expected.encode())


def test_put_tags_by_content_only(store: Store, update: Path) -> None:
    put = store.put(A, update, ANNOTATIONS)
    assert store.resolve(f"{A}:md5-{hashlib.md5(UPDATE).hexdigest()}") == put.manifest
    assert store.resolve(f"{A}:m-{put.manifest.removeprefix('sha256:')}") == put.manifest
    assert store.resolve(f"{A}:v8") is None


def test_put_twice_gives_the_same_artifact(store: Store, update: Path) -> None:
    assert store.put(A, update, ANNOTATIONS) == store.put(A, update, dict(reversed(ANNOTATIONS.items())))


def test_same_bytes_with_other_annotations_are_two_artifacts(store: Store, update: Path) -> None:
    first = store.put(A, update, ANNOTATIONS)
    second = store.put(A, update, ANNOTATIONS | {"fl.num-examples": "151"})
    assert first.manifest != second.manifest
    assert store.manifest(A, first.manifest).annotations["fl.num-examples"] == "150"
    assert store.manifest(A, second.manifest).annotations["fl.num-examples"] == "151"
    tagged = store.resolve(f"{A}:md5-{hashlib.md5(UPDATE).hexdigest()}")
    assert tagged in (first.manifest, second.manifest)


@pytest.mark.parametrize(
    ("repository", "name", "title"),
    [
        (A, "x.safetensors", "update.safetensors"),
        (A, "x.bin", "update.bin"),
        (A, "no-suffix", "update.safetensors"),
        (GLOBAL, "update.safetensors", "model.safetensors"),
        (GLOBAL, "x.bin", "model.bin"),
        (ARCHIVE, "x.bin", "update.bin"),
    ],
)
def test_title_comes_from_the_repository_not_from_the_file(
    store: Store, tmp_path: Path, repository: str, name: str, title: str
) -> None:
    (tmp_path / name).write_bytes(UPDATE)
    put = store.put(repository, tmp_path / name, {})
    assert put.layer.title == title
    assert store.manifest(repository, put.manifest).layer.title == title


def test_proposal_travels_as_config(store: Store, update: Path) -> None:
    proposal = b'{\n  "schema": "fedops.proposal/v1"\n}\n'
    put = store.put(GLOBAL, update, {}, proposal)
    assert store.manifest(GLOBAL, put.manifest).config == proposal


def test_repositories_are_separate(store: Store, update: Path, out: Path) -> None:
    put = store.put(A, update, ANNOTATIONS)
    assert _slug(lambda: store.manifest(B, put.manifest)) == "object_missing"
    assert _slug(lambda: store.get(B, put.layer, out / "x")) == "object_missing"
    assert store.resolve(f"{B}:m-{put.manifest.removeprefix('sha256:')}") is None


def test_empty_model_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty.safetensors").touch()
    assert _slug(lambda: store.put(A, tmp_path / "empty.safetensors", {})) == "foreign_layer_refused"
    assert store.resolve(f"{A}:md5-{hashlib.md5(b'').hexdigest()}") is None


@pytest.mark.parametrize(
    ("annotations", "config"), [({"fl.note": "x" * 2_000_000}, b"{}"), ({}, b"x" * (16 * 1024 * 1024 + 1))]
)
def test_what_could_not_be_read_again_is_not_kept(
    store: Store, update: Path, annotations: Mapping[str, str], config: bytes
) -> None:
    assert _slug(lambda: store.put(A, update, annotations, config)) == "foreign_layer_refused"
    assert store.resolve(f"{A}:md5-{hashlib.md5(UPDATE).hexdigest()}") is None


# hostile and damaged content


def _manifest(**changes: Any) -> bytes:
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.fedops.model.v1",
        "config": {
            "mediaType": "application/vnd.oci.empty.v1+json",
            "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            "size": 2,
        },
        "layers": [_layer()],
    }
    return json.dumps(document | changes, separators=(",", ":")).encode()


def _layer(title: str = "update.safetensors", **changes: Any) -> dict[str, Any]:
    return {
        "mediaType": "application/vnd.fedops.model.v1+safetensors",
        "digest": _digest(UPDATE),
        "size": len(UPDATE),
        "annotations": {"org.opencontainers.image.title": title},
    } | changes


@pytest.mark.parametrize(
    ("manifest", "slug"),
    [
        (_manifest(layers=[_layer("../../.github/workflows/x.yml")]), "layer_title_invalid"),
        (_manifest(layers=[_layer("model.safetensors")]), "layer_title_invalid"),  # a site's repository holds updates
        (_manifest(layers=[_layer(urls=["http://127.0.0.1:9/x"])]), "foreign_layer_refused"),
        (_manifest(layers=[_layer(mediaType="application/vnd.oci.image.layer.v1.tar+gzip")]), "foreign_layer_refused"),
        (_manifest(layers=[_layer(), _layer()]), "foreign_layer_refused"),
        (_manifest(note="smuggled"), "foreign_layer_refused"),
        (_manifest() + b"\n", "foreign_layer_refused"),
        (b"<html>", "foreign_layer_refused"),
        (_manifest(annotations={"fl.num-examples": 150}), "annotation_mismatch"),
    ],
)
def test_manifest_of_anything_but_one_plain_model_is_refused(backend: Backend, manifest: bytes, slug: str) -> None:
    digest = backend.plant(A, manifest)
    assert _slug(lambda: backend.store.manifest(A, digest)) == slug


def test_manifest_whose_config_is_absent_is_missing_an_object(backend: Backend) -> None:
    digest = backend.plant(A, _manifest())
    assert _slug(lambda: backend.store.manifest(A, digest)) == "object_missing"


def test_config_of_another_size_than_declared_is_refused(backend: Backend, update: Path) -> None:
    backend.store.put(A, update, {}, b"a proposal")
    config = {
        "mediaType": "application/vnd.fedops.proposal.v1+json",
        "digest": _digest(b"a proposal"),
        "size": len(b"a proposal") + 1,
    }
    digest = backend.plant(A, _manifest(config=config))
    assert _slug(lambda: backend.store.manifest(A, digest)) == "size_mismatch"


def test_lost_objects_are_missing(backend: Backend, update: Path, out: Path) -> None:
    put = backend.store.put(A, update, ANNOTATIONS)
    backend.lose(A, _layer_digest(put))
    assert _slug(lambda: backend.store.get(A, put.layer, out / "x")) == "object_missing"
    backend.lose(A, put.manifest)
    assert _slug(lambda: backend.store.manifest(A, put.manifest)) == "object_missing"
    assert list(out.iterdir()) == []


def test_damaged_layer_is_a_hash_mismatch_and_leaves_no_file(backend: Backend, update: Path, out: Path) -> None:
    put = backend.store.put(A, update, ANNOTATIONS)
    backend.damage(A, _layer_digest(put))
    assert _slug(lambda: backend.store.get(A, put.layer, out / "x")) == "hash_mismatch"
    assert list(out.iterdir()) == []


def test_damaged_manifest_or_config_is_a_digest_mismatch(backend: Backend, update: Path) -> None:
    put = backend.store.put(GLOBAL, update, {}, b"a proposal")
    backend.damage(GLOBAL, _digest(b"a proposal"))
    assert _slug(lambda: backend.store.manifest(GLOBAL, put.manifest)) == "digest_mismatch"
    other = backend.store.put(A, update, ANNOTATIONS)
    backend.damage(A, other.manifest)
    assert _slug(lambda: backend.store.manifest(A, other.manifest)) == "digest_mismatch"


@pytest.mark.parametrize("backend", HEALING, indirect=True)
def test_put_again_heals_what_was_damaged_or_lost(backend: Backend, update: Path, out: Path) -> None:
    put = backend.store.put(A, update, ANNOTATIONS)
    for spoil in (backend.damage, backend.lose):
        for digest in (_layer_digest(put), put.manifest, _digest(b"{}")):
            spoil(A, digest)
        assert backend.store.put(A, update, ANNOTATIONS) == put
        assert backend.store.manifest(A, put.manifest) == put
        backend.store.get(A, put.layer, out / "x")
        assert (out / "x").read_bytes() == UPDATE


# get


def test_get_writes_exactly_the_bytes_and_replaces_an_older_file(store: Store, update: Path, out: Path) -> None:
    put = store.put(A, update, ANNOTATIONS)
    (out / "x").write_bytes(b"older")
    store.get(A, put.layer, out / "x", md5=hashlib.md5(UPDATE).hexdigest())
    assert [p.name for p in out.iterdir()] == ["x"]
    assert (out / "x").read_bytes() == UPDATE


@pytest.mark.parametrize("size", [1, len(UPDATE) - 1, len(UPDATE) + 1, 10**12])
def test_another_size_than_declared_is_a_size_mismatch(store: Store, update: Path, out: Path, size: int) -> None:
    layer = store.put(A, update, ANNOTATIONS).layer
    (out / "x").write_bytes(b"older")
    assert _slug(lambda: store.get(A, Layer(layer.sha256, size, layer.title), out / "x")) == "size_mismatch"
    assert [(p.name, p.read_bytes()) for p in out.iterdir()] == [("x", b"older")]


def test_another_md5_than_recorded_is_a_hash_mismatch(store: Store, update: Path, out: Path) -> None:
    layer = store.put(A, update, ANNOTATIONS).layer
    assert _slug(lambda: store.get(A, layer, out / "x", md5="0" * 32)) == "hash_mismatch"
    assert list(out.iterdir()) == []


def test_file_name_on_disk_never_comes_from_the_store(store: Store, update: Path, out: Path) -> None:
    layer = store.put(A, update, ANNOTATIONS).layer
    store.get(A, Layer(layer.sha256, layer.size, "../escaped"), out / "x")
    assert [p.name for p in out.iterdir()] == ["x"]
    assert not (out.parent / "escaped").exists()


# names that would lead elsewhere


@pytest.mark.parametrize(
    "repository",
    ["", "/", "../global", "global/", "global/..", "sites", "sites/", "sites/../global", "sites/a/b", "sites/Hospital-A",
     "sites/global", "sites/-a", "Global", "/etc", "sites/a\n", "archive\x00"],
)  # fmt: skip
def test_other_repository_names_are_refused_and_nothing_is_written(
    store: Store, tmp_path: Path, update: Path, out: Path, repository: str
) -> None:
    digest = store.put(A, update, ANNOTATIONS).manifest
    layer = Layer("0" * 64, 1, "update.safetensors")
    before = sorted(tmp_path.rglob("*"))
    for call in (
        lambda: store.put(repository, update, {}),
        lambda: store.tag(repository, digest, "v1"),
        lambda: store.drop(repository, digest),
        lambda: store.copy(store, A, digest, repository),
        lambda: store.manifest(repository, digest),
        lambda: store.get(repository, layer, out / "x"),
    ):
        assert _slug(call) == "path_not_allowed"
    assert store.resolve(f"{repository}:v1") is None
    assert sorted(tmp_path.rglob("*")) == before


def test_text_that_is_no_digest_is_refused(store: Store, update: Path, out: Path) -> None:
    put = store.put(A, update, ANNOTATIONS)
    assert _slug(lambda: store.drop(A, Digest("sha256:../../index.json"))) == "digest_mismatch"
    assert _slug(lambda: store.tag(A, Digest("sha256:../../index.json"), "v8")) == "digest_mismatch"
    assert _slug(lambda: store.copy(store, A, Digest(put.manifest + "\n"), ARCHIVE)) == "digest_mismatch"
    assert store.resolve(f"{A}:m-{put.manifest.removeprefix('sha256:')}") == put.manifest
    assert _slug(lambda: store.manifest(A, Digest("sha256:../../index.json"))) == "digest_mismatch"
    assert _slug(lambda: store.get(A, Layer("../../index.json", 1, "x"), out / "x")) == "hash_mismatch"
    assert list(out.iterdir()) == []


# tags


def test_display_tag_is_set_moved_and_set_again(store: Store, update: Path) -> None:
    first = store.put(GLOBAL, update, {"n": "1"}).manifest
    second = store.put(GLOBAL, update, {"n": "2"}).manifest
    for digest in (first, second, second):
        store.tag(GLOBAL, digest, "v9")
        assert store.resolve("global:v9") == digest
    assert store.resolve(f"global:m-{first.removeprefix('sha256:')}") == first


def test_tag_needs_a_manifest_that_is_there(backend: Backend, update: Path) -> None:
    assert _slug(lambda: backend.store.tag(GLOBAL, _digest(b"never put"), "v9")) == "object_missing"
    put = backend.store.put(GLOBAL, update, {})
    backend.lose(GLOBAL, put.manifest)
    assert _slug(lambda: backend.store.tag(GLOBAL, put.manifest, "v9")) == "object_missing"
    assert backend.store.resolve("global:v9") is None


@pytest.mark.parametrize("tag", ["", ".v9", "v/9", "v 9", "v9\n", "x" * 129, "md5-" + "0" * 32, "m-" + "0" * 64])
def test_tags_of_content_and_bad_tags_cannot_be_set(store: Store, update: Path, tag: str) -> None:
    digest = store.put(GLOBAL, update, {}).manifest
    assert _slug(lambda: store.tag(GLOBAL, digest, tag)) == "tag_name_invalid"


@pytest.mark.parametrize("ref", ["global:v9", "global:", "global", ":v9", "", "sites/hospital-c:v1", "global:v9:v9"])
def test_reference_to_nothing_resolves_to_none(store: Store, ref: str) -> None:
    assert store.resolve(ref) is None


# drop


def test_dropped_artifact_is_gone_and_others_stay(store: Store, tmp_path: Path, update: Path, out: Path) -> None:
    (tmp_path / "other").write_bytes(b"other bytes")
    gone = store.put(A, update, ANNOTATIONS)
    stays = store.put(A, tmp_path / "other", ANNOTATIONS)
    store.tag(A, gone.manifest, "v8")
    for _ in range(2):  # the second time there is nothing to do
        _drop(store, A, gone.manifest)
        assert _slug(lambda: store.manifest(A, gone.manifest)) == "object_missing"
        assert _slug(lambda: store.get(A, gone.layer, out / "x")) == "object_missing"
        assert store.resolve(f"{A}:v8") is None
        assert store.resolve(f"{A}:md5-{hashlib.md5(UPDATE).hexdigest()}") is None
        assert store.manifest(A, stays.manifest) == stays
        store.get(A, stays.layer, out / "y")


def test_bytes_that_another_manifest_needs_stay_with_their_md5_tag(store: Store, update: Path, out: Path) -> None:
    first = store.put(A, update, {"n": "1"})
    second = store.put(A, update, {"n": "2"})
    _drop(store, A, second.manifest)
    assert store.resolve(f"{A}:md5-{hashlib.md5(UPDATE).hexdigest()}") == first.manifest
    store.get(A, first.layer, out / "x")
    assert store.manifest(A, first.manifest) == first


def test_damaged_artifact_can_be_dropped(backend: Backend, update: Path) -> None:
    put = backend.store.put(A, update, ANNOTATIONS)
    backend.damage(A, put.manifest)
    _drop(backend.store, A, put.manifest)
    assert _slug(lambda: backend.store.manifest(A, put.manifest)) == "object_missing"
    assert backend.store.resolve(f"{A}:m-{put.manifest.removeprefix('sha256:')}") is None


def test_drop_in_a_repository_that_never_was_changes_nothing(store: Store) -> None:
    _drop(store, B, _digest(b"never put"))
    assert _slug(lambda: store.manifest(B, _digest(b"never put"))) == "object_missing"


# copy


@pytest.mark.parametrize("kind", ["same store", "another kind of store"])
def test_copy_keeps_the_digest_and_outlives_its_source(store: Store, update: Path, out: Path, kind: str) -> None:
    source: Store = store if kind == "same store" else FakeStore()
    put = source.put(A, update, ANNOTATIONS, b"a config")
    for _ in range(2):  # the second time there is nothing to do
        copied = store.copy(source, A, put.manifest, ARCHIVE)
        assert (copied.manifest, copied.layer, copied.annotations, copied.config) == (
            put.manifest, put.layer, ANNOTATIONS, b"a config")  # fmt: skip
        assert copied.ref == f"{ARCHIVE}@{put.manifest}"
    source.drop(A, put.manifest)
    assert store.manifest(ARCHIVE, put.manifest) == copied
    assert store.resolve(f"{ARCHIVE}:m-{put.manifest.removeprefix('sha256:')}") == put.manifest
    store.get(ARCHIVE, put.layer, out / "x")
    assert (out / "x").read_bytes() == UPDATE


def test_copy_of_damaged_bytes_is_refused_or_found_out_by_whoever_gets_it(
    backend: Backend, update: Path, out: Path
) -> None:
    put = backend.store.put(A, update, ANNOTATIONS)
    backend.damage(A, _layer_digest(put))
    if backend.lends:
        backend.store.copy(backend.store, A, put.manifest, ARCHIVE)
        assert _slug(lambda: backend.store.get(ARCHIVE, put.layer, out / "x")) == "hash_mismatch"
    else:
        assert _slug(lambda: backend.store.copy(backend.store, A, put.manifest, ARCHIVE)) == "hash_mismatch"
        assert _slug(lambda: backend.store.manifest(ARCHIVE, put.manifest)) == "object_missing"


def test_copy_of_what_is_lost_is_refused_and_leaves_no_manifest(backend: Backend, update: Path) -> None:
    put = backend.store.put(A, update, ANNOTATIONS)
    backend.lose(A, _layer_digest(put))
    assert _slug(lambda: backend.store.copy(backend.store, A, put.manifest, ARCHIVE)) == "object_missing"
    backend.lose(A, put.manifest)
    assert _slug(lambda: backend.store.copy(backend.store, A, put.manifest, ARCHIVE)) == "object_missing"
    assert _slug(lambda: backend.store.manifest(ARCHIVE, put.manifest)) == "object_missing"


@pytest.mark.parametrize("backend", HEALING, indirect=True)
def test_copy_heals_a_damaged_copy(backend: Backend, update: Path, out: Path) -> None:
    put = backend.store.put(A, update, ANNOTATIONS)
    backend.store.copy(backend.store, A, put.manifest, ARCHIVE)
    backend.damage(ARCHIVE, _layer_digest(put))
    backend.store.copy(backend.store, A, put.manifest, ARCHIVE)
    backend.store.get(ARCHIVE, put.layer, out / "x")
    assert (out / "x").read_bytes() == update.read_bytes()


def test_update_is_not_copied_to_where_models_are(store: Store, update: Path) -> None:
    put = store.put(A, update, ANNOTATIONS)
    assert _slug(lambda: store.copy(store, A, put.manifest, GLOBAL)) == "layer_title_invalid"
