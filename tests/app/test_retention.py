"""`retain_updates`: what is too old is deleted, nothing else, and as often as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedops.app.context import Context
from fedops.app.inspect import refreshed
from fedops.app.retention import MAX_DROPS, Drop, plan_retirement, retire
from fedops.app.snapshot import version_record
from fedops.core.documents import dump_json
from fedops.core.errors import GitError, StoreError
from fedops.core.facts import RefUpdate
from fedops.core.ids import Digest, SiteId
from fedops.core.records import Record
from fedops.core.rollback import rollback_record
from tests.fakes_store import Operation
from tests.scenario.fed import MemoryFed

A, B, C = "hospital-a", "hospital-b", "clinic-c"


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[MemoryFed]:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    yield fed
    fed.close()


def retain(fed: MemoryFed, versions: int | None, url: str = "ocidir:store") -> None:
    kept = "null" if versions is None else str(versions)
    text = (
        f'schema: fedops.federation/v1\nname: fed\nfedops: "0.1.0"\nstore: {{url: "{url}", retain_updates: {kept}}}\n'
    )
    fed.commit({"federation.yaml": text.encode()}, "policy: retain")


def versions(fed: MemoryFed, count: int) -> list[list[Record]]:
    """Make versions, each of A and B; their records."""
    made = []
    for _ in range(count):
        base = fed.version.version
        for site, value in ((A, base + 1.0), (B, base + 1.5)):
            fed.submit(site, value)
        fed.reconcile()
        assert fed.version.version == base + 1
        made.append([fed.uploads[c.site, c.manifest].record for c in fed.version.contributions])
    return made


def there(fed: MemoryFed, repository: str, record: Record) -> bool:
    return {record.sha256, record.manifest.removeprefix("sha256:")} <= fed.store._blobs[repository].keys()


def left(fed: MemoryFed, made: list[list[Record]]) -> list[tuple[bool, bool]]:
    """Of each version: whether the archive has all inputs, and whether the sites do; never some."""
    found = []
    for records in made:
        archive = {there(fed, "archive", r) for r in records}
        own = {there(fed, f"sites/{r.site}", r) for r in records}
        assert (len(archive), len(own)) == (1, 1)
        found.append((archive.pop(), own.pop()))
    return found


def levels(fed: MemoryFed) -> list[str]:
    done = fed.verify()
    assert not [f for one in done for f in one.findings if f.severity == "error"]
    return [one.level for one in done]


def context(fed: MemoryFed) -> Context:
    ctx = fed.context()
    ctx.repository.fetch()
    return ctx


KEPT, GONE = (True, True), (False, False)


def test_the_inputs_of_the_newest_versions_stay_and_older_ones_go(fed: MemoryFed) -> None:
    made = versions(fed, 4)
    assert left(fed, made) == [KEPT] * 4
    retain(fed, 2)
    done = fed.reconcile()
    assert left(fed, made) == [GONE, GONE, KEPT, KEPT]
    assert done.mended == [f"v{n} {s}: deleted, no longer kept" for n in (1, 2) for s in (A, B)]
    assert levels(fed) == ["lineage", "lineage", "lineage", "inputs", "inputs"]
    made += versions(fed, 1)
    assert left(fed, made) == [GONE, GONE, GONE, KEPT, KEPT]
    assert levels(fed)[2:] == ["lineage", "lineage", "inputs", "inputs"]


def test_a_second_run_changes_nothing_and_looks_at_one_version(fed: MemoryFed) -> None:
    versions(fed, 5)
    retain(fed, 2)
    fed.reconcile()
    state = fed.state()
    ctx, before = context(fed), dict(fed.store.calls)
    assert retire(ctx, refreshed(ctx)).dropped == ()
    assert fed.store.calls["manifest"] - before["manifest"] == 2  # v3's two inputs
    assert not fed.reconcile().changed
    assert fed.state() == state


def test_without_a_limit_or_before_it_is_reached_everything_stays(fed: MemoryFed) -> None:
    made = versions(fed, 2)
    for count in (None, 2, 3):
        retain(fed, count)
        ctx = context(fed)
        assert plan_retirement(ctx, refreshed(ctx)) == ((), False)
    assert left(fed, made) == [KEPT] * 2


def test_a_plan_shows_what_would_be_deleted_and_deletes_nothing(fed: MemoryFed) -> None:
    made = versions(fed, 2)
    retain(fed, 1)
    state, ctx = fed.state(), context(fed)
    planned, more = plan_retirement(ctx, refreshed(ctx))
    assert planned == tuple(Drop(1, SiteId(r.site), Digest(r.manifest), own=True) for r in made[0])
    assert (more, fed.state()) == (False, state)


def test_a_pass_deletes_a_bounded_number_oldest_first_and_the_next_one_goes_on(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = versions(fed, 5)
    monkeypatch.setattr("fedops.app.retention.MAX_DROPS", 2)
    monkeypatch.setattr("fedops.app.retention.MAX_VERSIONS", 2)
    retain(fed, 1)
    for gone in (1, 2, 3, 4):
        ctx = context(fed)
        done = retire(ctx, refreshed(ctx))
        assert left(fed, made) == [GONE] * gone + [KEPT] * (5 - gone)
        assert done.left == (gone < 4)
    assert MAX_DROPS > 2


@pytest.mark.parametrize("after", range(1, 8))
def test_killed_anywhere_the_next_run_finishes(fed: MemoryFed, after: int) -> None:
    """Site copy, archive copy, site copy, …: eight deletions of two versions."""
    made = versions(fed, 3)
    retain(fed, 1)
    honest, count = fed.store.drop, 0

    def drop(repository: str, digest: Digest) -> bool:
        nonlocal count
        if count == after:
            raise KeyboardInterrupt
        count += 1
        return honest(repository, digest)

    fed.store.drop = drop  # type: ignore[method-assign]  # for this test
    ctx = context(fed)
    with pytest.raises(KeyboardInterrupt):
        retire(ctx, refreshed(ctx))
    fed.store.drop = honest  # type: ignore[method-assign]
    fed.reconcile()
    assert left(fed, made) == [GONE, GONE, KEPT]


def test_global_models_are_never_deleted(fed: MemoryFed) -> None:
    versions(fed, 3)
    before = dict(fed.store._blobs["global"])
    retain(fed, 1)
    fed.reconcile()
    assert fed.store._blobs["global"] == before


def test_what_is_handed_in_and_not_used_yet_stays(fed: MemoryFed) -> None:
    versions(fed, 2)
    waiting = fed.submit(A, 9.0)
    fed.reconcile()
    record = next(u.record for (s, _), u in fed.uploads.items() if s == A and u.record.base_version == 2)
    retain(fed, 1)
    assert fed.reconcile().mended
    assert there(fed, f"sites/{A}", record)
    assert fed.forge("lena").pull(waiting.number).state == "merged"


def test_an_input_that_a_retained_version_or_an_unused_record_names_too_stays(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rules no manifest can be used twice; if ever one is, it must not be lost."""
    made = versions(fed, 3)
    shared = made[0][0]
    forged = made[2][0].model_copy(update={"manifest": shared.manifest, "base_version": 3})
    fed.commit({f"sites/{forged.site}/submission.json": fed.handed_in(forged)[next(iter(fed.handed_in(forged)))]})
    retain(fed, 2)
    ctx = context(fed)
    planned, _ = plan_retirement(ctx, refreshed(ctx))
    assert [d.manifest for d in planned] == [made[0][1].manifest]
    fed.commit({f"sites/{forged.site}/submission.json": b'{"manifest": "%s"' % shared.manifest.encode()})
    ctx = context(fed)
    assert [d.manifest for d in plan_retirement(ctx, refreshed(ctx))[0]] == [made[0][1].manifest]


def test_a_site_with_a_store_of_its_own_keeps_its_copies(fed: MemoryFed) -> None:
    fed.site_stores = {A: "ocidir:elsewhere"}
    fed.push_policies()
    made = versions(fed, 2)
    retain(fed, 1)
    fed.reconcile()
    assert [there(fed, f"sites/{r.site}", r) for r in made[0]] == [True, False]
    assert not any(there(fed, "archive", r) for r in made[0])


def test_a_site_that_left_the_roster_is_looked_for_where_it_was(fed: MemoryFed) -> None:
    made = versions(fed, 2)
    del fed.states[B]
    fed.push_policies()
    retain(fed, 1)
    fed.reconcile()
    assert [there(fed, f"sites/{r.site}", r) for r in made[0]] == [False, False]


def test_a_store_that_cannot_delete_says_so_each_time_and_stops_nothing(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    fed.store.can_drop = False
    made = versions(fed, 2)
    retain(fed, 1)
    done = fed.reconcile()
    assert [(f.slug, f.where, f.got) for f in done.findings] == [
        ("update_kept", "v1: archive", "this store cannot delete")
    ]
    assert left(fed, made) == [KEPT] * 2
    assert not fed.reconcile().changed
    versions(fed, 1)


@pytest.mark.parametrize("repository", ["archive", f"sites/{A}"])
def test_where_ci_has_no_right_to_delete_the_archive_tells_and_a_site_keeps_its_own(
    fed: MemoryFed, repository: str
) -> None:
    made = versions(fed, 2)
    retain(fed, 1)
    honest = fed.store.drop

    closed = repository

    def drop(repository: str, digest: Digest) -> bool:
        if repository == closed:
            raise StoreError("403", slug="auth_failed", cause="auth")
        return honest(repository, digest)

    fed.store.drop = drop  # type: ignore[method-assign]  # for this test
    done = fed.reconcile()
    if repository == "archive":
        assert [(f.slug, f.got) for f in done.findings] == [("update_kept", "403")]
    else:
        assert [there(fed, f"sites/{r.site}", r) for r in made[0]] == [True, False]
        assert not any(there(fed, "archive", r) for r in made[0])


def test_a_store_that_rains_deletes_nothing_and_is_tried_again(fed: MemoryFed) -> None:
    made = versions(fed, 2)
    retain(fed, 1)
    operations: tuple[Operation, ...] = ("manifest", "drop")
    for operation in operations:
        fed.store.fail_next(operation, StoreError("it rains", cause="temporary"))
        ctx = context(fed)
        with pytest.raises(StoreError, match="it rains"):
            retire(ctx, refreshed(ctx))
    fed.reconcile()
    assert left(fed, made) == [GONE, KEPT]


def test_a_damaged_copy_is_deleted_like_a_good_one(fed: MemoryFed) -> None:
    made = versions(fed, 2)
    retain(fed, 1)
    fed.store.damage("archive", Digest(made[0][0].manifest))
    fed.reconcile()
    assert Digest(made[0][0].manifest).removeprefix("sha256:") not in fed.store._blobs["archive"]


def test_nothing_is_deleted_where_history_cannot_be_read(fed: MemoryFed) -> None:
    """Main was rewritten so that it begins with v3: nobody knows what v1 and v2 rest on."""
    made = versions(fed, 3)
    retain(fed, 1)
    main = fed.main()
    files = {p: main.bytes_of(p, max_bytes=2**24) for p in main.files}
    root = main.repository.write_commit([], files, "squashed", at=fed.clock.now())
    assert main.repository.push([RefUpdate("refs/heads/main", main.commit, root)])
    ctx = context(fed)
    assert plan_retirement(ctx, refreshed(ctx)) == ((), False)
    assert left(fed, made) == [KEPT] * 3


def test_nothing_is_deleted_for_a_version_that_nobody_has_verified(fed: MemoryFed) -> None:
    """Somebody pushed a v3 to main; it may have to be taken off again, and v1 is one of the newest two then."""
    made = versions(fed, 2)
    retain(fed, 2)
    main = fed.main()
    current = main.version
    assert current.witness is not None
    earlier = version_record(main.repository, main, 1)
    assert earlier is not None
    record = rollback_record(current, earlier[1], policy=main.policy, max_version=None, witness=current.witness)
    fed.commit({"global/version.json": dump_json(record)}, "by hand")
    ctx = context(fed)
    now = refreshed(ctx)
    assert now.version.version == 3
    assert retire(ctx, now).dropped == ()
    assert left(fed, made) == [KEPT] * 2


@pytest.mark.parametrize("cause", ["permanent", "temporary"])
def test_nothing_is_deleted_where_git_fails(fed: MemoryFed, cause: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    versions(fed, 2)
    retain(fed, 1)
    ctx = context(fed)
    main = refreshed(ctx)

    def broken(*_: object) -> Any:
        raise GitError("odd", slug="object_corrupt", cause=cause)

    monkeypatch.setattr("fedops.app.retention.version_record", broken)
    if cause == "temporary":
        with pytest.raises(GitError, match="odd"):
            plan_retirement(ctx, main)
    else:
        assert plan_retirement(ctx, main) == ((), False)


def test_nothing_is_deleted_beside_a_record_that_is_too_large_to_read(fed: MemoryFed) -> None:
    versions(fed, 2)
    retain(fed, 1)
    fed.commit({f"sites/{C}/submission.json": b"x" * 2_000_000})
    ctx = context(fed)
    assert plan_retirement(ctx, refreshed(ctx)) == ((), False)


def test_bytes_that_vanish_before_they_are_too_old_are_missed(fed: MemoryFed) -> None:
    made = versions(fed, 2)
    retain(fed, 1)
    for record in made[1]:
        for repository in ("archive", f"sites/{record.site}"):
            assert fed.store.drop(repository, Digest(record.manifest))
    last = fed.verify()[-1]
    assert (last.level, [f.slug for f in last.findings]) == ("none", ["update_missing"] * 2)


def test_a_version_without_inputs_is_passed_over(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback rests on no update."""
    made = versions(fed, 4)
    without = {2, 3}

    def some(*arguments: Any) -> Any:
        found = version_record(*arguments)
        if found is not None and found[1].version in without:
            return found[0], found[1].model_copy(update={"contributions": ()})
        return found

    monkeypatch.setattr("fedops.app.retention.version_record", some)
    retain(fed, 1)
    ctx = context(fed)
    retire(ctx, refreshed(ctx))
    assert left(fed, made) == [GONE, KEPT, KEPT, KEPT]
    assert plan_retirement(ctx, refreshed(ctx)) == ((), False)
    without.add(1)
    assert plan_retirement(ctx, refreshed(ctx)) == ((), False)


def test_a_version_without_inputs_in_the_middle_says_nothing_of_others(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = versions(fed, 5)

    def some(*arguments: Any) -> Any:
        found = version_record(*arguments)
        empty = found is not None and found[1].version == 2
        return (found[0], found[1].model_copy(update={"contributions": ()})) if empty and found else found

    monkeypatch.setattr("fedops.app.retention.version_record", some)
    retain(fed, 1)
    ctx = context(fed)
    retire(ctx, refreshed(ctx))
    assert left(fed, made) == [GONE, KEPT, GONE, GONE, KEPT]
