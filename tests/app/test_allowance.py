"""What one pass over the open pull requests may cost: the rest is the next pass's, and nobody starves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedops.app import allowance as module
from fedops.app.allowance import Allowance, turns
from fedops.app.inspect import refreshed
from fedops.app.pull_pass import PullPass, inspect_all
from fedops.app.reconcile import reconcile
from fedops.app.verdict_cache import BytesMemory
from fedops.core.errors import ForgeError, StoreError
from fedops.core.facts import Pull
from tests.founding_world import Wrapped
from tests.scenario.fed import START, MemoryFed, arrays

A, B, C, D = "hospital-a", "hospital-b", "clinic-c", "bank-d"
NAN = float("nan")


@pytest.fixture
def fed(tmp_path: Path) -> MemoryFed:
    return MemoryFed(tmp_path, rules={"trigger": {"quorum": 4}, "merge": {"mode": "review", "approvals": 1}})


def limit(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    monkeypatch.setattr(module, "PULLS", limits.get("pulls", module.PULLS))
    defaults = Allowance.__init__.__defaults__
    assert defaults is not None
    names = ("pulls", "size", "seconds", "writes")
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
    run = PullPass(ctx, ctx.forge.open_pulls())
    for one in inspect_all(ctx, main, ctx.forge.open_pulls()):
        run.take(one.pull, lambda one=one: one)  # type: ignore[misc]  # of one
    assert run.allowance.writes == 150 - 2 - 2
    pull = ctx.forge.open_pulls()[0]
    fed.forge("lena").review(pull.number, pull.head, "approved", "")
    again = PullPass(ctx, ctx.forge.open_pulls())
    for one in inspect_all(ctx, main, ctx.forge.open_pulls()):
        again.take(one.pull, lambda one=one: one)  # type: ignore[misc]  # of one
    assert again.allowance.writes == 150 - 3


# ---------------------------------------------------------------- passes


def test_what_is_left_is_the_next_passes_and_the_next_runs(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, pulls=1)
    pulls = [fed.submit(site, n + 1.0) for n, site in enumerate((A, B, C, D))]
    assert judged(fed) == [pulls[0].number]
    done = reconcile(fed.context(), jitter=lambda: 0.5)  # as many passes as it takes
    assert not done.again
    assert {m.judgement.pull.number for m in done.merged} == {p.number for p in pulls}
    assert judged(fed) == [p.number for p in pulls]  # remembered verdicts cost nothing
    assert not reconcile(fed.context(), jitter=lambda: 0.5).changed


def test_who_opens_many_keeps_nobody_waiting(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, pulls=3)
    flood = many(fed, A, 6, 10.0)
    late = [fed.submit(B, 2.0), fed.submit(C, 3.0)]
    assert judged(fed) == [flood[0].number, *(p.number for p in late)]


def test_who_brings_bytes_that_never_come_keeps_nobody_waiting(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sites' stores are broken; without turns they would use up a budget of two in every run."""
    limit(monkeypatch, pulls=2)
    stuck = [fed.submit(A, 1.0), fed.submit(B, 2.0)]
    late = [fed.submit(C, 3.0), fed.submit(D, 4.0)]
    honest = fed.store.manifest

    def manifest(repository: str, digest: Any) -> Any:
        if repository in (f"sites/{A}", f"sites/{B}"):
            raise StoreError("it rains", cause="temporary")
        return honest(repository, digest)

    fed.store.manifest = manifest  # type: ignore[method-assign]  # for this test
    done = reconcile(fed.context(), jitter=lambda: 0.5)
    assert not done.again
    states = {p.number: fed.forge("lena").status(p.head, "fedops/verdict") for p in (*stuck, *late)}
    assert {n: s[1][:6] if s else None for n, s in states.items()} == {
        stuck[0].number: "the ch", stuck[1].number: "the ch", late[0].number: "waits ", late[1].number: "waits "
    }  # fmt: skip


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
    limit(monkeypatch, writes=4)
    bad = many(fed, A, 3, NAN)
    good = fed.submit(B, 1.0)
    ctx = fed.context()
    main = refreshed(ctx)
    from fedops.cli.ci_pulls import _merge_each

    run = _merge_each(ctx, ctx.forge.open_pulls(), inspect_all(ctx, main, ctx.forge.open_pulls()))
    assert [(m.judgement.pull.number, m.outcome) for m in run.done] == [(good.number, "merged")]
    assert [p.number for p in run.left] == [p.number for p in bad]
    done = reconcile(fed.context(), jitter=lambda: 0.5)
    assert not done.again
    assert {p.number for p in bad} <= {m.judgement.pull.number for m in done.merged}


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


def test_without_a_roster_that_can_be_read_the_order_is_as_given(fed: MemoryFed) -> None:
    pulls = [fed.submit(B, 1.0), fed.submit(A, 2.0)]
    fed.commit({"policies/sites.yaml": b"nonsense\n"})
    ctx = fed.context()
    assert turns(ctx, refreshed(ctx), pulls[::-1], BytesMemory()) == tuple(pulls[::-1])
