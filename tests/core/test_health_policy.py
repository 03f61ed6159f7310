"""Each rule of a policy that cannot do what it is there for: what is said at the limit, and just beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from fedops.core.approvals import approval
from fedops.core.documents import validate
from fedops.core.health import Check
from fedops.core.health_policy import check_sense
from fedops.core.settings import Aggregation, Sites, SubmissionPolicy
from fedops.core.weights import cap_shares
from tests.core.samples import version
from tests.doctor_report import bad, by_name


def site(number: int, *, key: str | None = "own", state: str = "active", accounts: Sequence[int] = ()) -> Any:
    """Args: key: "own", the name of somebody whose key it is, or None."""
    keys = [f"ssh-ed25519 AAAA{f'site{number}' if key == 'own' else key} x"] if key is not None else []
    people = [{"login": f"x{n}", "id": n} for n in accounts or (1000 + number,)]
    return {"accounts": people, "keys": keys, "state": state}


def lead(number: int, *, key: bool = True) -> Any:
    return {"login": f"lead-{number}", "id": number, "keys": [f"ssh-ed25519 AAAAlead{number}"] if key else []}


def roster(leads: Sequence[Any] = (lead(1),), sites: Any = 2) -> Sites:
    """Args: sites: how many active ones, or id -> site."""
    some = {f"site-{n}": site(n) for n in range(sites)} if isinstance(sites, int) else sites
    document = {"schema": "fedops.sites/v1", "leads": list(leads), "sites": some}
    return validate(document, Sites, "sites.yaml")


def sense(
    sites: Sites | None = None,
    *,
    forge: Literal["git", "github"] = "git",
    submission: Any = None,
    at: int = 0,
    final: bool = False,
    **rules: Any,
) -> dict[str, Check]:
    """What is said, by name; each line names a file, or a command."""
    rules = {"trigger": {"quorum": 1}} | rules
    aggregation = validate(rules, Aggregation, "aggregation.yaml")
    policy = validate(submission or {}, SubmissionPolicy, "submission.yaml")
    current = version(at, kind="aggregate" if at else "init", status="final" if final else "running")
    checks = by_name(check_sense(forge, sites or roster(), policy, aggregation, current))
    assert all(c.state != "ok" and ("policies/" in c.next or "fedops " in c.next) for c in checks.values())
    return checks


def said(*args: Any, **rules: Any) -> dict[str, str]:
    return bad(sense(*args, **rules).values())


# ---------------------------------------------------------------- when a version is made


def test_a_quorum_that_the_active_sites_cannot_reach_is_a_warning() -> None:
    some = roster(sites={"a": site(1), "b": site(2), "c": site(3, state="suspended")})
    assert said(some, trigger={"quorum": 2}) == {}
    assert said(some, trigger={"quorum": 3}) == {"quorum": "warning"}
    assert said(some, trigger={"quorum": 3, "max_wait_hours": 6.0}) == {}  # after which one will do
    assert said(some, trigger={"quorum": 4, "max_wait_hours": 6.0, "quorum_after_wait": 2}) == {}
    assert said(some, trigger={"quorum": 4, "max_wait_hours": 6.0, "quorum_after_wait": 3}) == {"quorum": "warning"}
    check = sense(some, trigger={"quorum": 3})["quorum"]
    assert check.got == "2 active sites: no version can come"
    assert check.next == "a lead: fedops site add SITE …, or policies/aggregation.yaml: trigger.quorum: 2"


def test_a_strategy_that_needs_more_updates_than_are_said_to_be_enough_is_told_what_will_do() -> None:
    krum = {"name": "krum", "f": 1}
    assert said(roster(sites=5), strategy=krum, trigger={"quorum": 5}) == {}
    window = {"quorum": 7, "max_wait_hours": 6.0, "quorum_after_wait": 4}
    late = sense(roster(sites=7), strategy=krum, trigger=window)["strategy: wait"]
    assert (late.state, late.expected) == ("warning", "at least 5")
    assert late.got == "krum f 1 needs 5 updates, quorum_after_wait 4: so few make no version"
    assert late.next == "policies/aggregation.yaml: trigger.quorum_after_wait: 5"
    assert said(roster(sites=7), strategy=krum, trigger=window | {"quorum_after_wait": 5}) == {}


def test_a_wait_for_which_the_strategy_leaves_no_room_is_not_told_a_number_that_would_be_wrong() -> None:
    checks = sense(roster(sites=5), strategy={"name": "krum", "f": 1}, trigger={"quorum": 5, "max_wait_hours": 6.0})
    assert bad(checks.values()) == {"max wait": "warning"}
    assert checks["max wait"].next == "policies/aggregation.yaml: trigger.max_wait_hours: null"


@pytest.mark.parametrize(
    ("active", "f", "step"),
    [
        (2, 0, "a lead: fedops site add SITE …"),
        (4, 1, "a lead: fedops site add SITE …, or policies/aggregation.yaml: strategy.f: 0"),
        (6, 2, "a lead: fedops site add SITE …, or policies/aggregation.yaml: strategy.f: 1"),
    ],
)
def test_a_strategy_that_needs_more_updates_than_there_are_sites_is_a_warning(active: int, f: int, step: str) -> None:
    checks = sense(roster(sites=active), strategy={"name": "krum", "f": f}, trigger={"quorum": 2 * f + 3})
    got = {name: state for name, state in bad(checks.values()).items() if name != "strategy: protection"}
    assert got == {"strategy: sites": "warning"}
    check = checks["strategy: sites"]
    assert check.got == f"krum f {f} needs {2 * f + 3} updates, {active} active sites: no version can come"
    assert check.next == step
    assert "strategy: sites" not in sense(roster(sites=0))


@pytest.mark.parametrize(
    ("strategy", "quorum", "step"),
    [
        ({"name": "median"}, 2, "trigger.quorum: 3"),
        ({"name": "median"}, 3, None),
        ({"name": "trimmed_mean", "beta": "0.2"}, 4, "trigger.quorum: 5"),
        ({"name": "trimmed_mean", "beta": "0.2"}, 5, None),
        ({"name": "trimmed_mean", "beta": "0"}, 5, "strategy: other parameters, or another one"),
        ({"name": "krum", "f": 0}, 5, "strategy: other parameters, or another one"),
        ({"name": "fedavg"}, 1, None),
    ],
)
def test_a_robust_strategy_that_withstands_nobody_is_a_warning(strategy: Any, quorum: int, step: str | None) -> None:
    checks = sense(roster(sites=5), strategy=strategy, trigger={"quorum": quorum})
    assert bad(checks.values()) == ({} if step is None else {"strategy: protection": "warning"})
    assert step is None or checks["strategy: protection"].next == f"policies/aggregation.yaml: {step}"


def test_what_withstands_nobody_once_the_wait_is_over_names_that_number() -> None:
    window = {"quorum": 5, "max_wait_hours": 6.0, "quorum_after_wait": 2}
    check = sense(roster(sites=5), strategy={"name": "median"}, trigger=window)["strategy: protection"]
    assert check.got == "median of 2 updates protects against no site"
    assert check.next == "policies/aggregation.yaml: trigger.quorum_after_wait: 3"


def test_without_any_site_no_quorum_will_do() -> None:
    check = sense(roster(sites=0))["quorum"]
    assert (check.got, check.expected) == ("0 active sites: no version can come", "more sites")
    assert check.next == "a lead: fedops site add SITE …"


@pytest.mark.parametrize(
    ("quorum", "after", "step"),
    [
        (2, 1, None),
        (2, 2, "policies/aggregation.yaml: trigger.quorum_after_wait: 1"),
        (2, 3, "policies/aggregation.yaml: trigger.quorum_after_wait: 1"),
        (1, 1, "policies/aggregation.yaml: trigger.max_wait_hours: null"),
    ],
)
def test_a_wait_after_which_no_fewer_are_enough_changes_nothing(quorum: int, after: int, step: str | None) -> None:
    window = {"quorum": quorum, "quorum_after_wait": after, "max_wait_hours": 6.0}
    checks = sense(roster(sites=3), trigger=window)
    assert bad(checks.values()) == ({} if step is None else {"max wait": "warning"})
    assert step is None or checks["max wait"].next == step
    assert said(roster(sites=3), trigger=window | {"max_wait_hours": None}) == {}, "there is no wait"
    assert said(roster(sites=3), trigger=window | {"grace_minutes": 1.0}) == {}, "the wait ends the grace period"


@pytest.mark.parametrize(
    ("at", "last", "final", "state"),
    [
        (4, 5, False, None),
        (5, 5, False, "warning"),
        (6, 5, False, "warning"),
        (5, None, False, None),
        (5, 5, True, "warning"),
        (5, 9, True, "warning"),  # raised too late: what is final stays so
        (5, None, True, "warning"),
    ],
)
def test_a_last_version_that_is_reached_is_a_warning(at: int, last: int | None, final: bool, state: str | None) -> None:
    checks = sense(at=at, final=final, stop={"max_version": last})
    assert bad(checks.values()) == ({"end": state} if state else {})
    if state and final:
        assert checks["end"].got == "v5 is final: no version comes any more"
        assert checks["end"].next.startswith("fedops pull, then fedops init --model FILE")
    elif state:
        assert checks["end"].got == f"v{at} is there, stop.max_version is 5: no version comes"
        assert checks["end"].next == "policies/aggregation.yaml: stop.max_version: null, or a higher number"


@pytest.mark.parametrize(
    ("active", "share", "step"),
    [
        (5, 0.2, None),  # one fifth each, to the last digit
        (5, 0.19, "0.2"),
        (3, 0.34, None),
        (3, 0.33, "0.34"),
        (3, 0.3333333333333333, "0.34"),  # as written, less than a third
        (7, 0.14, "0.15"),
        (1, 1.0, None),
        (1, 0.99, "1.0"),
        (2, None, None),
    ],
)
def test_a_share_that_even_all_sites_together_exceed_is_a_warning(
    active: int, share: float | None, step: str | None
) -> None:
    checks = sense(roster(sites=active), weights={"max_share": share})
    assert bad(checks.values()) == ({} if step is None else {"max share": "warning"})
    if share is not None:
        weights, held = cap_shares([float(100 * n) for n in range(1, active + 1)], share)
        assert held is (step is None), "what the engine does"
        assert held or set(weights) == {100.0}
    if step is not None:
        assert checks["max share"].next == f"policies/aggregation.yaml: weights.max_share: {step}, or null"
        assert said(roster(sites=active), weights={"max_share": float(step)}) == {}, "the advice is good"


def test_a_share_of_no_sites_is_not_judged() -> None:
    assert said(roster(sites=0), weights={"max_share": 0.1}) == {"quorum": "warning"}


# ---------------------------------------------------------------- leads


def test_a_federation_without_leads_is_a_warning() -> None:
    assert said(roster(leads=[])) == {"leads": "warning"}
    assert said(roster(leads=[]), merge={"mode": "review"}, publish={"mode": "review"}) == {"leads": "warning"}
    assert sense(roster(leads=[]))["leads"].next.startswith("policies/sites.yaml: leads: ")


def test_a_lead_without_a_key_is_nobody_where_a_signature_is_the_account() -> None:
    leads = [lead(1), lead(2), lead(3, key=False)]
    check = sense(roster(leads))["keys of leads"]
    assert (check.state, check.expected) == ("warning", "forge git: one key each")
    assert check.got == "none of lead-3, whose approvals and rollbacks count for nothing"
    assert check.next == "policies/sites.yaml: leads: keys of lead-3, each the line of a .pub file"
    assert said(roster([*leads[:2], lead(3)])) == {}
    assert said(roster(leads), forge="github") == {}, "there the account is GitHub's"


@pytest.mark.parametrize(
    ("leads", "needed", "able"),
    [
        ([lead(1), lead(2)], 2, None),
        ([lead(1), lead(2)], 3, 2),
        ([lead(1)], 1, None),
        ([lead(1)], 2, 1),
    ],
)
def test_updates_that_more_leads_must_approve_than_there_are_wait_for_ever(
    leads: list[Any], needed: int, able: int | None
) -> None:
    some = roster(leads)
    for forge in ("git", "github"):
        checks = sense(some, forge=forge, merge={"mode": "review", "approvals": needed})
        found = checks.get("approvals: merge")
        assert (found is None) == (able is None)
        if found is not None:
            assert found.state == "broken"
            assert "updates of site-0, site-1 can never be approved" in found.got
            expected = f"policies/aggregation.yaml: merge.approvals: {able}, or policies/sites.yaml: more leads"
            assert found.next == expected
    assert "approvals: merge" not in said(some, merge={"mode": "auto", "approvals": needed}), "none are asked for"


def test_a_lead_does_not_judge_a_site_of_the_same_key_or_account() -> None:
    """Three sites: a stranger's, one that signs with the lead's key, one whose account is the lead's."""
    some = roster(sites={"a": site(1), "b": site(2, key="lead1"), "c": site(3, accounts=[1])})
    check = sense(some, forge="git", merge={"mode": "review"})["approvals: merge"]
    assert check.got == "merge.approvals 1, 0 leads who may judge: updates of b, c can never be approved"
    assert (check.expected, check.next) == ("more leads", "policies/sites.yaml: more leads")
    two = roster([lead(1), lead(2)], some.model_dump()["sites"])
    assert said(two, merge={"mode": "review"}) == {}
    assert said(roster(sites={"c": site(3, accounts=[1, 1003])}), merge={"mode": "review"}) == {}, "the other may"


def test_leads_who_only_lack_a_key_are_named_as_the_way_out() -> None:
    leads = [lead(1), lead(2, key=False)]
    checks = sense(roster(leads), merge={"mode": "review", "approvals": 2}, publish={"mode": "review", "approvals": 2})
    assert bad(checks.values()) == {
        "keys of leads": "warning",
        "approvals: merge": "broken",
        "approvals: publish": "broken",
    }
    for rule in ("merge", "publish"):
        step = f"policies/aggregation.yaml: {rule}.approvals: 1, or policies/sites.yaml: keys of lead-2"
        assert checks[f"approvals: {rule}"].next == step


@pytest.mark.parametrize(("needed", "state"), [(2, None), (3, "broken")])
def test_versions_that_more_leads_must_approve_than_there_are_wait_for_ever(needed: int, state: str | None) -> None:
    rules = {"mode": "review", "approvals": needed}
    for forge in ("git", "github"):
        found = said(roster([lead(1), lead(2)]), forge=forge, publish=rules)
        assert found.get("approvals: publish") == state
        # Of two leads one proposes the rollback, so that only one is left to judge it.
        assert found.get("approvals: rollback") == (None if state else "warning")


@pytest.mark.parametrize(
    ("forge", "leads", "needed", "able"),
    [
        ("git", [lead(1)], 1, None),  # who is alone approves alone
        ("git", [lead(1)], 2, 1),
        ("git", [lead(1), lead(2)], 1, None),
        ("git", [lead(1), lead(2)], 2, 1),
        ("git", [lead(1), lead(2), lead(3)], 2, None),
        ("git", [lead(1), lead(2, key=False)], 1, 0),  # the proposer does not count, and the other has no key
        ("git", [lead(1, key=False)], 1, 0),
        ("github", [lead(1)], 1, 0),  # GitHub lets nobody approve their own pull request
        ("github", [lead(1), lead(2, key=False)], 1, None),
        ("github", [lead(1), lead(2)], 2, 1),
    ],
)
def test_rollbacks_that_nobody_else_may_approve_are_a_warning(
    forge: Literal["git", "github"], leads: list[Any], needed: int, able: int | None
) -> None:
    checks = sense(roster(leads), forge=forge, publish={"approvals": needed})
    found = checks.pop("approvals: rollback", None)
    assert set(checks) <= {"keys of leads"}
    assert (found is None) == (able is None)
    if forge == "git":
        keyed = [one["id"] for one in leads if one["keys"]]
        given = [approval([(n, "approved") for n in keyed], roster(leads), author=a, needed=needed) for a in keyed]
        assert any(one.given for one in given) is (found is None), "what CI does when all approve"
    if found is not None:
        assert found.state == "warning"
        assert found.got.startswith(f"publish.approvals {needed}, {able} lead")
        assert found.got.endswith("who may judge: rollbacks can never be approved")
        assert (f"publish.approvals: {able}" in found.next) == bool(able)


# ---------------------------------------------------------------- sites


def test_an_active_site_that_cannot_sign_is_a_warning_where_signatures_are_asked_for() -> None:
    sites = {f"site-{n}": site(n, key=None) for n in range(7)}
    assert said(roster(sites=sites)) == {"keys of sites": "warning"}
    assert said(roster(sites=sites), submission={"require_signed": False}) == {}
    found = sense(roster(sites=sites))["keys of sites"]
    assert found.got == "none of site-0, site-1, site-2, site-3, site-4, …, whose updates will be rejected"
    found = sense(roster(sites={"s": sites["site-0"]}))["keys of sites"]
    assert found.got == "none of s, whose updates will be rejected"
    assert said(roster(sites={"s": site(1, key=None, state="suspended"), "t": site(2)})) == {}


def test_a_policy_that_makes_sense_is_not_mentioned() -> None:
    rules: dict[str, Any] = {
        "trigger": {"quorum": 3, "max_wait_hours": 24.0, "quorum_after_wait": 2, "grace_minutes": 10.0},
        "merge": {"mode": "review", "approvals": 2},
        "publish": {"mode": "review", "approvals": 1},
        "weights": {"max_share": 0.4},
        "stop": {"max_version": 10},
    }
    assert said(roster([lead(1), lead(2)], 5), at=9, **rules) == {}
