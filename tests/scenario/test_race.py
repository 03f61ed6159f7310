"""Two runs from the same version, and everything that can move under a run between its decision and its push."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedops.app.context import Context
from fedops.app.merged import merged_state
from fedops.app.propose import propose
from fedops.app.publish import PUSH_SECONDS, Lost, Replan, publish
from fedops.app.reconcile import MAX_PASSES, MAX_PLANS, Reconciled
from fedops.core.errors import FedopsError, ForgeError, GitError, StoreError
from fedops.core.facts import Aggregate, RefUpdate, Wait
from fedops.core.ids import CommitId, Digest, RepoPath
from fedops.ports import Repository
from tests.github_face.fed import GitHubFed
from tests.scenario.actors import PRIVATE, Actor
from tests.scenario.fed import Fed, GitFed, MemoryFed, arrays, watched
from tests.scenario.oracle import check_all, check_inputs, check_lineage

Hook = Callable[[], object]


def start(fed: Fed) -> Actor:
    """A run that waits to be moved."""
    return Actor("run", lambda point: fed.reconcile(watched(fed, point)))


def finished(run: Actor) -> Reconciled:
    run.advance()
    assert run.error is None, run.error
    assert isinstance(run.result, Reconciled)
    return run.result


def consumed_by(fed: Fed, number: int) -> list[str]:
    [tree] = [t for _, t in check_lineage(fed) if t.version["version"] == number]
    return [c["site"] for c in tree.version["contributions"]]


class Pushing:
    """A repository before each of whose pushes somebody else acts, as often as hooks are given; remembers the records."""

    def __init__(self, repository: Repository, hooks: Sequence[Hook] = (), *, refuse: bool = False) -> None:
        self._repository = repository
        self._hooks = list(hooks)
        self._refuse = refuse
        self.records: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._repository, name)

    def push(self, updates: Sequence[RefUpdate]) -> bool:
        commit = CommitId(str(updates[0].new))
        [entry] = [e for e in self._repository.entries(commit, "global") if e.path == "global/version.json"]
        self.records.append(self._repository.read(entry.blob, max_bytes=2**20))
        if self._hooks:
            self._hooks.pop(0)()
        return False if self._refuse else self._repository.push(updates)


def pushing(fed: Fed, *hooks: Hook, refuse: bool = False) -> tuple[Context, Pushing]:
    """A run's context, before whose pushes the hooks act."""
    plain = fed.new_clone("bot")
    repository = Pushing(plain, hooks, refuse=refuse)
    return fed.context(repository=repository, forge=fed.forge("bot", plain)), repository


@pytest.fixture(params=[MemoryFed, GitFed])
def any_fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Fed]]:
    made: list[Fed] = []

    def make(**options: Any) -> Fed:
        made.append(request.param(tmp_path, **options))
        return made[-1]

    yield make
    for fed in made:
        fed.close()


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    """Two submissions are merged, and a version of the two is due."""
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    fed.submit("hospital-a", 1.0)
    fed.submit("hospital-b", 2.0)
    return fed


# ---------------------------------------------------------------- two runs (case H42)

ALPHA_0 = {"kind": "polynomial", "alpha": 0}


@pytest.mark.parametrize("any_fed", [MemoryFed, GitFed, pytest.param(GitHubFed, marks=pytest.mark.long)], indirect=True)
def test_h42_the_first_of_two_runs_wins_and_the_second_makes_the_next_version_with_the_rest(
    any_fed: Callable[..., Fed],
) -> None:
    fed = any_fed(
        rules={"trigger": {"quorum": 1}, "staleness": ALPHA_0},
        base={"w": np.zeros(1, np.float32)},
        sites=("clinic-c", "hospital-a", "hospital-b"),
        people=("lena", "clinic-c", "hospital-a", "hospital-b"),
    )

    def hand_in(site: str, value: float) -> None:
        fed.submit(site, {"w": np.array([value], np.float32)}, num_examples=10)

    hand_in("hospital-a", 4)
    hand_in("hospital-b", 8)
    first, second = start(fed), start(fed)
    first.advance_to("repository.push")
    hand_in("clinic-c", -6)
    second.advance_to("repository.push")
    assert (first.last, second.last) == ("repository.push", "repository.push")
    assert fed.version.version == 0

    of_first = finished(first)
    assert of_first.published[0].version == 1
    assert consumed_by(fed, 1) == ["hospital-a", "hospital-b"]
    assert fed.model(1)["w"].tolist() == [6.0]

    of_second = finished(second)
    [then] = [v for r in (of_first, of_second) for v in r.published if v.version == 2]
    assert [(c.site, c.staleness) for c in then.contributions] == [("clinic-c", 1)]
    assert fed.model(2)["w"].tolist() == [0.0]
    check_all(fed, rerun=partial(rerun, fed))


def test_h42_the_second_push_is_refused_as_lost_and_moves_nothing(tmp_path: Path) -> None:
    fed = MemoryFed(
        tmp_path, rules={"trigger": {"quorum": 1}, "staleness": ALPHA_0}, base={"w": np.zeros(1, np.float32)}
    )
    for site, value in (("hospital-a", 4.0), ("hospital-b", 8.0), ("clinic-c", -6.0)):
        pull = fed.submit(site, {"w": np.array([value], np.float32)})
        fed.merge_by_hand(pull.number)
    late = fed.context()
    late.repository.fetch()
    at, main = fed.clock.now(), fed.main()
    plan = propose(late, main, merged_state(late.repository, main), at, unavailable={})
    assert plan.manifest is not None
    fed.reconcile()
    late.repository.fetch()
    before = fed.state()
    assert publish(late, main.commit, at, plan.manifest, jitter=lambda: 0.5) == Lost()
    assert fed.state() == before


def test_any_number_of_runs_that_decided_the_same_publish_one_version(fed: Fed) -> None:
    runs = [start(fed) for _ in range(5)]
    for run in runs:
        run.advance_to("repository.push")
        fed.clock.sleep(1)  # so that their commits differ
    results = [finished(run) for run in runs]
    assert [v.version for r in results for v in r.published] == [1]
    check_all(fed, rerun=partial(rerun, fed))


# ---------------------------------------------------------------- main moves before the push


def test_what_moved_outside_of_the_rules_leaves_the_record_as_it_was(fed: Fed) -> None:
    def others() -> None:
        fed.merge_by_hand(fed.submit("clinic-c", 9.0).number)
        fed.commit({"README.md": b"hello\n"})

    ctx, repository = pushing(fed, others)
    done = fed.reconcile(ctx)
    assert [v.version for v in done.published] == [1]
    assert len(repository.records) == 2
    assert repository.records[0] == repository.records[1]
    made = check_lineage(fed)
    check_inputs(fed, made)
    commit, tree = made[1]
    assert tree.version["witness"]["input_commit"] != commit.parents[0]
    assert "README.md" in tree.files
    assert consumed_by(fed, 1) == ["hospital-a", "hospital-b"]
    check_all(fed, rerun=partial(rerun, fed))


def test_a_submission_that_is_overtaken_before_the_push_is_never_used_and_its_site_is_told(fed: Fed) -> None:
    ctx, _ = pushing(fed, lambda: fed.merge_by_hand(fed.submit("hospital-a", 5.0, base=0).number))
    done = fed.reconcile(ctx)
    assert [v.version for v in done.published] == [1]
    [body] = [i.body for i in fed.forge("lena").issues(frozenset({"site:hospital-a"}))]
    assert "<!-- fedops:reason overtaken -->" in body
    fed.submit("bank-d", 7.0)
    fed.submit("hospital-b", 8.0)
    fed.reconcile()
    assert consumed_by(fed, 2) == ["bank-d", "hospital-b"]
    check_all(fed, rerun=partial(rerun, fed))


def test_other_policies_make_another_decision(fed: Fed) -> None:
    ctx, repository = pushing(fed, lambda: fed.set_rules(trigger={"quorum": 3}))
    done = fed.reconcile(ctx)
    assert (done.published, len(repository.records)) == ([], 1)
    assert isinstance(done.decision, Wait)
    assert done.decision.reason == "quorum"
    check_all(fed, rerun=partial(rerun, fed))


def test_other_policies_that_still_want_the_version_give_other_numbers(fed: Fed) -> None:
    ctx, repository = pushing(fed, lambda: fed.set_rules(weights={"by": "uniform"}))
    done = fed.reconcile(ctx)
    assert [v.version for v in done.published] == [1]
    assert done.published[0].denominator == 2.0  # two sites, 10 examples each
    assert len(repository.records) == 2
    check_all(fed, rerun=partial(rerun, fed))


def test_a_suspended_contributor_is_left_out(fed: Fed) -> None:
    fed.submit("clinic-c", 3.0)
    ctx, _ = pushing(fed, lambda: fed.set_state("clinic-c", "suspended"))
    done = fed.reconcile(ctx)
    assert [(c.site) for c in done.published[0].contributions] == ["hospital-a", "hospital-b"]
    assert [(e.site, e.slug) for e in done.published[0].excluded] == [("clinic-c", "site_suspended")]


def test_rules_that_never_stand_still_are_left_for_the_next_run(fed: Fed) -> None:
    values = iter(range(3, 50))

    def meddle() -> None:
        fed.set_rules(weights={"max_num_examples": 100 + next(values)})

    # In the first pass the run also merges and signals, so it takes a second look.
    ctx, repository = pushing(fed, *[meddle] * 2 * MAX_PLANS)
    done = fed.reconcile(ctx)
    assert (done.again, done.published, len(repository.records)) == (True, [], 2 * MAX_PLANS)
    assert [v.version for v in fed.reconcile().published] == [1]


def test_a_push_that_loses_for_a_minute_is_a_temporary_error_and_publishes_nothing(fed: Fed) -> None:
    ctx, repository = pushing(fed, refuse=True)
    began = fed.clock.now()
    with pytest.raises(GitError, match="lost its race") as caught:
        fed.reconcile(ctx)
    assert caught.value.cause == "temporary"
    assert fed.clock.now() - began >= dt.timedelta(seconds=PUSH_SECONDS)
    assert max(fed.clock.slept) <= 5.0
    assert len(set(repository.records)) == 1
    assert fed.version.version == 0
    assert [v.version for v in fed.reconcile().published] == [1]
    check_all(fed, rerun=partial(rerun, fed))


def test_main_that_was_merged_into_another_line_is_decided_on_anew(fed: Fed) -> None:
    """The mirrored merge: git pull on a topic branch, then push of it as main; the pinned commit is no first parent."""
    fed.submission = {"require_signed": False}  # on the new line no merge shows whose a record is
    fed.push_policies()
    repository = fed.repositories["lena"]
    root = fed.main().commit

    def mirrored() -> None:
        side = repository.write_commit([root], {RepoPath("notes.md"): b"x\n"}, "on a branch", at=fed.clock.now())
        main = fed.main()
        files = {e.path: repository.read(e.blob, max_bytes=2**20) for e in repository.entries(main.commit)}
        merged = repository.write_commit([side, main.commit], files, "Merge main", at=fed.clock.now())
        assert repository.push([RefUpdate("refs/heads/main", main.commit, merged)])

    ctx, pushes = pushing(fed, mirrored)
    done = fed.reconcile(ctx)
    assert [v.version for v in done.published] == [1]
    first, second = pushes.records
    assert first != second, "it was decided on the new main"
    check_inputs(fed, check_lineage(fed))
    assert [c for c in fed.verify() if c.level == "none"] == []


# ---------------------------------------------------------------- tags


def tag(fed: Fed, number: int) -> RefUpdate:
    """An annotated version tag that somebody makes by hand on main."""
    repository = fed.repositories["lena"]
    name = f"global@v{number}.0.0"
    update = RefUpdate(f"refs/tags/{name}", None, repository.write_tag(name, fed.main().commit, "by hand"))
    assert repository.push([update])
    return update


@pytest.mark.parametrize("number", [1, 2, 40])
def test_a_tag_above_the_current_version_stops_aggregation_but_nothing_else(fed: Fed, number: int) -> None:
    made = tag(fed, number)
    done = fed.reconcile()
    assert [(f.slug, f.where) for f in done.findings] == [("tag_moved", f"global@v{number}.0.0")]
    assert (done.published, done.decision) == ([], None)
    assert {m.outcome for m in done.merged} == {"merged"}
    assert done.changed
    assert len(done.signals) == 4, "after v0 all sites are told"
    fed.repositories["lena"].push([RefUpdate(made.ref, made.new, None)])
    assert [v.version for v in fed.reconcile().published] == [1]
    check_all(fed, rerun=partial(rerun, fed))


def test_a_tag_that_gets_in_the_way_of_the_push_is_found_at_once(fed: Fed) -> None:
    ctx, repository = pushing(fed, lambda: tag(fed, 1))
    done = fed.reconcile(ctx)
    assert [f.slug for f in done.findings] == ["tag_moved"]
    assert len(repository.records) == 1, "it is not tried for a minute"
    assert fed.version.version == 0


def test_a_fetch_that_sees_the_tag_of_a_push_before_its_main_finds_no_stray_tag(fed: Fed) -> None:
    plain = fed.new_clone("bot")

    class Early:
        """The first fetch after the version was pushed brings the tag only."""

        def __init__(self) -> None:
            self.stale: CommitId | None = None

        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def fetch(self, pulls: Collection[int] | None = None) -> None:
            before = plain.resolve("main")
            tags = len(plain.versions())
            plain.fetch()
            self.stale = before if len(plain.versions()) > tags else None

        def resolve(self, ref: str) -> CommitId | None:
            return self.stale if ref == "main" and self.stale is not None else plain.resolve(ref)

    late = fed.context(repository=Early(), forge=fed.forge("bot", fed.new_clone("bot")))
    fed.reconcile()
    done = fed.reconcile(late)
    assert (done.findings, done.changed) == ([], False)


# ---------------------------------------------------------------- inputs


def lose(fed: Fed, site: str) -> None:
    [(repository, manifest)] = [(f"sites/{s}", m) for s, m in fed.uploads if s == site]
    assert fed.lose(repository, Digest(manifest), damage=False)


def test_an_input_that_is_gone_at_the_archive_copy_is_unavailable_and_not_used_up(fed: Fed) -> None:
    fed.submit("clinic-c", 3.0)
    run = start(fed)
    run.advance_to("store.copy")
    lose(fed, "clinic-c")
    done = finished(run)
    [made] = done.published
    assert [c.site for c in made.contributions] == ["hospital-a", "hospital-b"]
    assert [(u.site, u.slug) for u in made.witness.unavailable] == [("clinic-c", "object_missing")]
    assert "clinic-c" not in made.consumed
    check_all(fed, rerun=partial(rerun, fed))


def test_without_the_lost_input_the_quorum_does_not_hold_and_its_site_is_told(fed: Fed) -> None:
    run = start(fed)
    run.advance_to("store.copy")
    lose(fed, "hospital-b")
    done = finished(run)
    assert done.published == []
    assert isinstance(done.decision, Wait)
    assert done.decision.reason == "unavailable"
    [_] = [
        i
        for i in fed.forge("lena").issues(frozenset({"site:hospital-b"}))
        if "<!-- fedops:reason object_missing -->" in i.body
    ]
    check_all(fed, rerun=partial(rerun, fed))


@pytest.mark.parametrize("operation", ["manifest", "get", "copy", "put"])
def test_a_broken_store_makes_no_version(fed: MemoryFed, operation: Any) -> None:
    for number in (1, 2):
        fed.merge_by_hand(number)
    fed.store.fail_next(operation, StoreError("503", cause="temporary"))
    with pytest.raises(StoreError, match="503"):
        fed.reconcile()
    assert fed.version.version == 0
    assert [v.version for v in fed.reconcile().published] == [1]


# ---------------------------------------------------------------- what publish believes


def proposed(fed: Fed, ctx: Context) -> tuple[CommitId, dt.datetime, Digest]:
    for number in (1, 2):
        fed.merge_by_hand(number)
    main, at = fed.main(), fed.clock.now()
    ctx.repository.fetch()
    plan = propose(ctx, main, merged_state(ctx.repository, main), at, unavailable={})
    assert isinstance(plan.decision, Aggregate)
    assert plan.manifest is not None
    return main.commit, at, plan.manifest


def test_a_proposal_that_is_none_is_refused(fed: Fed) -> None:
    ctx = fed.context()
    commit, at, _ = proposed(fed, ctx)
    first = Digest(fed.version.model.manifest)  # v0's manifest: its config is no proposal
    with pytest.raises(StoreError) as caught:
        publish(ctx, commit, at, first, jitter=lambda: 0.5)
    assert caught.value.slug == "foreign_layer_refused"


def test_a_proposal_for_another_commit_is_refused(fed: Fed) -> None:
    ctx = fed.context()
    _, at, manifest = proposed(fed, ctx)
    other = fed.commit({"README.md": b"x\n"})
    ctx.repository.fetch()
    with pytest.raises(StoreError, match="proposal") as caught:
        publish(ctx, other, at, manifest, jitter=lambda: 0.5)
    assert caught.value.slug == "annotation_mismatch"


def test_a_decision_that_publish_does_not_come_to_is_made_anew(fed: Fed) -> None:
    fed.set_rules(trigger={"quorum": 4, "max_wait_hours": 2.0})
    for number in (1, 2):
        fed.merge_by_hand(number)
    fed.clock.sleep(2 * 3600)
    ctx = fed.context()
    commit, at, manifest = proposed_after_wait(fed, ctx)
    before = fed.state()
    assert publish(ctx, commit, at - dt.timedelta(hours=1), manifest, jitter=lambda: 0.5) == Replan({})
    assert fed.state() == before


def proposed_after_wait(fed: Fed, ctx: Context) -> tuple[CommitId, dt.datetime, Digest]:
    main, at = fed.main(), fed.clock.now()
    ctx.repository.fetch()
    plan = propose(ctx, main, merged_state(ctx.repository, main), at, unavailable={})
    assert plan.manifest is not None
    return main.commit, at, plan.manifest


# ---------------------------------------------------------------- crashes


class Crash(BaseException):
    """The machine goes away; nobody may catch it."""


def crowded(folder: Path) -> MemoryFed:
    """A federation at v1 in which one run has something of everything to do."""
    folder.mkdir()
    fed = MemoryFed(folder, rules={"trigger": {"quorum": 2}})
    fed.submit("hospital-a", 1.0)
    fed.submit("hospital-b", 2.0)
    fed.reconcile()
    fed.submit("hospital-a", 3.0)
    fed.submit("hospital-b", 4.0)
    fed.submit("clinic-c", 5.0)
    lose(fed, "clinic-c")
    fed.merge_by_hand(fed.forge("lena").open_pulls()[-1].number)
    fed.submit("bank-d", 6.0, signed=False)
    return fed


def calls_of(fed: Fed) -> list[str]:
    """The port calls of one undisturbed run, in order."""
    calls: list[str] = []
    fed.reconcile(watched(fed, calls.append))
    return calls


def at_call(number: int, error: Callable[[str], BaseException]) -> Callable[[str], None]:
    """Raises at that call."""
    seen = iter(range(10**9))

    def meddle(call: str) -> None:
        if next(seen) == number:
            raise error(call)

    return meddle


def test_a_run_that_dies_before_any_port_call_is_completed_by_the_next_one(tmp_path: Path) -> None:
    """Dying after a call is dying before the next one, as nothing but port calls has an effect, and PRIVATE ones none."""
    whole = crowded(tmp_path / "whole")
    calls = calls_of(whole)
    assert whole.version.version == 2
    check_all(whole, rerun=partial(rerun, whole))
    expected = whole.state()
    for number, call in enumerate(calls):
        if call in PRIVATE:
            continue
        fed = crowded(tmp_path / str(number))
        with pytest.raises(Crash):
            fed.reconcile(watched(fed, at_call(number, lambda call: Crash())))
        fed.reconcile()
        assert fed.state() == expected, f"died before call {number}, {call}"


def fault(call: str) -> FedopsError:
    kind = {"store": StoreError, "forge": ForgeError, "repository": GitError, "clock": ForgeError}[
        call.split(".", maxsplit=1)[0]
    ]
    return kind(f"{call}: no answer", cause="temporary")


@pytest.mark.parametrize("answer", ["no effect", "effect, but no answer"])
def test_a_fault_that_passes_at_any_port_call_leaves_a_good_history(tmp_path: Path, answer: str) -> None:
    calls = calls_of(crowded(tmp_path / "whole"))
    for number, call in enumerate(calls):
        if call in PRIVATE:
            continue
        fed = crowded(tmp_path / str(number))
        meddle = at_call(number, fault)
        nothing = at_call(-1, fault)
        with suppress(FedopsError):
            fed.reconcile(watched(fed, *((meddle, nothing) if answer == "no effect" else (nothing, meddle))))
        fed.reconcile()
        check_all(fed, rerun=partial(rerun, fed))


def rerun(fed: Fed) -> bool:
    return fed.reconcile().changed


def test_a_version_whose_registry_tag_was_never_set_gets_it_although_the_next_one_is_made_at_once(fed: Fed) -> None:
    run = start(fed)
    run.advance_to("repository.push")
    run.advance(1)
    run.kill()
    assert fed.version.version == 1
    assert fed.store.resolve("global:v1") is None
    fed.submit("hospital-a", 3.0)
    fed.submit("hospital-b", 4.0)
    assert [v.version for v in fed.reconcile().published] == [2]
    check_all(fed, rerun=partial(rerun, fed))


def test_a_forge_on_which_something_always_changes_is_left_after_a_number_of_passes(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path)
    fed.submit("hospital-a", 1.0, signed=False)
    plain = fed.forge("bot", fed.repositories["lena"])

    class Restless:
        passes = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def upsert_comment(self, *args: Any) -> bool:
            Restless.passes += 1
            return True

    done = fed.reconcile(fed.context(forge=Restless()))
    assert (done.again, Restless.passes) == (True, MAX_PASSES)


def test_values_are_read_by_the_reference_library(fed: Fed) -> None:
    """The world itself: v0 holds what it was given, so that the other tests speak of numbers."""
    model: Mapping[str, Any] = fed.model(0)
    assert {n: a.tolist() for n, a in model.items()} == {n: a.tolist() for n, a in arrays(0.5).items()}
