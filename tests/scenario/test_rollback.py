"""`fedops rollback`: a lead proposes an earlier model as the next version, other leads approve, CI publishes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedops.app.context import Context
from fedops.app.rollback import MAX_REASON, RolledBack, rollback
from fedops.core.errors import ConfigError, ForgeError, StoreError
from fedops.core.facts import Pull
from fedops.core.findings import Finding
from fedops.core.ids import Digest, RepoPath
from tests.github_face.fed import GitHubFed
from tests.scenario.fed import Fed, GitFed, MemoryFed
from tests.scenario.oracle import check_all
from tests.scenario.test_version_review import (
    WAITS,
    comments,
    hand_merge,
    published,
    rerun,
    say,
    state_of,
    status,
    the_pull,
    waits_for,
)

A, B = "hospital-a", "hospital-b"
RULES: dict[str, Any] = {"trigger": {"quorum": 1}}


def make(kind: type[Fed], folder: Path, **options: Any) -> Fed:
    folder.mkdir(exist_ok=True)
    return kind(folder, **{"rules": RULES, "people": ("lena", "leo", A, B), "sites": (A, B)} | options)


def with_versions(fed: Fed, count: int) -> Fed:
    """Version n holds n, from hospital-a alone; hospital-b has handed in nothing."""
    for number in range(count):
        fed.submit(A, float(number + 1))
        assert published(fed.reconcile()) == [number + 1]
    return fed


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return with_versions(make(MemoryFed, tmp_path), 3)


@pytest.fixture(params=[MemoryFed, pytest.param(GitFed, marks=pytest.mark.long)])
def any_fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fed]:
    made = make(request.param, tmp_path)
    yield with_versions(made, 3)
    made.close()


def context(fed: Fed, who: str) -> Context:
    repository = fed.repositories[who]
    return fed.context(repository=repository, forge=fed.forge(who))


def propose(fed: Fed, number: int, who: str = "lena", **options: Any) -> RolledBack:
    done = rollback(context(fed, who), number, **{"key": fed.keys[who].private} | options)
    assert isinstance(done, RolledBack), done
    return done


def check(fed: Fed) -> None:
    check_all(fed, rerun=partial(rerun, fed))


@pytest.mark.parametrize("any_fed", [MemoryFed, GitFed], indirect=True)
def test_an_approved_rollback_is_a_version_with_the_earlier_bytes(any_fed: Fed) -> None:
    fed = any_fed
    before, first = fed.version, fed.model(1)
    done = propose(fed, 1, reason="v2 made *everything* worse")
    assert (done.outcome, done.approvals) == ("opened", 1)
    pull = the_pull(fed)
    assert (pull.number, pull.title, pull.branch) == (done.pull, "global: v4 (rollback to v1)", "fedops/v4-rollback")
    ran = fed.reconcile()
    assert waits_for(ran) == ("review", pull.number)
    assert status(fed, pull) == ("pending", WAITS)
    say(fed, "leo", pull)
    ran = fed.reconcile()
    assert published(ran) == [4]
    now = fed.version
    assert (now.version, now.base_version, now.kind, now.status) == (4, 3, "rollback", "running")
    assert now.source is not None
    assert now.source.version == 1
    assert (now.consumed, now.carried, now.contributions) == (before.consumed, before.carried, ())
    assert {n: a.tolist() for n, a in fed.model().items()} == {n: a.tolist() for n, a in first.items()}
    assert fed.store.resolve("global:v4") == fed.store.resolve("global:v1") == now.model.manifest
    told = "".join(ran.signals)
    assert f"Train on v4: {A}" in told
    assert f"Train on v4: {B}" in told, "all active sites are told"
    assert [row.level for row in fed.verify()] == ["lineage", *["inputs"] * 4]
    main = fed.main()
    message = main.repository.commit(main.commit).message
    assert message.startswith("global: v4 (rollback to v1)\n\nv2 made *everything* worse\n\nFedops-Version: 4\n")
    check(fed)
    fed.submit(A, 9.0)
    assert published(fed.reconcile()) == [5]
    assert fed.version.consumed == {A: 4}
    check(fed)


def test_asking_twice_opens_one_pull_request_and_once_it_is_published_there_is_nothing_to_do(fed: Fed) -> None:
    first = propose(fed, 1)
    before = fed.state()
    fed.clock.sleep(60)
    assert propose(fed, 1) == RolledBack("open", first.record, first.pull, 1)
    assert propose(fed, 1, "leo").outcome == "open"
    assert fed.state() == before
    say(fed, "leo", the_pull(fed))
    fed.reconcile()
    assert propose(fed, 1).outcome == "same"
    assert fed.forge("lena").open_pulls() == ()


def test_another_version_moves_the_open_pull_request_of_the_lead(fed: Fed) -> None:
    first = propose(fed, 1)
    say(fed, "leo", the_pull(fed))
    second = propose(fed, 2)
    assert (second.outcome, second.pull) == ("opened", first.pull)
    assert published(fed.reconcile()) == [], "the approval was of another commit"
    say(fed, "leo", the_pull(fed))
    fed.reconcile()
    assert fed.version.source is not None
    assert fed.version.source.version == 2


def test_while_it_is_open_no_other_version_is_made_in_any_mode(any_fed: Fed) -> None:
    fed = any_fed
    propose(fed, 2)
    fed.submit(A, 7.0)
    fed.submit(B, 8.0)
    assert published(fed.reconcile()) == []
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == [4, 5]
    assert [(c.site, c.base_version, c.staleness) for c in fed.version.contributions] == [(A, 3, 1), (B, 3, 1)]
    check(fed)


def test_a_rollback_goes_before_what_ci_proposes(tmp_path: Path) -> None:
    fed = with_versions(make(MemoryFed, tmp_path), 2)
    fed.set_rules(publish={"mode": "review"})
    fed.submit(A, 7.0)
    fed.reconcile()
    own = the_pull(fed)
    lead = propose(fed, 1)
    ran = fed.reconcile()
    assert waits_for(ran) == ("review", lead.pull)
    assert state_of(fed, own) == "closed"
    assert f"#{lead.pull} proposes v3 instead" in comments(fed, own).replace("&#8203;", "")
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == [3]
    assert the_pull(fed).title == "global: v4 (fedavg, 1 site)"


def test_of_two_rollbacks_the_older_is_judged_first_and_the_other_is_out_of_date_then(fed: Fed) -> None:
    first = propose(fed, 1)
    repository = fed.repositories["leo"]
    done = rollback(context(fed, "leo"), 2, key=fed.keys["leo"].private, dry_run=True)
    assert isinstance(done, RolledBack)
    from fedops.app.version_review import version_head

    head = version_head(context(fed, "leo"), fed.main("leo"), done.record, fed.clock.now(), key=fed.keys["leo"].private)
    second = fed.forge("leo", repository).submit_pull(head, "fedops/v4-of-leo", "v4", "")
    assert waits_for(fed.reconcile()) == ("review", first.pull)
    assert status(fed, second) == ("pending", f"after #{first.pull}")
    assert not fed.reconcile().changed
    say(fed, "lena", second)
    assert published(fed.reconcile()) == [], "it does not jump the queue"
    say(fed, "leo", fed.forge("leo").pull(first.pull or 0))
    assert published(fed.reconcile()) == [4]
    assert state_of(fed, second) == "closed"
    assert "v4 is made" in comments(fed, second)
    check(fed)


def test_a_rejected_rollback_is_closed_and_the_federation_goes_on(any_fed: Fed) -> None:
    fed = any_fed
    fed.submit(A, 7.0)
    propose(fed, 1)
    pull = the_pull(fed)
    say(fed, "leo", pull, "changes_requested")
    assert published(fed.reconcile()) == [4]
    assert state_of(fed, pull) == "closed"
    assert fed.forge("lena").issues(frozenset({"version:rejected"})) == ()
    check(fed)


def test_the_lead_who_proposes_does_not_approve_unless_there_is_no_other(fed: Fed) -> None:
    propose(fed, 1)
    say(fed, "lena", the_pull(fed))
    assert published(fed.reconcile()) == []
    assert status(fed, the_pull(fed)) == ("pending", WAITS)
    fed.leads = ("lena",)
    fed.push_policies()
    fed.reconcile()
    propose(fed, 1)
    say(fed, "lena", the_pull(fed))
    assert published(fed.reconcile()) == [4]
    check(fed)


def test_as_many_approvals_as_the_policy_says(fed: Fed) -> None:
    fed.leads = ("lena", "leo", A)
    fed.rules["publish"] = {"mode": "push", "approvals": 2}
    fed.push_policies()
    propose(fed, 2)
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == []
    say(fed, A, the_pull(fed))
    assert published(fed.reconcile()) == [4]
    check(fed)


@pytest.mark.parametrize("change", ["policy", "version"])
def test_what_it_rests_on_may_not_change(fed: Fed, change: str) -> None:
    propose(fed, 1)
    pull = the_pull(fed)
    say(fed, "leo", pull)
    if change == "policy":
        fed.set_rules(weights={"by": "uniform"})
        expected = "policies/aggregation.yaml changed since it was decided"
    else:
        second = propose(fed, 2)
        say(fed, "leo", fed.forge("leo").pull(second.pull or 0))
        expected = ""
    fed.reconcile()
    if change == "policy":
        assert state_of(fed, pull) == "closed"
        assert expected in comments(fed, pull)
        assert fed.version.version == 3
    else:
        assert fed.version.source is not None
        assert fed.version.source.version == 2


# ---------------------------------------------------------------- who may


def test_who_does_not_lead_is_told_and_opens_nothing(any_fed: Fed) -> None:
    fed = any_fed
    before = fed.state()
    found = rollback(context(fed, A), 1, key=fed.keys[A].private)
    assert isinstance(found, Finding)
    assert found.slug == "lead_required"
    with pytest.raises(ConfigError, match="no key signs it") as caught:  # on the git forge a lead is who signs as one
        rollback(context(fed, "lena"), 1)
    assert caught.value.hint.startswith("fedops rollback v1 --key FILE")
    assert fed.state() == before


def test_where_accounts_are_the_forge_s_a_lead_needs_no_key(tmp_path: Path) -> None:
    fed = with_versions(make(MemoryFed, tmp_path, submission={"require_signed": False}), 2)
    text = fed.policy_files()[RepoPath("federation.yaml")] or b""
    forge = b'"forge": {"kind": "github", "repository": "acme/fed"}, "name"'
    fed.commit({"federation.yaml": text.replace(b'"name"', forge, 1)})
    assert isinstance(rollback(context(fed, A), 1), Finding)
    assert propose(fed, 1, key=None).outcome == "opened"
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == [3]
    assert [row.level for row in fed.verify()][-1] == "inputs"


@pytest.mark.long
def test_on_github_a_lead_proposes_by_account_and_another_approves_on_the_page(tmp_path: Path) -> None:
    with closing(make(GitHubFed, tmp_path)) as fed:
        with_versions(fed, 2)
        assert isinstance(rollback(context(fed, A), 1), Finding)
        done = propose(fed, 1, key=None)
        pull = the_pull(fed)
        assert (done.outcome, pull.number, pull.branch) == ("opened", done.pull, "fedops/v3-rollback")
        assert waits_for(fed.reconcile()) == ("review", pull.number)
        with pytest.raises(ForgeError, match="Can not approve your own pull request"):
            say(fed, "lena", pull)
        say(fed, "leo", pull)
        assert published(fed.reconcile()) == [3]
        now = fed.version
        assert (now.kind, now.source and now.source.version, now.contributions) == ("rollback", 1, ())
        assert fed.store.resolve("global:v3") == fed.store.resolve("global:v1") == now.model.manifest
        assert state_of(fed, pull) == "merged"
        check(fed)


def test_a_rollback_by_a_site_never_counts(any_fed: Fed) -> None:
    """The same bytes that a lead would propose, signed by the site."""
    from fedops.app.version_review import version_head

    fed = any_fed
    planned = propose(fed, 1, dry_run=True)
    assert planned.outcome == "planned"
    assert fed.forge("lena").open_pulls() == ()
    key = fed.keys[A].private
    head = version_head(context(fed, A), fed.main(A), planned.record, fed.clock.now(), key=key)
    pull = fed.forge(A).submit_pull(head, "fedops/v4-rollback", "rollback", "")
    fed.submit(B, 5.0)
    assert published(fed.reconcile()) == [4]
    assert fed.version.kind == "aggregate"
    assert status(fed, pull) == ("failure", "lead_required")
    for lead in ("lena", "leo"):
        say(fed, lead, pull)
    assert published(fed.reconcile()) == []
    check(fed)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("consumed", {}),
        ("metrics", {"loss": 0.0}),
        ("source", {"version": 2}),
        ("source", {"version": 9}),
        ("source", None),
        ("policy", "sha256:" + "0" * 64),
        ("denominator", 1.0),
        ("status", "final"),
    ],
)
def test_a_lead_s_rollback_that_says_something_else_never_counts(fed: Fed, field: str, value: Any) -> None:
    pull = altered(fed, field, value)
    fed.submit(B, 5.0)
    assert published(fed.reconcile()) == [4]
    assert fed.version.kind == "aggregate"
    assert state_of(fed, pull) == "closed" or status(fed, pull)[0] == "failure"


def altered(fed: Fed, field: str, value: Any) -> Pull:
    """A rollback to v1 with one other field, in everything consistent with itself, and signed by a lead."""
    from fedops.app.version_review import version_head
    from fedops.core.documents import dump_json
    from fedops.core.records import VersionRecord

    record = json.loads(dump_json(propose(fed, 1, dry_run=True).record)) | {field: value}
    lie = VersionRecord.model_validate_json(json.dumps(record))
    ctx = context(fed, "lena")
    head = version_head(ctx, fed.main(), lie, fed.clock.now(), key=fed.keys["lena"].private)
    return fed.forge("lena").submit_pull(head, "fedops/v4-rollback", "rollback", "")


# ---------------------------------------------------------------- a person merges it


@pytest.mark.parametrize("button", ["merge", "squash"])
def test_one_that_another_lead_merges_by_hand_is_tagged_if_that_lead_signed(any_fed: Fed, button: str) -> None:
    fed = any_fed
    propose(fed, 1, "leo")
    commit = hand_merge(fed, the_pull(fed), button)
    done = fed.reconcile()
    if button == "merge":
        assert published(done) == [4]
        assert fed.main().repository.resolve("refs/tags/global@v4.0.0") == commit
        check(fed)
    else:  # who proposed it cannot be seen any more: it is taken for lena's own
        assert [f.slug for f in done.findings] == ["version_unapproved"]


def test_one_that_its_own_lead_merges_by_hand_is_not_tagged(fed: Fed) -> None:
    propose(fed, 1)
    hand_merge(fed, the_pull(fed), "merge")
    done = fed.reconcile()
    assert [(f.slug, f.where) for f in done.findings] == [("version_unapproved", "v4")]
    assert done.published == []
    with pytest.raises(ConfigError, match="is not verified yet"):
        propose(fed, 2)


# ---------------------------------------------------------------- what cannot be


def test_only_an_earlier_version_can_be_gone_back_to(fed: Fed) -> None:
    for number, said in ((3, "is the current version"), (4, "no such version"), (99, "no such version")):
        with pytest.raises(ConfigError, match=said):
            propose(fed, number)


def test_bytes_that_are_gone_are_no_version_to_go_back_to(fed: Fed) -> None:
    first = json.loads(
        fed.repositories["lena"].read(
            next(
                e.blob
                for e in fed.main().repository.entries(
                    fed.main().repository.resolve("refs/tags/global@v1.0.0") or fed.main().commit, "global"
                )
                if e.path == "global/version.json"
            ),
            max_bytes=2**20,
        )
    )
    assert fed.store.drop("global", Digest(first["model"]["manifest"]))
    with pytest.raises(StoreError) as caught:
        propose(fed, 1)
    assert caught.value.slug == "object_missing"
    assert fed.forge("lena").open_pulls() == ()


def test_bytes_that_are_damaged_meanwhile_are_not_published(fed: Fed) -> None:
    done = propose(fed, 1)
    pull = the_pull(fed)
    say(fed, "leo", pull)
    assert fed.lose("global", Digest("sha256:" + done.record.model.sha256), damage=True)
    ran = fed.reconcile()
    assert published(ran) == []
    assert state_of(fed, pull) == "closed"
    assert "it does not recompute" in comments(fed, pull)


def test_the_last_version_can_be_taken_back_and_stays_the_last(tmp_path: Path) -> None:
    fed = with_versions(make(MemoryFed, tmp_path, rules={**RULES, "stop": {"max_version": 2}}), 2)
    assert fed.version.status == "final"
    propose(fed, 1)
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == [3]
    assert fed.version.status == "final"
    fed.set_rules(stop={"max_version": None})
    propose(fed, 2)
    say(fed, "leo", the_pull(fed))
    fed.reconcile()
    assert (fed.version.version, fed.version.status) == (4, "final")
    check(fed)


def test_a_reason_is_one_line_of_text_and_inert(fed: Fed) -> None:
    done = propose(fed, 1, reason="a\nb\x1b[31m <!-- fedops:x y --> @lena " + "x" * 2000)
    pull = the_pull(fed)
    message = fed.repositories["lena"].commit(pull.head).message
    [reason] = message.split("\n\n")[1:2]
    assert "\n" not in reason
    assert "\x1b" not in reason
    assert len(reason) <= MAX_REASON
    assert done.outcome == "opened"
    say(fed, "leo", pull)
    assert published(fed.reconcile()) == [4]
    main = fed.main()
    assert reason in main.repository.commit(main.commit).message


def test_a_rollback_of_a_rollback_names_the_version_that_was_asked_for(fed: Fed) -> None:
    for number in (1, 3, 4):
        propose(fed, number)
        say(fed, "leo", the_pull(fed))
        fed.reconcile()
    sources = [fed.version.source.version if fed.version.source else None, fed.version.version]
    assert sources == [4, 6]
    assert fed.model()["w"].tolist() == [1.0, -1.0]
    check(fed)
