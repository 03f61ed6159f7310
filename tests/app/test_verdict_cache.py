"""Verdicts on bytes from run to run: an unchanged pull request costs no download, and nothing forged is believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedops.app.inspect import Judgement, inspect_pull, refreshed
from fedops.app.pull_pass import inspect_all
from fedops.app.verdict_cache import (
    MAX_ENTRIES,
    VERDICTS_REF,
    BytesKey,
    BytesMemory,
    BytesVerdict,
    VerdictCache,
    remember,
)
from fedops.app.verdicts import dump_verdicts, fitted, load_verdicts
from fedops.core.errors import GitError, StoreError
from fedops.core.facts import Pull, RefUpdate
from fedops.core.findings import finding
from fedops.core.ids import CommitId, Digest, RepoPath
from tests.founding_world import Wrapped
from tests.scenario.fed import MemoryFed, arrays

A, B, C = "hospital-a", "hospital-b", "clinic-c"
NAN = float("nan")


@pytest.fixture
def fed(tmp_path: Path) -> MemoryFed:
    return MemoryFed(tmp_path, rules={"trigger": {"quorum": 3}, "merge": {"mode": "review", "approvals": 1}})


def files(fed: MemoryFed) -> dict[str, bytes]:
    """The cache as it is at origin."""
    repository = fed.new_clone("bot")
    commit = repository.resolve(VERDICTS_REF)
    if commit is None:
        return {}
    assert repository.commit(commit).parents == ()
    return {e.path: repository.read(e.blob, max_bytes=2**20) for e in repository.entries(commit)}


def looks(fed: MemoryFed, do: Callable[[], object]) -> int:
    """How often the store was asked for bytes or manifests while something was done."""
    before = dict(fed.store.calls)
    do()
    return sum(fed.store.calls[name] - before.get(name, 0) for name in ("get", "manifest"))


def plant(fed: MemoryFed, wanted: Mapping[str, bytes]) -> None:
    """Let somebody else write the ref."""
    repository = fed.new_clone("bot")
    old = repository.resolve(VERDICTS_REF)
    commit = repository.write_commit([], {RepoPath(p): d for p, d in wanted.items()}, "mine", at=fed.clock.now())
    assert repository.push([RefUpdate(VERDICTS_REF, old, commit)])


def judge(fed: MemoryFed, pull: Pull, **software: str) -> Judgement:
    ctx = fed.context()
    ctx.repository.fetch()
    from dataclasses import replace

    ctx = replace(ctx, software={**ctx.software, **software})
    return inspect_pull(ctx, refreshed(ctx), pull, BytesMemory())


# ---------------------------------------------------------------- what it saves


def test_a_pull_request_that_did_not_change_costs_no_download_in_the_next_run(fed: MemoryFed) -> None:
    good, bad = fed.submit(A, 1.0), fed.submit(B, arrays(NAN))
    assert looks(fed, fed.reconcile) > 0
    assert set(files(fed)) == {f"verdicts/{p.head}.json" for p in (good, bad)}
    fed.clock.sleep(3600)
    state = fed.state()
    assert looks(fed, fed.reconcile) == 0
    assert fed.state() == state
    assert "FO-218" in "".join(fed.forge("lena").comments(bad.number))
    assert [j.verdict.state for j in (judge(fed, good), judge(fed, bad))] == ["accepted", "rejected"]


def test_inspect_reads_the_cache_and_never_writes_it(fed: MemoryFed) -> None:
    pull = fed.submit(A, 1.0)
    ctx = fed.context()
    main = refreshed(ctx)
    assert looks(fed, lambda: inspect_all(ctx, main, ctx.forge.open_pulls())) > 0
    assert files(fed) == {}
    fed.reconcile()
    assert looks(fed, lambda: judge(fed, pull)) == 0


def test_a_new_head_a_new_policy_and_a_new_release_are_judged_anew(fed: MemoryFed) -> None:
    pull = fed.submit(A, 1.0)
    fed.reconcile()
    assert looks(fed, lambda: judge(fed, pull)) == 0
    assert looks(fed, lambda: judge(fed, pull, fedops="0.2.0")) > 0
    fed.set_rules(signals={"to": "all"})
    assert looks(fed, lambda: judge(fed, pull)) > 0
    moved = fed.submit(A, 2.0)
    assert (moved.number, moved.head != pull.head) == (pull.number, True)
    assert looks(fed, fed.reconcile) > 0
    assert set(files(fed)) == {f"verdicts/{moved.head}.json"}


def test_entries_of_pull_requests_that_are_closed_go_with_the_next_write(fed: MemoryFed) -> None:
    first = fed.submit(A, arrays(NAN))
    fed.reconcile()
    fed.forge("lena").close_pull(first.number)
    second = fed.submit(B, arrays(NAN))
    fed.reconcile()
    assert set(files(fed)) == {f"verdicts/{second.head}.json"}


def test_what_is_merged_at_once_leaves_nothing_to_remember(tmp_path: Path) -> None:
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    fed.submit(A, 1.0)
    fed.submit(B, 2.0)
    assert [v.version for v in fed.reconcile().published] == [1]
    assert files(fed) == {}


def test_approved_later_it_is_merged_by_the_remembered_verdict(fed: MemoryFed) -> None:
    pull = fed.submit(A, 1.0)
    fed.reconcile()
    fed.forge("lena").review(pull.number, pull.head, "approved", "")
    done: list[Any] = []
    assert looks(fed, lambda: done.append(fed.reconcile())) == 0
    assert [m.outcome for m in done[0].merged] == ["merged"]


# ---------------------------------------------------------------- what is never kept


def test_bytes_that_are_gone_are_looked_for_again(fed: MemoryFed) -> None:
    record = fed.upload(A, 0, arrays(1.0))
    blob = fed.store._blobs[f"sites/{A}"].pop(record.sha256)
    pull = fed.open_pull(A, fed.handed_in(record))
    fed.reconcile()
    assert "FO-207" in "".join(fed.forge("lena").comments(pull.number))
    assert files(fed) == {}
    fed.store._blobs[f"sites/{A}"][record.sha256] = blob
    fed.reconcile()
    assert judge(fed, pull).verdict.state == "accepted"
    assert set(files(fed)) == {f"verdicts/{pull.head}.json"}


def test_a_verdict_that_could_not_be_reached_is_not_kept(fed: MemoryFed) -> None:
    pull = fed.submit(A, 1.0)
    for _ in range(5):
        fed.store.fail_next("manifest", StoreError("it rains", cause="temporary"))
    ctx = fed.context()
    judged = inspect_all(ctx, refreshed(ctx), ctx.forge.open_pulls())
    assert [(j.verdict.state, j.reached) for j in judged] == [("pending", None)]
    assert judged[0].pull.number == pull.number
    assert files(fed) == {}


# ---------------------------------------------------------------- forged entries


def entry(fed: MemoryFed, pull: Pull, **fields: Any) -> dict[str, Any]:
    """An entry that says "nothing is wrong with these bytes"."""
    main = fed.main()
    return {
        "schema": "fedops.cached-verdict/v1",
        "head": pull.head,
        "base_sha256": main.version.model.sha256,
        "policy": main.policy,
        "fedops": "0.1.0",
        "findings": [],
    } | fields


def wrong(**fields: Any) -> dict[str, Any]:
    return {"id": "FO-218", "slug": "non_finite", "severity": "error", "where": "x", "got": None, "expected": None, "detail": None} | fields  # fmt: skip


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another head": lambda e: e | {"head": "1" * 40},
    "another base": lambda e: e | {"base_sha256": "1" * 64},
    "another policy": lambda e: e | {"policy": "sha256:" + "1" * 64},
    "another release": lambda e: e | {"fedops": "0.1.1"},
    "another schema": lambda e: e | {"schema": "fedops.cached-verdict/v2"},
    "one more key": lambda e: e | {"state": "accepted"},
    "a key missing": lambda e: {k: v for k, v in e.items() if k != "policy"},
    "a slug of nobody": lambda e: e | {"findings": [wrong(slug="from_the_future", severity="warning")]},
    "an error that calls itself a warning": lambda e: e | {"findings": [wrong(severity="warning")]},
    "a slug under another id": lambda e: e | {"findings": [wrong(id="FO-229")]},
    "what hangs on the store": lambda e: e | {"findings": [wrong(id="FO-207", slug="object_missing")]},
    "a list": lambda e: [e],
    "nothing": lambda _: b"",
    "no JSON": lambda _: b"\xff{",
    "too much": lambda e: json.dumps(e).encode() + b" " * 200_000,
}


@pytest.mark.parametrize("how", FORGED)
def test_an_entry_that_is_not_exactly_what_merge_writes_is_not_believed(fed: MemoryFed, how: str) -> None:
    bad = fed.submit(A, arrays(NAN))
    forged = FORGED[how](entry(fed, bad))
    plant(fed, {f"verdicts/{bad.head}.json": forged if isinstance(forged, bytes) else json.dumps(forged).encode()})
    assert judge(fed, bad).verdict.state == "rejected"
    fed.reconcile()
    assert "FO-218" in "".join(fed.forge("lena").comments(bad.number))
    assert json.loads(files(fed)[f"verdicts/{bad.head}.json"])["findings"][0]["slug"] == "non_finite"


def test_too_many_entries_are_none(fed: MemoryFed) -> None:
    bad = fed.submit(A, arrays(NAN))
    many = {f"verdicts/{n:040x}.json": b"{}" for n in range(MAX_ENTRIES)}
    plant(fed, {**many, f"verdicts/{bad.head}.json": json.dumps(entry(fed, bad)).encode()})
    assert judge(fed, bad).verdict.state == "rejected"


def test_a_forged_verdict_gets_bytes_merged_and_never_into_a_version(tmp_path: Path) -> None:
    """Whoever may write to the repository can write the ref; and even so the model is safe."""
    fed = MemoryFed(tmp_path, rules={"trigger": {"quorum": 2}})
    bad = fed.submit(A, arrays(NAN))
    plant(fed, {f"verdicts/{bad.head}.json": (json.dumps(entry(fed, bad), indent=2) + "\n").encode()})
    fed.submit(B, 1.0)
    fed.submit(C, 2.0)
    [made] = fed.reconcile().published
    assert [(e.site, e.slug, e.judged) for e in made.excluded] == [(A, "non_finite", "bytes")]
    assert [c.site for c in made.contributions] == [C, B]


@pytest.mark.parametrize("fault", [GitError("odd", slug="object_corrupt"), GitError("net", cause="temporary")])
def test_a_cache_that_cannot_be_read_is_none_unless_that_may_pass(fed: MemoryFed, fault: GitError) -> None:
    pull = fed.submit(A, 1.0)
    fed.reconcile()
    repository = fed.new_clone("bot")

    def broken(*_: object, **__: object) -> Any:
        raise fault

    key = BytesKey(pull.head, fed.main().version.model.sha256, fed.main().policy, "0.1.0")
    assert VerdictCache(repository).get(key) is not None
    for name in ("resolve", "entries", "read"):
        cache = VerdictCache(Wrapped(repository, **{name: broken}))
        if fault.cause == "temporary":
            with pytest.raises(GitError, match="net"):
                cache.get(key)
        else:
            assert cache.get(key) is None


def test_a_cache_that_cannot_be_written_stops_nobody(fed: MemoryFed) -> None:
    repository = fed.new_clone("bot")
    said = BytesVerdict(BytesKey(CommitId("1" * 40), "2" * 64, Digest("sha256:" + "3" * 64), "0.1.0"), ())

    def refused(*_: object, **__: object) -> Any:
        raise GitError("a rule forbids it", slug="push_refused")

    def busy(*_: object, **__: object) -> Any:
        raise GitError("the net", cause="temporary")

    assert not remember(Wrapped(repository, push=refused), fed.clock, [said], [said.key.head])
    assert not remember(Wrapped(repository, push=lambda _: False), fed.clock, [said], [said.key.head])
    with pytest.raises(GitError, match="the net"):
        remember(Wrapped(repository, push=busy), fed.clock, [said], [said.key.head])
    assert remember(repository, fed.clock, [said], [said.key.head])
    assert not remember(repository, fed.clock, [said], [said.key.head])


def test_the_cache_stays_small(fed: MemoryFed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedops.app.verdict_cache.MAX_ENTRIES", 3)
    monkeypatch.setattr("fedops.app.verdict_cache.MAX_BYTES", 2500)
    repository = fed.new_clone("bot")

    def said(n: int, width: int = 1) -> BytesVerdict:
        key = BytesKey(CommitId(f"{n:040x}"), "2" * 64, Digest("sha256:" + "3" * 64), "0.1.0")
        return BytesVerdict(key, (finding("non_finite", "w" * width),))

    heads = [said(n).key.head for n in range(9)]
    assert remember(repository, fed.clock, [said(n) for n in range(9)], heads)
    assert len(VerdictCache(repository)) == 3
    monkeypatch.setattr("fedops.app.verdict_cache.MAX_ENTRIES", 100)
    assert remember(repository, fed.clock, [said(n, 600) for n in range(9)], heads)
    assert len(VerdictCache(repository)) == 2
    monkeypatch.setattr("fedops.app.verdict_cache.MAX_ENTRY_BYTES", 500)
    assert not remember(repository, fed.clock, [said(7, 900)], [said(7).key.head])


# ---------------------------------------------------------------- from job to job


def test_what_inspect_found_in_the_bytes_reaches_the_job_that_keeps_it(fed: MemoryFed) -> None:
    good, bad = fed.submit(A, 1.0), fed.submit(B, arrays(NAN))
    ctx = fed.context()
    judged = inspect_all(ctx, refreshed(ctx), ctx.forge.open_pulls())
    heard = load_verdicts(json.dumps(fitted(dump_verdicts(judged))).encode(), [good, bad])
    assert [j.reached for j in heard] == [j.reached for j in judged]
    assert [j.reached.findings != () for j in heard if j.reached] == [False, True]


def test_a_rejection_whose_reason_was_cut_off_is_not_kept_as_an_acceptance(fed: MemoryFed) -> None:
    bad = fed.submit(A, arrays(NAN))
    value = dump_verdicts([judge(fed, bad)])
    assert value["verdicts"][0]["bytes"]["findings_from"] == 0
    value["verdicts"][0]["bytes"]["findings_from"] = 9
    (heard,) = load_verdicts(json.dumps(value).encode(), [bad])
    assert (heard.verdict.state, heard.reached) == ("rejected", None)
    value["verdicts"][0] |= {"state": "pending", "findings": []}
    (heard,) = load_verdicts(json.dumps(value).encode(), [bad])
    assert heard.reached is None
