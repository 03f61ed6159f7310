"""What one run may cost, in all of its passes: the rest is the next run's, and nobody starves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedops.app.allowance import PULLS, Allowance
from fedops.app.inspect import refreshed
from fedops.app.pull_pass import PullPass, inspect_all, turns
from fedops.app.reconcile import Reconciled, reconcile
from fedops.app.verdict_cache import VERDICTS_REF, BytesMemory
from fedops.core.errors import ForgeError, SpentError, StoreError
from fedops.core.facts import Pull
from fedops.core.ids import CommitId
from tests.founding_world import Wrapped
from tests.scenario.fed import START, MemoryFed, arrays

A, B, C, D = "hospital-a", "hospital-b", "clinic-c", "bank-d"
NAN = float("nan")


@pytest.fixture
def fed(tmp_path: Path) -> MemoryFed:
    return MemoryFed(tmp_path, rules={"trigger": {"quorum": 4}, "merge": {"mode": "review", "approvals": 1}})


def limit(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    monkeypatch.setattr("fedops.app.pull_pass.PULLS", limits.get("pulls", PULLS))
    defaults = Allowance.__init__.__defaults__
    assert defaults is not None
    names = ("pulls", "size", "seconds", "writes", "kept")
    values = tuple(limits.get(n, d) for n, d in zip(names, defaults, strict=True))
    monkeypatch.setattr(Allowance.__init__, "__defaults__", values)


def many(fed: MemoryFed, site: str, count: int, first: float) -> list[Pull]:
    """Open pull requests of one site, each from a branch of its own and with bytes of its own."""
    found = []
    for n in range(count):
        record = fed.upload(site, 0, arrays(first + n))
        found.append(fed.open_pull(site, fed.handed_in(record), branch=f"{site}-{first}-{n}"))
    return found


def judged(fed: MemoryFed) -> list[int]:
    ctx = fed.context()
    main = refreshed(ctx)
    return [j.pull.number for j in inspect_all(ctx, main, ctx.forge.open_pulls())]


# ---------------------------------------------------------------- the allowance itself


def test_pulls_bytes_and_seconds_end_it_and_the_first_update_is_always_read() -> None:
    def taken(wanted: list[int], **limits: Any) -> list[bool]:
        one = Allowance(START, **limits)
        return [one.take(size, START + dt.timedelta(seconds=n)) for n, size in enumerate(wanted)]

    assert taken([1] * 4, pulls=2) == [True, True, False, False]
    assert taken([60, 50, 40, 1], size=100) == [True, False, True, False]
    assert taken([500, 1], size=100) == [True, False]
    assert taken([1] * 5, seconds=2.5) == [True, True, True, False, False]


def test_a_merge_costs_three_writes_a_report_two_and_nothing_costs_nothing(fed: MemoryFed) -> None:
    fed.submit(A, 1.0)
    fed.submit(B, arrays(NAN))
    ctx = fed.context()
    main = refreshed(ctx)
    first = PullPass(ctx, ctx.forge.open_pulls())
    for one in inspect_all(ctx, main, ctx.forge.open_pulls()):
        first.take(one.pull, lambda one=one: one)  # type: ignore[misc]  # of one
    assert first.allowance.writes == 150 - 2 - 2
    pull = ctx.forge.open_pulls()[0]
    fed.forge("lena").review(pull.number, pull.head, "approved", "")
    again = PullPass(ctx, ctx.forge.open_pulls())
    for one in inspect_all(ctx, main, ctx.forge.open_pulls()):
        again.take(one.pull, lambda one=one: one)  # type: ignore[misc]  # of one
    assert again.allowance.writes == 150 - 3


def test_pull_requests_leave_what_is_kept_and_a_run_ends_when_all_is_spent_or_it_is_late() -> None:
    def left(writes: int) -> tuple[bool, bool, bool]:
        one = Allowance(START, writes=writes, kept=4, seconds=60)
        return one.may_merge(), one.may_write(), one.is_spent(START)

    assert [left(n) for n in (7, 6, 1, 0, -1)] == [
        (True, True, False), (False, True, False), (False, True, False), (False, False, True), (False, False, True)
    ]  # fmt: skip
    late = Allowance(START, seconds=60)
    assert [late.is_spent(START + dt.timedelta(seconds=n)) for n in (60, 61)] == [False, True]


# ---------------------------------------------------------------- runs

WRITES = frozenset(
    {"submit_pull", "merge", "close_pull", "set_status", "upsert_comment", "ensure_issue", "close_issue"}
)


def run(fed: MemoryFed) -> tuple[Reconciled, int]:
    """One run, and how many writes the forge was asked for that were not there yet."""
    ctx = fed.context()
    made = 0

    def write(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal made
            answer = getattr(ctx.forge, name)(*arguments)
            made += answer is not False
            return answer

        return call

    forge = Wrapped(ctx.forge, **{name: write(name) for name in WRITES})
    done = reconcile(fed.context(repository=ctx.repository, forge=forge), jitter=lambda: 0.5)
    return done, made


def test_what_one_run_does_not_read_is_the_next_ones(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, pulls=1)
    pulls = [fed.submit(site, n + 1.0) for n, site in enumerate((A, B, C, D))]
    assert judged(fed) == [pulls[0].number]
    for count in (1, 2, 3, 4):
        done, _ = run(fed)
        told = [p.number for p in pulls if fed.forge("lena").status(p.head, "fedops/verdict") is not None]
        assert told == [p.number for p in pulls[:count]], "one run reads one update, in however many passes"
        assert done.again is (count < 4)
    assert judged(fed) == [p.number for p in pulls]  # remembered verdicts cost nothing
    assert not reconcile(fed.context(), jitter=lambda: 0.5).changed


def test_no_run_writes_more_than_it_may_and_the_last_one_has_told_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four merges of three writes; four signals of v0, four of v1, and the former closed."""
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 4}})
    limit(monkeypatch, writes=12, kept=5)
    pulls = [fed.submit(site, n + 1.0) for n, site in enumerate((A, B, C, D))]
    runs: list[tuple[Reconciled, int]] = []
    while not runs or runs[-1][0].again:
        runs.append(run(fed))
    merged = [sorted(m.judgement.pull.number for m in done.merged) for done, _ in runs]
    assert merged == [[p.number for p in pulls[:2]], [p.number for p in pulls[2:]], []]
    assert [[v.version for v in done.published] for done, _ in runs] == [[], [1], []]
    assert [made for _, made in runs] == [2 * 3 + 4, 2 * 3 + 6, 2]
    opened = fed.forge("lena").issues(frozenset({"signal:train"}))
    assert sorted(i.title for i in opened) == [f"Train on v1: {site}" for site in sorted((A, B, C, D))]


def test_a_flood_leaves_room_for_the_version_and_its_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    limit(monkeypatch, writes=20, kept=12)
    for site, value in ((A, 1.0), (B, 2.0)):
        fed.merge_by_hand(fed.submit(site, value).number)
    flood = [
        fed.open_pull(C, fed.handed_in(fed.upload(C, 0, arrays(10.0 + n))), branch=f"flood-{n}", signed=False)
        for n in range(9)
    ]
    done, made = run(fed)
    assert (len(done.published), done.again) == (1, True)
    assert {s.partition(": ")[2] for s in done.signals} == {f"Train on v1: {s}" for s in (A, B, C, D)}
    assert (made, len(done.merged)) == (3 * 2 + 4, 3)
    for count, again in ((3, True), (3, True), (0, False)):  # what was not looked at again may need a word
        done, made = run(fed)
        assert (len(done.merged), made, done.again) == (count, 2 * count, again)
    assert {(fed.forge("lena").status(p.head, "fedops/verdict") or ("", ""))[0] for p in flood} == {"failure"}


def test_who_is_told_last_is_told_first_of_the_version_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run makes a version and may tell one site of four: in the order of their names three would never hear."""
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 4}})
    limit(monkeypatch, writes=2, kept=2)
    told: list[str] = []
    for version in range(1, 9):
        for n, site in enumerate((A, B, C, D)):
            fed.merge_by_hand(fed.submit(site, version + n / 8).number)
        done, made = run(fed)
        assert [v.version for v in done.published] == [version]
        assert (made <= 2, done.again) == (True, True)
        told += [line.rpartition(": ")[2] for line in done.signals if "Train on" in line]
    assert sorted(told[:4]) == sorted(told[4:8]) == sorted((A, B, C, D))
    open_ones = fed.forge("lena").issues(frozenset({"signal:train"}))
    assert len(open_ones) == 4, "each site's older signal is closed with the newer"


def test_a_late_run_ends_after_its_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    limit(monkeypatch, seconds=60)
    for site, value in ((A, 1.0), (B, 2.0)):
        fed.submit(site, value)
    passes = 0
    ctx = fed.context()

    def slow(*_: Any) -> Any:
        nonlocal passes
        passes += 1
        fed.clock.sleep(61)
        return ctx.forge.open_pulls()

    forge = Wrapped(ctx.forge, open_pulls=slow)
    done = reconcile(fed.context(repository=ctx.repository, forge=forge), jitter=lambda: 0.5)
    assert done.again
    assert [v.version for v in done.published] == []
    assert [m.judgement.site for m in done.merged] == [A], "one update is always read"
    done = reconcile(fed.context(repository=ctx.repository, forge=forge), jitter=lambda: 0.5)
    assert [v.version for v in done.published] == [1]


def test_who_opens_many_keeps_nobody_waiting(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, pulls=3)
    flood = many(fed, A, 6, 10.0)
    late = [fed.submit(B, 2.0), fed.submit(C, 3.0)]
    assert judged(fed) == [flood[0].number, *(p.number for p in late)]


@pytest.mark.parametrize("limits", [{"pulls": 2}, {"seconds": 1500}], ids=["pulls", "seconds"])
def test_who_brings_bytes_that_never_come_keeps_nobody_waiting(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch, limits: dict[str, float]
) -> None:
    """Two sites' stores take a quarter of an hour and fail; without turns they would use up every run."""
    limit(monkeypatch, **limits)
    stuck = [fed.submit(A, 1.0), fed.submit(B, 2.0)]
    late = [fed.submit(C, 3.0), fed.submit(D, 4.0)]
    honest = fed.store.manifest

    def manifest(repository: str, digest: Any) -> Any:
        if repository in (f"sites/{A}", f"sites/{B}"):
            fed.clock.sleep(900)
            raise StoreError("it rains", cause="temporary")
        return honest(repository, digest)

    fed.store.manifest = manifest  # type: ignore[method-assign]  # for this test

    def states() -> list[str]:
        found = (fed.forge("lena").status(p.head, "fedops/verdict") for p in (*stuck, *late))
        return [said[1][:6] if said is not None else "" for said in found]

    assert run(fed)[0].again
    assert states() == ["the ch", "the ch", "", ""]
    run(fed)
    assert states() == ["the ch", "the ch", "waits ", "waits "]


def test_across_runs_those_that_nobody_has_looked_at_come_first(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, pulls=2)
    for site in (A, B):
        record = fed.upload(site, 0, arrays(1.0))
        del fed.store._blobs[f"sites/{site}"][record.sha256]
        fed.open_pull(site, fed.handed_in(record))
    reconcile(fed.context(), jitter=lambda: 0.5)
    late = [fed.submit(C, 3.0), fed.submit(D, 4.0)]
    assert judged(fed) == [p.number for p in late]


def test_writes_are_bounded_too_and_accepted_ones_come_before_reports(
    fed: MemoryFed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.set_rules(merge={"mode": "auto", "approvals": 1})
    limit(monkeypatch, writes=4, kept=0)
    bad = many(fed, A, 3, NAN)
    good = fed.submit(B, 1.0)
    ctx = fed.context()
    main = refreshed(ctx)
    from fedops.cli.ci_pulls import _merge_each

    merging = _merge_each(ctx, ctx.forge.open_pulls(), inspect_all(ctx, main, ctx.forge.open_pulls()))
    assert [(m.judgement.pull.number, m.outcome) for m in merging.done] == [(good.number, "merged")]
    assert [p.number for p in merging.left] == [p.number for p in bad]
    told: set[int] = set()
    for _ in range(9):
        done, made = run(fed)
        assert made <= 4
        told |= {m.judgement.pull.number for m in done.merged}
    assert {p.number for p in bad} <= told
    assert not done.again


def test_one_that_the_forge_refuses_stops_none_of_the_others(fed: MemoryFed) -> None:
    pulls = [fed.submit(A, 1.0), fed.submit(B, 2.0)]
    ctx = fed.context()

    def comment(number: int, *rest: Any) -> bool:
        if number == pulls[0].number:
            raise ForgeError("422")
        changed: bool = forge.upsert_comment(number, *rest)
        return changed

    forge = ctx.forge
    done = reconcile(
        fed.context(repository=ctx.repository, forge=Wrapped(forge, upsert_comment=comment)), jitter=lambda: 0.5
    )
    assert [(f.slug, f.where) for f in done.findings] == [("github_rejected", f"pull/{pulls[0].number}")]
    assert forge.status(pulls[1].head, "fedops/verdict") is not None


def test_access_that_is_refused_ends_the_run(fed: MemoryFed) -> None:
    fed.submit(A, 1.0)
    ctx = fed.context()

    def comment(*_: Any) -> bool:
        raise ForgeError("401", cause="auth")

    broken: Callable[..., Any] = comment
    with pytest.raises(ForgeError, match="401"):
        reconcile(
            fed.context(repository=ctx.repository, forge=Wrapped(ctx.forge, upsert_comment=broken)), jitter=lambda: 0.5
        )


def test_a_forge_that_takes_no_more_is_asked_for_nothing_more_and_what_was_reached_stays(fed: MemoryFed) -> None:
    pulls = [fed.submit(site, n + 1.0) for n, site in enumerate((A, B, C))]
    ctx = fed.context()
    asked: list[int] = []

    def comment(number: int, *rest: Any) -> bool:
        asked.append(number)
        if number == pulls[1].number:
            raise SpentError("403, until 10:00:00 UTC", cause="temporary")
        changed: bool = ctx.forge.upsert_comment(number, *rest)
        return changed

    limited = fed.context(repository=ctx.repository, forge=Wrapped(ctx.forge, upsert_comment=comment))
    with pytest.raises(SpentError, match="until 10:00:00") as raised:
        reconcile(limited, jitter=lambda: 0.5)
    assert (raised.value.slug, raised.value.cause) == ("rate_limited", "temporary")
    assert asked == [p.number for p in pulls[:2]]
    kept = {e.path for e in ctx.repository.entries(CommitId(ctx.repository.refs_below("refs/fedops")[VERDICTS_REF]))}
    assert kept == {f"verdicts/{p.head}.json" for p in pulls[:2]}
    done, _ = run(fed)
    assert [m.judgement.pull.number for m in done.merged] == [p.number for p in pulls[1:]]
    assert not done.again


def test_only_whose_bytes_are_to_be_read_is_asked_whose_turn_it_is(fed: MemoryFed) -> None:
    refused = [fed.open_pull(A, fed.handed_in(fed.upload(A, 0, arrays(n))), signed=False) for n in (1.0, 2.0)]
    known = fed.submit(B, 3.0)
    run(fed)
    fresh = [fed.submit(site, n) for site, n in ((C, 4.0), (D, 5.0))]
    ctx = fed.context()
    asked: list[set[CommitId]] = []

    def statuses(commits: Collection[CommitId], context: str) -> Mapping[CommitId, tuple[str, str]]:
        asked.append(set(commits))
        return ctx.forge.statuses(commits, context)

    forge = Wrapped(ctx.forge, statuses=statuses)
    main = refreshed(ctx)
    told = inspect_all(fed.context(repository=ctx.repository, forge=forge), main, ctx.forge.open_pulls())
    assert asked == [{pull.head for pull in fresh}]
    states = {j.pull.number: j.verdict.state for j in told}
    expected = dict.fromkeys([p.number for p in refused], "rejected")
    assert states == expected | dict.fromkeys([known.number, *(p.number for p in fresh)], "accepted")


def test_without_a_roster_that_can_be_read_the_order_is_as_given(fed: MemoryFed) -> None:
    pulls = [fed.submit(B, 1.0), fed.submit(A, 2.0)]
    fed.commit({"policies/sites.yaml": b"nonsense\n"})
    ctx = fed.context()
    assert turns(ctx, refreshed(ctx), pulls[::-1], BytesMemory()) == tuple(pulls[::-1])
