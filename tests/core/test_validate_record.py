"""Stage two: a record's bytes, its fields, and what main already knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedops.core.documents import validate
from fedops.core.findings import Finding
from fedops.core.ids import SiteId
from fedops.core.parse_record import is_time
from fedops.core.records import Draft, Record
from fedops.core.settings import SubmissionPolicy
from fedops.core.validate import Known, draft_of, parse_draft, parse_record, validate_draft, validate_record

WHERE = "sites/hospital-a/submission.json"
SHA, MD5, MANIFEST = "a" * 64, "b" * 32, "sha256:" + "c" * 64
FIELDS: dict[str, Any] = {
    "schema": "fedops.submission/v1",
    "site": "hospital-a",
    "base_version": 8,
    "num_examples": 150,
    "format": "safetensors",
    "payload": "full",
    "sha256": SHA,
    "md5": MD5,
    "size": 160,
    "manifest": MANIFEST,
    "metrics": {"loss": 0.31},
    "created_at": "2026-03-02T09:30:00Z",
}
# As CONTRACTS section 2 writes it, by hand: not from render_pointer.
POINTER = (
    f"outs:\n- {{md5: {MD5}, size: 160, hash: md5, path: update.safetensors, remote: sites-hospital-a}}\n"
    f'meta:\n  fedops: {{repository: "sites/hospital-a", manifest: "{MANIFEST}", sha256: {SHA}}}\n'
).encode()


def text(**changes: Any) -> bytes:
    return json.dumps(FIELDS | changes).encode()


def without(*names: str) -> bytes:
    return json.dumps({k: v for k, v in FIELDS.items() if k not in names}).encode()


def parsed(data: bytes) -> tuple[Record | None, list[tuple[str, str | None]]]:
    record, found = parse_record(data, WHERE, max_bytes=16384)
    assert all(f.where == WHERE for f in found)
    return record, [(f.slug, (f.detail or {}).get("field")) for f in found]


def policy(**changes: Any) -> SubmissionPolicy:
    return validate(changes, SubmissionPolicy, "policy")


# ------------------------------------------------------------------ reading


def test_a_record_is_read_as_it_stands() -> None:
    record, found = parsed(text(base_sha256="d" * 64, software={"fedops": "0.1.0"}))
    assert found == []
    assert record is not None
    assert (record.site, record.base_version, record.num_examples) == ("hospital-a", 8, 150)
    assert record.metrics == {"loss": 0.31}


def test_windows_line_ends_do_not_change_a_record() -> None:
    data = json.dumps(FIELDS, indent=1).replace("\n", "\r\n").encode()
    assert parsed(data)[0] == parsed(text())[0] is not None


@pytest.mark.parametrize(
    "data",
    [
        text().replace(b"0.31", b"NaN"),
        text().replace(b"0.31", b"-Infinity"),
        text().replace(b"0.31", b"1e999"),
        b"\xef\xbb\xbf" + text(),
        text().replace(b'"site"', b'"site": "x", "site"'),
        text()[:-1],
        b"",
        b"\xff\xfe",
        b"[" * 1000 + b"]" * 1000,
        text().replace(b'"hospital-a"', b'"\\ud800"'),
        text().replace(b"150", b"9" * 5000),
    ],
    ids=["nan", "inf", "overflow", "bom", "twice", "cut", "empty", "utf-16", "deep", "surrogate", "digits"],
)
def test_what_is_not_strict_json_is_refused(data: bytes) -> None:
    assert parsed(data) == (None, [("metadata_invalid_json", None)])


def test_a_record_that_is_too_large_is_not_parsed() -> None:
    record, [found] = parse_record(text(), WHERE, max_bytes=100)
    assert record is None
    assert (found.slug, found.got, found.expected) == ("file_too_large", len(text()), 100)


@pytest.mark.parametrize("value", [True, False, 100.0, 12.5, "120", None, 0, -5, [10], {"n": 1}, 1e300])
def test_num_examples_is_a_whole_number_of_at_least_one(value: object) -> None:
    assert parsed(text(num_examples=value)) == (None, [("num_examples_invalid", "num_examples")])


@pytest.mark.parametrize(
    "value", [None, 1, "x", [0.5], {"auc": "NaN"}, {"auc": None}, {"auc": True}, {"auc": [0.5]}, {"a": {"b": 1}}]
)
def test_metrics_are_a_flat_map_of_finite_numbers(value: object) -> None:
    record, found = parsed(text(metrics=value))
    assert record is None
    assert [slug for slug, _ in found] == ["metrics_invalid"]


def test_a_whole_number_is_a_fine_metric() -> None:
    record, _ = parsed(text(metrics={"loss": 1}))
    assert record is not None
    assert record.metrics == {"loss": 1.0}


@pytest.mark.parametrize("name", list(FIELDS))
def test_no_field_of_a_record_may_be_absent(name: str) -> None:
    assert parsed(without(name)) == (None, [("metadata_schema", name)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema", "fedops.submission/v2"),
        ("site", 5),
        ("site", None),
        ("base_version", "8"),
        ("base_version", 8.0),
        ("base_version", True),
        ("base_version", None),
        ("format", "npz"),
        ("payload", "gradient"),
        ("sha256", "A" * 64),
        ("sha256", "a" * 64 + "\n"),
        ("sha256", "sha256:" + "a" * 64),
        ("md5", "b" * 31),
        ("size", 0),
        ("size", 160.0),
        ("manifest", "a" * 64),
        ("base_sha256", "x"),
        ("base_sha256", None),
        ("software", None),
        ("software", {"fedops": 1}),
        ("patient_names", ["…"]),
    ],
)
def test_a_field_that_is_wrong_is_named(name: str, value: object) -> None:
    record, found = parsed(text(**{name: value}))
    assert record is None
    [(slug, field)] = found
    assert slug == "metadata_schema"
    assert field is not None
    assert field.split(".")[0] == name


def test_a_record_that_is_no_object_is_refused() -> None:
    assert parsed(b"[1]") == (None, [("metadata_schema", None)])


def test_a_negative_base_version_is_no_version() -> None:
    assert parsed(text(base_version=-1)) == (None, [("base_version_unknown", "base_version")])


@pytest.mark.parametrize(
    ("site", "slug"),
    [
        ("Hospital-A", "site_id_invalid"),
        ("", "site_id_invalid"),
        ("../x", "site_id_invalid"),
        ("global", "site_id_reserved"),
    ],
)
def test_a_site_id_is_refused_never_corrected(site: str, slug: str) -> None:
    assert parsed(text(site=site)) == (None, [(slug, None)])


@pytest.mark.parametrize(
    ("time", "anywhere", "in_record"),
    [
        ("2026-03-02T09:30:00Z", True, True),
        ("2026-03-02T09:30:00.123Z", True, True),
        ("2024-02-29T23:59:59Z", True, True),
        ("2016-12-31T23:59:60Z", True, True),
        ("2026-03-02T09:30:00+01:00", True, False),
        ("2026-03-02T09:30:00-00:00", True, False),
        ("2026-03-02t09:30:00z", True, False),
        ("2026-03-02T09:30:00", False, False),
        ("2026-03-02 09:30:00Z", False, False),
        ("2026-03-02", False, False),
        ("2026-02-30T09:30:00Z", False, False),
        ("2026-13-01T09:30:00Z", False, False),
        ("2026-03-02T24:00:00Z", False, False),
        ("2026-03-02T09:60:00Z", False, False),
        ("2026-03-02T09:30:60Z", False, False),
        ("2026-03-02T09:30:00+24:00", False, False),
        ("2026-03-02T09:30:00+0100", False, False),
        ("2026-03-02T09:30Z", False, False),
        ("0000-01-01T00:00:00Z", False, False),
        ("\u0662026-03-02T09:30:00Z", False, False),
        ("2026-03-02T09:30:00Z\n", False, False),
        ("yesterday", False, False),
        ("", False, False),
    ],
)
def test_a_time_has_a_date_and_a_zone(time: str, anywhere: bool, in_record: bool) -> None:
    assert is_time(time, only_utc=False) == anywhere
    assert is_time(time, only_utc=True) == in_record
    assert [slug for slug, _ in parsed(text(created_at=time))[1]] == ([] if in_record else ["timestamp_invalid"])
    draft, found = parse_draft(text(created_at=time), WHERE, max_bytes=16384)
    assert (draft is None) == (not anywhere)
    assert [f.slug for f in found] == ([] if anywhere else ["timestamp_invalid"])


@pytest.mark.parametrize("value", [None, 1772443800, ["2026-03-02T09:30:00Z"]])
def test_a_time_is_text(value: object) -> None:
    assert parsed(text(created_at=value)) == (None, [("timestamp_invalid", "created_at")])


def test_all_faults_of_a_record_are_told() -> None:
    _, found = parsed(text(site="X", num_examples=0, metrics={"a": None}, created_at="now", extra=1))
    assert {slug for slug, _ in found} == {
        "site_id_invalid",
        "num_examples_invalid",
        "metrics_invalid",
        "timestamp_invalid",
        "metadata_schema",
    }


def test_a_record_of_junk_makes_a_short_report() -> None:
    _, found = parsed(text(**{f"k{i}": 1 for i in range(500)}))
    assert len(found) == 50


def test_values_from_a_site_are_cut_in_reports() -> None:
    _, [found] = parse_record(text(num_examples=list(range(100))), WHERE, max_bytes=16384)
    assert found.got == "list"
    _, [found] = parse_record(text(num_examples="9" * 500), WHERE, max_bytes=16384)
    assert found.got == "9" * 100


def test_a_draft_in_a_file_may_lack_what_submit_fills_in() -> None:
    draft, found = parse_draft(without("md5", "size", "manifest"), WHERE, max_bytes=16384)
    assert found == ()
    assert draft is not None
    assert draft.md5 is None
    npz, _ = parse_draft(text(format="npz"), WHERE, max_bytes=16384)
    assert npz is not None


@pytest.mark.parametrize("name", ["schema", "site", "base_version", "num_examples", "format", "sha256", "created_at"])
def test_a_draft_in_a_file_may_lack_nothing_else(name: str) -> None:
    draft, [found] = parse_draft(without(name), WHERE, max_bytes=16384)
    assert draft is None
    assert (found.slug, found.detail) == ("metadata_schema", {"field": name})


def test_a_draft_that_is_not_json_is_refused() -> None:
    draft, [found] = parse_draft(b"{", WHERE, max_bytes=16384)
    assert (draft, found.slug) == (None, "metadata_invalid_json")


def test_a_draft_in_a_plan_needs_three_fields() -> None:
    draft, found = draft_of({"site": "hospital-b", "base_version": 4, "num_examples": 100}, "submissions/0")
    assert found == ()
    assert draft is not None
    assert (draft.payload, dict(draft.metrics)) == ("full", {})
    assert draft_of({"site": "hospital-b", "base_version": 4}, "submissions/0")[0] is None


# ------------------------------------------------------------------ against main


def known(**changes: Any) -> Known:
    values: dict[str, Any] = {
        "current": 9,
        "consumed": {"hospital-a": 7},
        "models": {8: "8" * 64, 9: "9" * 64},
        "staleness_max": 5,
        "own": None,
        "taken": {},
    }
    return Known(**(values | changes))


def judge(
    data: bytes,
    pointer: bytes | None = POINTER,
    main: Known | None = None,
    rules: SubmissionPolicy | None = None,
    extension: str = "safetensors",
) -> list[Finding]:
    return list(
        validate_record(data, pointer, SiteId("hospital-a"), main or known(), rules or policy(), extension=extension)
    )


def slugs(found: list[Finding]) -> list[str]:
    return [f.slug for f in found]


def record(**changes: Any) -> Record:
    return validate(FIELDS | changes, Record, "own")


def test_an_honest_submission_has_no_finding() -> None:
    assert judge(text()) == []
    assert judge(text(base_sha256="8" * 64)) == []


def test_a_record_that_cannot_be_read_is_not_judged_further() -> None:
    assert slugs(judge(b"{", pointer=b"x")) == ["metadata_invalid_json"]


def test_a_record_that_names_another_site_is_refused() -> None:
    [found] = judge(text(site="hospital-b"))
    assert (found.slug, found.got, found.expected) == ("site_mismatch", "hospital-b", "hospital-a")


def test_a_base_version_that_does_not_exist_yet_is_refused() -> None:
    [found] = judge(text(base_version=10))
    assert (found.slug, found.got, found.expected) == ("base_version_unknown", 10, 9)


def test_a_used_base_version_cannot_be_handed_in_again() -> None:
    for base in (7, 6):
        [found] = judge(text(base_version=base))
        assert (found.slug, found.got, found.expected) == ("duplicate_submission", base, 8)


def test_a_site_that_was_never_used_may_start_at_zero() -> None:
    assert judge(text(base_version=0), main=known(current=0, consumed={"hospital-b": 7})) == []


def test_a_base_version_never_goes_back() -> None:
    [found] = judge(text(), main=known(own=record(base_version=9, sha256="d" * 64)))
    assert (found.slug, found.got, found.expected) == ("duplicate_submission", 8, 9)


def test_the_same_base_version_again_follows_the_policy() -> None:
    main = known(own=record(sha256="d" * 64))
    assert judge(text(), main=main, rules=policy(resubmit="supersede")) == []
    assert slugs(judge(text(), main=main, rules=policy(resubmit="reject"))) == ["duplicate_submission"]


def test_the_same_bytes_on_the_same_base_are_a_duplicate_even_so() -> None:
    [found] = judge(text(num_examples=9), main=known(own=record()))
    assert (found.slug, found.detail) == ("duplicate_submission", {"field": "sha256", "site": "hospital-a"})


def test_a_newer_base_follows_an_older_record() -> None:
    assert judge(text(), main=known(own=record(base_version=7, sha256="d" * 64)), rules=policy(resubmit="reject")) == []


def test_bytes_of_another_site_are_refused() -> None:
    [found] = judge(text(), main=known(taken={SHA: "hospital-b"}))
    assert (found.slug, found.detail) == ("duplicate_submission", {"field": "sha256", "site": "hospital-b"})
    assert judge(text(), main=known(taken={SHA: "hospital-a", "d" * 64: "hospital-b"})) == []


def test_staleness_counts_versions_up_to_the_limit() -> None:
    main = known(current=13, consumed={})
    assert judge(text(base_version=8), main=main) == []
    [found] = judge(text(base_version=7), main=main)
    assert (found.slug, found.got, found.expected) == ("too_stale", 6, 5)
    assert judge(text(base_version=0), main=known(current=13, consumed={}, staleness_max=None)) == []


def test_num_examples_has_a_maximum() -> None:
    assert judge(text(num_examples=10_000_000)) == []
    assert slugs(judge(text(num_examples=10**19))) == ["num_examples_invalid"]
    [found] = judge(text(num_examples=10_000_001))
    assert (found.slug, found.got, found.expected) == ("num_examples_invalid", 10_000_001, 10_000_000)


def test_metrics_are_those_that_the_policy_names() -> None:
    [found] = judge(text(metrics={"loss": 1.0, "patient": 7.0}))
    assert (found.slug, found.got, found.expected) == ("metrics_invalid", ["patient"], ["loss", "accuracy"])
    few = policy(metrics={"allowed": ["a", "b"], "max_count": 1})
    [found] = judge(text(metrics={"a": 1.0, "b": 1.0}), rules=few)
    assert (found.slug, found.got, found.expected) == ("metrics_invalid", 2, 1)


def test_the_payload_must_be_allowed() -> None:
    [found] = judge(text(payload="topk"))
    assert (found.slug, found.got, found.expected) == ("payload_refused", "topk", ["full"])


def test_the_format_is_that_of_the_federation() -> None:
    [found] = judge(text(format="opaque"))
    assert (found.slug, found.got, found.expected) == ("metadata_schema", "opaque", "safetensors")
    pointer = POINTER.replace(b"update.safetensors", b"update.bin")
    assert judge(text(format="opaque"), pointer, extension="bin") == []


def test_the_digest_of_the_base_must_be_right_where_it_is_known() -> None:
    [found] = judge(text(base_sha256="9" * 64))
    assert (found.slug, found.detail, found.expected) == ("hash_mismatch", {"field": "base_sha256"}, "8" * 64)
    assert judge(text(base_sha256="9" * 64), main=known(models={})) == []


def test_the_pointer_is_compared_byte_for_byte() -> None:
    for bad in (
        b"",
        POINTER + b"\n",
        POINTER.replace(b"size: 160", b"size: 161"),
        POINTER.replace(b"sites-", b"evil-"),
    ):
        [found] = judge(text(), bad)
        assert (found.slug, found.got) == ("dvc_schema", "other bytes")
        assert found.where == "sites/hospital-a/update.safetensors.dvc"


def test_a_pointer_with_windows_line_ends_is_told_so() -> None:
    [found] = judge(text(), POINTER.replace(b"\n", b"\r\n"))
    assert (found.slug, found.got) == ("dvc_schema", "CRLF line ends")


def test_a_missing_pointer_is_told() -> None:
    [found] = judge(text(), None)
    assert (found.slug, found.where) == ("files_missing", "sites/hospital-a/update.safetensors.dvc")


def test_both_blobs_and_the_model_have_a_largest_size() -> None:
    small = policy(limits={"record_bytes": 10, "pointer_bytes": 10})
    assert slugs(judge(text(), rules=small)) == ["file_too_large", "file_too_large"]
    [found] = judge(text(), rules=policy(limits={"update_bytes": 159}))
    assert (found.slug, found.got, found.expected) == ("file_too_large", 160, 159)


def test_all_faults_against_main_are_told() -> None:
    found = judge(text(site="hospital-b", base_version=2, payload="int8", metrics={"x": 1.0}, num_examples=10**9))
    assert set(slugs(found)) == {
        "site_mismatch",
        "too_stale",
        "duplicate_submission",
        "payload_refused",
        "metrics_invalid",
        "num_examples_invalid",
    }


# ------------------------------------------------------------------ drafts


def draft(**changes: Any) -> Draft:
    return validate({"site": "hospital-a", "base_version": 4, "num_examples": 1} | changes, Draft, "draft")


def judge_draft(claim: Draft, **facts: Any) -> list[Finding]:
    given: dict[str, Any] = {"current": None, "versions": None, "staleness_max": None, "metric_names": None}
    return list(validate_draft(claim, "a.json", policy(), **(given | facts)))


def test_a_draft_is_judged_by_what_is_known() -> None:
    assert judge_draft(draft(base_version=99, metrics={"auc": 1.0})) == []
    assert slugs(judge_draft(draft(base_version=5), current=4)) == ["base_version_unknown"]
    [found] = judge_draft(draft(base_version=3), current=7, versions={4, 7})
    assert (found.slug, found.got, found.expected) == ("base_version_unknown", 3, [4, 7])
    [found] = judge_draft(draft(base_version=4), current=10, versions={4, 10}, staleness_max=5)
    assert (found.slug, found.got, found.expected) == ("too_stale", 6, 5)
    assert slugs(judge_draft(draft(metrics={"auc": 1.0}), metric_names=("loss",))) == ["metrics_invalid"]
