from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from fedops.app.offer import Wanted
from fedops.app.pull import pull
from fedops.app.snapshot import main_snapshot
from fedops.app.status import status
from fedops.app.submit import Submitted, submit
from fedops.app.train import train
from fedops.app.work import Trained, Work, write_document
from fedops.core.errors import ForgeError
from fedops.core.facts import Account, Aggregate, RefUpdate, Stop, Wait
from fedops.core.findings import finding
from fedops.core.ids import RepoPath, SiteId, record_path
from fedops.core.signals import SIGNAL_LABELS, reason_marker, signal_marker
from fedops.core.status import Blocked, Heartbeat, LocalWork, SiteLine, StatusReport
from fedops.render.status import status_text
from tests.core.samples import version
from tests.fakes_forge import FakeForge
from tests.fakes_repository import FakeRepository
from tests.site_loop_world import Code
from tests.site_world import START, World, git_world, memory_world, moved

A = SiteId("hospital-a")
B = SiteId("hospital-b")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return memory_world(tmp_path)


@pytest.fixture(params=["memory", "git"])
def each_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = memory_world(tmp_path) if request.param == "memory" else git_world(tmp_path)
    yield world
    world.close()


def look(world: World, own: SiteId | None = A, *, offline: bool = False, after_hours: float = 0) -> StatusReport:
    now = world.clock.now() + dt.timedelta(hours=after_hours)
    forge = None if offline else world.forges[A]
    return status(world.repositories[A], forge, world.root(A), own=own, now=now)


def line(report: StatusReport, site: SiteId) -> SiteLine:
    return next(one for one in report.sites if one.site == site)


def hand_in(world: World, site: SiteId = A, step: float = 1, **wanted: Any) -> int:
    """Submit an update; the number of its pull request."""
    path = world.folder / f"{site}.safetensors"
    save_file(moved(step), path)
    facts = Wanted(site=site, file=path, num_examples=100, **wanted)
    got = submit(world.ctx(site), world.root(site), facts, key=world.key(site))
    assert isinstance(got, Submitted), got
    assert got.pull is not None
    return got.pull


def policy(world: World, **files: str) -> None:
    names = {"aggregation": "policies/aggregation.yaml", "submission": "policies/submission.yaml"}
    world.change(
        {
            names[k]: f"schema: fedops.{'submission-policy' if k == 'submission' else k}/v1\n{v}\n".encode()
            for k, v in files.items()
        }
    )


def test_a_new_federation_waits_for_everybodys_first_update(each_world: World) -> None:
    report = look(each_world)
    assert (report.name, report.version, report.made_at, report.final) == ("breast-cancer", 0, START, False)
    assert isinstance(report.decision, Wait)
    assert (report.decision.reason, report.decision.missing) == ("nothing_new", (A, B))
    assert [(one.site, one.phase) for one in report.sites] == [(A, "new"), (B, "new")]
    assert (report.ready, report.pulls, report.faults) == ((), 0, ())
    assert (report.work, report.next_command) == (LocalWork(None, None), "fedops pull")


def test_this_clones_own_site_comes_first(world: World) -> None:
    assert [one.site for one in look(world, own=B).sites] == [B, A]
    assert look(world, own=None).next_command == ""
    assert look(world, own=SiteId("clinic-x")).next_command == ""


def test_an_open_pull_request_shows_cis_last_word_on_its_head(each_world: World) -> None:
    world = each_world
    number = hand_in(world)
    pull_line = line(look(world), A)
    assert pull_line.phase == "open"
    assert pull_line.pull is not None
    assert (pull_line.pull.number, pull_line.pull.verdict, pull_line.pull.owned) == (number, None, True)
    head = world.forges["lena"].pull(number).head
    world.forges["lena"].set_status(head, "failure", "fedops/verdict", "rejected: non_finite")
    world.forges["lena"].set_status(head, "success", "ci/other", "fine")
    refused = line(look(world), A).pull
    assert refused is not None
    assert (refused.verdict, refused.text) == ("failure", "rejected: non_finite")


def test_a_merged_submission_counts_for_the_next_version(each_world: World) -> None:
    world = each_world
    world.merge(hand_in(world))
    report = look(world)
    assert report.ready == (A,)
    ready = line(report, A)
    assert (ready.phase, ready.base_version, ready.staleness, ready.merged_at) == ("ready", 0, 0, START)
    assert isinstance(report.decision, Wait)
    assert (report.decision.reason, report.decision.missing) == ("quorum", (B,))
    assert report.next_command == ""


def test_a_reached_quorum_is_due(world: World) -> None:
    for step, site in enumerate((A, B)):
        world.merge(hand_in(world, site, step + 1))
    report = look(world)
    assert isinstance(report.decision, Aggregate)
    assert report.ready == (A, B)


def test_the_time_from_which_fewer_will_do_is_told(world: World) -> None:
    policy(world, aggregation="trigger: {quorum: 2, max_wait_hours: 6.0}")
    world.merge(hand_in(world))
    decision = look(world).decision
    assert isinstance(decision, Wait)
    assert decision.until == START + dt.timedelta(hours=6)
    assert isinstance(look(world, after_hours=6).decision, Aggregate)


def test_a_site_whose_update_was_used_is_to_train_on_the_new_version(world: World) -> None:
    world.merge(hand_in(world))
    world.publish(version(1, contributions=[world.contribution_of(A)], consumed={A: 0}), moved(1))
    report = look(world)
    due = line(report, A)
    assert (due.phase, due.base_version, due.staleness, due.merged_at) == ("due", 0, None, None)
    assert report.version == 1
    assert report.next_command == "fedops pull"


def test_staleness_is_counted_from_the_version_being_made(world: World) -> None:
    world.publish(version(1))
    world.publish(version(2))
    world.merge(hand_in(world, base=0))
    assert line(look(world), A).staleness == 2  # v3 - 1 - v0


def test_what_no_longer_counts_names_its_reason(world: World) -> None:
    world.merge(hand_in(world))
    for number in range(1, 7):
        world.publish(version(number))
    refused = line(look(world), A)
    assert refused.phase == "refused"
    assert refused.reason is not None
    assert refused.reason.slug == "too_stale"
    assert look(world).ready == ()


def test_a_submission_that_a_version_overtook_is_told(world: World) -> None:
    world.merge(hand_in(world))
    used = world.contribution_of(A)
    world.merge(hand_in(world, step=2))
    world.publish(version(1, contributions=[used], consumed={A: 0}))
    overtaken = line(look(world), A)
    assert overtaken.reason is not None
    assert (overtaken.phase, overtaken.reason.slug) == ("refused", "overtaken")


def test_a_record_that_was_merged_without_a_signature_does_not_count(world: World) -> None:
    world.merge(hand_in(world))
    head = world.repositories["lena"].resolve("main")
    assert head is not None
    record = world.repositories["lena"].read(
        next(e.blob for e in world.repositories["lena"].entries(head, f"sites/{A}") if e.path == record_path(A)),
        max_bytes=10_000,
    )
    world.change({record_path(A): record + b"\n"})  # the lead's hand, not the site's key
    unsigned = line(look(world), A)
    assert unsigned.reason is not None
    assert (unsigned.phase, unsigned.reason.slug) == ("refused", "signature_invalid")


def test_a_record_that_can_never_count_is_a_warning(world: World) -> None:
    world.change({record_path(A): b"{"})
    report = look(world)
    assert [f.slug for f in report.faults] == ["record_unreadable"]
    assert line(report, A).phase == "refused"


def test_a_suspended_site_is_shown_as_such_whatever_it_did(world: World) -> None:
    world.merge(hand_in(world))
    from fedops.app.snapshot import main_snapshot
    from fedops.core.ids import SITES_PATH

    text = main_snapshot(world.repositories["lena"]).bytes_of(SITES_PATH).decode()
    world.change({SITES_PATH: text.replace("state: active", "state: suspended", 1).encode()})
    report = look(world)
    assert line(report, A).phase == "suspended"
    assert report.ready == ()


def test_a_final_version_ends_it_for_everybody(world: World) -> None:
    world.publish(version(1, status="final"))
    report = look(world)
    assert report.final
    assert isinstance(report.decision, Stop)
    assert [one.phase for one in report.sites] == ["done", "done"]


def test_a_branch_of_a_sites_name_is_not_taken_for_the_site(world: World) -> None:
    repository = world.repositories[B]
    main = repository.resolve("main")
    assert main is not None
    commit = repository.write_commit([main], {RepoPath("x"): b"x"}, "x", at=START)
    world.forges[B].submit_pull(commit, "submit/hospital-a", "in the name of a", "")
    forged = line(look(world), A).pull
    assert forged is not None
    assert not forged.owned
    # Once the site's own is there, it is the one to see; another branch is nobody's line.
    world.forges[B].submit_pull(commit, "policy/more", "something else", "")
    stranger = world.forges[B]
    assert isinstance(stranger, FakeForge)
    stranger.hub.pulls[3] = stranger.hub.pulls[1].__class__(
        **{**stranger.hub.pulls[1].__dict__, "number": 3, "author": Account("alice-a", 1001)}
    )
    report = look(world)
    own = line(report, A).pull
    assert own is not None
    assert (own.number, own.owned, report.pulls) == (3, True, 3)
    stranger.hub.pulls[4] = stranger.hub.pulls[1].__class__(**{**stranger.hub.pulls[1].__dict__, "number": 4})
    later = line(look(world), A).pull
    assert later is not None
    assert later.number == 3


def test_offline_neither_forge_nor_origin_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_in(world)
    world.publish(version(1))
    monkeypatch.setattr(world.repositories[A], "fetch", _never)
    report = look(world, offline=True)
    assert (report.version, report.pulls) == (0, None)
    assert line(report, A).phase == "new"


def _never() -> None:
    raise AssertionError("origin was asked")


def test_own_work_and_the_command_that_follows_from_it(world: World) -> None:
    pull(world.ctx(A), world.root(A))
    assert (look(world).work, look(world).next_command) == (LocalWork(0, None), "fedops train")
    here = Work(world.root(A))
    save_file(moved(1), here.update(0))
    said = Trained(site=A, base_version=0, num_examples=5, metrics={}, sha256="0" * 64, size=1)
    write_document(here.result(0), said)
    assert (look(world).work, look(world).next_command) == (LocalWork(0, 0, "0" * 64), "fedops submit")


def test_a_version_without_a_tag_was_made_when_its_record_says(world: World) -> None:
    world.publish(version(1), tag=False)
    seen = look(world)
    assert seen.made_at == dt.datetime(2026, 3, 2, 10, 0, tzinfo=dt.UTC)  # decided_at of the sample
    assert [(f.slug, f.where) for f in seen.faults] == [("tag_missing", "global@v1.0.0")]
    assert "a version has no tag [FO-407]; `fedops ci reconcile` makes it again" in status_text(seen, seen.made_at)


def test_history_is_read_back_to_the_oldest_unused_merge_and_no_further(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        world.change({"note": str(world.clock.now()).encode()})
        world.clock.sleep(60)
    world.merge(hand_in(world))
    world.change({"note": b"after"})
    repository = world.repositories[A]
    assert isinstance(repository, FakeRepository)
    seen: list[str] = []
    real = repository.commits

    def counted(after: Any, until: Any) -> Iterator[Any]:
        for commit in real(after, until):
            seen.append(commit.id)
            yield commit

    monkeypatch.setattr(repository, "commits", counted)
    assert look(world).ready == (A,)
    assert len(seen) == 2  # the commit after the merge, and the merge


def test_without_sites_there_is_nothing_to_wait_for(world: World) -> None:
    world.change({"policies/sites.yaml": b"schema: fedops.sites/v1\n"})
    assert look(world).sites == ()


def test_a_push_by_hand_that_moves_main_is_seen(world: World) -> None:
    repository = world.repositories["lena"]
    main = repository.resolve("main")
    assert main is not None
    commit = repository.write_commit([main], {RepoPath("x"): b"x"}, "x", at=START)
    assert repository.push([RefUpdate("refs/heads/main", main, commit)])
    look(world)
    assert world.repositories[A].resolve("main") == commit


def test_data_that_somebody_pushed_with_git_is_named(world: World) -> None:
    data = b"name,age\n"
    world.change({"sites/hospital-a/patients.csv": data, "sites/README.md": b"x\n", "global/patients.csv": data})
    found = [f for f in look(world).faults if f.slug == "foreign_file"]
    assert [(f.where, f.severity) for f in found] == [
        ("global/patients.csv", "warning"),
        ("sites/hospital-a/patients.csv", "warning"),
    ]


# ---------------------------------------------------------------- heartbeats


def beat(world: World, site: SiteId, state: str, hours_ago: float) -> None:
    world.forges[site].beat(site, 0, state, world.clock.now() - dt.timedelta(hours=hours_ago))


def test_what_sites_say_of_themselves_is_shown_with_who_was_not_heard_for_a_day(each_world: World) -> None:
    world = each_world
    beat(world, A, "training", 24.5)
    report = look(world)
    assert line(report, A).beat == Heartbeat(0, "training", START - dt.timedelta(hours=24.5), stalled=True)
    assert line(report, B).beat is None
    beat(world, B, "waiting", 23.5)
    stalled = {one.site: one.beat is not None and one.beat.stalled for one in look(world).sites}
    assert stalled == {A: True, B: False}
    assert line(look(world, offline=True), A).beat is None


def test_where_the_federation_waits_less_or_more_so_does_a_stall(world: World) -> None:
    beat(world, A, "training", 5)
    beat(world, B, "training", 30)
    policy(world, aggregation="trigger: {max_wait_hours: 4.0}")
    assert [one.beat and one.beat.stalled for one in look(world).sites] == [True, True]
    policy(world, aggregation="trigger: {max_wait_hours: 40.0}")
    assert [one.beat and one.beat.stalled for one in look(world).sites] == [False, False]


def test_who_has_nothing_to_do_is_not_stalled(world: World) -> None:
    for site in (A, B):
        beat(world, site, "waiting", 100)
    suspend = main_snapshot(world.repositories[A]).bytes_of(RepoPath("policies/sites.yaml")).decode()
    at = suspend.rindex("state: active")
    world.change({"policies/sites.yaml": f"{suspend[:at]}state: suspended{suspend[at + 13 :]}".encode()})
    assert [one.beat and one.beat.stalled for one in look(world).sites] == [True, False]
    world.publish(version(1).model_copy(update={"status": "final"}))
    assert [one.beat and one.beat.stalled for one in look(world).sites] == [False, False]


def test_a_heartbeat_of_nobody_on_the_roster_is_not_shown(world: World) -> None:
    stranger = SiteId("clinic-x")
    world.forges[A].beat(stranger, 0, "training", START)
    assert all(one.beat is None for one in look(world).sites)


def test_heartbeats_that_cannot_be_read_leave_the_rest_of_the_page(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> Any:
        raise ForgeError("refs/fedops/heartbeat: 403", cause="auth")

    monkeypatch.setattr(world.forges[A], "beats", fails)
    assert look(world).version == 0
    assert "heartbeats left out" in caplog.text


# ---------------------------------------------------------------- when a site handed in last


def test_when_a_site_made_its_last_submission_is_shown_as_it_claims_also_once_it_is_used(each_world: World) -> None:
    world = each_world
    world.clock.sleep(600)
    world.merge(hand_in(world))
    world.clock.sleep(600)
    claimed = START + dt.timedelta(minutes=10)
    assert line(look(world), A).claimed_at == claimed
    world.publish(version(1, contributions=[world.contribution_of(A)], consumed={A: 0}), moved(1))
    used = line(look(world), A)
    assert (used.phase, used.merged_at, used.claimed_at) == ("due", None, claimed)
    assert line(look(world, offline=True), A).claimed_at == claimed
    assert line(look(world), B).claimed_at is None
    page = status_text(look(world), claimed + dt.timedelta(hours=3))
    assert "hospital-a *  to train  v0           claimed 3 hours ago  hospital-a, to train on v1" in page


@pytest.mark.parametrize(
    ("said", "claimed"),
    [
        ("2016-12-31T23:59:60Z", None),  # a leap second is a legal time that Python has no value for
        ("2026-03-02T09:30:00.25Z", START + dt.timedelta(seconds=0.25)),
    ],
)
def test_a_time_that_python_cannot_say_is_left_out(world: World, said: str, claimed: dt.datetime | None) -> None:
    world.merge(hand_in(world))
    main = main_snapshot(world.repositories["lena"])
    text = main.bytes_of(record_path(A)).replace(b"2026-03-02T09:30:00Z", said.encode())
    world.change({record_path(A): text})
    seen = look(world)
    assert line(seen, A).base_version == 0
    assert line(seen, A).claimed_at == claimed


# ---------------------------------------------------------------- what signals say


def tell(world: World, site: SiteId, number: int, slug: Any = None, labels: frozenset[str] = SIGNAL_LABELS) -> None:
    """Open a signal, as CI does."""
    marker = signal_marker(site, number, slug or "")
    reason = f"{reason_marker(finding(slug, 'x')).text}\n" if slug is not None else ""
    world.forges["lena"].ensure_issue(marker, "Train", f"Please train.\n\n{reason}{marker.text}\n", labels)


def silences(report: StatusReport) -> dict[str, tuple[int, dt.datetime] | None]:
    return {s.site: None if s.silence is None else (s.silence.version, s.silence.since) for s in report.sites}


def test_who_was_never_heard_is_stalled_after_a_day_since_it_was_told(each_world: World) -> None:
    world = each_world
    tell(world, A, 0)
    assert silences(look(world, after_hours=24)) == {A: None, B: None}
    assert silences(look(world, after_hours=24.1)) == {A: (0, START), B: (0, START)}, "B was never told, but v0 is old"
    world.clock.sleep(3600 * 20)
    made = world.clock.now()
    world.publish(version(1), moved(1))
    tell(world, B, 1)
    assert silences(look(world, after_hours=5)) == {A: (0, START), B: None}
    assert silences(look(world, after_hours=25)) == {A: (0, START), B: (1, made)}
    assert silences(look(world, after_hours=25, offline=True)) == {A: None, B: None}, "nobody knows who was heard"


def test_of_several_open_signals_the_oldest_counts_and_one_of_a_version_to_come_does_not(world: World) -> None:
    world.clock.sleep(3600)
    first = world.clock.now()
    world.publish(version(1), moved(1))
    world.clock.sleep(3600)
    world.publish(version(2), moved(2))
    for number in (2, 1, 9):
        tell(world, A, number)
    tell(world, B, 0, labels=frozenset({"fedops"}))
    assert silences(look(world, after_hours=30)) == {A: (1, first), B: (2, world.clock.now())}


def test_a_signal_of_a_version_without_a_tag_counts_as_one_of_the_current_version(world: World) -> None:
    world.publish(version(1), moved(1), tag=False)
    world.clock.sleep(3600)
    world.publish(version(2), moved(2))
    tell(world, A, 1)
    assert silences(look(world, after_hours=30))[A] == (2, world.clock.now())


def test_tags_are_not_listed_for_dates_that_nobody_needs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(world, A, 0)
    world.publish(version(1), moved(1))
    tell(world, B, 1)
    beat(world, A, "training", 1)
    monkeypatch.setattr(world.repositories[A], "refs_below", _never_listed)
    assert silences(look(world, after_hours=30)) == {A: None, B: (1, START)}


def _never_listed(_: str) -> None:
    raise AssertionError("tags were listed")


def test_who_waits_for_others_is_not_stalled(world: World) -> None:
    number = hand_in(world)
    world.merge(hand_in(world, B, step=2))
    assert silences(look(world, after_hours=30)) == {A: None, B: None}
    head = world.forges["lena"].pull(number).head
    world.forges["lena"].set_status(head, "failure", "fedops/verdict", "rejected: non_finite")
    assert silences(look(world, after_hours=30)) == {A: (0, START), B: None}, "A has to correct its update"


def test_without_heartbeats_and_signals_that_can_be_read_nobody_is_called_stalled(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ForgeError("403", cause="auth")

    monkeypatch.setattr(world.forges[A], "issues", fails)
    assert silences(look(world, after_hours=30)) == {A: (0, START), B: (0, START)}
    assert "signals left out: 403" in caplog.text
    monkeypatch.setattr(world.forges[A], "beats", fails)
    assert silences(look(world, after_hours=30)) == {A: None, B: None}


@pytest.mark.parametrize(
    ("slug", "phase", "unavailable"),
    [
        ("object_missing", "ready", (A,)),
        ("digest_mismatch", "ready", (A,)),
        ("non_finite", "refused", ()),
        ("foreign_layer_refused", "refused", ()),
        ("non_finite_result", "refused", ()),
        ("too_stale", "ready", ()),
        ("overtaken", "ready", ()),
        (None, "ready", ()),
    ],
)
def test_of_what_a_signal_says_only_the_bytes_speak_against_a_merged_update(
    world: World, slug: str | None, phase: str, unavailable: tuple[SiteId, ...]
) -> None:
    policy(world, aggregation="trigger: {quorum: 1}")
    world.merge(hand_in(world))
    tell(world, A, 0, slug)
    seen = look(world)
    assert (line(seen, A).phase, seen.unavailable) == (phase, unavailable)
    counts = phase == "ready" and not unavailable
    assert seen.ready == ((A,) if counts else ())
    assert isinstance(seen.decision, Aggregate) == counts
    reason = line(seen, A).reason
    assert (reason.slug if reason is not None else None) == (None if counts else slug)


def test_a_signal_for_an_earlier_version_says_nothing_of_bytes_now(world: World) -> None:
    world.merge(hand_in(world))
    tell(world, A, 0, "object_missing")
    assert look(world).unavailable == (A,)
    world.publish(version(1), moved(1))
    assert (look(world).ready, look(world).unavailable) == ((A,), ())


def test_the_tag_of_a_push_that_is_seen_before_its_main_is_no_stray(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = world.repositories[A]
    assert isinstance(repository, FakeRepository)
    old, real, count = repository.refs["refs/remotes/origin/main"], repository.fetch, 0
    world.publish(version(1), moved(1))

    def fetch(pulls: Any = None) -> None:
        nonlocal count
        real(pulls)
        count += 1
        if count <= 2:  # before pull requests are listed, and after
            repository.refs["refs/remotes/origin/main"] = old

    monkeypatch.setattr(repository, "fetch", fetch)
    seen = look(world)
    assert (seen.version, seen.faults, isinstance(seen.decision, Wait)) == (1, (), True)


def test_a_tag_is_right_although_somebody_touched_the_record_afterwards(world: World) -> None:
    world.publish(version(1), moved(1))
    record = main_snapshot(world.repositories["lena"]).bytes_of(RepoPath("global/version.json"))
    world.change({"global/version.json": record.replace(b'"trigger": "quorum"', b'"trigger": "max_wait"')})
    assert look(world).faults == ()


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            "strategy: {name: fedadam}",
            "policies/aggregation.yaml:3: strategy 'fedadam' -> one of fedavg, krum, median, trimmed_mean",
        ),
        (
            "strategy: {name: trimmed_mean, beta: '0.5'}",
            "policies/aggregation.yaml:3: strategy trimmed_mean: beta 0.5 leaves nothing of some numbers of updates -> less",
        ),
        (
            "strategy: {name: fedavg, beta: 1}",
            "policies/aggregation.yaml:3: strategy fedavg: parameters ['beta'] -> none",
        ),
        (
            "privacy: {clip_norm: 1.0, noise_multiplier: 1.0}",
            "policies/aggregation.yaml:3: privacy: not available in this version -> null",
        ),
    ],
)
def test_a_policy_that_is_not_computed_here_is_why_no_version_comes(rules: str, says: str, world: World) -> None:
    policy(world, aggregation=f"trigger: {{quorum: 1}}\n{rules}")
    world.merge(hand_in(world))
    report = look(world)
    assert report.decision == Blocked((finding("policy_invalid", "policies/aggregation.yaml", got=says),))
    assert [fault.slug for fault in report.faults if fault.slug == "policy_invalid"] == ["policy_invalid"]
    page = status_text(report, world.clock.now())
    assert f"stopped: {says}; CI makes no version until a lead has put that right" in page
    assert "due:" not in page
    policy(world, aggregation="trigger: {quorum: 1}")
    assert isinstance(look(world).decision, Aggregate)


def test_as_many_as_the_strategy_needs_are_waited_for(world: World) -> None:
    policy(world, aggregation="trigger: {quorum: 1}\nstrategy: {name: krum, f: 1}")
    world.merge(hand_in(world))
    report = look(world)
    assert isinstance(report.decision, Wait)
    assert (report.decision.reason, report.trigger.quorum) == ("quorum", 5)
    assert "waits for 4 more submissions: 1 of 5" in status_text(report, world.clock.now())
    policy(world, aggregation="trigger: {quorum: 1}\nstrategy: {name: median}")
    assert isinstance(look(world).decision, Aggregate)


def test_which_training_would_be_handed_in_is_told(world: World) -> None:
    pull(world.ctx(A), world.root(A))
    train(world.ctx(A), world.root(A), Code(), site=A)
    ended = world.clock.now()
    report = look(world)
    sha256 = hashlib.sha256(Work(world.root(A)).update(0).read_bytes()).hexdigest()
    assert report.work == LocalWork(0, 0, sha256, ended.replace(microsecond=0))
    assert report.next_command == "fedops submit"
    page = status_text(report, ended + dt.timedelta(hours=3))
    assert f"trained on v0 (3 hours ago, {sha256[:12]})" in page


def test_a_training_that_was_broken_off_leaves_the_earlier_one_as_it_was(world: World) -> None:
    class Stopped(Code):
        def run(self, job: Any) -> None:
            raise KeyboardInterrupt

    pull(world.ctx(A), world.root(A))
    train(world.ctx(A), world.root(A), Code(), site=A)
    before = look(world).work
    with pytest.raises(KeyboardInterrupt):
        train(world.ctx(A), world.root(A), Stopped(), site=A, again=True)
    assert look(world).work == before
