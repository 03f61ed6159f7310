from __future__ import annotations

import datetime as dt
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedops.app.offer import Wanted
from fedops.app.pull import pull
from fedops.app.run import Asked, run
from fedops.app.submit import Submitted, submit
from fedops.app.train import TrainedNow, train
from fedops.app.work import Work
from fedops.core.errors import ConfigError, FedopsError, ForgeError, GitError, MainFileError, StoreError, TrainingError
from fedops.core.ids import RepoPath, SiteId, record_path
from fedops.core.site_loop import (
    HandedIn,
    Offline,
    Online,
    Pause,
    PulledModel,
    Refusal,
    Replaced,
    Told,
    Trained,
    Unusable,
    Usable,
)
from fedops.ports import TrainingJob
from tests.core.samples import version
from tests.fakes_forge import FakeForge
from tests.fakes_repository import FakeRepository
from tests.site_loop_world import A, B, Code, Enough, days, loop
from tests.site_world import ACCOUNTS, START, World, memory_world, moved

VERDICT = "fedops/verdict"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return memory_world(tmp_path)


def work(world: World) -> Work:
    return Work(world.root(A))


def steps(world: World) -> list[tuple[str, int]]:
    return [(line["step"], line["version"]) for line in work(world).noted()]


def judge(world: World, number: int, verdict: str, text: str = "") -> None:
    """CI's last word on a pull request."""
    lena = world.forges["lena"]
    lena.set_status(lena.pull(number).head, verdict, VERDICT, text)  # type: ignore[arg-type]


def use(world: World, pull: int, number: int, site: str = A, base: int = 0) -> None:
    """CI merges a pull request and makes a version of it."""
    world.merge(pull)
    world.publish(version(number, contributions=[world.contribution_of(site)], consumed={site: base}), moved(number))


def pause(told: list[Told]) -> Pause:
    assert isinstance(told[-1], Pause)
    return told[-1]


# ---------------------------------------------------------------- one version after the other


def test_one_look_pulls_trains_hands_in_and_then_waits_for_ci(world: World) -> None:
    code, told = Code(), list[Told]()
    ran = loop(world, code, told=told)
    assert (ran.ended, ran.current, ran.changed) == ("once", 0, True)
    assert ran.handed_in == (HandedIn(0, "opened", 1),)
    assert ran.waiting is not None
    assert (ran.waiting.reason, ran.waiting.pull is not None and ran.waiting.pull.number) == ("open", 1)
    assert [type(t) for t in told] == [PulledModel, Trained, HandedIn]
    assert steps(world) == [("pulled", 0), ("trained", 0), ("stored", 0), ("submitted", 0)]
    (one,) = world.forges["lena"].open_pulls()
    assert one.branch == "submit/hospital-a"
    again = loop(world, code, told=told)
    assert (again.handed_in, again.changed, code.begun, world.clock.slept) == ((), False, [0], [])


def test_a_loop_goes_from_version_to_version_and_ends_with_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = Code(), list[Told]()
    final = version(2, consumed={A: 1}).model_copy(update={"status": "final"})
    slept = days(
        world,
        monkeypatch,
        [
            lambda: None,  # nothing happens: the same is not told again
            lambda: judge(world, 1, "pending", "waits for an approval"),
            lambda: world.merge(1),
            lambda: world.publish(version(1, contributions=[world.contribution_of(A)], consumed={A: 0}), moved(1)),
            lambda: world.merge(2),
            lambda: world.publish(final, moved(2)),
        ],
    )
    ran = loop(world, code, told=told, once=False, poll_seconds=40.0)
    assert (ran.ended, ran.current) == ("final", 2)
    assert ran.handed_in == (HandedIn(0, "opened", 1), HandedIn(1, "opened", 2))
    assert code.begun == [0, 1]
    assert slept == [40.0] * 6  # jitter in the middle
    waits = [(t.reason, t.version) for t in told if isinstance(t, Pause)]
    assert waits == [("open", 0), ("open", 0), ("quorum", 0), ("open", 1), ("quorum", 1)]


def test_it_ends_after_as_many_versions_as_were_asked_for(world: World) -> None:
    ran = loop(world, Code(), once=False, max_versions=1)
    assert (ran.ended, ran.handed_in) == ("enough", (HandedIn(0, "opened", 1),))
    assert world.clock.slept == []


def test_several_versions_behind_it_trains_on_the_current_one(world: World) -> None:
    code = Code()
    loop(world, code)
    use(world, 1, 1)
    for number in (2, 3):
        world.publish(version(number, consumed={A: 0}), moved(number))
    ran = loop(world, code)
    assert (ran.handed_in, code.begun) == ((HandedIn(3, "opened", 2),), [0, 3])


def test_an_open_or_merged_update_on_an_older_version_is_waited_for(world: World) -> None:
    code, told = Code(), list[Told]()
    loop(world, code)
    world.publish(version(1), moved(1))
    first = loop(world, code, told=told).waiting
    world.merge(1)
    second = loop(world, code, told=told).waiting
    assert first is not None
    assert second is not None
    assert (first.reason, second.reason, second.version, code.begun) == ("open", "quorum", 1, [0])


def test_a_newer_version_that_comes_while_it_trains_does_not_cost_the_training(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[Told]()
    code = Code()
    real = code.run

    def slow(job: Any) -> None:
        real(job)
        world.publish(version(1), moved(1))

    monkeypatch.setattr(code, "run", slow)
    ran = loop(world, code, told=told)
    assert (ran.handed_in, ran.current) == ((HandedIn(0, "opened", 1),), 1)
    assert code.begun == [0]


def test_a_training_that_became_too_stale_is_followed_by_one_on_the_current_version(world: World) -> None:
    ready = Code()
    loop(world, ready, max_versions=1)
    world.forges["lena"].close_pull(1)
    for number in range(1, 8):
        world.publish(version(number), moved(number))
    assert loop(world, ready).handed_in == (HandedIn(7, "opened", 2),)


def test_issues_are_not_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("what an issue says is only a hint")

    monkeypatch.setattr(world.forges[A], "issues", never)
    assert loop(world, Code()).handed_in


def test_the_sites_own_hyperparameters_reach_its_code(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code, seen = Code(), list[Any]()
    real = code.run

    def noting(job: TrainingJob) -> None:
        seen.append(job.config)
        real(job)

    monkeypatch.setattr(code, "run", noting)
    loop(world, code, overrides={"rate": 0.5})
    assert seen == [{"hyperparameters": {"epochs": 2, "rate": 0.5}, "version": 0}]


# ---------------------------------------------------------------- what CI or main says no to


def test_a_rejected_update_is_not_handed_in_again_until_a_new_version_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = Code(), list[Told]()
    days(
        world,
        monkeypatch,
        [
            lambda: judge(world, 1, "failure", "rejected: norm_exceeded"),
            lambda: None,
            lambda: None,
            lambda: world.publish(version(1), moved(1)),
        ],
    )
    with pytest.raises(Enough):
        loop(world, code, told=told, once=False)
    assert code.begun == [0, 1]
    rejected = [t for t in told if isinstance(t, Pause) and t.reason == "rejected"]
    assert [(t.version, t.pull and t.pull.text) for t in rejected] == [(0, "rejected: norm_exceeded")]
    assert [t for t in told if isinstance(t, HandedIn)] == [HandedIn(0, "opened", 1), HandedIn(1, "moved", 1)]
    assert steps(world).count(("submitted", 0)) == 1


def test_a_rejected_update_is_trained_once_more_if_that_is_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Code()
    loop(world, code)
    judge(world, 1, "failure", "rejected: norm_exceeded")
    assert loop(world, code).handed_in == ()
    days(world, monkeypatch, [lambda: judge(world, 1, "failure"), lambda: None])
    told = list[Told]()
    with pytest.raises(Enough):
        loop(world, code, told=told, once=False, again=True)
    assert code.begun == [0, 0]
    assert [t for t in told if isinstance(t, HandedIn)] == [HandedIn(0, "moved", 1)]
    assert pause(told).reason == "rejected"


def test_a_kill_between_such_a_training_and_its_submission_loses_nothing(world: World) -> None:
    code = Code()
    loop(world, code)
    judge(world, 1, "failure")
    got = train(world.ctx(A), world.root(A), code, site=A, again=True)
    assert isinstance(got, TrainedNow)
    lines = work(world).journal.read_bytes().splitlines(keepends=True)
    work(world).journal.write_bytes(b"".join(lines[:-1]))  # the kill came before the line
    assert loop(world, code).handed_in == (HandedIn(0, "moved", 1),)
    assert code.begun == [0, 0]


def test_what_submit_refuses_is_told_with_its_reason_and_tried_again_when_the_policies_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = Code(metrics={"auc": 0.9}), list[Told]()
    ran = loop(world, code, told=told)
    assert ran.waiting is not None
    assert (ran.waiting.reason, [f.slug for f in ran.findings], ran.handed_in) == ("refused", ["metrics_invalid"], ())
    assert isinstance(told[-1], Refusal)
    policy = b"schema: fedops.submission-policy/v1\nmetrics: {allowed: [auc]}\n"
    days(world, monkeypatch, [lambda: None, lambda: world.change({"policies/submission.yaml": policy})])
    told.clear()
    with pytest.raises(Enough):
        loop(world, code, told=told, once=False)
    assert [type(t) for t in told] == [Refusal, Pause, HandedIn, Pause]
    assert code.begun == [0]


def test_what_submit_refuses_is_trained_once_more_if_that_is_asked_for(world: World) -> None:
    code = Code(metrics={"auc": 0.9})
    loop(world, code)
    code.metrics = {"loss": 0.1}
    ran = loop(world, code, again=True)
    assert (ran.handed_in, code.begun) == ((HandedIn(0, "opened", 1),), [0, 0])


def test_a_training_by_hand_is_handed_in_while_the_loop_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code = Code(metrics={"auc": 0.9})

    def by_hand() -> None:
        train(world.ctx(A), world.root(A), Code(), site=A, again=True)

    days(world, monkeypatch, [by_hand])
    told = list[Told]()
    with pytest.raises(Enough):
        loop(world, code, told=told, once=False)
    assert HandedIn(0, "opened", 1) in told


def test_a_pull_request_that_a_person_closed_is_not_opened_again(world: World) -> None:
    code = Code()
    loop(world, code)
    world.forges["lena"].close_pull(1)
    ran = loop(world, code)
    assert ran.waiting is not None
    assert (ran.waiting.reason, ran.handed_in) == ("closed", ())
    assert world.forges["lena"].open_pulls() == ()
    assert loop(world, code, again=True).handed_in == (HandedIn(0, "opened", 2),)


def test_what_was_excluded_or_overtaken_is_followed_by_a_training_on_the_current_version(world: World) -> None:
    code = Code()
    loop(world, code)
    first = work(world).draft(0).read_bytes()
    world.merge(1)
    used = world.contribution_of(A)
    train(world.ctx(A), world.root(A), code, site=A, again=True)
    submit(world.ctx(A), world.root(A), Wanted(A), key=world.key(A))
    world.merge(2)
    assert work(world).draft(0).read_bytes() != first
    world.publish(version(1, contributions=[used], consumed={A: 0}), moved(1))  # read before the second was merged
    ran = loop(world, code)
    assert (ran.handed_in, code.begun) == ((HandedIn(1, "opened", 3),), [0, 0, 1])


def from_another_clone(world: World) -> None:
    """The site hands in another update on v0, from another machine, and CI merges it."""
    here = world.repositories[A]
    assert isinstance(here, FakeRepository)
    repository = here.origin.clone()
    ctx = replace(
        world.ctx(A), repository=repository, forge=FakeForge(hub(world), repository, ACCOUNTS[A], world.clock)
    )
    repository.fetch()
    root = world.folder / "elsewhere"
    root.mkdir()
    code = Code()
    code.begun.append(0)  # so that it comes to other numbers
    pull(ctx, root)
    train(ctx, root, code, site=A)
    got = submit(ctx, root, Wanted(A), key=world.key(A))
    assert isinstance(got, Submitted)
    assert got.pull is not None
    world.merge(got.pull)


def on_main(world: World) -> str:
    """Digest of the bytes that the site's record on main names."""
    return world.contribution_of(A).sha256


@pytest.mark.parametrize("looked", [True, False])
def test_an_update_that_another_clone_of_the_site_replaced_is_told_and_neither_trained_nor_handed_in_again(
    looked: bool, world: World
) -> None:
    """CONTRACTS: merged and overwritten before a version read it, it is superseded: in history, never consumed."""
    code, told = Code(), list[Told]()
    loop(world, code)
    world.merge(1)
    own = on_main(world)
    loop(world, code, told=told)
    assert told == [], "the merged update is its own"
    from_another_clone(world)
    assert on_main(world) != own
    if looked:
        waits = loop(world, code, told=told)
        assert (waits.handed_in, waits.changed) == ((), False)
        assert waits.waiting is not None
        assert (waits.waiting.reason, told) == ("quorum", [Replaced(0)])
        told.clear()
    world.publish(version(1, contributions=[world.contribution_of(A)], consumed={A: 0}), moved(1))
    ran = loop(world, code, told=told)
    assert [type(t) for t in told] == [Replaced, PulledModel, Trained, HandedIn]
    assert told[0] == Replaced(0)
    assert (ran.handed_in, code.begun) == ((HandedIn(1, "opened", 3),), [0, 1])
    assert [step for step in steps(world) if step[1] == 0].count(("submitted", 0)) == 1
    told.clear()
    world.merge(3)
    loop(world, code, told=told)
    assert told == [], "the newest update is its own again"


def test_a_loop_that_goes_on_tells_once_that_another_clone_replaced_its_update(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = Code(), list[Told]()
    days(world, monkeypatch, [lambda: world.merge(1), lambda: from_another_clone(world), lambda: None, lambda: None])
    with pytest.raises(Enough):
        loop(world, code, told=told, once=False)
    assert [type(t) for t in told] == [PulledModel, Trained, HandedIn, Pause, Pause, Replaced]
    assert (pause(told[:-1]).reason, code.begun) == ("quorum", [0])


def test_what_another_clone_handed_in_before_is_not_said_to_replace_an_open_pull_request(world: World) -> None:
    """It came earlier: this clone's replaces it, once CI merges that."""
    code, told = Code(), list[Told]()
    loop(world, code, max_versions=1)
    world.forges["lena"].close_pull(1)
    from_another_clone(world)
    submit(world.ctx(A), world.root(A), Wanted(A), key=world.key(A))
    ran = loop(world, code, told=told)
    assert ran.waiting is not None
    assert (ran.waiting.reason, told) == ("open", [])


def test_a_merged_update_that_does_not_count_is_not_replaced_by_the_same(world: World) -> None:
    code = Code()
    loop(world, code)
    world.merge(1)
    world.change({"policies/submission.yaml": b"schema: fedops.submission-policy/v1\nnum_examples_max: 100\n"})
    ran = loop(world, code)
    assert ran.waiting is not None
    assert (ran.waiting.reason, [f.slug for f in ran.findings]) == ("unusable", ["num_examples_invalid"])
    world.publish(version(1), moved(1))
    after = loop(world, code).waiting
    assert after is not None
    assert (after.reason, after.version, code.begun) == ("refused", 1, [0, 1])


@pytest.mark.parametrize("record", [b"{", b" " * 20_000])
def test_a_record_on_main_that_nobody_can_read_does_not_stop_the_site(record: bytes, world: World) -> None:
    world.change({record_path(A): record})
    assert loop(world, Code()).handed_in == (HandedIn(0, "opened", 1),)


# ---------------------------------------------------------------- who may take part


def test_a_suspended_site_waits_until_a_lead_ends_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    roster = _roster(world)
    at = roster.index("state: active")
    world.change({"policies/sites.yaml": f"{roster[:at]}state: suspended{roster[at + 13 :]}".encode()})
    once = loop(world, Code())
    assert once.waiting is not None
    assert (once.waiting.reason, once.ended, once.changed) == ("suspended", "once", False)
    days(world, monkeypatch, [lambda: world.change({"policies/sites.yaml": roster.encode()})])
    told = list[Told]()
    with pytest.raises(Enough):
        loop(world, Code(), told=told, once=False)
    assert [type(t) for t in told] == [Pause, PulledModel, Trained, HandedIn, Pause]


def _roster(world: World) -> str:
    repository = world.repositories["lena"]
    repository.fetch()
    main = repository.resolve("main")
    assert main is not None
    entry = next(e for e in repository.entries(main) if e.path == "policies/sites.yaml")
    return repository.read(entry.blob, max_bytes=10_000).decode()


@pytest.mark.parametrize(("site", "slug"), [("clinic-x", "site_unknown"), ("../x", "site_id_invalid")])
def test_a_site_that_is_not_on_the_roster_is_told_so_at_once(site: str, slug: str, world: World) -> None:
    code = Code()
    asked = Asked(site=SiteId(site), key=world.key(A))
    ran = run(world.ctx(A), world.root(A), code, asked, tell=lambda _: None, jitter=lambda: 0.5)
    assert (ran.ended, [f.slug for f in ran.findings], code.begun) == ("unknown", [slug], [])


def test_without_a_key_no_time_is_spent_on_a_training_that_cannot_be_handed_in(world: World) -> None:
    code = Code()
    ran = loop(world, code, key=None, once=False)
    assert (ran.ended, [f.slug for f in ran.findings], code.begun) == ("unsigned", ["signature_invalid"], [])


def test_a_pull_request_that_only_claims_to_be_the_sites_does_not_stop_it(world: World) -> None:
    """Anybody may open one from a branch of that name."""
    lena, repository = world.forges["lena"], world.repositories["lena"]
    main = repository.resolve("main")
    assert main is not None
    head = repository.write_commit([main], {RepoPath("x"): b"x"}, "x", at=START)
    lena.submit_pull(head, "submit/hospital-a", "mine", "")
    assert loop(world, Code()).handed_in == (HandedIn(0, "moved", 1),)


def test_the_other_sites_results_in_the_same_clone_are_not_handed_in(world: World) -> None:
    loop(world, Code(), max_versions=1)
    code = Code()
    asked = Asked(site=B, key=world.key(B), once=True)
    run(world.ctx(B), world.root(A), code, asked, tell=lambda _: None, jitter=lambda: 0.5)
    assert code.begun == [0]
    assert [p.branch for p in world.forges["lena"].open_pulls()] == ["submit/hospital-a", "submit/hospital-b"]


# ---------------------------------------------------------------- broken machines


def fail(target: object, name: str, errors: list[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next calls raise, one error each."""
    real = getattr(target, name)

    def call(*args: Any, **more: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return real(*args, **more)

    monkeypatch.setattr(target, name, call)


def offline(kind: type[FedopsError], count: int) -> list[BaseException]:
    return [kind("origin: no route to host", cause="temporary") for _ in range(count)]


@pytest.mark.parametrize(
    ("port", "call", "kind"),
    [
        ("repositories", "fetch", GitError),
        ("forges", "open_pulls", ForgeError),
        ("forges", "submit_pull", ForgeError),
        ("store", "get", StoreError),
        ("store", "put", StoreError),
    ],
)
def test_an_offline_period_is_told_once_waited_for_and_costs_nothing(
    port: str, call: str, kind: type[FedopsError], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = Code(), list[Told]()
    target = world.store if port == "store" else getattr(world, port)[A]
    fail(target, call, offline(kind, 10), monkeypatch)
    ran = loop(world, code, told=told, once=False, max_versions=1)
    assert (ran.ended, code.begun) == ("enough", [0])
    assert [t for t in told if isinstance(t, (Offline, Online))] == [Offline("origin: no route to host"), Online()]
    # Doubled from 5 s up to 10 min, jitter in the middle.
    assert world.clock.slept == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_the_retries_of_several_sites_are_spread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(world.forges[A], "open_pulls", offline(ForgeError, 2), monkeypatch)
    asked = Asked(site=A, key=world.key(A), max_versions=1)
    run(world.ctx(A), world.root(A), Code(), asked, tell=lambda _: None, jitter=iter([0.0, 0.9]).__next__)
    assert world.clock.slept == [2.5, 14.0]


def test_two_offline_periods_are_told_as_two(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[Told]()
    fail(world.forges[A], "open_pulls", offline(ForgeError, 1), monkeypatch)
    fail(world.store, "put", offline(StoreError, 1), monkeypatch)
    loop(world, Code(), told=told, once=False, max_versions=1)
    names = [type(t).__name__ for t in told]
    assert names == ["Offline", "Online", "PulledModel", "Trained", "Offline", "Online", "HandedIn"]
    assert world.clock.slept == [5, 5]


def test_coming_online_while_there_is_nothing_to_do_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    loop(world, Code())
    told = list[Told]()
    fail(world.forges[A], "open_pulls", offline(ForgeError, 1), monkeypatch)
    days(
        world,
        monkeypatch,
        [lambda: None, lambda: fail(world.forges[A], "open_pulls", offline(ForgeError, 1), monkeypatch), lambda: None],
    )
    with pytest.raises(Enough):
        loop(world, Code(), told=told, once=False)
    assert [type(t).__name__ for t in told] == ["Offline", "Online", "Pause", "Offline", "Online"]


@pytest.mark.parametrize(
    "error",
    [
        ForgeError("forge: 401", cause="auth"),
        StoreError("store: not there"),
        GitError("git: corrupt"),
        ConfigError("policies/sites.yaml:3: unknown key"),
    ],
)
def test_what_a_person_must_change_ends_the_run(
    error: FedopsError, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(world.forges[A], "open_pulls", [error], monkeypatch)
    with pytest.raises(type(error)) as e:
        loop(world, Code(), once=False)
    assert e.value is error
    assert world.clock.slept == []


AGGREGATION = RepoPath("policies/aggregation.yaml")


def broken_policy(world: World, text: str) -> None:
    world.change({AGGREGATION: f"schema: fedops.aggregation/v1\n{text}\n".encode()})


def test_while_main_cannot_be_used_it_waits_tells_that_once_and_goes_on_after_the_leads_correction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = Code(), list[Told]()
    broken_policy(world, "trigger: {quorun: 2}")
    slept = days(
        world,
        monkeypatch,
        [
            lambda: None,
            lambda: broken_policy(world, "trigger: {quorum: x}"),
            lambda: None,
            lambda: broken_policy(world, "trigger: {quorum: 2}"),
        ],
    )
    with pytest.raises(Enough):
        loop(world, code, told=told, once=False, poll_seconds=40.0)
    assert slept == [40.0] * 5
    assert [type(t) for t in told] == [Unusable, Unusable, Usable, PulledModel, Trained, HandedIn, Pause]
    first = told[0]
    assert isinstance(first, Unusable)
    assert first.message == "policies/aggregation.yaml:2: trigger.quorun: unknown key, did you mean quorum?"
    assert first.hint == "a lead corrects it on main; nothing of yours is lost"
    assert code.begun == [0]


def test_what_it_waited_for_is_told_again_once_main_is_right(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[Told]()
    actions = [lambda: broken_policy(world, "triger: {}"), lambda: broken_policy(world, "trigger: {quorum: 2}")]
    days(world, monkeypatch, actions)
    with pytest.raises(Enough):
        loop(world, Code(), told=told, once=False)
    assert [type(t) for t in told[3:]] == [Pause, Unusable, Usable, Pause]


def test_an_origin_that_answers_with_a_policy_that_cannot_be_used_is_told_to_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[Told]()
    broken_policy(world, "triger: {}")
    fail(world.forges[A], "open_pulls", offline(ForgeError, 1), monkeypatch)
    days(world, monkeypatch, [lambda: None])
    with pytest.raises(Enough):
        loop(world, Code(), told=told, once=False)
    assert [type(t) for t in told] == [Offline, Online, Unusable]


def test_asked_to_run_once_it_ends_where_main_cannot_be_used(world: World) -> None:
    broken_policy(world, "triger: {}")
    with pytest.raises(MainFileError, match="did you mean trigger"):
        loop(world, Code())
    assert world.clock.slept == []


def test_code_that_fails_ends_the_run_and_the_next_one_trains_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Code()
    fail(code, "run", [TrainingError("ours:Ours: out of memory")], monkeypatch)
    with pytest.raises(TrainingError, match="out of memory"):
        loop(world, code, once=False)
    assert loop(world, code).handed_in == (HandedIn(0, "opened", 1),)


def test_asked_to_run_once_it_does_not_wait_for_an_origin_that_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(world.forges[A], "open_pulls", offline(ForgeError, 1), monkeypatch)
    with pytest.raises(ForgeError, match="no route"):
        loop(world, Code())


@pytest.mark.parametrize("fault", ["missing", "no record", "garbage"])
def test_a_rejected_pull_request_of_which_nothing_can_be_read_is_followed_by_a_training(
    fault: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Code()
    repository, forge = world.repositories[A], world.forges[A]
    main = repository.resolve("main")
    assert main is not None
    files: dict[str, dict[RepoPath, bytes | None]] = {
        "garbage": {record_path(A): b"{"},
        "no record": {RepoPath("x"): b"x"},
        "missing": {record_path(A): b"{}"},
    }
    head = repository.write_commit([main], files[fault], "x", at=START, key=world.key(A))
    number = forge.submit_pull(head, "submit/hospital-a", "x", "").number
    judge(world, number, "failure", "rejected: metadata_schema")
    if fault == "missing":
        real = repository.read

        def read(blob: Any, *, max_bytes: int) -> bytes:
            data = real(blob, max_bytes=max_bytes)
            if data == b"{}":
                raise GitError("object is missing", slug="object_corrupt")
            return data

        monkeypatch.setattr(repository, "read", read)
    assert loop(world, code).handed_in == (HandedIn(0, "moved", number),)


def test_a_git_that_does_not_answer_is_not_taken_for_a_head_without_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop(world, Code())
    judge(world, 1, "failure")
    real = world.repositories[A].entries

    def entries(commit: Any, under: str = "") -> Any:
        if under == record_path(A):
            raise GitError("git: out of memory", cause="temporary")
        return real(commit, under)

    monkeypatch.setattr(world.repositories[A], "entries", entries)
    with pytest.raises(GitError, match="out of memory"):
        loop(world, Code())


# ---------------------------------------------------------------- heartbeats


def hub(world: World) -> Any:
    forge = world.forges[A]
    assert isinstance(forge, FakeForge)
    return forge.hub


def test_each_step_beats_and_waiting_beats_every_quarter_of_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[Any, ...]] = []
    monkeypatch.setattr(world.forges[A], "beat", lambda *beat: said.append(beat))
    actions = [lambda: _later(world, 600)] * 3
    days(world, monkeypatch, actions)
    with pytest.raises(Enough):
        loop(world, Code(), once=False, poll_seconds=600)
    assert said == [
        *((A, 0, state, START) for state in ("pulling", "training", "submitting", "waiting")),
        (A, 0, "waiting", START + dt.timedelta(seconds=1200)),
    ]


def _later(world: World, seconds: float) -> None:
    world.clock.at += dt.timedelta(seconds=seconds)


def test_where_the_federation_waits_less_the_beats_are_closer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = b"schema: fedops.aggregation/v1\ntrigger: {quorum: 2, max_wait_hours: 0.5}\n"
    world.change({"policies/aggregation.yaml": policy})
    loop(world, Code())
    said: list[Any] = []
    monkeypatch.setattr(world.forges[A], "beat", lambda *beat: said.append(beat[-1] - START))
    days(world, monkeypatch, [lambda: _later(world, 300)] * 3)
    with pytest.raises(Enough):
        loop(world, Code(), once=False)
    assert [s.total_seconds() for s in said] == [0, 600]  # a quarter of half an hour is 450 s


def test_a_heartbeat_that_fails_stops_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(world.forges[A], "beat", [ForgeError("403", cause="auth") for _ in range(9)], monkeypatch)
    assert loop(world, Code()).handed_in == (HandedIn(0, "opened", 1),)


# ---------------------------------------------------------------- races with others


@pytest.mark.parametrize(("last", "trained"), [("training", []), ("submitting", [0])])
def test_main_that_becomes_final_between_two_steps_ends_it(
    last: str, trained: list[int], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = version(1).model_copy(update={"status": "final"})
    code = Code()
    real: Callable[..., Any] = world.forges[A].beat

    def beat(site: SiteId, number: int, state: str, at: dt.datetime) -> None:
        if state == last and number == 0:
            world.publish(final, moved(1))
            world.repositories[A].fetch()
        real(site, number, state, at)

    monkeypatch.setattr(world.forges[A], "beat", beat)
    ran = loop(world, code, once=False)
    assert (ran.ended, ran.handed_in, code.begun) == ("final", (), trained)


def test_a_site_that_is_suspended_between_two_steps_does_not_train(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Code()
    real: Callable[..., Any] = world.forges[A].beat

    def beat(site: SiteId, number: int, state: str, at: dt.datetime) -> None:
        if state == "training":
            world.change({"policies/sites.yaml": _roster(world).replace("active", "suspended").encode()})
            world.repositories[A].fetch()
        real(site, number, state, at)

    monkeypatch.setattr(world.forges[A], "beat", beat)
    ran = loop(world, code)
    assert ran.waiting is not None
    assert (ran.waiting.reason, code.begun) == ("suspended", [])


# ---------------------------------------------------------------- a disk that is full


@pytest.mark.parametrize("at", ["training", "note"])
def test_a_full_disk_is_waited_for_and_nothing_is_done_twice(
    at: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = Code(), list[Told]()
    full = OSError(errno.ENOSPC, "No space left on device", "/data/clone/.fedops/x")
    if at == "training":
        fail(code, "run", [full, full], monkeypatch)
    else:  # after the training: its update and result are there
        fail(Work, "note", [full, full], monkeypatch)
    slept = days(world, monkeypatch, [lambda: None, lambda: None])
    with pytest.raises(Enough):
        loop(world, code, told=told, once=False)
    assert slept[:2] == [5.0, 10.0], "each time longer, with no jitter in the middle of its range"
    offline = next(t for t in told if isinstance(t, Offline))
    assert "/data/clone/.fedops/x: cannot be written, got No space left on device" in offline.message
    assert code.begun == [0]
    assert any(isinstance(t, HandedIn) for t in told)


def test_asked_to_run_once_it_ends_with_what_the_system_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(Code, "run", [OSError(errno.ENOSPC, "No space left on device", "x")], monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        loop(world, Code())


def test_another_error_of_the_system_ends_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(Code, "run", [OSError(errno.ENOENT, "No such file or directory", "x")], monkeypatch)
    with pytest.raises(FileNotFoundError):
        loop(world, Code(), once=False)
