"""The embedded store under kills and crowds."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fedops.adapters import durable
from fedops.adapters.store_layout import LayoutStore
from fedops.core.errors import StoreError
from fedops.core.ids import Digest
from tests.adapters.layout_checks import assert_valid, index_of, tags_of
from tests.adapters.layout_processes import ARCHIVE, SITE, do

PROJECT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and kills as POSIX does")


@pytest.fixture
def store(tmp_path: Path) -> LayoutStore:
    (tmp_path / "store").mkdir()
    return LayoutStore(tmp_path / "store")


@pytest.fixture
def update(tmp_path: Path) -> Path:
    path = tmp_path / "trained.safetensors"
    path.write_bytes(b"eight floats of hospital-a")
    return path


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.adapters.layout_processes", *map(str, arguments)]


@pytest.mark.parametrize("what", ["first put", "put", "tag", "drop", "copy"])
def test_kill_between_any_two_steps_leaves_a_valid_layout_and_the_next_run_finishes(
    store: LayoutStore, tmp_path: Path, what: str
) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "new").write_bytes(b"new")
    old = None if what == "first put" else store.put(SITE, tmp_path / "old", {"n": "1"})
    if what in ("tag", "drop"):
        store.put(SITE, tmp_path / "old", {"n": "3"})
    digest = old.manifest if old else Digest("sha256:" + "0" * 64)
    operation = what.removeprefix("first ")
    subprocess.run(
        _command("kill_at_every_step", operation, store.root, tmp_path / "new", digest), cwd=PROJECT, check=True
    )
    roots = [Path(f"{store.root}-{n}") for n in range(len(list(tmp_path.glob("store-*"))))]
    assert len(roots) > 3, "several kills, and one that went through"
    done = _state(roots[-1])
    for root in roots[:-1]:
        for folder in (root / SITE, root / ARCHIVE):
            if (folder / "blobs" / "sha256").exists():
                assert_valid(folder)
        killed = LayoutStore(root)
        if old is not None and operation != "drop":
            assert killed.manifest(SITE, old.manifest) == old
            killed.get(SITE, old.layer, tmp_path / "out")
        do(operation, killed, tmp_path / "new", digest)
        assert _state(root) == done


def _state(root: Path) -> object:
    """Tags and whole blobs of every repository."""
    return {
        str(index.parent.relative_to(root)): (
            tags_of(index.parent),
            {p.name: p.read_bytes() for p in (index.parent / "blobs" / "sha256").iterdir()},
        )
        for index in root.rglob("index.json")
    }


def test_eight_writers_at_once_lose_nothing(store: LayoutStore, tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(_command("put_many", store.root, tmp_path, 10), cwd=PROJECT, stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors.decode()
    folder = store.root / SITE
    assert_valid(folder)
    texts = [f"{writer.pid} {i}" for writer in writers for i in range(10)] + ["shared"]
    for text in texts:
        digest = store.resolve(f"{SITE}:md5-{hashlib.md5(text.encode()).hexdigest()}")
        assert digest is not None, text
        assert store.manifest(SITE, digest).layer.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert len(index_of(folder)) == 2 * len(texts)
    assert list(folder.glob("*.part-*")) == []


def test_writer_killed_with_the_lock_in_hand_blocks_nobody(store: LayoutStore, update: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    store.put(SITE, tmp_path / "other", {})
    with subprocess.Popen(
        _command("hang_with_the_lock", store.root, update), cwd=PROJECT, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"locked\n"
        assert store.resolve(f"{SITE}:md5-{hashlib.md5(b'other').hexdigest()}"), "readers take no lock"
        writer.send_signal(signal.SIGKILL)
    put = store.put(SITE, update, {})
    assert store.manifest(SITE, put.manifest) == put


def test_blob_dropped_while_a_second_upload_counts_on_it_is_told_as_temporary(
    store: LayoutStore, update: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.put(SITE, update, {})
    lock = durable.locked

    def dropped_first(path: Path) -> AbstractContextManager[None]:
        monkeypatch.setattr(durable, "locked", lock)
        store.drop(SITE, put.manifest)
        return lock(path)

    monkeypatch.setattr(durable, "locked", dropped_first)
    with pytest.raises(StoreError) as caught:
        store.put(SITE, update, {})
    assert caught.value.cause == "temporary"
    assert store.put(SITE, update, {}) == put
    assert_valid(store.root / SITE)


def test_bytes_are_on_the_disk_before_they_get_their_name_and_the_index_comes_last(
    store: LayoutStore, update: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()  # inodes
    named: list[str] = []
    sync, rename = os.fsync, os.replace

    def watch_sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def watch_rename(source: Path, target: Path) -> None:
        assert source.stat().st_ino in synced, f"{target} could be empty after a power cut"
        named.append(Path(target).name)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", watch_sync)
    monkeypatch.setattr(os, "replace", watch_rename)
    store.put(SITE, update, {})
    put = store.put(SITE, update, {"n": "2"}, b"a config")
    manifest, config = put.manifest.removeprefix("sha256:"), hashlib.sha256(b"a config").hexdigest()
    assert named[-3:] == [config, manifest, "index.json"]
    folders = (store.root, store.root / "sites", store.root / SITE, store.root / SITE / "blobs" / "sha256")
    assert {folder.stat().st_ino for folder in folders} <= synced
    store.get(SITE, put.layer, tmp_path / "x")
    assert named[-1] == "x"
