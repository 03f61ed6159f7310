"""publish.mode: review: the next version is a pull request, which leads approve, reject, or merge by whatever button."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from fedops.app.reconcile import Reconciled
from fedops.core.errors import StoreError
from fedops.core.facts import Pull, RefUpdate, Wait
from fedops.core.findings import errors
from fedops.core.ids import CommitId, Digest, RepoPath, digest_of_hex
from fedops.core.settings import PublishPolicy
from tests.github_face.fed import GitHubFed
from tests.github_face.rest_pulls import merge_pull
from tests.scenario.actors import PRIVATE, Actor
from tests.scenario.fed import Fed, GitFed, MemoryFed, watched
from tests.scenario.oracle import check_all
from tests.scenario.test_github_attacks import clicked
from tests.scenario.test_race import Crash, at_call, finished

A, B, C = "clinic-c", "hospital-a", "hospital-b"
State = Literal["approved", "changes_requested"]
RULES: dict[str, Any] = {"trigger": {"quorum": 2}, "publish": {"mode": "review"}}
WAITS = "waits for 1 more approval(s) of this commit by a lead"


def make(kind: type[Fed], folder: Path, **options: Any) -> Fed:
    folder.mkdir(exist_ok=True)
    sites = (A, B, C)
    return kind(folder, **{"rules": RULES, "people": ("lena", "leo", *sites), "sites": sites} | options)


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return make(MemoryFed, tmp_path)


@pytest.fixture(params=[MemoryFed, pytest.param(GitFed, marks=pytest.mark.long)])
def any_fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fed]:
    made = make(request.param, tmp_path)
    yield made
    made.close()


def proposed(fed: Fed) -> Pull:
    """Two sites hand in; the version that comes of it is open."""
    fed.submit(B, 1.0)
    fed.submit(C, 2.0)
    fed.reconcile()
    return the_pull(fed)


def the_pull(fed: Fed) -> Pull:
    [pull] = [p for p in fed.forge("lena").open_pulls() if p.branch.startswith("fedops/")]
    return pull


def say(fed: Fed, who: str, pull: Pull, state: State = "approved") -> None:
    fed.forge(who).review(pull.number, pull.head, state, "")


def published(done: Reconciled) -> list[int]:
    return [record.version for record in done.published]


def waits_for(done: Reconciled) -> tuple[str, int | None]:
    assert isinstance(done.decision, Wait)
    return done.decision.reason, done.decision.pull


def comments(fed: Fed, pull: Pull) -> str:
    return "\n".join(fed.forge("lena").comments(pull.number))


def status(fed: Fed, pull: Pull) -> tuple[str, str]:
    found = fed.forge("lena").status(pull.head, "fedops/verdict")
    assert found is not None
    return found


def check(fed: Fed) -> None:
    check_all(fed, rerun=partial(rerun, fed))


def rerun(fed: Fed) -> bool:
    return fed.reconcile().changed


def state_of(fed: Fed, pull: Pull) -> str:
    return fed.forge("lena").pull(pull.number).state


# ---------------------------------------------------------------- open, approve


@pytest.mark.parametrize("any_fed", [MemoryFed, GitFed, pytest.param(GitHubFed, marks=pytest.mark.long)], indirect=True)
def test_a_version_waits_in_one_pull_request_until_leads_approve_exactly_its_commit(any_fed: Fed) -> None:
    fed = any_fed
    pull = proposed(fed)
    assert (pull.branch, pull.title) == ("fedops/v1", "global: v1 (fedavg, 2 sites)")
    assert fed.version.version == 0
    assert status(fed, pull) == ("pending", WAITS)
    assert f"fedops review {pull.number} --approve" in comments(fed, pull)
    done = fed.reconcile()
    assert (done.changed, waits_for(done)) == (False, ("review", pull.number))
    check(fed)
    say(fed, "lena", pull)
    done = fed.reconcile()
    assert published(done) == [1]
    assert status(fed, pull) == ("success", "approved")
    assert state_of(fed, pull) == "merged"
    check(fed)
    main = fed.main()
    made = main.repository.commit(main.commit)
    assert made.parents[1] == pull.head
    # Where identity is a signature, the merge carries the lead's approval; GitHub keeps it on its own page.
    assert len(made.parents) == (2 if isinstance(fed, GitHubFed) else 3)
    assert f"Fedops-Pull: {pull.number}\nFedops-Head: {pull.head}\nFedops-Approved-By: 1\n" in made.message
    assert [row.level for row in fed.verify()] == ["lineage", "inputs"]


def test_the_proposed_commit_is_the_one_that_a_push_would_have_made(tmp_path: Path) -> None:
    """But for the policy's own text, on which the version's digest depends."""
    reviewed = make(MemoryFed, tmp_path / "review")
    pushed = make(MemoryFed, tmp_path / "push", rules={**RULES, "publish": {"mode": "push"}})
    pull = proposed(reviewed)
    for site, value in ((B, 1.0), (C, 2.0)):
        pushed.submit(site, value)
    pushed.reconcile()
    repository = reviewed.repositories["lena"]
    repository.fetch()
    head, tip = repository.commit(pull.head), pushed.main()
    made = tip.repository.commit(tip.commit)
    assert head.message.splitlines()[0] == made.message.splitlines()[0]
    assert (head.committed_at, len(head.parents)) == (made.committed_at, 1)
    changed = {c.path for c in repository.changes(head.parents[0], pull.head)}
    assert changed == {c.path for c in tip.repository.changes(made.parents[0], made.id)}
    assert changed == {"global/version.json", "global/metrics.json", "global/model.safetensors.dvc"}


def test_what_is_handed_in_meanwhile_belongs_to_the_version_after(any_fed: Fed) -> None:
    fed = any_fed
    pull = proposed(fed)
    fed.submit(A, 9.0)
    fed.commit({"README.md": b"hello\n"})
    done = fed.reconcile()
    assert waits_for(done) == ("review", pull.number)
    assert the_pull(fed) == pull, "neither moved nor opened again"
    say(fed, "leo", pull)
    assert published(fed.reconcile()) == [1]
    assert [c.site for c in fed.version.contributions] == [B, C]
    check(fed)
    fed.submit(B, 3.0)
    fed.reconcile()
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == [2]
    assert [(c.site, c.staleness) for c in fed.version.contributions] == [(A, 1), (B, 0)]
    check(fed)


def test_as_many_leads_as_the_policy_says_and_no_others_approve(fed: Fed) -> None:
    fed.set_rules(publish={"mode": "review", "approvals": 2})
    pull = proposed(fed)
    for who in (A, "lena"):
        say(fed, who, pull)
    assert published(fed.reconcile()) == []
    assert status(fed, pull)[1] == WAITS
    say(fed, "leo", pull)
    assert published(fed.reconcile()) == [1]
    check(fed)


def test_the_policy_asks_for_one_approval_unless_it_says_otherwise() -> None:
    assert PublishPolicy().approvals == 1


# ---------------------------------------------------------------- reject


def test_a_rejected_version_is_closed_and_not_proposed_again_before_something_is_different(any_fed: Fed) -> None:
    fed = any_fed
    pull = proposed(fed)
    say(fed, "leo", pull, "changes_requested")
    done = fed.reconcile()
    assert state_of(fed, pull) == "closed"
    assert "a lead rejected it" in comments(fed, pull)
    assert waits_for(done) == ("rejected", None)
    [issue] = fed.forge("lena").issues(frozenset({"fedops", "version:rejected"}))
    assert f"#{pull.number}" in issue.body
    assert not fed.reconcile().changed
    check(fed)
    fed.submit(A, 5.0)
    fed.reconcile()
    again = the_pull(fed)
    say(fed, "leo", again)
    assert published(fed.reconcile()) == [1]
    assert [c.site for c in fed.version.contributions] == [A, B, C]
    assert fed.forge("lena").issues(frozenset({"version:rejected"})) == ()
    check(fed)


def test_other_rules_make_another_version_of_what_was_rejected(fed: Fed) -> None:
    pull = proposed(fed)
    say(fed, "leo", pull, "changes_requested")
    fed.reconcile()
    fed.set_rules(weights={"by": "uniform"})
    fed.reconcile()
    assert the_pull(fed).number != pull.number


def test_who_closes_the_issue_has_the_same_version_proposed_again_and_may_reject_it_again(fed: Fed) -> None:
    for _ in range(2):
        pull = proposed(fed) if fed.version.consumed == {} and not fed.forge("lena").open_pulls() else the_pull(fed)
        say(fed, "lena", pull, "changes_requested")
        assert waits_for(fed.reconcile()) == ("rejected", None)
        [issue] = fed.forge("lena").issues(frozenset({"version:rejected"}))
        fed.forge("lena").close_issue(issue.number)
        fed.reconcile()
    assert published(fed.reconcile()) == []
    say(fed, "lena", the_pull(fed))
    assert published(fed.reconcile()) == [1]


def test_an_approval_does_not_outweigh_a_rejection(fed: Fed) -> None:
    pull = proposed(fed)
    say(fed, "lena", pull)
    say(fed, "leo", pull, "changes_requested")
    assert published(fed.reconcile()) == []
    assert state_of(fed, pull) == "closed"


# ---------------------------------------------------------------- out of date


@pytest.mark.parametrize("change", ["policy", "suspended"])
def test_a_change_of_what_it_rests_on_closes_it_with_the_reason_and_decides_again(fed: Fed, change: str) -> None:
    fed.submit(A, 7.0)
    pull = proposed(fed)
    say(fed, "lena", pull)
    if change == "policy":
        fed.set_rules(weights={"by": "uniform"})
    else:
        fed.set_state(A, "suspended")
    done = fed.reconcile()
    assert published(done) == []
    assert state_of(fed, pull) == "closed"
    path = "aggregation" if change == "policy" else "sites"
    assert f"policies/{path}.yaml changed since it was decided" in comments(fed, pull).replace("\\_", "_")
    again = the_pull(fed)
    assert again.number != pull.number
    say(fed, "leo", again)
    assert published(fed.reconcile()) == [1]
    assert [c.site for c in fed.version.contributions] == ([A, B, C] if change == "policy" else [B, C])
    check(fed)


def test_a_federation_that_pushes_again_closes_it_and_publishes_at_once(fed: Fed) -> None:
    pull = proposed(fed)
    fed.set_rules(publish={"mode": "push"})
    assert published(fed.reconcile()) == [1]
    assert state_of(fed, pull) == "closed"
    check(fed)


def test_a_rewound_main_makes_a_version_of_its_own(fed: Fed) -> None:
    pull = proposed(fed)
    repository = fed.repositories["lena"]
    main = fed.main()
    line = list(repository.commits(None, main.commit))
    assert repository.push([RefUpdate("refs/heads/main", main.commit, line[-1].id)])
    fed.submit(B, 3.0)
    fed.submit(C, 4.0)
    fed.reconcile()
    again = the_pull(fed)
    assert (again.number, again.head == pull.head) == (pull.number, False)
    say(fed, "lena", again)
    assert published(fed.reconcile()) == [1]
    check(fed)


def test_a_site_that_deletes_its_bytes_after_the_proposal_stops_nobody(any_fed: Fed) -> None:
    fed = any_fed
    pull = proposed(fed)
    [mine] = [u.record for (s, _), u in fed.uploads.items() if s == B]
    assert fed.store.drop(f"sites/{B}", Digest(mine.manifest))
    say(fed, "lena", pull)
    assert published(fed.reconcile()) == [1]
    assert [row.level for row in fed.verify()] == ["lineage", "inputs"]


def test_a_site_that_damages_its_bytes_after_the_proposal_stops_nobody(fed: Fed) -> None:
    pull = proposed(fed)
    [mine] = [u.record for (s, _), u in fed.uploads.items() if s == B]
    assert fed.lose(f"sites/{B}", digest_of_hex(mine.sha256), damage=True)
    say(fed, "lena", pull)
    assert published(fed.reconcile()) == [1]


# ---------------------------------------------------------------- a person merges


def files_of(fed: Fed, pull: Pull) -> dict[RepoPath, bytes]:
    """What a pull request brings to main."""
    repository = fed.repositories["lena"]
    changes = repository.changes(fed.main().commit, pull.head)
    return {c.path: repository.read(c.blob, max_bytes=2**24) for c in changes if c.blob is not None}


def hand_merge(fed: Fed, pull: Pull, button: str, *, signed: bool = True) -> CommitId:
    """Merge as a person would: a merge commit, all in one new commit, or the same commit again on the tip."""
    repository = fed.repositories["lena"]
    main = fed.main()
    files = files_of(fed, pull)
    parents = [main.commit, pull.head] if button == "merge" else [main.commit]
    message = "Merge pull request" if button != "rebase" else repository.commit(pull.head).message
    key = fed.keys["lena"].private if signed else None
    commit = repository.write_commit(parents, files, message, at=fed.clock.now(), key=key)
    assert repository.push([RefUpdate("refs/heads/main", main.commit, commit)])
    return commit


@pytest.mark.parametrize("button", ["merge", "squash", "rebase"])
def test_a_version_that_a_person_merged_is_verified_and_tagged_where_it_came_to_main(any_fed: Fed, button: str) -> None:
    fed = any_fed
    pull = proposed(fed)
    fed.commit({"README.md": b"hello\n"})
    commit = hand_merge(fed, pull, button)
    assert fed.version.version == 1
    done = fed.reconcile()
    assert published(done) == [1]
    repository = fed.repositories["lena"]
    repository.fetch()
    assert repository.resolve("refs/tags/global@v1.0.0") == commit
    assert f"Train on v1: {B}" in "".join(done.signals)
    assert state_of(fed, pull) != "open"
    check(fed)


@pytest.mark.long
def test_a_version_that_a_lead_squashes_on_github_is_tagged_where_it_came_to_main(tmp_path: Path) -> None:
    with closing(make(GitHubFed, tmp_path)) as fed:
        assert isinstance(fed, GitHubFed)
        pull = proposed(fed)
        fed.commit({"README.md": b"hello\n"})
        clicked(fed, "lena", pull, merge_pull, merge_method="squash")
        commit = fed.main().commit
        assert published(fed.reconcile()) == [1]
        repository = fed.repositories["lena"]
        repository.fetch()
        assert repository.resolve("refs/tags/global@v1.0.0") == commit
        assert [release.tag for release in fed.hub.releases] == ["global@v0.0.0", "global@v1.0.0"]
        assert state_of(fed, pull) == "merged"
        # GitHub signs no squash with a lead's key; where no signature is asked for, the lead's merge is the approval.
        assert not [f for one in fed.verify() for f in errors(one.findings)]


def test_a_merge_that_nobody_signed_is_not_tagged_where_signatures_are_identity(fed: Fed) -> None:
    pull = proposed(fed)
    hand_merge(fed, pull, "merge", signed=False)
    done = fed.reconcile()
    assert [(f.slug, f.where, f.got, f.expected) for f in done.findings] == [("version_unapproved", "v1", 0, 1)]
    assert (done.published, done.decision, done.signals) == ([], None, [])
    assert fed.store.resolve("global:v1") is None
    assert not fed.reconcile().changed


def test_a_version_that_was_taken_off_main_again_stands_in_no_others_way(any_fed: Fed) -> None:
    fed = any_fed
    pull, before = proposed(fed), fed.main()
    bad = hand_merge(fed, pull, "merge", signed=False)
    assert published(fed.reconcile()) == []
    fed.commit({path: before.bytes_of(RepoPath(path)) for path in before.files if path.startswith("global/")}, "Revert")
    assert published(fed.reconcile()) == []
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == [1]
    good = fed.main().commit
    repository = fed.repositories["lena"]
    repository.fetch()
    assert repository.resolve("refs/tags/global@v1.0.0") == good
    told = [(one.version, one.commit, [f.slug for f in errors(one.findings)]) for one in fed.verify()]
    assert (1, good, []) in told
    assert [slugs for number, commit, slugs in told if (number, commit) == (1, bad)] != [[]], "it stays on record"
    proposed(fed)
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == [2]
    (tag,) = (tag for tag in repository.versions() if tag.version == 1)
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", tag.object, None)])
    done = fed.reconcile()
    assert [f.slug for f in done.findings] == []
    repository.fetch()
    assert repository.resolve("refs/tags/global@v1.0.0") == good, "of two versions v1, the one that stands"


def test_where_nothing_has_to_be_signed_the_merge_by_a_person_is_the_approval(fed: Fed) -> None:
    fed.submission = {"require_signed": False}
    fed.push_policies()
    pull = proposed(fed)
    hand_merge(fed, pull, "squash", signed=False)
    assert published(fed.reconcile()) == [1]


def test_two_versions_that_people_merged_one_after_the_other_are_tagged_in_order(fed: Fed) -> None:
    hand_merge(fed, proposed(fed), "merge")
    fed.reconcile()
    first = the_tag(fed, 1)
    fed.submit(A, 3.0)
    fed.submit(B, 4.0)
    fed.reconcile()
    hand_merge(fed, the_pull(fed), "squash")
    repository = fed.repositories["lena"]
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", first, None)])
    done = fed.reconcile()
    assert published(done) == [1, 2]
    assert the_tag(fed, 1) == first
    check(fed)


def the_tag(fed: Fed, number: int) -> str:
    repository = fed.repositories["lena"]
    repository.fetch()
    [found] = [t.object for t in repository.versions() if t.version == number]
    return found


def test_a_tag_made_by_hand_of_a_version_merged_by_hand_stops_aggregation_until_it_is_gone(fed: Fed) -> None:
    pull = proposed(fed)
    repository = fed.repositories["lena"]
    at = fed.main().commit
    tag = repository.write_tag("global@v1.0.0", at, "by hand")
    hand_merge(fed, pull, "merge")
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", None, tag)])
    done = fed.reconcile()
    assert [(f.slug, f.got) for f in done.findings] == [("tag_moved", at)]
    assert done.published == []
    assert repository.push([RefUpdate("refs/tags/global@v1.0.0", tag, None)])
    assert published(fed.reconcile()) == [1]
    check(fed)


def test_a_version_that_was_forged_on_its_way_to_main_is_never_tagged(fed: Fed) -> None:
    pull = proposed(fed)
    repository = fed.repositories["lena"]
    main = fed.main()
    files = files_of(fed, pull)
    path = RepoPath("global/version.json")
    files[path] = files[path].replace(b'"num_examples": 10', b'"num_examples": 20')
    commit = repository.write_commit([main.commit], files, "x", at=fed.clock.now(), key=fed.keys["lena"].private)
    assert repository.push([RefUpdate("refs/heads/main", main.commit, commit)])
    done = fed.reconcile()
    assert {f.slug for f in done.findings} >= {"record_mismatch"}
    assert (done.published, done.signals) == ([], [])


# ---------------------------------------------------------------- whose pull requests count


def forged(fed: Fed, who: str, *, branch: str = "fedops/v1") -> Pull:
    """Somebody else opens what CI proposed, after CI's own is closed."""
    pull = proposed(fed)
    fed.forge("lena").close_pull(pull.number)
    repository = fed.repositories[who]
    repository.fetch()
    main = fed.main(who)
    files = files_of(fed, pull)
    head = repository.write_commit([main.commit], files, "global: v1", at=fed.clock.now(), key=fed.keys[who].private)
    return fed.forge(who).submit_pull(head, branch, "v1", "")


def test_a_site_s_pull_request_never_counts_and_holds_up_nothing(any_fed: Fed) -> None:
    fed = any_fed
    other = forged(fed, A, branch="fedops/v1-of-mine")
    done = fed.reconcile()
    assert status(fed, other) == ("failure", "lead_required")
    assert "FO-414" in comments(fed, other)
    number = waits_for(done)[1]
    assert number not in (None, other.number)
    say(fed, "lena", other)
    assert published(fed.reconcile()) == []
    say(fed, "lena", fed.forge("lena").pull(number or 0))
    assert published(fed.reconcile()) == [1]


def test_a_pull_request_of_global_from_any_other_branch_is_left_to_people(fed: Fed) -> None:
    other = forged(fed, "leo", branch="experiment")
    fed.reconcile()
    assert fed.forge("lena").comments(other.number) == ()


def test_a_record_with_other_numbers_never_counts(fed: Fed) -> None:
    pull = proposed(fed)
    repository = fed.new_clone("bot")
    main = fed.main()
    path = RepoPath("global/version.json")
    files = files_of(fed, pull)
    files[path] = files[path].replace(b'"share": 0.5', b'"share": 0.6', 1)
    head = repository.write_commit([main.commit], files, "global: v1", at=fed.clock.now())
    moved = fed.forge("bot", repository).submit_pull(head, "fedops/v1", "v1", "")
    assert moved.number == pull.number
    done = fed.reconcile()
    assert waits_for(done) == ("review", pull.number)
    assert the_pull(fed).head != head, "CI has put its own commit there again"
    say(fed, "lena", the_pull(fed))
    assert published(fed.reconcile()) == [1]
    check(fed)


def test_a_model_that_does_not_follow_from_its_inputs_is_closed_although_leads_approved_it(fed: Fed) -> None:
    """Documents cannot tell; whoever may write the store and open pull requests as CI does, gets no further."""
    pull = proposed(fed)
    repository = fed.new_clone("bot")
    main = fed.main()
    files = files_of(fed, pull)
    record = fed.version.model
    import json

    from fedops.core.documents import dump_json
    from fedops.core.records import VersionRecord, model_pointer, render_pointer

    value = json.loads(files[RepoPath("global/version.json")])
    value["model"] = json.loads(dump_json(record))
    lie = VersionRecord.model_validate_json(json.dumps(value))
    files[RepoPath("global/version.json")] = dump_json(lie)
    files[RepoPath("global/model.safetensors.dvc")] = render_pointer(model_pointer(lie, "safetensors"))
    fed.forge("lena").close_pull(pull.number)
    head = repository.write_commit([main.commit], files, "global: v1", at=fed.clock.now())
    other = fed.forge("bot", repository).submit_pull(head, "fedops/v1", "v1", "")
    assert waits_for(fed.reconcile()) == ("review", other.number)
    say(fed, "lena", other)
    done = fed.reconcile()
    assert published(done) == []
    assert state_of(fed, other) == "closed"
    assert "it does not recompute" in comments(fed, other)
    assert "FO-404" in comments(fed, other)
    say(fed, "leo", the_pull(fed))
    assert published(fed.reconcile()) == [1]
    check(fed)


@pytest.mark.parametrize(
    "damage", ["nonsense", "another kind", "no input", "two commits", "one file more", "far ahead", "another base"]
)
def test_what_is_no_version_never_counts_and_breaks_nothing(fed: Fed, damage: str) -> None:
    pull = proposed(fed)
    repository = fed.new_clone("bot")
    main = fed.main()
    path = RepoPath("global/version.json")
    files = files_of(fed, pull)
    parents, text = [main.commit], files[path]
    if damage == "nonsense":
        files[path] = b"{"
    elif damage == "another kind":
        files[path] = text.replace(b'"kind": "aggregate"', b'"kind": "revert"')
    elif damage == "no input":
        files[path] = text.replace(f'"input_commit": "{main.commit}"'.encode(), b'"input_commit": null')
    elif damage == "two commits":
        parents = [repository.write_commit(parents, {RepoPath("x"): b"x"}, "x", at=fed.clock.now())]
    elif damage == "one file more":
        files[RepoPath("global/more.txt")] = b"x"
    elif damage == "far ahead":
        files[path] = text.replace(b'"version": 1,', b'"version": 7,')
    else:
        parents = [repository.write_commit([], {RepoPath("y"): b"y"}, "y", at=fed.clock.now())]
    head = repository.write_commit(parents, files, "global: v1", at=fed.clock.now())
    fed.forge("lena").close_pull(pull.number)
    other = fed.forge("bot", repository).submit_pull(head, "fedops/v1-forged", "v1", "")
    number = waits_for(fed.reconcile())[1]
    assert number != other.number
    assert status(fed, other)[0] == "failure"
    assert not fed.reconcile().changed


def test_a_pull_request_from_a_fork_is_never_ci_s(fed: Fed) -> None:
    pull = proposed(fed)
    plain = fed.context()

    class Forked:
        """A forge that says that all pull requests come from forks."""

        def __getattr__(self, name: str) -> Any:
            return getattr(plain.forge, name)

        def open_pulls(self) -> tuple[Pull, ...]:
            from dataclasses import replace

            return tuple(replace(p, same_repository=False) for p in plain.forge.open_pulls())

    fed.reconcile(fed.context(repository=plain.repository, forge=Forked()))
    assert status(fed, pull) == ("failure", "lead_required")


# ---------------------------------------------------------------- races, kills, faults


def test_two_runs_at_once_open_one_pull_request(fed: Fed) -> None:
    fed.submit(B, 1.0)
    fed.submit(C, 2.0)
    runs = [Actor("run", lambda point: fed.reconcile(watched(fed, point))) for _ in range(2)]
    for run in runs:
        run.advance_to("forge.submit_pull")
        fed.clock.sleep(1)
    for run in runs:
        finished(run)
    say(fed, "lena", the_pull(fed))
    assert published(fed.reconcile()) == [1]
    check(fed)


def test_two_runs_at_once_publish_an_approved_version_once(any_fed: Fed) -> None:
    fed = any_fed
    pull = proposed(fed)
    say(fed, "lena", pull)
    runs = [Actor("run", lambda point: fed.reconcile(watched(fed, point))) for _ in range(3)]
    for run in runs:
        run.advance_to("repository.push")
        fed.clock.sleep(1)
    assert [v for run in runs for v in published(finished(run))] == [1]
    check(fed)


def test_two_runs_at_once_tag_a_merged_version_once(fed: Fed) -> None:
    hand_merge(fed, proposed(fed), "merge")
    runs = [Actor("run", lambda point: fed.reconcile(watched(fed, point))) for _ in range(2)]
    for run in runs:
        run.advance_to("repository.push")
    for run in runs:
        finished(run)
    check(fed)


@pytest.mark.parametrize("what", ["rejected", "policy", "moved", "merged"])
def test_what_happens_right_before_the_push_of_an_approved_version_is_obeyed(fed: Fed, what: str) -> None:
    pull = proposed(fed)
    say(fed, "lena", pull)
    run = Actor("run", lambda point: fed.reconcile(watched(fed, point)))
    run.advance_to("repository.push")
    if what == "rejected":
        fed.forge("lena").close_pull(pull.number)
    elif what == "policy":
        fed.set_rules(weights={"by": "uniform"})
    elif what == "merged":
        hand_merge(fed, pull, "merge")
    fed.commit({"README.md": b"so that the push loses its race\n"})
    if what == "moved":
        repository = fed.new_clone("bot")
        main = fed.main()
        files = files_of(fed, pull)
        head = repository.write_commit([main.commit], files, "again", at=fed.clock.now() + dt.timedelta(seconds=1))
        fed.forge("bot", repository).submit_pull(head, "fedops/v1", "v1", "")
    done = finished(run)
    if what == "merged":
        assert fed.version.version == 1
    else:
        assert published(done) == []
        say(fed, "lena", the_pull(fed))
        assert published(fed.reconcile()) == [1]
    check(fed)


def crowded(folder: Path, step: str) -> Fed:
    """A federation in which one run has to do one step of a review."""
    fed = make(MemoryFed, folder)
    if step == "open":
        fed.submit(B, 1.0)
        fed.submit(C, 2.0)
        return fed
    pull = proposed(fed)
    if step == "approved":
        say(fed, "lena", pull)
    elif step == "rejected":
        say(fed, "lena", pull, "changes_requested")
    elif step == "stale":
        fed.set_rules(weights={"by": "uniform"})
    else:
        hand_merge(fed, pull, "squash")
    return fed


@pytest.mark.parametrize("step", ["open", "approved", "rejected", "stale", "merged"])
def test_a_run_that_dies_before_any_port_call_is_completed_by_the_next_one(tmp_path: Path, step: str) -> None:
    calls: list[str] = []
    whole = crowded(tmp_path / "whole", step)
    whole.reconcile(watched(whole, calls.append))
    check(whole)
    expected = whole.state()
    for number, call in enumerate(calls):
        if call in PRIVATE:
            continue
        fed = crowded(tmp_path / str(number), step)
        with pytest.raises(Crash):
            fed.reconcile(watched(fed, at_call(number, lambda call: Crash())))
        fed.reconcile()
        assert fed.state() == expected, f"died before call {number}, {call}"


def test_a_store_that_is_away_when_a_version_is_approved_leaves_it_for_the_next_run(fed: Fed) -> None:
    pull = proposed(fed)
    say(fed, "lena", pull)
    assert isinstance(fed, MemoryFed)
    fed.store.fail_next("get", StoreError("503", cause="temporary"))
    with pytest.raises(StoreError, match="503"):
        fed.reconcile()
    assert state_of(fed, pull) == "open"
    assert published(fed.reconcile()) == [1]
    check(fed)
