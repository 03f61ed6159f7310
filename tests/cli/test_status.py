"""What `fedops status --format json` gives of the reasons to wait; the page for people has its goldens."""

from __future__ import annotations

import json
from typing import Any

from fedops.cli.status import status_document
from fedops.core.facts import Wait
from fedops.core.findings import finding
from fedops.core.status import Blocked, Heartbeat, LocalWork, Silence, SiteLine, StatusReport
from tests.core.samples import minutes
from tests.render.goldens_site import A, B, C, report

LOST = finding("object_missing", "sites/hospital-b/submission.json", detail={"site": "hospital-b"})


def as_json(shown: StatusReport) -> dict[str, Any]:
    text = json.dumps(status_document(shown))
    return dict(json.loads(text))


def test_sites_whose_bytes_are_lost_are_listed_apart_from_those_that_count() -> None:
    lines = (SiteLine(A, "ready", 8, 0, minutes(30)), SiteLine(B, "ready", 8, 0, minutes(20), reason=LOST))
    got = as_json(report(Wait("unavailable", (B,)), sites=lines, unavailable=(B,)))
    assert got["quorum"] == {"ready": ["hospital-a"], "have": 1, "need": 3}
    assert got["unavailable"] == ["hospital-b"]
    assert (got["decision"]["kind"], got["decision"]["reason"], got["held_by"]) == ("wait", "unavailable", None)
    assert [site["reason"] and site["reason"]["slug"] for site in got["sites"]] == [None, "object_missing"]


def test_a_rejected_version_names_the_issue_that_holds_it() -> None:
    got = as_json(report(Wait("rejected", (C,)), held_by=13))
    assert (got["decision"]["reason"], got["held_by"]) == ("rejected", 13)


def test_stray_tags_stop_and_are_findings() -> None:
    stray = finding("tag_moved", "global@v9.0.0")
    got = as_json(report(Blocked((stray,)), faults=(stray,)))
    assert got["decision"] == {"kind": "stop", "reason": "tags"}
    assert [(f["slug"], f["where"]) for f in got["findings"]] == [("tag_moved", "global@v9.0.0")]


def test_a_policy_that_is_not_computed_stops_and_the_training_at_hand_has_its_time() -> None:
    fault = finding("policy_invalid", "policies/aggregation.yaml", got="strategy 'fedadam' -> one of fedavg")
    got = as_json(report(Blocked((fault,)), faults=(fault,), work=LocalWork(8, 8, "ab" * 32, minutes(0))))
    assert got["decision"] == {"kind": "stop", "reason": "policy"}
    assert got["work"] == {"pulled": 8, "trained": 8, "sha256": "ab" * 32, "trained_at": "2026-03-02T09:00:00Z"}


def test_what_sites_claim_and_since_when_they_are_stalled_are_times() -> None:
    heard, lost = (Heartbeat(8, "training", minutes(n), stalled=n < 0) for n in (100, -4000))
    lines = (
        SiteLine(A, "due", 7, claimed_at=minutes(-60), beat=heard),
        SiteLine(B, "due", 7, beat=lost),
        SiteLine(C, "new", silence=Silence(8, minutes(0))),
    )
    got = as_json(report(Wait("quorum"), sites=lines))["sites"]
    assert [site["claimed_at"] for site in got] == ["2026-03-02T08:00:00Z", None, None]
    assert [site["stalled_since"] for site in got] == [None, "2026-02-27T14:20:00Z", "2026-03-02T09:00:00Z"]
