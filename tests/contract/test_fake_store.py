"""The faults of the in-memory store, which the contract suite does not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedops.core.errors import StoreError
from fedops.core.ids import Digest
from tests.fakes_store import FakeStore


def test_faults_come_in_order_and_then_the_store_works(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    store = FakeStore()
    store.fail_next("put", StoreError("down", cause="temporary"))
    store.fail_next("put", StoreError("no", cause="auth"))
    assert store.resolve("global:v1") is None, "other operations are not touched"
    for cause in ("temporary", "auth"):
        with pytest.raises(StoreError) as caught:
            store.put("global", tmp_path / "x", {})
        assert caught.value.cause == cause
    put = store.put("global", tmp_path / "x", {})
    assert store.manifest("global", put.manifest) == put
    assert store.calls == {"put": 3, "resolve": 1, "manifest": 1}


def test_store_without_the_right_to_drop_keeps_everything(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    store = FakeStore(can_drop=False)
    put = store.put("global", tmp_path / "x", {})
    assert not store.drop("global", put.manifest)
    assert store.manifest("global", put.manifest) == put


def test_losing_what_is_not_there_is_a_mistake_of_the_test() -> None:
    with pytest.raises(KeyError):
        FakeStore().lose("global", Digest("sha256:" + "0" * 64))
