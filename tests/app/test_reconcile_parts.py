"""The parts of reconcile, at the edges that no story reaches."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from fedops.adapters.model_writer import save_arrays
from fedops.app.inspect import inspect_pull, refreshed
from fedops.app.merge import merge_pull
from fedops.app.merged import merged_state
from fedops.app.model_bytes import open_global, store_finding
from fedops.app.propose import propose
from fedops.app.publish import skips_of
from fedops.app.reconcile import Reconciled, repair
from fedops.app.snapshot import snapshot
from fedops.app.verdict_cache import BytesMemory
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.facts import Aggregate, RefUpdate, Wait
from fedops.core.findings import errors
from fedops.core.ids import VERSION_PATH, BlobId, Digest
from fedops.core.records import ExcludedEntry, Proposal, ProposedModel, Unavailable
from fedops.render.reconcile import reconcile_document
from tests.fakes_repository import FakeOrigin
from tests.founding_world import Wrapped
from tests.scenario.fed import Fed, MemoryFed, arrays
from tests.scenario.oracle import check_all

A, B, C = "hospital-a", "hospital-b", "clinic-c"


@pytest.fixture
def fed(tmp_path: Path) -> MemoryFed:
    return MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}})


def merged_by_hand(fed: Fed, *sites: str, **options: Any) -> None:
    for number, site in enumerate(sites, 1):
        fed.merge_by_hand(fed.submit(site, float(number), **options).number)


# ---------------------------------------------------------------- decisions that stop


UNAVAILABLE = [
    ({"privacy": {"clip_norm": 1.0, "noise_multiplier": 1.0}}, "privacy: not available in this version -> null"),
    ({"strategy": {"name": "fedadam"}}, "strategy 'fedadam' -> one of "),
    ({"strategy": {"name": "fedavg", "beta": 1}}, "strategy fedavg: parameters ['beta'] -> none"),
]


@pytest.mark.parametrize(("rules", "says"), UNAVAILABLE)
def test_a_policy_that_is_not_computed_here_stops_before_anything_is_fetched(
    fed: MemoryFed, rules: Any, says: str
) -> None:
    merged_by_hand(fed, A)
    fed.set_rules(**rules)
    before = dict(fed.store.calls)
    done = fed.reconcile()
    (told,) = (f for f in done.findings if f.slug == "policy_invalid")
    assert told.got.startswith(f"policies/aggregation.yaml:1: {says}"), "the test writes all of it into one line"
    assert (done.published, done.decision, fed.version.version) == ([], None, 0)
    assert {k: n for k, n in fed.store.calls.items() if k in ("get", "put")} == {
        k: n for k, n in before.items() if k in ("get", "put")
    }


@pytest.mark.parametrize(("rules", "says"), UNAVAILABLE)
def test_such_a_policy_stops_the_next_version_alone(fed: MemoryFed, rules: Any, says: str) -> None:
    """What is handed in is judged and merged, sites are told, and a version that came before is kept in order."""
    fed.set_state(C, "suspended")
    fed.submit(A, 1.0)
    fed.reconcile()
    assert fed.version.version == 1
    fed.set_rules(**rules)
    fed.set_state(C, "active")
    fed.submit(B, 2.0)
    done = fed.reconcile()
    assert ([m.outcome for m in done.merged], done.published) == (["merged"], [])
    assert [text.rpartition(": ")[2] for text in done.signals] == [C]
    assert [f.slug for f in done.findings] == ["policy_invalid"]
    again = fed.reconcile()
    assert (again.changed, again.again) == (False, False), "no run is started for what only a lead can mend"
    fed.set_rules(privacy=None, strategy={"name": "fedavg"})
    assert [[c.site for c in v.contributions] for v in fed.reconcile().published] == [[B]]
    check_all(fed, rerun=lambda: fed.reconcile().changed)


def test_weights_that_are_all_zero_make_no_version_and_say_so(fed: MemoryFed) -> None:
    fed.set_rules(staleness={"kind": "polynomial", "alpha": 5000.0, "max": None})  # 2 ** -5000 is 0 as a float
    merged_by_hand(fed, A)
    fed.reconcile()
    fed.merge_by_hand(fed.submit(C, 9.0, base=0).number)
    done = fed.reconcile()
    assert [f.slug for f in done.findings] == ["no_weight", "merged_by_hand"]
    assert (done.published, fed.version.version) == ([], 1)
    assert not fed.reconcile().changed


def test_an_update_that_alone_goes_beyond_the_dtype_is_left_out_and_stops_nobody(fed: MemoryFed) -> None:
    big = float(np.finfo(np.float32).max)
    merged_by_hand(fed, A)
    fed.reconcile()
    assert fed.version.version == 1
    # v1 holds 1.0; two steps of the largest number do not fit into a float32.
    fed.submit(A, {"steps": np.array(0, np.int64), "w": np.array([big, 0], np.float32)})
    fed.reconcile()
    fed.submit(B, {"steps": np.array(0, np.int64), "w": np.array([big, 1], np.float32)}, base=1)
    done = fed.reconcile()
    assert [f.slug for f in done.findings] == ["non_finite_result"]
    assert (done.published, fed.version.version) == ([], 2)
    assert isinstance(done.decision, Wait)
    assert not fed.reconcile().changed
    fed.submit(C, {"steps": np.array(0, np.int64), "w": np.array([big, 2], np.float32)}, base=2)
    [made] = fed.reconcile().published
    assert [(e.site, e.slug, e.judged) for e in made.excluded] == [(B, "non_finite_result", "bytes")]
    assert [c.site for c in made.contributions] == [C]
    assert [errors(v.findings) for v in fed.verify()] == [()] * 4


def test_an_update_beyond_the_norm_limit_is_refused_and_excluded_if_a_person_merged_it(fed: MemoryFed) -> None:
    fed.submission = {"update_norm_max": 4.0}
    fed.push_policies()
    refused = fed.submit(A, 9.0)
    fed.reconcile()
    assert "FO-219" in "".join(fed.forge("lena").comments(refused.number))
    fed.merge_by_hand(refused.number)
    fed.submit(B, 2.0)
    [made] = fed.reconcile().published
    assert [(e.site, e.slug, e.judged) for e in made.excluded] == [(A, "norm_exceeded", "bytes")]
    # w goes from (0.5, -0.5) to (2, -2): the norm of (1.5, -1.5).
    assert [c.delta_norm for c in made.contributions] == [pytest.approx(1.5 * 2**0.5)]


# ---------------------------------------------------------------- what lies on main


def test_a_record_of_a_version_that_is_not_there_counts_for_nothing(fed: MemoryFed) -> None:
    merged_by_hand(fed, A, base=7)
    main = fed.main()
    state = merged_state(main.repository, main)
    assert (state.submissions, [f.slug for f in state.faults]) == ((), ["record_unreadable"])


def test_a_record_of_another_site_or_format_counts_for_nothing(fed: MemoryFed) -> None:
    theirs = fed.handed_in(fed.upload(B, 0, arrays(3.0)))
    fed.commit({str(p).replace(B, A): d for p, d in theirs.items()})
    other = fed.upload(C, 0, arrays(4.0), format="opaque")
    fed.commit({str(p): d for p, d in fed.handed_in(other).items()})
    main = fed.main()
    state = merged_state(main.repository, main)
    assert [(f.slug, f.got) for f in state.faults] == [
        ("record_unreadable", [C, "opaque"]),
        ("record_unreadable", [B, "safetensors"]),
    ]


def test_a_pointer_that_is_not_the_records_counts_for_nothing(fed: MemoryFed) -> None:
    files = {str(p): d for p, d in fed.handed_in(fed.upload(A, 0, arrays(3.0))).items()}
    fed.commit({**files, f"sites/{A}/update.safetensors.dvc": b"outs: []\n"})
    main = fed.main()
    assert [f.got for f in merged_state(main.repository, main).faults] == ["another pointer"]


def test_the_merge_of_an_older_record_is_found_behind_other_merges(fed: MemoryFed) -> None:
    fed.set_rules(trigger={"quorum": 4})
    merged_by_hand(fed, A, B, C)
    fed.clock.sleep(60)
    fed.commit({"README.md": b"x\n"})
    main = fed.main()
    state = merged_state(main.repository, main)
    line = [c.id for c in main.repository.commits(None, main.commit)]
    assert [line.index(s.commit) for s in state.submissions] == [1, 3, 2]
    assert {s.merged_at for s in state.submissions} == {fed.main().repository.commit(line[1]).committed_at}


def test_a_record_that_a_person_changed_while_merging_is_not_the_sites(fed: MemoryFed) -> None:
    """An evil merge: the merge commit itself says something else than the commit that the site signed."""
    pull = fed.submit(A, 1.0)
    main = fed.main()
    other = fed.handed_in(fed.upload(A, 0, arrays(66.0)))
    merge = main.repository.write_commit([main.commit, pull.head], other, "Merge", at=fed.clock.now())
    assert main.repository.push([RefUpdate("refs/heads/main", main.commit, merge)])
    main = fed.main()
    state = merged_state(main.repository, main)
    assert [(e.submission.site, e.finding.slug) for e in state.refused] == [(A, "signature_invalid")]


def test_a_roster_that_cannot_be_read_proves_no_signature(fed: MemoryFed) -> None:
    good = fed.policy_files()
    fed.commit({"policies/sites.yaml": b"no roster\n"})
    pull = fed.submit(A, 1.0)
    fed.merge_by_hand(pull.number)
    fed.commit({str(p): d for p, d in good.items()})
    main = fed.main()
    state = merged_state(main.repository, main)
    assert [(e.submission.site, e.finding.slug) for e in state.refused] == [(A, "signature_invalid")]


def test_a_record_that_came_with_the_first_commit_proves_no_signature(fed: MemoryFed) -> None:
    """Nothing came before it, so there is no roster by which its signature could be judged."""
    main = fed.main()
    files = {p: main.bytes_of(p) for p in main.files} | fed.handed_in(fed.upload(A, 0, arrays(3.0)))
    key = fed.keys[A].private
    root = main.repository.write_commit([], files, "all at once", at=fed.clock.now(), key=key)
    state = merged_state(main.repository, snapshot(main.repository, root))
    assert [e.finding.slug for e in state.refused] == ["signature_invalid"]


# ---------------------------------------------------------------- global models


def test_a_model_of_many_thousand_tensors_makes_versions_that_can_be_read(tmp_path: Path) -> None:
    """Its version record and its proposal name every tensor, and are larger than other documents may be."""
    names = [f"model.layers.{i}.self_attn.query_projection.weight" for i in range(7000)]
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 1}}, base={n: np.zeros((1, 1), np.float32) for n in names})
    fed.submit(A, {n: np.ones((1, 1), np.float32) for n in names})
    assert [v.version for v in fed.reconcile().published] == [1]
    main = fed.main()
    assert len(main.bytes_of(VERSION_PATH, max_bytes=2**24)) > 1_048_576
    fed.submit(B, {n: np.full((1, 1), 2, np.float32) for n in names})
    assert [v.version for v in fed.reconcile().published] == [2]
    assert fed.model()[names[-1]].tolist() == [[2.0]]
    assert [c.level for c in fed.verify()] == ["lineage", "inputs", "inputs"]


def test_a_global_model_of_other_bytes_than_its_record_says_is_never_used(fed: MemoryFed) -> None:
    other = fed.scratch.new() / "model.safetensors"
    save_arrays(other, arrays(7.0))
    stored = fed.store.put("global", other, {"fl.version": "0"})
    record = fed.version
    model = record.model.model_copy(update={"manifest": stored.manifest})
    main = fed.main()
    main.__dict__["version"] = record.model_copy(update={"model": model})
    with pytest.raises(StoreError, match="layer") as caught:
        open_global(fed.context(), main, 0)
    assert caught.value.slug == "digest_mismatch"


def test_a_global_model_that_is_no_model_is_named(fed: MemoryFed) -> None:
    path = fed.scratch.new() / "model.safetensors"
    path.write_bytes(save({"w": np.zeros(2, np.float32)}, metadata={"by": "somebody else"}))
    data = path.read_bytes()
    stored = fed.store.put("global", path, {"fl.version": "0"})
    digests = {"sha256": hashlib.sha256(data).hexdigest(), "md5": hashlib.md5(data, usedforsecurity=False).hexdigest()}
    record = fed.version
    main = fed.main()
    model = record.model.model_copy(update={**digests, "size": len(data), "manifest": stored.manifest})
    main.__dict__["version"] = record.model_copy(update={"model": model})
    with pytest.raises(StoreError, match="unexpected_keys"):
        open_global(fed.context(), main, 0)


def test_a_version_that_is_not_there_has_no_model(fed: MemoryFed) -> None:
    with pytest.raises(StoreError, match="v3: no such version") as caught:
        open_global(fed.context(), fed.main(), 3)
    assert caught.value.slug == "object_missing"


def test_a_pull_on_a_version_that_main_lost_waits_and_stops_nobody(fed: MemoryFed) -> None:
    """Somebody rewrote main so that it begins with v1: v0 is nowhere to be found."""
    merged_by_hand(fed, A)
    fed.reconcile()
    main = fed.main()
    files = {p: main.bytes_of(p) for p in main.files}
    root = main.repository.write_commit([], files, "squashed", at=fed.clock.now())
    assert main.repository.push(
        [
            RefUpdate("refs/heads/main", main.commit, root),
            RefUpdate("refs/tags/global@v0.0.0", next(t.object for t in main.repository.versions()), None),
        ]
    )
    late = fed.submit(C, 5.0, base=0)
    fed.submit(B, 6.0, base=1)
    done = fed.reconcile()
    assert "the check could not finish" in "".join(fed.forge("lena").comments(late.number))
    assert [m.outcome for m in done.merged if m.judgement.pull.number != late.number] == ["merged"]


def test_what_says_that_the_store_itself_is_broken_is_raised_again() -> None:
    error = StoreError("403", slug="auth_failed", cause="auth")
    with pytest.raises(StoreError) as caught:
        store_finding(error, "x")
    assert caught.value is error
    assert store_finding(StoreError("404", slug="object_missing"), "x").slug == "object_missing"


# ---------------------------------------------------------------- inspect and merge


def test_one_look_at_the_same_bytes_is_enough(fed: MemoryFed) -> None:
    pull = fed.submit(A, 1.0)
    ctx, memory = fed.context(), BytesMemory()
    main = refreshed(ctx)
    first = inspect_pull(ctx, main, pull, memory)
    looks = dict(fed.store.calls)
    assert inspect_pull(ctx, main, pull, memory) == first
    assert dict(fed.store.calls) == looks


def test_without_a_main_there_is_nothing_to_judge_by(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path)
    with pytest.raises(ConfigError, match="no such branch"):
        refreshed(fed.context(repository=FakeOrigin().clone()))


def test_a_git_that_fails_while_the_documents_are_judged_again_leaves_the_pull_waiting(fed: MemoryFed) -> None:
    pull = fed.submit(A, 1.0)
    ctx = fed.context()
    judged = inspect_pull(ctx, refreshed(ctx), pull, BytesMemory())
    assert judged.verdict.state == "accepted"

    def changes(*_: object) -> None:
        raise GitError("disk full", cause="temporary")

    broken = fed.context(repository=Wrapped(ctx.repository, changes=changes), forge=ctx.forge)
    done = merge_pull(broken, judged)
    assert done.outcome == "waiting"
    assert "disk full" in "".join(fed.forge("lena").comments(pull.number))
    assert fed.forge("lena").pull(pull.number).state == "open"


def test_a_head_that_git_cannot_read_is_refused_and_a_git_that_fails_is_waited_for(fed: MemoryFed) -> None:
    pull = fed.submit(A, 1.0)
    ctx = fed.context()
    main = refreshed(ctx)

    def judged(error: GitError) -> tuple[str, list[str]]:
        def changes(*_: object) -> None:
            raise error

        broken = fed.context(repository=Wrapped(ctx.repository, changes=changes), forge=ctx.forge)
        found = inspect_pull(broken, main, pull, BytesMemory()).verdict
        return found.state, [f.slug for f in found.findings]

    assert judged(GitError("x", slug="object_corrupt")) == ("rejected", ["object_corrupt"])
    assert judged(GitError("x", slug="lineage_broken")) == ("rejected", ["commit_shape"])
    assert judged(GitError("x", cause="temporary")) == ("pending", [])


# ---------------------------------------------------------------- results


def test_a_proposal_and_a_version_say_in_the_same_words_what_was_skipped(fed: MemoryFed) -> None:
    lost = Unavailable(site=C, record_blob="1" * 40, slug="object_missing")
    bad = ExcludedEntry(site=B, record_blob="2" * 40, id="FO-218", slug="non_finite", judged="bytes")
    stale = ExcludedEntry(site=A, record_blob="3" * 40, id="FO-226", slug="too_stale", judged="tree")
    record = fed.version
    witness = record.witness.model_copy(update={"unavailable": (lost,)})
    version = record.model_copy(update={"excluded": (bad, stale), "witness": witness})
    model = ProposedModel(format="safetensors", size=1, sha256="4" * 64, md5="5" * 32, tensors={})
    proposal = Proposal(
        version=1,
        input_commit="6" * 40,
        model=model,
        norms={},
        scores={},
        metrics={},
        excluded=(bad,),
        unavailable=(lost,),
    )
    skips = skips_of(proposal)
    assert skips_of(version) == skips
    assert skips.slugs() == {BlobId("1" * 40): "object_missing", BlobId("2" * 40): "non_finite"}


def test_a_tag_that_is_right_is_not_set_again_and_one_that_is_wrong_is(fed: MemoryFed) -> None:
    ctx = fed.context()
    main = refreshed(ctx)
    assert repair(ctx, main)
    assert not repair(ctx, main)
    assert fed.store.resolve("global:v0") == Digest(main.version.model.manifest)


def test_a_run_says_what_became_of_each_pull_request(fed: MemoryFed) -> None:
    good = fed.submit(A, 1.0)
    bad = fed.submit(B, 2.0, signed=False)
    done = fed.reconcile()
    rows = {row["pull"]: row for row in done.merged_rows()}
    assert (rows[good.number]["site"], rows[good.number]["outcome"], rows[good.number]["reason"]) == (A, "merged", "")
    assert (rows[bad.number]["outcome"], rows[bad.number]["reason"]) == ("rejected", "signature_invalid")
    facts = reconcile_document(rows.values(), done.published, done.signals, done.decision, again=done.again)  # type: ignore[arg-type]
    assert facts is not None
    assert Reconciled().merged_rows() == []


def test_a_proposal_is_decided_on_again_until_what_is_left_is_there(fed: MemoryFed) -> None:
    """Two are lost, one after the other: the first by its manifest, the second by its layer."""
    merged_by_hand(fed, A, B, C)
    [a, b, _] = fed.uploads
    assert fed.lose(f"sites/{a[0]}", Digest(a[1]), damage=False)
    assert fed.lose(f"sites/{b[0]}", Digest("sha256:" + fed.uploads[b].record.sha256), damage=True)
    ctx = fed.context()
    main = refreshed(ctx)
    plan = propose(ctx, main, merged_state(ctx.repository, main), fed.clock.now(), unavailable={})
    assert isinstance(plan.decision, Aggregate)
    assert [s.site for s in plan.decision.use] == [C]
    assert sorted(plan.skips.unavailable.values()) == ["hash_mismatch", "object_missing"]
