"""A site whose store is switched off, or whose repository is closed, after its submission was merged stops no other site."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedops.adapters.store_layout import LayoutStore
from fedops.app.context import Context
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact, Layer, Wait
from fedops.core.findings import errors
from fedops.core.ids import Digest
from fedops.ports import BlobReader, Store
from tests.scenario.fed import Fed, MemoryFed
from tests.scenario.oracle import check_inputs, check_lineage

A, B, C, D = "hospital-a", "hospital-b", "clinic-c", "bank-d"
OWN, HOME = "oci://registry.clinic-c.example/fed", "ocidir:store"
Fault = Callable[[str, str], StoreError | None]  # operation, repository
QUORUM = 3


def silent(*_: str) -> StoreError:
    return StoreError("registry.clinic-c.example: ConnectTimeout", cause="temporary")


def closed(*_: str) -> StoreError:
    return StoreError("HTTP 403 DENIED", slug="auth_failed", cause="auth")


def expired(*_: str) -> StoreError:
    return StoreError("registry.clinic-c.example: no trusted TLS")


class Switched:
    """What a store says no to; nothing as long as `fault` is None."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.calls = 0

    def __call__(self, operation: str, repository: str) -> None:
        self.calls += 1
        error = self.fault(operation, repository) if self.fault is not None else None
        if error is not None:
            raise error


class SwitchedStore:
    """A store behind a switch that hands out files only."""

    def __init__(self, inner: Store, switch: Switched) -> None:
        self._inner, self._switch = inner, switch

    def put(self, repository: str, *rest: Any) -> Artifact:
        self._switch("put", repository)
        return self._inner.put(repository, *rest)

    def tag(self, repository: str, digest: Digest, tag: str) -> None:
        self._switch("tag", repository)
        self._inner.tag(repository, digest, tag)

    def drop(self, repository: str, digest: Digest) -> bool:
        self._switch("drop", repository)
        return self._inner.drop(repository, digest)

    def copy(self, source: Store, repository: str, digest: Digest, target_repository: str) -> Artifact:
        self._switch("copy", target_repository)
        return self._inner.copy(source, repository, digest, target_repository)

    def manifest(self, repository: str, digest: Digest) -> Artifact:
        self._switch("manifest", repository)
        return self._inner.manifest(repository, digest)

    def get(self, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        self._switch("get", repository)
        self._inner.get(repository, layer, target, md5=md5)

    def resolve(self, ref: str) -> Digest | None:
        self._switch("resolve", ref.partition(":")[0])
        return self._inner.resolve(ref)


class SwitchedStream(SwitchedStore):
    """The same, and its layers can be read while they come."""

    def open_blob(self, repository: str, layer: Layer, *, md5: str | None = None) -> BlobReader:
        self._switch("open_blob", repository)
        inner = self._inner
        assert isinstance(inner, LayoutStore)
        return SwitchedReader(inner.open_blob(repository, layer, md5=md5), self._switch, repository)


class SwitchedReader:
    def __init__(self, inner: BlobReader, switch: Switched, repository: str) -> None:
        self._inner, self._switch, self._repository = inner, switch, repository

    def readinto(self, buffer: memoryview, /) -> int:
        self._switch("readinto", self._repository)
        return self._inner.readinto(buffer)

    def close(self) -> None:
        self._inner.close()


class Stores(MemoryFed):
    """clinic-c has a store of its own, or with `own=False` a repository of the federation's, like the others.

    Args:
        streamed: bytes are used while they come.
    """

    def __init__(self, folder: Path, *, own: bool, streamed: bool, **rules: Any) -> None:
        self.streamed, self.own = streamed, own
        self.home, self.theirs = Switched(), Switched()
        super().__init__(folder, rules={"trigger": {"quorum": QUORUM}} | rules)
        if own:
            self.site_stores[C] = OWN
            self.push_policies()

    def _make_store(self) -> Store:
        if not self.streamed:
            return super()._make_store()
        (self.folder / "store").mkdir()
        return LayoutStore(self.folder / "store")

    def context(self, **ports: Any) -> Context:
        kind = SwitchedStream if self.streamed else SwitchedStore
        stores = {HOME: kind(self.store, self.home), OWN: kind(self.store, self.theirs)}
        return dataclasses.replace(super().context(**ports), stores=lambda url: stores[url])

    def fail(self, fault: Fault | None) -> None:
        """Let clinic-c's store or repository say no, or be as before."""
        if self.own:
            self.theirs.fault = fault
        else:
            self.home.fault = only(f"sites/{C}", fault) if fault is not None else None


def only(repository: str, fault: Fault) -> Fault:
    """Of one repository alone."""
    return lambda operation, named: fault(operation, named) if named == repository else None


def merged_but_not_used(fed: Stores) -> None:
    """clinic-c and hospital-a are merged; one is missing for a version."""
    fed.submit(C, 5.0)
    fed.submit(A, 1.0)
    done = fed.reconcile()
    assert {m.outcome for m in done.merged} == {"merged"}
    assert isinstance(done.decision, Wait)


def others(fed: Stores) -> None:
    fed.submit(B, 3.0)
    fed.submit(D, 2.0)


def check_history(fed: Fed) -> None:
    check_inputs(fed, check_lineage(fed))
    assert not [f for one in fed.verify() for f in errors(one.findings)]
    assert fed.reconcile().changed is False


def unavailable(fed: Fed) -> dict[str, str]:
    return {u.site: u.slug for u in fed.version.witness.unavailable}


def used(fed: Fed) -> dict[str, int]:
    """Site -> staleness."""
    return {c.site: c.staleness for c in fed.version.contributions}


def told(fed: Stores, site: str) -> list[str]:
    """What the open signals of a site say."""
    issues = fed.forge("lena").issues(frozenset({"signal:train", f"site:{site}"}))
    return [issue.body for issue in issues]


CASES = [
    pytest.param(True, silent, "registry_unavailable", id="own-silent"),
    pytest.param(True, closed, "auth_failed", id="own-closed"),
    pytest.param(True, expired, "registry_unavailable", id="own-expired"),
    pytest.param(False, closed, "auth_failed", id="repository-closed"),
]


@pytest.mark.parametrize("streamed", [False, True], ids=["files", "streams"])
@pytest.mark.parametrize(("own", "fault", "slug"), CASES)
def test_others_get_their_version_and_the_site_counts_when_it_is_back(
    tmp_path: Path, own: bool, fault: Fault, slug: str, streamed: bool
) -> None:
    fed = Stores(tmp_path, own=own, streamed=streamed)
    merged_but_not_used(fed)
    fed.fail(fault)
    others(fed)
    done = fed.reconcile()
    assert [v.version for v in done.published] == [1]
    assert (used(fed), unavailable(fed)) == ({D: 0, A: 0, B: 0}, {C: slug})
    assert fed.model(1)["w"][0] == np.float32((1.0 + 3.0 + 2.0) / 3)
    assert C not in fed.version.consumed
    # The site is told, with the reason, and what it can do about it.
    (body,) = told(fed, C)
    assert f"<!-- fedops:reason {slug} -->" in body
    assert "CI" in body.partition("hint:")[0]
    check_history(fed)

    fed.fail(None)
    fed.submit(A, 4.0)
    fed.submit(B, 6.0)
    assert [v.version for v in fed.reconcile().published] == [2]
    assert (used(fed), unavailable(fed)) == ({C: 1, A: 0, B: 0}, {})
    check_history(fed)


def test_all_is_said_of_a_version_that_must_wait_for_it(tmp_path: Path) -> None:
    fed = Stores(tmp_path, own=True, streamed=False)
    merged_but_not_used(fed)
    fed.fail(silent)
    fed.submit(B, 3.0)
    done = fed.reconcile()
    assert not done.published
    assert isinstance(done.decision, Wait)
    assert done.decision.reason == "unavailable"
    assert "<!-- fedops:reason registry_unavailable -->" in told(fed, C)[-1]
    fed.fail(None)
    assert [v.version for v in fed.reconcile().published] == [1]
    assert used(fed) == {A: 0, B: 0, C: 0}
    check_history(fed)


# ---------------------------------------------------------------- at any moment


@pytest.mark.parametrize("streamed", [False, True], ids=["files", "streams"])
@pytest.mark.parametrize("own", [True, False], ids=["own", "repository"])
def test_whenever_it_begins_to_refuse_the_others_get_their_version_in_the_same_run(
    tmp_path: Path, own: bool, streamed: bool
) -> None:
    """Between manifest and bytes, in the middle of the bytes, before and while they are copied into the archive."""

    def played(name: str, begins: int) -> tuple[Stores, int]:
        (tmp_path / name).mkdir()
        fed = Stores(tmp_path / name, own=own, streamed=streamed)
        merged_but_not_used(fed)
        others(fed)
        asked = 0

        def refuse(operation: str, repository: str) -> StoreError | None:
            nonlocal asked
            asked += 1
            return closed() if asked > begins else None

        fed.fail(refuse)
        assert [v.version for v in fed.reconcile().published] == [1]
        return fed, asked

    whole, calls = played("whole", 10**6)
    assert unavailable(whole) == {}
    assert calls >= (6 if streamed else 4)
    for begins in range(calls):
        fed, _ = played(str(begins), begins)
        assert (used(fed), unavailable(fed)) == ({D: 0, A: 0, B: 0}, {C: "auth_failed"})
        fed.fail(closed)
        check_history(fed)


@pytest.mark.parametrize("fault", [silent, closed, expired])
def test_a_store_that_dies_after_it_was_used_changes_nothing(tmp_path: Path, fault: Fault) -> None:
    fed = Stores(tmp_path, own=True, streamed=False)
    merged_but_not_used(fed)
    fed.submit(B, 3.0)
    assert [v.version for v in fed.reconcile().published] == [1]
    assert C in used(fed)
    fed.fail(fault)
    check_history(fed)


def test_an_approved_version_is_published_although_a_store_died_meanwhile(tmp_path: Path) -> None:
    fed = Stores(tmp_path, own=True, streamed=False, publish={"mode": "review", "approvals": 1})
    merged_but_not_used(fed)
    fed.submit(B, 3.0)
    fed.reconcile()
    fed.fail(expired)
    (pull,) = fed.forge("lena").open_pulls()
    assert pull.branch == "fedops/v1"
    fed.forge("lena").review(pull.number, pull.head, "approved", "")
    assert [v.version for v in fed.reconcile().published] == [1]
    assert C in used(fed)


# ---------------------------------------------------------------- the federation's own


def nothing_made(fed: Stores, match: str) -> None:
    with pytest.raises(StoreError, match=match):
        fed.reconcile()
    assert fed.version.version == 0
    assert not [body for site in fed.states for body in told(fed, site) if "fedops:reason" in body]


@pytest.mark.parametrize("streamed", [False, True], ids=["files", "streams"])
def test_a_passing_fault_of_the_federations_store_makes_no_version(tmp_path: Path, streamed: bool) -> None:
    """Even if only one site's repository shows it: whoever runs the host may mend it."""
    fed = Stores(tmp_path, own=False, streamed=streamed)
    merged_but_not_used(fed)
    others(fed)
    fed.fail(silent)
    nothing_made(fed, "ConnectTimeout")
    fed.fail(None)
    fed.reconcile()
    assert used(fed) == {A: 0, B: 0, C: 0, D: 0}


@pytest.mark.parametrize("fault", [silent, closed], ids=["silent", "closed"])
@pytest.mark.parametrize("own", [True, False], ids=["own", "repository"])
def test_where_nothing_answers_no_site_is_to_blame(tmp_path: Path, own: bool, fault: Fault) -> None:
    """CI's network is down, or its password is no longer good: the site's store refuses, and all others do too."""
    fed = Stores(tmp_path, own=own, streamed=False)
    merged_but_not_used(fed)
    others(fed)
    fed.theirs.fault = fault

    def all_but_inspection(operation: str, repository: str) -> StoreError | None:
        inspected = {f"sites/{site}" for site in (A, B, D)}
        return None if repository in inspected else fault(operation, repository)

    fed.home.fault = all_but_inspection
    nothing_made(fed, "DENIED|ConnectTimeout")


def test_a_password_that_only_public_repositories_do_without_is_no_sites_fault(tmp_path: Path) -> None:
    """global can be read by anybody; that the archive refuses too tells that CI itself is not let in."""
    fed = Stores(tmp_path, own=False, streamed=False)
    merged_but_not_used(fed)
    others(fed)
    assert fed.reconcile().published
    fed.submit(C, 7.0)
    fed.submit(A, 8.0)
    assert {m.outcome for m in fed.reconcile().merged} == {"merged"}
    fed.submit(B, 9.0)
    private = (f"sites/{C}", "archive")
    fed.home.fault = lambda operation, repository: closed() if repository in private else None
    with pytest.raises(StoreError, match="DENIED"):
        fed.reconcile()
    assert fed.version.version == 1


@pytest.mark.parametrize("fault", [silent, closed], ids=["silent", "closed"])
def test_an_archive_that_takes_nothing_makes_no_version(tmp_path: Path, fault: Fault) -> None:
    fed = Stores(tmp_path, own=True, streamed=False)
    merged_but_not_used(fed)
    others(fed)
    fed.home.fault = lambda operation, repository: fault(operation, repository) if operation == "copy" else None
    nothing_made(fed, "DENIED|ConnectTimeout")
    fed.home.fault = None
    fed.reconcile()
    assert used(fed) == {A: 0, B: 0, C: 0, D: 0}


def full(where: Path) -> StoreError:
    try:
        raise StoreError(f"{where}: cannot write it, got No space left on device", cause="temporary") from OSError(
            errno.ENOSPC, "No space left on device"
        )
    except StoreError as e:
        return e


def test_a_full_disk_of_this_machine_is_no_sites_fault(tmp_path: Path) -> None:
    fed = Stores(tmp_path, own=True, streamed=False)
    merged_but_not_used(fed)
    others(fed)
    fed.theirs.fault = lambda operation, repository: full(Path("/elsewhere")) if operation == "get" else None
    nothing_made(fed, "No space left")


def test_what_cannot_be_written_here_is_no_sites_fault(tmp_path: Path) -> None:
    """The store gives an error without the system's own: then the place tells whose disk it is."""
    fed = Stores(tmp_path, own=True, streamed=False)
    merged_but_not_used(fed)
    others(fed)
    ctx = fed.context()
    message = f"{ctx.scratch}/x.model: cannot write it, got Input/output error"
    fed.theirs.fault = lambda operation, _: StoreError(message) if operation == "get" else None
    with pytest.raises(StoreError, match="Input/output"):
        fed.reconcile(ctx)
    assert fed.version.version == 0
