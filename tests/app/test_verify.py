"""Verification in memory: what is seldom met, and what must not be taken for a forgery. Forgeries: tests/scenario."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedops.app.engine import Aggregated
from fedops.app.global_models import GlobalModels
from fedops.app.main_line import Step
from fedops.app.retired import retired_by
from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.app.tip import tip_of
from fedops.app.verify import Checked, verify
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.facts import RefUpdate
from fedops.core.findings import finding
from fedops.core.ids import CommitId, Digest, RepoPath, SiteId, digest_of_hex
from fedops.core.plan import merge_message, plan_version
from fedops.core.records import Record, model_pointer
from fedops.core.settings import Limits
from tests.fakes_store import FakeStore
from tests.scenario.fed import MemoryFed, arrays

A, B, C = "hospital-a", "hospital-b", "clinic-c"


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[MemoryFed]:
    fed = MemoryFed(tmp_path)
    yield fed
    fed.close()


def merge_by_hand(fed: MemoryFed, record: Record, **changes: Any) -> None:
    """Bring a submission to main past all checks, as a CI would that makes none."""
    pull = fed.open_pull(record.site, fed.handed_in(record.model_copy(update=changes)))
    site, policy = SiteId(record.site), fed.main().policy
    message = merge_message(site, record.base_version, pull.number, pull.author, pull.head, policy)
    assert fed.merge_by_hand(pull.number, message)


def versions(fed: MemoryFed) -> list[tuple[int | None, str, list[str]]]:
    return [(one.version, one.level, [f.slug for f in one.findings]) for one in fed.verify()]


def store(fed: MemoryFed) -> FakeStore:
    return fed.store


# ---------------------------------------------------------------- levels, and bytes that were left out


def test_a_first_model_from_a_file_has_a_lineage_and_no_inputs(fed: MemoryFed) -> None:
    assert versions(fed) == [(0, "lineage", [])]


def excluded(fed: MemoryFed) -> list[str]:
    return [e.slug for e in fed.version.excluded if e.judged == "bytes"]


def test_an_exclusion_by_what_the_manifest_says_is_repeated(fed: MemoryFed) -> None:
    """The manifest is whole and no fedops wrote it: it can never be used."""
    foreign = b'{"schemaVersion": 2, "layers": []}'
    digest = store(fed).plant(f"sites/{A}", foreign)
    merge_by_hand(fed, fed.upload(A, 0, arrays(0.75)), manifest=digest)
    for site in (B, C):
        fed.submit(site, 1.0 if site == B else 2.0)
    fed.reconcile()
    assert excluded(fed) == ["foreign_layer_refused"]
    assert versions(fed)[1:] == [(1, "inputs", [])]


def test_an_exclusion_by_what_the_artifact_says_otherwise_than_the_record_is_repeated(fed: MemoryFed) -> None:
    merge_by_hand(fed, fed.upload(A, 0, arrays(0.75)), num_examples=1000)
    for site in (B, C):
        fed.submit(site, 1.0 if site == B else 2.0)
    fed.reconcile()
    assert excluded(fed) == ["annotation_mismatch"]
    assert versions(fed)[1:] == [(1, "inputs", [])]


def test_an_exclusion_of_a_submission_that_would_hardly_have_counted_is_repeated(tmp_path: Path) -> None:
    """Its discount rounds to nothing, so that it alone could not be averaged."""
    fed = MemoryFed(tmp_path, rules={"staleness": {"kind": "polynomial", "alpha": 5000.0, "max": None}})
    for site, value in ((B, 1.0), (C, 2.0)):
        fed.submit(site, value)
    fed.reconcile()
    late = fed.upload(A, 0, arrays(float("nan")))
    merge_by_hand(fed, late)
    for site, value in ((B, 3.0), (C, 4.0)):
        fed.submit(site, value)
    fed.reconcile()
    assert excluded(fed) == ["non_finite"]
    assert [level for _, level, _ in versions(fed)] == ["lineage", "inputs", "inputs"]
    fed.close()


def test_a_base_that_is_damaged_leaves_an_exclusion_unchecked_and_is_named_by_its_own_version(fed: MemoryFed) -> None:
    merge_by_hand(fed, fed.upload(A, 0, arrays(float("inf"))))
    for site, value in ((B, 1.0), (C, 2.0)):
        fed.submit(site, value)
    fed.reconcile()
    assert excluded(fed) == ["non_finite"]
    assert versions(fed)[1:] == [(1, "inputs", [])]
    first = main_snapshot(fed.repositories["lena"])
    base = json.loads(first.repository.read(first.files[RepoPath("global/version.json")].blob, max_bytes=2**20))
    assert base["version"] == 1
    v0 = fed.verify()[0]
    record = _record(fed, v0.commit)
    store(fed).damage("global", digest_of_hex(record["model"]["sha256"]))
    assert versions(fed) == [
        (0, "none", ["hash_mismatch"]),
        (1, "none", ["exclusion_unchecked", "hash_mismatch"]),
    ]


def _record(fed: MemoryFed, commit: CommitId) -> Mapping[str, Any]:
    repository = fed.repositories["lena"]
    repository.fetch()
    (entry,) = repository.entries(commit, "global/version.json")
    value: Mapping[str, Any] = json.loads(repository.read(entry.blob, max_bytes=2**20))
    return value


def one_version(fed: MemoryFed) -> None:
    for site, value in ((A, 1.0), (B, 2.0)):
        fed.submit(site, value)
    fed.reconcile()
    assert fed.version.version == 1


@pytest.mark.parametrize("cause", ["temporary", "auth"])
def test_a_store_that_rains_while_a_base_is_fetched_gives_no_verdict(fed: MemoryFed, cause: Any) -> None:
    merge_by_hand(fed, fed.upload(A, 0, arrays(float("inf"))))
    for site, value in ((B, 1.0), (C, 2.0)):
        fed.submit(site, value)
    fed.reconcile()
    ctx = fed.context()
    ctx.repository.fetch()
    main = main_snapshot(ctx.repository)
    honest = store(fed).manifest
    v0 = Digest(_record(fed, fed.verify()[0].commit)["model"]["manifest"])

    def rains(repository: str, digest: Digest) -> Any:
        if digest == v0:
            raise StoreError("it rains", cause=cause)
        return honest(repository, digest)

    store(fed).manifest = rains  # type: ignore[method-assign]  # for this test
    with pytest.raises(StoreError, match="it rains"):
        list(verify(ctx, main, [1]))


def test_what_another_site_put_into_a_folder_as_a_record_is_no_submission_of_it(fed: MemoryFed) -> None:
    """A record of history that names another site, or is too large, has no bytes to be looked at."""
    fed.commit({f"sites/{C}/submission.json": b"x" * 2**21})
    fed.commit({f"sites/{C}/submission.json": b"{}"})
    fed.commit({f"sites/{C}/submission.json": None})
    one_version(fed)
    assert versions(fed)[1:] == [(1, "inputs", [])]


# ---------------------------------------------------------------- what the engine says


@pytest.mark.parametrize("site", [None, A])
def test_inputs_that_the_engine_refuses_now_are_told_with_the_version(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch, site: str | None
) -> None:
    one_version(fed)
    one = finding("non_finite_result", "sites/x", detail={"tensor": "w"})

    def refuses(ctx: Any, main: Snapshot, weights: Any, *_: Any, **__: Any) -> Any:
        return one if site is None else {weights.weighted[0].submission.record_blob: one}

    monkeypatch.setattr("fedops.app.recompute.compute", refuses)
    assert versions(fed)[1:] == [(1, "none", ["non_finite_result"])]


@pytest.mark.parametrize("field", ["sha256", "md5", "size", "specs", "norms"])
def test_every_difference_of_what_was_recomputed_is_told(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    from dataclasses import replace

    from fedops.app.compute import compute

    one_version(fed)
    other: dict[str, Any] = {"sha256": "0" * 64, "md5": "0" * 32, "size": 1, "specs": {}, "norms": {A: 1.0}}

    def differs(*arguments: Any, **options: Any) -> Any:
        made = compute(*arguments, **options)
        assert isinstance(made, Aggregated)
        return replace(made, **{field: other[field]})

    monkeypatch.setattr("fedops.app.recompute.compute", differs)
    slug = "record_mismatch" if field == "norms" else "model_mismatch"
    assert versions(fed)[1:] == [(1, "none", [slug])]


def test_a_decision_that_gives_no_weights_now_is_told_with_the_version(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_version(fed)
    none = finding("no_weight", "policies/aggregation.yaml", got=0.0)
    monkeypatch.setattr("fedops.app.rederive.weighing", lambda *_: none)
    assert versions(fed)[1:] == [(1, "none", ["no_weight"])]


def test_a_base_that_is_no_model_is_told_with_the_version_that_rests_on_it(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_version(fed)
    bad = finding("file_corrupt", "v0")
    monkeypatch.setattr("fedops.app.global_models.open_checked", lambda *_: (None, (bad,)))
    assert versions(fed)[1:] == [(1, "none", ["file_corrupt"])]


def test_there_is_no_model_of_a_version_that_main_does_not_have(fed: MemoryFed) -> None:
    ctx = fed.context()
    ctx.repository.fetch()
    with pytest.raises(StoreError, match="v5: no such version") as caught:
        GlobalModels(ctx, main_snapshot(ctx.repository), ()).open(5, Limits())
    assert (caught.value.slug, caught.value.cause) == ("object_missing", "permanent")


def test_bytes_that_came_back_otherwise_than_the_record_says_are_still_unavailable(fed: MemoryFed) -> None:
    """Whole, but not what was handed in: as good as gone."""
    late = fed.upload(C, 0, arrays(3.0))
    merge_by_hand(fed, late, num_examples=11)
    layer, manifest = digest_of_hex(late.sha256), Digest(late.manifest)
    data = [(d, store(fed)._blobs[f"sites/{C}"][d.removeprefix("sha256:")]) for d in (layer, manifest)]
    store(fed).lose(f"sites/{C}", manifest)
    one_version(fed)
    assert [u.site for u in fed.version.witness.unavailable] == [C]
    for digest, blob in data:
        store(fed)._blobs[f"sites/{C}"][digest.removeprefix("sha256:")] = blob
    assert versions(fed)[1:] == [(1, "inputs", [])]


# ---------------------------------------------------------------- broken machines


def test_a_check_of_git_that_may_pass_is_an_error_and_no_finding(fed: MemoryFed) -> None:
    def fsck() -> list[str]:
        raise GitError("git: no room", cause="temporary")

    ctx = fed.context()
    ctx.repository.fetch()
    with pytest.raises(GitError, match="no room"):
        list(verify(ctx, main_snapshot(ctx.repository), None, fsck=fsck))


def test_what_a_check_of_git_finds_for_good_is_told_beside_the_versions(fed: MemoryFed) -> None:
    def fsck() -> list[str]:
        raise GitError("git fsck: a broken ref", slug="object_corrupt")

    ctx = fed.context()
    ctx.repository.fetch()
    *whole, beside = verify(ctx, main_snapshot(ctx.repository), None, fsck=fsck)
    assert [one.level for one in whole] == ["lineage"]
    assert (beside.version, beside.level, [f.got for f in beside.findings]) == (
        None,
        "none",
        ["git fsck: a broken ref"],
    )


def test_of_damage_that_no_version_needs_each_object_is_told(fed: MemoryFed) -> None:
    ctx = fed.context()
    ctx.repository.fetch()
    *_, beside = verify(ctx, main_snapshot(ctx.repository), None, fsck=lambda: ["2" * 40, "1" * 40])
    assert isinstance(beside, Checked)
    assert [f.got for f in beside.findings] == ["1" * 40, "2" * 40]


def test_a_newest_commit_that_cannot_be_read_is_told(fed: MemoryFed) -> None:
    """As it stands where the caller knows its id all the same."""
    one_version(fed)
    ctx = fed.context()
    ctx.repository.fetch()
    done = list(verify(ctx, Snapshot(ctx.repository, CommitId("1" * 40), {}), None))
    assert [(one.version, one.level) for one in done] == [(0, "lineage"), (1, "inputs"), (None, "none")]
    assert [f.slug for f in done[-1].findings] == ["object_corrupt"]


def test_without_any_readable_federation_the_reason_is_told(fed: MemoryFed) -> None:
    repository = fed.repositories["lena"]
    bare = repository.write_commit([], {RepoPath("README"): b"1"}, "m", at=fed.clock.now())
    with pytest.raises(ConfigError, match=r"federation\.yaml"):
        list(verify(fed.context(repository=repository), main_snapshot_of(repository, bare), None))


def main_snapshot_of(repository: Any, commit: CommitId) -> Snapshot:
    return Snapshot(repository, commit, {e.path: e for e in repository.entries(commit)})


def corrupt(*_: object) -> Any:
    raise GitError("git: object 1 is missing or corrupt", slug="object_corrupt")


def test_the_newest_commit_to_begin_with(fed: MemoryFed) -> None:
    one_version(fed)
    repository = fed.repositories["lena"]
    repository.fetch()
    honest = {name: getattr(repository, name) for name in ("resolve", "entries", "commit", "versions")}

    def seen(**changes: Any) -> Snapshot:
        return tip_of(SimpleNamespace(**honest | changes))

    tip = repository.resolve("main")
    assert (seen().commit, len(seen().files) > 5) == (tip, True)
    assert (seen(entries=corrupt).commit, seen(entries=corrupt).files) == (tip, {})
    by_tag = seen(resolve=corrupt)
    assert (by_tag.commit, by_tag.files) == (repository.versions()[-1].commit, {})
    with pytest.raises(GitError, match="object 1"):
        seen(resolve=corrupt, commit=corrupt)
    with pytest.raises(ConfigError, match="main"):
        seen(resolve=lambda _: None)

    def odd(*_: object) -> Any:
        raise GitError("odd")

    with pytest.raises(GitError, match="odd"):
        seen(entries=odd)


def test_a_clone_without_readable_trees_names_them_for_every_version(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_version(fed)
    ctx = fed.context()
    ctx.repository.fetch()
    main = tip_of(ctx.repository)
    monkeypatch.setattr(ctx.repository, "entries", corrupt)
    done = list(verify(ctx, Snapshot(ctx.repository, main.commit, {}), None))
    assert [(one.version, [f.slug for f in one.findings]) for one in done] == [
        (0, ["object_corrupt"]),
        (1, ["object_corrupt"]),
    ]


def test_sites_and_their_stores_are_those_of_the_time(tmp_path: Path) -> None:
    """A site that left the roster since is looked for where the roster of then says."""
    fed = MemoryFed(tmp_path)
    one_version(fed)
    del fed.states[A]
    fed.push_policies()
    assert versions(fed)[1:] == [(1, "inputs", [])]
    assert SiteId(A) not in fed.main().sites.sites
    fed.close()


# ---------------------------------------------------------------- what is not recomputed is opened


def forge_first(fed: MemoryFed, **changes: Any) -> None:
    """Rewrite main so that v0's record says something else of its model, under a tag that is made anew."""
    main = fed.main()
    record = main.version.model_copy(update={"model": main.version.model.model_copy(update=changes)})
    pointer = model_pointer(record, "safetensors")
    plan = plan_version(record, pointer, main.commit, extension="safetensors", at=fed.clock.now())
    files = {p: main.bytes_of(p) for p in main.files} | dict(plan.files)
    root = main.repository.write_commit([], dict(files), plan.commit_message, at=fed.clock.now())
    tag = main.repository.write_tag(plan.tag, root, plan.tag_message)
    old = main.repository.versions()[0].object
    updates = [RefUpdate("refs/heads/main", main.commit, root), RefUpdate(f"refs/tags/{plan.tag}", old, tag)]
    assert main.repository.push(updates)


def test_a_first_model_from_a_file_that_has_other_tensors_than_its_record_says(fed: MemoryFed) -> None:
    tensors = fed.version.model.tensors
    forge_first(fed, tensors={**tensors, "w": tensors["w"].model_copy(update={"shape": (1, 2)})})
    (one,) = fed.verify()
    assert (one.level, [(f.slug, f.detail) for f in one.findings]) == (
        "none",
        [("model_mismatch", {"field": "tensors"})],
    )
    assert one.findings[0].got == {"steps": ["I64", []], "w": ["F32", [1, 2]]}


def test_a_first_model_that_cannot_be_opened(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = finding("file_corrupt", "v0")
    monkeypatch.setattr("fedops.app.recompute.open_checked", lambda *_: (None, (bad,)))
    assert versions(fed) == [(0, "none", ["file_corrupt"])]


def test_retired_inputs_leave_a_model_that_is_still_opened(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    one_version(fed)
    for c in fed.version.contributions:
        for repository in ("archive", f"sites/{c.site}"):
            store(fed).drop(repository, Digest(c.manifest))
    monkeypatch.setattr("fedops.app.verify.retired_by", lambda *_: lambda _: True)
    assert versions(fed)[1:] == [(1, "lineage", [])]
    monkeypatch.setattr("fedops.app.recompute.open_checked", lambda *_: (None, (finding("unexpected_keys", "v1"),)))
    assert versions(fed)[1:] == [(1, "none", ["unexpected_keys"])]


def test_what_a_later_policy_says_counts_only_if_it_can_be_read(fed: MemoryFed) -> None:
    """v2's federation.yaml, or its tree, is damaged: then nothing but the policy of now excuses that v1's inputs are gone."""
    one_version(fed)
    main = fed.main()
    step = Step(2, CommitId("1" * 40), 9)
    assert not retired_by(main, [step])(1)
    bad = main.repository.write_commit([main.commit], {RepoPath("federation.yaml"): b"["}, "bad", at=fed.clock.now())
    assert not retired_by(main, [Step(2, bad, 9)])(1)
    none = main.repository.write_commit([main.commit], {RepoPath("federation.yaml"): None}, "none", at=fed.clock.now())
    assert not retired_by(main, [Step(2, none, 9)])(1)
    text = main.bytes_of(RepoPath("federation.yaml")).replace(b'"ocidir:store"', b'"ocidir:store", "retain_updates": 1')
    kept = main.repository.write_commit([main.commit], {RepoPath("federation.yaml"): text}, "1", at=fed.clock.now())
    assert retired_by(main, [Step(2, kept, 9)])(1)
    assert not retired_by(main, [Step(2, kept, 9)])(2)


def test_without_a_look_at_the_store_git_alone_is_judged(fed: MemoryFed) -> None:
    one_version(fed)
    ctx = fed.context()
    ctx.repository.fetch()
    before = dict(store(fed).calls)
    done = list(verify(ctx, main_snapshot(ctx.repository), None, stored=False))
    assert [(one.level, one.findings) for one in done] == [("lineage", ())] * 2
    assert dict(store(fed).calls) == before
