"""Rollbacks and reviewed versions as somebody with all rights would forge them: each is named, with version and cause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedops.app.rollback import RolledBack, rollback
from fedops.app.verify import verify
from fedops.app.version_review import version_head
from fedops.core.documents import dump_json
from fedops.core.facts import RefUpdate
from fedops.core.findings import Finding
from fedops.core.ids import CommitId, RepoPath, digest_of_hex
from fedops.core.plan import plan_version
from fedops.core.records import VersionRecord, model_pointer
from tests.scenario.fed import Fed, GitFed, MemoryFed
from tests.scenario.test_rollback import context, make, with_versions
from tests.scenario.test_version_review import published, say, the_pull

A, B = "hospital-a", "hospital-b"
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    """At v2; two leads."""
    return with_versions(make(MemoryFed, tmp_path), 2)


@pytest.fixture(params=[MemoryFed, GitFed])
def any_fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fed]:
    made = make(request.param, tmp_path)
    yield with_versions(made, 2)
    made.close()


def planned(fed: Fed, number: int = 1) -> VersionRecord:
    """The record of an honest rollback of now."""
    done = rollback(context(fed, "lena"), number, key=fed.keys["lena"].private, dry_run=True)
    assert isinstance(done, RolledBack)
    return done.record


def changed(record: VersionRecord, change: Change) -> VersionRecord:
    value = json.loads(dump_json(record))
    change(value)
    return VersionRecord.model_validate_json(json.dumps(value))


def review_of(fed: Fed, of: CommitId, who: str, **fields: Any) -> CommitId:
    """What the forge keeps of an approval: a signed commit of one file."""
    value = {"schema": "fedops.review/v1", "pull": 1, "head": of, "state": "approved"} | fields
    files = {RepoPath("review.json"): json.dumps(value).encode()}
    return fed.repositories["lena"].write_commit((), files, "review", at=fed.clock.now(), key=fed.keys[who].private)


def push(
    fed: Fed,
    record: VersionRecord,
    *,
    by: str | None = "lena",
    reviews: Mapping[str, dict[str, Any]] | None = None,
    merger: str | None = None,
    squash: bool = False,
    stray: CommitId | None = None,
    also: Mapping[str, bytes] | None = None,
) -> CommitId:
    """Bring a version to main with its tag, as fedops does: the proposal, its approvals, the merge; past all checks.

    Args:
        by: who signs the proposal; None: nobody.
        reviews: who approves, with other fields of the review where given.
        merger: who signs the merge.
        squash: no merge, one commit.
        stray: one more parent.
        also: files that the proposal changes besides.
    """
    repository = fed.repositories["lena"]
    main = fed.main()
    key = fed.keys[by].private if by is not None else None
    head = version_head(context(fed, "lena"), main, record, fed.clock.now(), key=key)
    if also:
        files = {RepoPath(p): d for p, d in also.items()}
        files |= dict(files_at(fed, head, main.commit))
        head = repository.write_commit([main.commit], files, "v", at=fed.clock.now(), key=key)
    given = {"leo": {}} if reviews is None else reviews
    proofs = [review_of(fed, head, who, **fields) for who, fields in given.items()]
    pointer = model_pointer(record, "safetensors")
    step = plan_version(record, pointer, main.commit, extension="safetensors", at=fed.clock.now())
    parents = [main.commit] if squash else [main.commit, head, *proofs, *([stray] if stray is not None else [])]
    signer = fed.keys[merger].private if merger is not None else None
    commit = repository.write_commit(parents, step.files, step.commit_message, at=fed.clock.now(), key=signer)
    tag = repository.write_tag(step.tag, commit, step.tag_message)
    updates = [RefUpdate("refs/heads/main", main.commit, commit), RefUpdate(f"refs/tags/{step.tag}", None, tag)]
    assert repository.push(updates)
    return commit


def files_at(fed: Fed, commit: CommitId, base: CommitId) -> Iterator[tuple[RepoPath, bytes]]:
    repository = fed.repositories["lena"]
    for change in repository.changes(base, commit):
        assert change.blob is not None
        yield change.path, repository.read(change.blob, max_bytes=2**20)


def findings(fed: Fed, number: int = 3) -> tuple[Finding, ...]:
    """What verify says of a version; all others must be good."""
    rows = fed.verify()
    assert [row.version for row in rows if row.version != number and row.level == "none"] == []
    return next(row.findings for row in rows if row.version == number)


def named(found: tuple[Finding, ...]) -> set[tuple[str, object]]:
    """Slug and field of each finding."""
    return {(f.slug, (f.detail or {}).get("field")) for f in found}


# ---------------------------------------------------------------- honest


def test_what_fedops_itself_would_have_pushed_is_good(any_fed: Fed) -> None:
    push(any_fed, planned(any_fed))
    assert findings(any_fed) == ()
    assert any_fed.verify()[-1].level == "inputs"


def test_without_the_store_its_lineage_is_checked_all_the_same(fed: Fed) -> None:
    push(fed, planned(fed))
    ctx = fed.context()
    ctx.repository.fetch()
    assert [row.level for row in verify(ctx, fed.main(), None, stored=False)] == ["lineage"] * 4


# ---------------------------------------------------------------- the record


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("model", "another model"),
        ("source", lambda r: r.update(source={"version": 7})),
        ("source", lambda r: r.update(source={"version": 3})),
        ("source", lambda r: r.update(source=None)),
        ("source", lambda r: r.update(source={"generator": "zeros", "seed": 0})),
        ("model", lambda r: r.update(source={"version": 0})),
        ("model", lambda r: r["model"].update(manifest="sha256:" + "0" * 64)),
        ("model", lambda r: r["model"]["tensors"].pop("w")),
        ("consumed", lambda r: r.update(consumed={})),
        ("consumed", lambda r: r["consumed"].update({B: 2})),
        ("carried", lambda r: r["carried"].update(counters={"steps": 1})),
        ("metrics", lambda r: r.update(metrics={"loss": 0.0})),
        ("status", lambda r: r.update(status="final")),
        ("denominator", lambda r: r.update(denominator=1.0)),
        ("witness", lambda r: r["witness"].update(trigger="quorum")),
        ("witness.decided_at", lambda r: r["witness"].update(decided_at="yesterday")),
    ],
)
def test_a_record_that_does_not_follow_from_its_source(fed: Fed, field: str, change: Any) -> None:
    honest = planned(fed)
    if change == "another model":
        record = honest.model_copy(update={"model": fed.version.model})
    else:
        record = changed(honest, change)
    push(fed, record)
    assert ("record_mismatch", field) in named(findings(fed))


def test_rules_that_are_not_those_of_then(fed: Fed) -> None:
    push(fed, changed(planned(fed), lambda r: r.update(policy="sha256:" + "0" * 64)))
    assert [f.slug for f in findings(fed)] == ["policy_mismatch"]


def test_an_input_commit_before_the_version_before(fed: Fed) -> None:
    line = list(fed.repositories["lena"].commits(None, fed.main().commit))
    push(fed, changed(planned(fed), lambda r: r["witness"].update(input_commit=line[-1].id)))
    assert ("lineage_broken", "witness.input_commit") in named(findings(fed))


def test_a_number_that_is_left_out(fed: Fed) -> None:
    push(fed, changed(planned(fed), lambda r: r.update(version=4)))
    rows = {row.version: [f.slug for f in row.findings] for row in fed.verify()}
    assert rows[4] == ["lineage_broken"]
    assert rows[3] == ["lineage_broken"]


def test_bytes_that_are_gone_or_damaged(fed: Fed) -> None:
    push(fed, planned(fed))
    assert isinstance(fed, MemoryFed)
    fed.store.damage("global", digest_of_hex(fed.version.model.sha256))
    rows = fed.verify()
    assert next(row.version for row in rows if row.level == "none") == 1
    assert [f.slug for f in rows[3].findings] == ["hash_mismatch"]


def test_a_kind_that_no_fedops_makes(fed: Fed) -> None:
    push(fed, changed(planned(fed), lambda r: r.update(kind="revert")))
    assert any(f.slug == "record_mismatch" for f in findings(fed))


# ---------------------------------------------------------------- who, and who approved


@pytest.mark.parametrize("by", [A, None])
def test_a_rollback_that_no_lead_proposed(any_fed: Fed, by: str | None) -> None:
    push(any_fed, planned(any_fed), by=by)
    assert [f.slug for f in findings(any_fed)] == ["lead_required"]


@pytest.mark.parametrize(
    "options",
    [
        {"reviews": {}},
        {"reviews": {"lena": {}}},
        {"reviews": {}, "merger": "lena"},
        {"squash": True},
        {"squash": True, "merger": "lena"},
    ],
)
def test_a_rollback_that_no_other_lead_approved(any_fed: Fed, options: dict[str, Any]) -> None:
    push(any_fed, planned(any_fed), **options)
    found = [f for f in findings(any_fed) if f.slug == "version_unapproved"]
    assert [(f.got, f.expected) for f in found] == [(0, 1)]


def test_a_lead_s_signed_merge_is_an_approval(any_fed: Fed) -> None:
    push(any_fed, planned(any_fed), reviews={}, merger="leo")
    assert findings(any_fed) == ()


@pytest.mark.parametrize(
    ("who", "fields"),
    [("leo", {"head": "0" * 40}), ("leo", {"state": "changes_requested"}), ("leo", {"schema": "x"}), (A, {}), (B, {})],
)
def test_an_approval_of_something_else_or_of_nobody(any_fed: Fed, who: str, fields: dict[str, Any]) -> None:
    push(any_fed, planned(any_fed), reviews={who: fields})
    assert [f.slug for f in findings(any_fed)] == ["lineage_broken", "version_unapproved"]


def test_a_parent_that_is_no_approval(any_fed: Fed) -> None:
    repository = any_fed.repositories["lena"]
    stray = repository.write_commit(
        (), {RepoPath("x"): b"x"}, "x", at=any_fed.clock.now(), key=any_fed.keys["leo"].private
    )
    push(any_fed, planned(any_fed), stray=stray)
    assert [(f.slug, f.got) for f in findings(any_fed)] == [("lineage_broken", stray)]


def test_a_review_too_large_to_be_one(fed: Fed) -> None:
    push(fed, planned(fed), reviews={"leo": {"body": "x" * 600_000}})
    assert [f.slug for f in findings(fed)] == ["lineage_broken", "version_unapproved"]


def test_a_proposal_with_something_more_in_it(any_fed: Fed) -> None:
    """The merge itself is clean; but what leads approved was not this."""
    push(any_fed, planned(any_fed), also={"README.md": b"x\n"})
    assert [f.slug for f in findings(any_fed)] == ["lineage_broken"]


def test_fewer_approvals_than_the_policy_asked_for(fed: Fed) -> None:
    fed.set_rules(publish={"mode": "push", "approvals": 2})
    push(fed, planned(fed))
    assert [(f.slug, f.got, f.expected) for f in findings(fed)] == [("version_unapproved", 1, 2)]


def test_a_version_past_the_review_that_its_policy_asked_for(any_fed: Fed) -> None:
    fed = any_fed
    fed.set_rules(publish={"mode": "review"})
    fed.submit(A, 9.0)
    fed.reconcile()
    pull = the_pull(fed)
    repository = fed.repositories["lena"]
    repository.fetch()
    files = dict(files_at(fed, pull.head, fed.main().commit))
    record = VersionRecord.model_validate_json(files[RepoPath("global/version.json")])
    push(fed, record, squash=True)
    assert [(f.slug, f.got, f.expected) for f in findings(fed)] == [("version_unapproved", 0, 1)]


def test_a_version_that_leads_approved_is_good_and_who_approved_is_on_main(any_fed: Fed) -> None:
    fed = any_fed
    fed.set_rules(publish={"mode": "review", "approvals": 2})
    fed.submit(A, 9.0)
    fed.reconcile()
    for who in ("lena", "leo"):
        say(fed, who, the_pull(fed))
    assert published(fed.reconcile()) == [3]
    assert findings(fed) == ()
    main = fed.main()
    keys = [fed.keys[who].public for who in ("lena", "leo")]
    parents = main.repository.commit(main.commit).parents
    assert sorted(str(main.repository.signer(p, keys)) for p in parents[2:]) == sorted(keys)


def test_where_git_holds_no_proof_nothing_is_said(fed: Fed) -> None:
    fed.submission = {"require_signed": False}
    fed.push_policies()
    push(fed, planned(fed), by=None, reviews={})
    assert findings(fed) == ()


def test_rules_that_nobody_can_read_are_named_as_such(fed: Fed) -> None:
    record = planned(fed)
    fed.commit({"policies/aggregation.yaml": b"{"})
    repository = fed.repositories["lena"]
    main = fed.main()
    step = plan_version(
        record, model_pointer(record, "safetensors"), main.commit, extension="safetensors", at=fed.clock.now()
    )
    commit = repository.write_commit([main.commit], step.files, "v3", at=fed.clock.now())
    tag = repository.write_tag(step.tag, commit, step.tag_message)
    updates = [RefUpdate("refs/heads/main", main.commit, commit), RefUpdate(f"refs/tags/{step.tag}", None, tag)]
    assert repository.push(updates)
    assert {f.slug for f in findings(fed)} >= {"lineage_broken"}


# ---------------------------------------------------------------- a version taken back with git alone


def test_git_revert_of_a_version_is_named_and_makes_no_second_one(any_fed: Fed) -> None:
    """The record on main says v1 again, and v2's tag stands above the current version; a second revert mends it."""
    fed = any_fed
    repository = fed.repositories["lena"]
    main = fed.main()
    made = repository.commit(main.commit)
    files = dict(files_at(fed, made.id, made.parents[0]))
    before = {e.path: repository.read(e.blob, max_bytes=2**20) for e in repository.entries(made.parents[0], "global")}
    assert before.keys() >= files.keys()
    fed.commit({str(p): before[p] for p in files}, 'Revert "global: v2 (fedavg, 1 site)"')
    done = fed.reconcile()
    assert [(f.slug, f.where) for f in done.findings if f.slug == "tag_moved"][:1] == [("tag_moved", "global@v2.0.0")]
    assert (done.published, done.decision) == ([], None)
    rows = fed.verify()
    assert [(row.version, [f.slug for f in row.findings]) for row in rows if row.findings] == [
        (None, ["lineage_broken"])
    ]
    fed.commit({str(p): files[p] for p in files}, "Revert the revert")
    rows = fed.verify()
    assert [(row.version, [f.slug for f in row.findings]) for row in rows if row.findings] == [
        (None, ["global_restored", "global_restored"])
    ]
