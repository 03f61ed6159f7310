"""The handed cases of OCI registries, against recorded answers: what is asked is counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedops.adapters.registry_client import RegistryClient
from fedops.adapters.registry_http import Wire
from fedops.core.artifacts import Blob
from fedops.core.errors import StoreError
from fedops.core.facts import Layer
from fedops.core.ids import Digest
from fedops.core.registry_address import RegistryAddress
from tests.cases.harness import Case, Cases
from tests.cases.replay import Replay, serve
from tests.registry.proxy import Answer, fault_proxy
from tests.registry.worlds import StillClock, nobody, registry_store

NAME, REPOSITORY = "fed/hospital-a", "sites/hospital-a"


@contextmanager
def replayed(case: Case, adapt: Callable[[str], str] = str) -> Iterator[Replay]:
    """The recorded registry of a case, answering on loopback.

    Args:
        adapt: changes the transcript's text.
    """
    path = case.root / case.files["transcript"]
    document = json.loads(adapt(path.read_text(encoding="utf-8")))
    replay, servers = serve(document, str(path.parent))  # type: ignore[no-untyped-call]  # a script that was handed in
    try:
        yield replay
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def within(used: int, bounds: list[int]) -> bool:
    return bounds[0] <= used <= bounds[1]


def test_h36_a_token_that_ends_in_mid_push_is_renewed(cases: Cases) -> None:
    case = cases["H36"]
    data, manifest = case.read(case.files["blob"]), case.read(case.files["manifest"])
    config = b"{}"
    clock = StillClock()
    with replayed(case) as replay:
        wire = Wire(RegistryAddress(replay.hosts[0], "fed"), clock=clock, lookup=nobody)
        with closing(RegistryClient(wire, clock)) as client:
            for body in (data, config):
                assert client.upload(NAME, Blob(hashlib.sha256(body).hexdigest(), len(body)), body)
            client.put_manifest(NAME, "v4", manifest)
    assert case.expected["outcome"] == "ok"
    assert {rule: replay.used[rule] for rule, bounds in case.expected["used"].items()
            if not within(replay.used[rule], bounds)} == {}  # fmt: skip
    assert replay.used["put-expired"] == 1, "the token ended in the middle of the push"
    assert len(replay.log) <= case.expected["max_requests"]
    assert None not in {entry["rule"] for entry in replay.log}
    assert clock.slept == []


def test_h37_bytes_that_are_not_those_of_the_digest_are_refused(cases: Cases, tmp_path: Path) -> None:
    case = cases["H37"]
    expected, accepted = case.expected, {case.expected["error"], *case.expected["also_ok"]}
    sha256 = expected["blob_digest"].removeprefix("sha256:")
    size = json.loads(case.read(case.files["manifest"]))["layers"][0]["size"]
    clock = StillClock()
    with replayed(case) as replay:
        wire = Wire(RegistryAddress(replay.hosts[0], "fed"), clock=clock, lookup=nobody)
        with closing(RegistryClient(wire, clock)) as client:
            said = client.manifest(NAME, expected["manifest_digest"])
            assert "sha256:" + hashlib.sha256(said).hexdigest() == expected["manifest_digest"]
            for rule in ("blob-short", "blob-bad"):
                with pytest.raises(StoreError) as caught:
                    client.read_blob(NAME, Blob(sha256, size))
                assert caught.value.slug in accepted, rule
        assert len(replay.log) == 3, "nothing is asked for again"


def test_h37_through_the_store_leaves_no_file(cases: Cases, tmp_path: Path) -> None:
    case = cases["H37"]
    sha256 = case.expected["blob_digest"].removeprefix("sha256:")
    size = json.loads(case.read(case.files["manifest"]))["layers"][0]["size"]
    with (
        replayed(case, lambda text: text.replace("fed/hospital-a", "fed/sites/hospital-a")) as replay,
        closing(registry_store(replay.hosts[0], path="fed")) as store,
    ):
        for slug in ("size_mismatch", "hash_mismatch"):  # the port's word for a layer's digest
            with pytest.raises(StoreError) as caught:
                store.get(REPOSITORY, Layer(sha256, size, "update.safetensors"), tmp_path / "update.safetensors")
            assert caught.value.slug == slug
    assert list(tmp_path.iterdir()) == []


def test_h38_titles_with_tricks_are_refused_by_the_store(cases: Cases, tmp_path: Path) -> None:
    case = cases["H38"]
    for name, path in case.files["variants"].items():
        # The case's types are those of artifacts made before fedops.
        manifest = case.read(path).replace(b"vnd.fedops.update.v1", b"vnd.fedops.model.v1")
        digest = Digest("sha256:" + hashlib.sha256(manifest).hexdigest())
        expected: Any = case.expected["variants"][name]
        with fault_proxy("127.0.0.1:9") as proxy, closing(registry_store(proxy.host)) as store:
            proxy.plan("GET", "/manifests/", Answer(200, {}, manifest))
            proxy.plan("GET", "/blobs/sha256:44136fa3", Answer(200, {}, b"{}"))
            proxy.plan("GET", "/blobs/", Answer(200, {}, case.read(case.files["blob"])))
            if expected.get("ok"):
                layer = store.manifest(REPOSITORY, digest).layer
                store.get(REPOSITORY, layer, tmp_path / "its-own-name")
            else:
                with pytest.raises(StoreError) as caught:
                    store.manifest(REPOSITORY, digest)
                assert caught.value.slug == expected["error"], name
    assert [p.name for p in tmp_path.iterdir()] == ["its-own-name"]
