from __future__ import annotations

from typing import Any

import pytest

from fedops.core.catalogue import CATALOGUE
from fedops.core.findings import Finding, finding
from fedops.core.ids import SiteId
from fedops.core.report import STAGES, Stage, checks, pull_report, stage_of
from tests.core.samples import State, record, verdict, version

SITE = SiteId("hospital-a")


def results(findings: list[Finding], ran: tuple[Stage, ...] = STAGES) -> list[str]:
    return [c.result for c in checks(findings, ran)]


@pytest.mark.parametrize(
    ("slug", "stage"),
    [
        ("path_not_allowed", "change"),
        ("site_unknown", "change"),
        ("signature_invalid", "change"),
        ("commit_shape", "change"),
        ("policy_invalid", "change"),
        ("object_corrupt", "change"),
        ("metadata_schema", "record"),
        ("too_stale", "record"),
        ("payload_refused", "record"),
        ("dvc_schema", "record"),
        ("dvc_path_escape", "record"),
        ("hash_mismatch", "artifact"),
        ("object_missing", "artifact"),
        ("annotation_mismatch", "artifact"),
        ("registry_unavailable", "artifact"),
        ("pickle_refused", "model"),
        ("shape_mismatch", "model"),
        ("norm_exceeded", "model"),
        ("metadata_dropped", "model"),
    ],
)
def test_findings_belong_to_the_stage_that_makes_them(slug: Any, stage: str) -> None:
    assert stage_of(finding(slug, "x")) == stage


def test_every_finding_of_the_catalogue_belongs_to_a_stage() -> None:
    assert all(stage_of(finding(slug, "x")) in STAGES for slug in CATALOGUE)


def test_without_findings_all_stages_passed() -> None:
    assert results([]) == ["passed"] * 4


def test_stages_after_a_failed_one_did_not_run() -> None:
    assert results([finding("too_stale", "x")]) == ["passed", "failed", "not run", "not run"]
    assert results([finding("site_unknown", "x")]) == ["failed", "not run", "not run", "not run"]


def test_a_warning_stops_nothing() -> None:
    assert results([finding("metadata_dropped", "x")]) == ["passed", "passed", "passed", "warning"]


def test_only_stages_that_ran_are_said_to_have_passed() -> None:
    assert results([], ("change", "record")) == ["passed", "passed", "not run", "not run"]


def test_a_failed_check_names_each_slug_once_and_warnings_not_at_all() -> None:
    findings = [
        finding("missing_keys", "x"),
        finding("shape_mismatch", "x"),
        finding("shape_mismatch", "y"),
        finding("metadata_dropped", "x"),
    ]
    assert checks(findings, STAGES)[3].detail == "missing_keys, shape_mismatch"


def test_an_opaque_model_is_never_said_to_have_passed() -> None:
    row = pull_report(SITE, record(format="opaque"), verdict("accepted"), version(9)).checks[3]
    assert (row.result, row.detail) == ("not run", "opaque: never opened by fedops")


def test_a_pending_verdict_claims_no_check() -> None:
    report = pull_report(SITE, record(), verdict("pending"), version(9), note="waits for 1 approval")
    assert (report.checks, report.note) == ((), "waits for 1 approval")
    some = pull_report(SITE, record(), verdict("pending"), version(9), ran=("change", "record"))
    assert [c.result for c in some.checks] == ["passed", "passed", "not run", "not run"]


def test_a_report_compares_with_the_current_version() -> None:
    report = pull_report(SITE, record(), verdict("accepted"), version(9, metrics={"loss": 0.5}), delta_norm=2.5)
    assert (report.current, report.metrics, report.delta_norm) == (9, {"loss": 0.5}, 2.5)


@pytest.mark.parametrize("state", ["accepted", "rejected", "pending", "not_a_submission"])
def test_every_state_says_what_to_do_next_unless_told_otherwise(state: State) -> None:
    assert pull_report(SITE, None, verdict(state), version(9)).next_step
    assert pull_report(SITE, None, verdict(state), version(9), next_step="wait").next_step == "wait"
