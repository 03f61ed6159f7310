"""Versions of median, trimmed mean and Krum, from pull requests to `verify`, and what is forged in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedops.core.facts import Account, Aggregate, Wait
from fedops.core.findings import errors
from fedops.core.records import VersionRecord
from fedops.render.history import log_text, show_text
from fedops.render.markdown import version_summary
from tests.core.samples import minutes
from tests.forgery import Forger
from tests.scenario.fed import ACCOUNTS, SITES, Fed, GitFed, MemoryFed, arrays
from tests.scenario.oracle import check_inputs, check_lineage
from tests.scenario.test_streamed import StreamedFed, merged, plan
from tests.scenario.test_verify_forged import set_record

FIVE = (*SITES, "lab-e")
D, C, A, B, E = FIVE
MEDIAN, TRIMMED, KRUM = {"name": "median"}, {"name": "trimmed_mean", "beta": "0.2"}, {"name": "krum", "f": 1}
VALUES = {A: 1.0, B: 1.5, C: 2.0, D: 1.25, E: 4e6}


@pytest.fixture
def five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACCOUNTS, E, Account("lab-e-login", 50))


@pytest.fixture(params=[MemoryFed, pytest.param(GitFed, marks=pytest.mark.long)])
def fed(request: pytest.FixtureRequest, tmp_path: Path, five: None) -> Iterator[Fed]:
    made = request.param(tmp_path, rules={"strategy": MEDIAN}, people=("lena", "leo", *FIVE), sites=FIVE)
    yield made
    made.close()


def hand_in(fed: Fed, values: Mapping[str, Any], num_examples: int = 10) -> None:
    """Each on the current version; the attacker claims as many examples as are allowed."""
    for site, value in values.items():
        fed.submit(site, value, num_examples=10**7 if site == E else num_examples)


def published(fed: Fed, *, limits: bool = False) -> VersionRecord:
    """The version that CI makes now, its history checked by an oracle that does not use fedops, and verified.

    Args:
        limits: there are some on values, of which the oracle knows nothing.
    """
    done = fed.reconcile()
    assert [f for f in done.findings if f.severity == "error"] == []
    [record] = done.published
    made = check_lineage(fed)
    if not limits:
        check_inputs(fed, made)
    checked = fed.verify()
    assert not [f for one in checked for f in errors(one.findings)]
    assert all(one.level == "inputs" for one in checked if one.version)
    return record


def test_each_strategy_makes_versions_that_anybody_recomputes(fed: Fed) -> None:
    hand_in(fed, {A: 1.0, B: 1.5, E: 4e6})
    first = published(fed)
    assert (first.rule is not None and first.rule.strategy.name, first.chosen) == ("median", None)
    assert fed.model()["w"].tolist() == [1.5, -1.5]
    assert {c.score for c in first.contributions} == {None}

    fed.set_rules(strategy=TRIMMED, trigger={"quorum": 5})
    hand_in(fed, VALUES)
    assert published(fed).version == 2
    assert fed.model()["w"].tolist() == [np.float32((1.25 + 1.5 + 2.0) / 3), -np.float32((1.25 + 1.5 + 2.0) / 3)]

    fed.set_rules(strategy=KRUM)
    hand_in(fed, {A: 1.125, B: 1.375, C: 1.875, D: 0.875, E: 5e6})
    third = published(fed)
    assert third.rule is not None
    assert (third.rule.strategy.model_extra, third.chosen) == ({"f": 1}, A)
    assert fed.model()["w"].tolist() == [1.125, -1.125]
    # Changes are (x, -x): squared distances are twice those of x; the two smallest of each.
    scores = {c.site: c.score or 0.0 for c in third.contributions}
    assert {s: scores[s] for s in (A, B, C, D)} == {
        A: 2 * (0.25**2 + 0.25**2),
        B: 2 * (0.25**2 + 0.5**2),
        C: 2 * (0.5**2 + 0.75**2),
        D: 2 * (0.25**2 + 0.5**2),
    }
    assert scores[E] > 1e12
    assert third.consumed == dict.fromkeys(sorted(FIVE), 2), "those that were not taken are used up too"

    fed.set_rules(strategy={"name": "fedavg"})
    hand_in(fed, {site: value / 2 for site, value in VALUES.items()})
    assert published(fed).chosen is None


def test_krum_waits_for_as_many_as_it_needs_whatever_the_quorum_says(fed: Fed) -> None:
    fed.set_rules(strategy=KRUM, trigger={"quorum": 3, "max_wait_hours": 1})
    hand_in(fed, {s: VALUES[s] for s in (A, B, C, D)})
    assert fed.reconcile().published == []
    fed.clock.at += minutes(300) - minutes(0)
    done = fed.reconcile()
    assert (done.published, done.findings, done.decision) == ([], [], Wait("quorum", (E,), None))  # type: ignore[arg-type]
    assert fed.reconcile().changed is False
    hand_in(fed, {E: 3.0})
    assert published(fed).chosen is not None


def test_a_site_whose_bytes_turn_out_bad_stops_krum_until_it_hands_in_again(fed: Fed) -> None:
    """Nobody is used up meanwhile, and there is no version of too few."""
    fed.set_rules(strategy=KRUM)
    hand_in(fed, {s: VALUES[s] for s in (A, B, C, D)})
    fed.reconcile()
    bad = fed.submit(E, {**arrays(1.0), "w": np.array([1, np.inf], np.float32)})
    fed.merge_by_hand(bad.number)
    done = fed.reconcile()
    assert [(f.slug, f.where) for f in errors(done.findings)] == [("non_finite", f"sites/{E}")]
    assert done.decision == Wait("quorum", (E,), None)  # type: ignore[arg-type]
    assert fed.version.version == 0
    hand_in(fed, {E: 3.0})
    assert published(fed).version == 1


def test_an_update_beyond_the_norm_is_left_out_of_krum_and_the_rest_verifies(fed: Fed) -> None:
    fed.set_rules(strategy={"name": "krum", "f": 0}, trigger={"quorum": 4})
    hand_in(fed, {s: VALUES[s] for s in (A, B, C)})
    fed.reconcile()
    fed.submission = {"update_norm_max": 10.0}
    fed.push_policies()
    fed.merge_by_hand(fed.submit(E, 50.0).number)
    assert fed.reconcile().published == []
    fed.submit(D, VALUES[D])
    record = published(fed, limits=True)
    assert ([e.slug for e in record.excluded], [e.judged for e in record.excluded]) == (["norm_exceeded"], ["bytes"])
    assert all(c.delta_norm is not None and c.score is not None for c in record.contributions)


def test_stale_updates_are_compared_by_their_change_from_their_own_version(fed: Fed) -> None:
    hand_in(fed, {A: 1.0, B: 2.0})
    assert published(fed).version == 1
    assert fed.model()["w"][0] == 1.5
    fed.set_rules(trigger={"quorum": 3})
    fed.submit(C, 2.5, base=0)  # + 2 on v0, whose value is 0.5
    hand_in(fed, {A: 1.75, B: 11.5})  # + 0.25 and + 10 on v1
    assert published(fed).version == 2
    assert fed.model()["w"][0] == 1.5 + 2.0


def test_what_a_page_says_of_a_version_of_krum(tmp_path: Path, five: None) -> None:
    from fedops.core.made import Made

    fed = MemoryFed(tmp_path, rules={"strategy": KRUM}, people=("lena", "leo", *FIVE), sites=FIVE)
    hand_in(fed, VALUES)
    record = published(fed)
    made = Made(record, fed.main().commit, fed.clock.at, tagged=True, current=1)
    page, log = show_text(made), log_text([made])
    assert "rule      krum f 1, no weights, staleness inverse" in page
    [row] = [line for line in page.splitlines() if line.startswith(f"{record.chosen} ")]
    assert " yes " in row
    assert "share" not in page
    assert [line.split()[0] for line in log.splitlines() if line.endswith("taken")] == [record.chosen]
    summary = version_summary(record)
    assert "| site | base version | staleness | examples | score | taken | distance (L2) |" in summary
    assert sum("| yes |" in line for line in summary.splitlines()) == 1


# ---------------------------------------------------------------- forged


def forged(fed: GitFed, change: Callable[[dict[str, Any]], object]) -> list[tuple[str, Any]]:
    """What verify says of v1 when its record is another; slug, and the field or slug's detail."""
    set_record(Forger(fed.origin), 1, change, new_tag=True)
    found = [f for one in fed.verify() if one.version == 1 for f in errors(one.findings)]
    return [(f.slug, (f.detail or {}).get("field")) for f in found]


def contribution(record: dict[str, Any], site: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in record["contributions"] if c["site"] == site)
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda r: r.update(chosen=B), ("record_mismatch", "chosen")),
        (lambda r: r.pop("chosen"), ("record_mismatch", "chosen")),
        (lambda r: contribution(r, A).update(score=0.5), ("record_mismatch", "score")),
        (lambda r: contribution(r, A).pop("score"), ("record_mismatch", "score")),
        (lambda r: contribution(r, E).update(weight=10.0), ("record_mismatch", "contributions")),
        (lambda r: r["rule"]["strategy"].update(f=0), ("record_mismatch", "rule")),
        (lambda r: r["rule"]["strategy"].update(name="median"), ("record_mismatch", "rule")),
    ],
    ids=["chosen", "no chosen", "score", "no score", "weight", "f", "name"],
)
def test_a_forged_record_of_krum_is_named(tmp_path: Path, five: None, change: Any, named: tuple[str, str]) -> None:
    fed = GitFed(tmp_path, rules={"strategy": KRUM}, people=("lena", "leo", *FIVE), sites=FIVE)
    try:
        hand_in(fed, VALUES)
        assert published(fed).version == 1
        assert named in forged(fed, change)
    finally:
        fed.close()


def test_a_score_or_a_choice_in_a_version_of_the_mean_is_named(tmp_path: Path) -> None:
    fed = GitFed(tmp_path)
    try:
        hand_in(fed, {A: 1.0, B: 2.0})
        assert published(fed).version == 1
        data = json.loads(fed.main().bytes_of(next(p for p in fed.main().files if p == "global/version.json")))
        assert "chosen" not in data
        assert all("score" not in c for c in data["contributions"])

        def change(record: dict[str, Any]) -> None:
            record["chosen"] = A
            contribution(record, A)["score"] = 1.0

        assert {("record_mismatch", "score"), ("model_mismatch", "manifest")} <= set(forged(fed, change))
    finally:
        fed.close()


# ---------------------------------------------------------------- what comes over the network


@pytest.mark.parametrize("strategy", [MEDIAN, TRIMMED, {"name": "krum", "f": 0}])
def test_models_are_downloaded_before_a_robust_strategy_reads_them(tmp_path: Path, strategy: Any) -> None:
    fed = StreamedFed(tmp_path, rules={"strategy": strategy})
    merged(fed, {A: 1.0, B: 3.0, C: 1.5})
    made = plan(fed)
    assert isinstance(made.decision, Aggregate)
    assert made.manifest is not None
    assert fed.noting.opened == []
    assert sorted(fed.noting.got) == ["global", f"sites/{C}", f"sites/{A}", f"sites/{B}"]
    assert fed.reconcile().published
    assert fed.model(1)["w"][0] == np.float32((1.0 + 3.0 + 1.5) / 3 if strategy == TRIMMED else 1.5)
    assert not [f for one in fed.verify() for f in errors(one.findings)]
