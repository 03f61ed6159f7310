"""CI aggregates while the bytes come from the store: nothing of the updates is kept, and what is wrong is said as ever."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedops.adapters.store_layout import LayoutStore
from fedops.app.merged import merged_state
from fedops.app.propose import Plan, propose
from fedops.core.errors import StoreError
from fedops.core.facts import Aggregate, Layer, Wait
from fedops.core.findings import errors
from fedops.core.ids import Digest
from fedops.ports import BlobReader, Store
from tests.scenario.fed import MemoryFed, arrays

A, B, C = "hospital-a", "hospital-b", "clinic-c"


class Gone:
    """A folder that nobody may write to but the model that is being made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: set[str] = set()

    def look(self) -> None:
        self.seen |= {p.name.partition(".part-")[0] for p in self.folder.iterdir()}


class Noting(LayoutStore):
    """Notes what is asked for, and looks at the scratch folder whenever bytes are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []
        self.got: list[str] = []
        self.read = 0
        self.scratch: Gone | None = None
        self.streaming = True

    def open_blob(self, repository: str, layer: Layer, *, md5: str | None = None) -> Any:
        assert md5 is not None, "DVC's digest is checked too"
        self.opened.append(repository)
        reader = super().open_blob(repository, layer, md5=md5)
        return Watching(reader, self)

    def get(self, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        self.got.append(repository)
        super().get(repository, layer, target, md5=md5)


class Watching:
    def __init__(self, inner: BlobReader, store: Noting) -> None:
        self._inner, self._store = inner, store

    def readinto(self, buffer: memoryview, /) -> int:
        if self._store.scratch is not None:
            self._store.scratch.look()
        count = self._inner.readinto(buffer)
        self._store.read += count
        return count

    def close(self) -> None:
        self._inner.close()


class StreamedFed(MemoryFed):
    """Git in memory, the store on disk."""

    def _make_store(self) -> Store:
        (self.folder / "store").mkdir()
        return Noting(self.folder / "store")

    @property
    def noting(self) -> Noting:
        assert isinstance(self.store, Noting)
        return self.store

    def file(self, repository: str, sha256: str) -> Path:
        return self.folder / "store" / repository / "blobs" / "sha256" / sha256


@pytest.fixture
def fed(tmp_path: Path) -> StreamedFed:
    return StreamedFed(tmp_path)


def merged(fed: StreamedFed, values: Mapping[str, float | Mapping[str, NDArray[Any]]]) -> dict[str, str]:
    """Let sites hand in; returns site -> sha256."""
    for site, value in values.items():
        fed.merge_by_hand(fed.submit(site, value).number)
    return {u.record.site: u.record.sha256 for u in fed.uploads.values()}


def plan(fed: StreamedFed) -> Plan:
    ctx = fed.context()
    ctx.repository.fetch()
    main = fed.main()
    fed.noting.scratch = Gone(ctx.scratch)
    fed.noting.opened.clear()
    fed.noting.got.clear()
    fed.noting.read = 0
    made = propose(ctx, main, merged_state(ctx.repository, main), fed.clock.now(), unavailable={})
    assert not list(ctx.scratch.glob("*.safetensors"))
    return made


def test_every_byte_comes_once_and_nothing_is_kept(fed: StreamedFed) -> None:
    merged(fed, {A: 1.0, B: 3.0})
    made = plan(fed)
    assert isinstance(made.decision, Aggregate)
    assert made.manifest is not None
    assert sorted(fed.noting.opened) == ["global", f"sites/{A}", f"sites/{B}"]
    assert fed.noting.got == []
    sizes = [fed.version.model.size, *(u.record.size for u in fed.uploads.values())]
    assert fed.noting.read == sum(sizes)
    assert fed.noting.scratch is not None
    assert fed.noting.scratch.seen <= {"proposed.safetensors"}


def test_the_version_is_the_mean_and_verifies(fed: StreamedFed) -> None:
    merged(fed, {A: 1.0, B: 3.0})
    assert fed.reconcile().published
    counts = {u.record.site: u.record.num_examples for u in fed.uploads.values()}
    mean = (counts[A] * 1.0 + counts[B] * 3.0) / (counts[A] + counts[B])
    assert fed.model(1)["w"][0] == np.float32(mean)
    assert not [f for one in fed.verify() for f in errors(one.findings)]


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_bytes_that_are_lost_stop_nobody_else(fed: StreamedFed, damage: str) -> None:
    digests = merged(fed, {A: 1.0, B: 3.0, C: 5.0})
    path = fed.file(f"sites/{B}", digests[B])
    data = path.read_bytes()
    path.unlink()
    if damage == "flipped":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    made = plan(fed)
    assert made.manifest is not None
    assert list(made.skips.unavailable.values()) == ["hash_mismatch" if damage == "flipped" else "object_missing"]
    assert fed.noting.got == []  # nor is anything downloaded to find out whose they are
    assert fed.reconcile().published
    assert [c.site for c in fed.version.contributions] == [C, A]
    assert [u.site for u in fed.version.witness.unavailable] == [B]


def test_without_those_bytes_the_quorum_may_be_missed(fed: StreamedFed) -> None:
    digests = merged(fed, {A: 1.0, B: 3.0})
    fed.file(f"sites/{B}", digests[B]).unlink()
    made = plan(fed)
    assert made.manifest is None
    assert isinstance(made.decision, Wait)
    assert made.decision.reason == "unavailable"


def test_a_number_that_is_not_finite_is_looked_for_in_files(fed: StreamedFed) -> None:
    """A person merged it: the stream only says that something is wrong, so everything is downloaded to name it."""
    merged(fed, {A: 1.0, B: {**arrays(1.0), "w": np.array([1, np.nan], np.float32)}, C: 5.0})
    made = plan(fed)
    assert made.manifest is not None
    assert [(f.slug, f.where, (f.detail or {})["tensor"]) for f in made.findings] == [("non_finite", f"sites/{B}", "w")]
    assert sorted(set(fed.noting.got)) == ["global", f"sites/{C}", f"sites/{A}", f"sites/{B}"]


def test_other_tensors_are_looked_for_in_files(fed: StreamedFed) -> None:
    merged(fed, {A: 1.0, B: {"w": np.array([1, 2], np.float32)}, C: 5.0})
    made = plan(fed)
    assert made.manifest is not None
    assert [(f.slug, f.where) for f in made.findings] == [("missing_keys", f"sites/{B}")]


def test_a_global_model_that_is_wrong_makes_no_version(fed: StreamedFed) -> None:
    merged(fed, {A: 1.0, B: 3.0})
    path = fed.file("global", fed.version.model.sha256)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StoreError) as caught:
        plan(fed)
    assert caught.value.slug == "hash_mismatch"


def test_more_models_than_connections_are_downloaded(fed: StreamedFed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedops.app.model_streams.MOST", 2)
    merged(fed, {A: 1.0, B: 3.0})
    assert plan(fed).manifest is not None
    assert fed.noting.opened == []
    assert sorted(fed.noting.got) == ["global", f"sites/{A}", f"sites/{B}"]


def test_both_ways_give_the_same_proposal(fed: StreamedFed, monkeypatch: pytest.MonkeyPatch) -> None:
    merged(fed, {A: 0.1, B: 0.7, C: -3.3})
    streamed = plan(fed).manifest
    monkeypatch.setattr("fedops.app.model_streams.MOST", 0)
    assert plan(fed).manifest == streamed != Digest("")


def test_md5_of_another_file_is_no_submission(fed: StreamedFed) -> None:
    """The record's md5 is what DVC would fetch by; a person merged one that names other bytes."""
    record = fed.upload(B, 0, arrays(3.0), num_examples=10)
    other = record.model_copy(update={"md5": hashlib.md5(b"other").hexdigest()})
    merged(fed, {A: 1.0, C: 2.0})
    fed.merge_by_hand(fed.open_pull(B, fed.handed_in(other)).number)
    made = plan(fed)
    assert list(made.skips.unavailable.values()) == ["hash_mismatch"]
    assert made.manifest is not None
