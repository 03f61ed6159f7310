"""CI aggregates straight from a real registry, over a line that breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedops.adapters.store_registry import RegistryStore
from fedops.core.findings import errors
from fedops.core.ids import digest_of_hex
from fedops.ports import Store
from tests.registry.proxy import Alter, CutAnswer, FaultProxy
from tests.scenario.fed import Arrays, MemoryFed

A, B, C = "hospital-a", "hospital-b", "clinic-c"
COUNT = 200_000  # four chunks


def model(value: float) -> Arrays:
    return {"steps": np.array(3, np.int64), "w": np.full(COUNT, value, np.float32)}


@pytest.fixture
def fed(tmp_path: Path, store: RegistryStore) -> Iterator[MemoryFed]:
    class RegistryFed(MemoryFed):
        def _make_store(self) -> Store:
            return store

    (tmp_path / "fed").mkdir()
    made = RegistryFed(tmp_path / "fed", base=model(0.5))
    yield made
    made.close()


def gets(proxy: FaultProxy, sha256: str) -> list[str]:
    """The Range of each GET of one model, "" for none."""
    path = f"blobs/{digest_of_hex(sha256)}"
    return [seen.headers.get("range", "") for seen in proxy.seen if seen.method == "GET" and seen.path.endswith(path)]


def test_a_line_that_is_cut_goes_on_where_it_stopped(fed: MemoryFed, proxy: FaultProxy) -> None:
    for site, value in ((A, 1.0), (B, 4.0)):
        fed.merge_by_hand(fed.submit(site, model(value)).number)
    digests = [fed.version.model.sha256, *(u.record.sha256 for u in fed.uploads.values())]
    proxy.seen.clear()
    for sha256 in digests:
        proxy.plan("GET", f"blobs/{digest_of_hex(sha256)}", CutAnswer(300_001))
    assert fed.reconcile().published
    assert [gets(proxy, sha256) for sha256 in digests] == [["", "bytes=300001-"]] * 3
    assert fed.model()["w"].tolist() == [2.5] * COUNT
    assert not [f for one in fed.verify() for f in errors(one.findings)]


def test_other_bytes_at_the_very_end_of_a_model_make_no_version_of_it(fed: MemoryFed, proxy: FaultProxy) -> None:
    for site, value in ((A, 1.0), (B, 4.0), (C, 2.0)):
        fed.merge_by_hand(fed.submit(site, model(value)).number)
    bad = next(u.record.sha256 for u in fed.uploads.values() if u.record.site == B)
    proxy.plan("GET", f"blobs/{digest_of_hex(bad)}", Alter(lambda data: data[:-1] + b"\x00"), times=9)
    assert fed.reconcile().published
    assert [(u.site, u.slug) for u in fed.version.witness.unavailable] == [(B, "hash_mismatch")]
    assert fed.model()["w"].tolist() == [1.5] * COUNT
