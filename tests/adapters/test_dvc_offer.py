"""`dvc push`: only bytes that a record of the clone describes, and only under the manifest that it names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from dvc.exceptions import DvcException

from fedops.core.errors import StoreError
from fedops.core.facts import Artifact
from tests.contract.store_backends import BACKENDS, Backend
from tests.dvc_world import ANNOTATIONS, DATA, MD5, SITE, Seen, opened, path_of, put, submission_json, version_json
from tests.fakes_store import FakeStore


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    yield from BACKENDS[request.param](tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone's work tree, still without records."""
    for folder in (SITE, "global"):
        (tmp_path / "clone" / folder).mkdir(parents=True)
    return tmp_path / "clone"


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """DATA as DVC's cache keeps it: the name has no ending."""
    (tmp_path / "ab" / "cdef").parent.mkdir()
    (tmp_path / "ab" / "cdef").write_bytes(DATA)
    return tmp_path / "ab" / "cdef"


@pytest.mark.parametrize("name", ["u.safetensors", "u.bin"])
def test_lost_bytes_are_put_again_under_the_manifest_of_the_record(
    backend: Backend, tmp_path: Path, root: Path, cached: Path, name: str
) -> None:
    artifact = put(backend.store, tmp_path, name)
    (root / SITE / "submission.json").write_bytes(submission_json(artifact))
    assert backend.store.drop(SITE, artifact.manifest)
    fs = opened(backend.store, root)
    assert not fs.exists(path_of())
    seen = Seen()
    fs.put_file(str(cached), path_of(), callback=seen)
    assert backend.store.manifest(SITE, artifact.manifest) == artifact
    assert fs.exists(path_of())
    assert seen.told[-1] == (len(DATA), len(DATA))


def global_model(store: FakeStore, root: Path, cached: Path, number: int) -> Artifact:
    """A version on record, whose bytes are in the store."""
    made = store.put("global", cached, {"fl.version": "0"}) if number == 0 else None
    artifact = made or store.put("global", cached, {}, b'{"a": "proposal"}')
    (root / "global" / "version.json").write_bytes(version_json(artifact, number))
    return artifact


def test_a_lost_tag_is_set_again_on_the_manifest_that_is_still_there(root: Path, cached: Path) -> None:
    """A global model's manifest holds a proposal, which no record gives; the store still has it."""
    store = FakeStore()
    artifact = global_model(store, root, cached, 4)
    store._tags["global"].clear()
    opened(store, root).put_file(str(cached), path_of("global"))
    assert store.resolve(f"global:md5-{MD5}") == artifact.manifest


def test_a_lost_proposal_is_not_made_up(root: Path, cached: Path) -> None:
    store = FakeStore()
    store.drop("global", global_model(store, root, cached, 4).manifest)
    with pytest.raises(DvcException, match=r"gone from the store(.|\n)*restore the store from a copy"):
        opened(store, root).put_file(str(cached), path_of("global"))
    assert store.calls["put"] == 1


def test_the_first_model_needs_no_proposal(root: Path, cached: Path) -> None:
    store = FakeStore()
    artifact = global_model(store, root, cached, 0)
    store.drop("global", artifact.manifest)
    opened(store, root).put_file(str(cached), path_of("global"))
    assert store.resolve(f"global:md5-{MD5}") == artifact.manifest


def test_the_record_of_a_clone_decides_which_bytes_an_md5_names(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files of one md5 can be made by anybody; the registry's tag then names the wrong one of them."""
    store = FakeStore()
    artifact = put(store, tmp_path)
    (root / SITE / "submission.json").write_bytes(submission_json(artifact))
    fs = opened(store, root)
    fs.get_file(path_of(), str(tmp_path / "got"))
    (tmp_path / "twin").write_bytes(b"twin")
    twin = store.put(SITE, tmp_path / "twin", ANNOTATIONS)
    monkeypatch.setattr(store, "resolve", lambda ref: twin.manifest)
    with pytest.raises(DvcException, match=r"other bytes than sites/hospital-a/submission\.json names"):
        fs.get_file(path_of(), str(tmp_path / "wrong"))
    assert store.calls["get"] == 1
    # Of bytes that no record here describes, such as an earlier update's, the manifest alone speaks.
    fs.get_file(path_of(md5=hashlib.md5(b"twin").hexdigest()), str(tmp_path / "other"))
    assert (tmp_path / "other").read_bytes() == b"twin"


REFUSED = [
    (path_of(md5=32 * "1"), r"submission.json does not describe(.|\n)*fedops submit FILE"),
    (path_of("global", 32 * "1"), r"version.json does not describe(.|\n)*fedops ci reconcile"),
    (path_of("sites/hospital-b"), r"no record here(.|\n)*remote add mine"),
    (path_of("archive"), r"no record here"),
    (path_of() + ".dir", r"not one model file(.|\n)*remote add mine"),
    ("oci://host/fed/sites/hospital-a/runs/1", r"not one model file"),
    ("oci://host/fed/sites/hospital-a/files/md5", r"not one model file"),
]


@pytest.mark.parametrize(("path", "said"), REFUSED)
def test_nothing_else_is_put(path: str, said: str, tmp_path: Path, root: Path, cached: Path) -> None:
    store = FakeStore()
    (root / SITE / "submission.json").write_bytes(submission_json(put(store, tmp_path)))
    global_model(store, root, cached, 4)
    with pytest.raises(DvcException, match=said):
        opened(store, root).put_file(str(cached), path)
    assert store.calls["put"] == 2  # those above


def test_outside_of_a_clone_nothing_is_put(cached: Path) -> None:
    with pytest.raises(DvcException, match="no record here"):
        opened(FakeStore()).put_file(str(cached), path_of())


def test_a_damaged_record_describes_nothing(root: Path, cached: Path) -> None:
    (root / SITE / "submission.json").write_bytes(b"{")
    with pytest.raises(DvcException, match=r"submission\.json"):
        opened(FakeStore(), root).put_file(str(cached), path_of())


@pytest.mark.parametrize("data", [DATA[:-1] + b"?", DATA[:-1]])
def test_damaged_bytes_are_not_put(data: bytes, tmp_path: Path, root: Path, cached: Path) -> None:
    store = FakeStore()
    (root / SITE / "submission.json").write_bytes(submission_json(put(store, tmp_path)))
    cached.write_bytes(data)
    with pytest.raises(DvcException, match=r"damaged, got sha256(.|\n)*cache"):
        opened(store, root).put_file(str(cached), path_of())
    assert store.calls["put"] == 1


def test_a_file_that_is_gone_is_told(tmp_path: Path, root: Path) -> None:
    store = FakeStore()
    (root / SITE / "submission.json").write_bytes(submission_json(put(store, tmp_path)))
    with pytest.raises(DvcException, match="cannot read it"):
        opened(store, root).put_file(str(tmp_path / "gone"), path_of())


def test_a_store_that_changes_what_it_is_given_is_told(
    tmp_path: Path, root: Path, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FakeStore()
    artifact = put(store, tmp_path)
    (root / SITE / "submission.json").write_bytes(submission_json(artifact))
    other = store.put(SITE, cached, ANNOTATIONS | {"more": "of it"})
    monkeypatch.setattr(store, "put", lambda *_: other)
    with pytest.raises(DvcException, match="changes what it is given"):
        opened(store, root).put_file(str(cached), path_of())


def test_a_store_that_is_down_is_no_lost_manifest(tmp_path: Path, root: Path, cached: Path) -> None:
    store = FakeStore()
    (root / SITE / "submission.json").write_bytes(submission_json(put(store, tmp_path)))
    store.fail_next("manifest", StoreError("503", cause="temporary"))
    with pytest.raises(DvcException, match="503"):
        opened(store, root).put_file(str(cached), path_of())


def test_where_no_links_can_be_made_an_opaque_model_is_copied(
    tmp_path: Path, root: Path, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("A required privilege is not held by the client")

    store = FakeStore()
    artifact = put(store, tmp_path, "u.bin")
    (root / SITE / "submission.json").write_bytes(submission_json(artifact))
    store.drop(SITE, artifact.manifest)
    monkeypatch.setattr(Path, "symlink_to", refuse)
    opened(store, root).put_file(str(cached), path_of())
    assert store.manifest(SITE, artifact.manifest) == artifact
