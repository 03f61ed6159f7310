from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.documents import load_json_document
from fedops.core.facts import Account
from fedops.core.ids import CommitId, Digest, RepoPath, SiteId
from fedops.core.plan import is_merge_message, merge_message, parse_trailers, plan_version, reason_in, version_title
from fedops.core.records import VersionRecord, model_pointer, render_pointer
from tests.core.samples import contribution, hex64, minutes, submission, version

PARENT = CommitId("c" * 40)
POLICY = Digest("sha256:" + hex64("policy"))
RECORD = version(
    9,
    contributions=[contribution(submission(s)) for s in ("clinic-c", "hospital-a", "hospital-b")],
    consumed={"clinic-c": 8, "hospital-a": 8, "hospital-b": 8},
    metrics={"loss": 0.25, "accuracy": 0.5},
)


def test_a_version_writes_record_pointer_and_flat_metrics() -> None:
    step = plan_version(RECORD, model_pointer(RECORD, "safetensors"), PARENT, extension="safetensors", at=minutes(0))
    assert sorted(step.files) == ["global/metrics.json", "global/model.safetensors.dvc", "global/version.json"]
    stored = step.files[RepoPath("global/version.json")]
    assert load_json_document(stored, VersionRecord, "global/version.json") == RECORD
    assert json.loads(step.files[RepoPath("global/metrics.json")]) == {"accuracy": 0.5, "loss": 0.25}
    pointer = render_pointer(model_pointer(RECORD, "safetensors"))
    assert step.files[RepoPath("global/model.safetensors.dvc")] == pointer
    assert (step.version, step.parent, step.at) == (9, PARENT, minutes(0))


def test_the_commit_and_the_tag_say_what_they_bind() -> None:
    step = plan_version(RECORD, model_pointer(RECORD, "safetensors"), PARENT, extension="safetensors", at=minutes(0))
    assert step.commit_message == (
        f"global: v9 (fedavg, 3 sites)\n\nFedops-Version: 9\nFedops-Policy: {RECORD.policy}\nFedops-Inputs: 3\n"
    )
    digest = hashlib.sha256(step.files[RepoPath("global/version.json")]).hexdigest()
    assert step.tag == "global@v9.0.0"
    assert step.tag_message == (
        f"global: v9\n\nFedops-Record: sha256:{digest}\nFedops-Model: sha256:{hex64('model v9')}\n"
    )


def test_a_rollback_says_why_and_a_merge_says_what_it_merged() -> None:
    record = version(9, kind="rollback", source=7)
    pointer = model_pointer(record, "safetensors")
    at = minutes(0)
    step = plan_version(
        record, pointer, PARENT, extension="safetensors", at=at, reason="it forgets", trailers={"Fedops-Pull": 12}
    )
    assert step.commit_message == (
        "global: v9 (rollback to v7)\n\nit forgets\n\n"
        f"Fedops-Version: 9\nFedops-Policy: {record.policy}\nFedops-Inputs: 0\nFedops-Pull: 12\n"
    )
    assert reason_in(step.commit_message) == "it forgets"
    assert parse_trailers(step.commit_message)["Fedops-Pull"] == "12"


@pytest.mark.parametrize(
    "message", ["", "global: v9", "a\n\nFedops-Version: 9\n", "a\n\nb\nc\n\nd: e", "a\n\nb\n\nc\n\nd"]
)
def test_other_messages_give_no_reason(message: str) -> None:
    assert reason_in(message) == ""


def test_one_changed_byte_of_the_record_changes_the_tag_message() -> None:
    other = RECORD.model_copy(update={"metrics": {"loss": 0.26}})
    steps = [
        plan_version(r, model_pointer(r, "safetensors"), PARENT, extension="safetensors", at=minutes(0))
        for r in (RECORD, other)
    ]
    assert steps[0].tag_message != steps[1].tag_message


def test_no_metrics_write_an_empty_map() -> None:
    record = version(0, kind="init")
    step = plan_version(record, model_pointer(record, "bin"), PARENT, extension="bin", at=minutes(0))
    assert step.files[RepoPath("global/metrics.json")] == b"{}\n"
    assert RepoPath("global/model.bin.dvc") in step.files


def test_a_pointer_of_other_bytes_is_a_bug_of_the_caller() -> None:
    other = dataclasses.replace(model_pointer(RECORD, "safetensors"), md5="0" * 32)
    with pytest.raises(AssertionError):
        plan_version(RECORD, other, PARENT, extension="safetensors", at=minutes(0))


@pytest.mark.parametrize(
    ("record", "title"),
    [
        (version(0, kind="init"), "global: v0 (init)"),
        (version(9, kind="rollback", source=7), "global: v9 (rollback to v7)"),
        (version(9, kind="revert", source=8), "global: v9 (revert of v8)"),
        (version(9, contributions=[contribution(submission("a"))]), "global: v9 (fedavg, 1 site)"),
        (RECORD, "global: v9 (fedavg, 3 sites)"),
    ],
)
def test_subjects_name_what_kind_of_version_it_is(record: VersionRecord, title: str) -> None:
    assert version_title(record) == title


def test_a_merge_says_who_handed_in_which_commit_under_which_rules() -> None:
    head = CommitId("ab" * 20)
    message = merge_message(SiteId("hospital-a"), 8, 12, Account("alice\nFedops-Site: evil", 1001), head, POLICY)
    assert message == (
        "merge(hospital-a): update on v8 (#12)\n"
        "\n"
        "Fedops-Site: hospital-a\n"
        "Fedops-Author: 1001\n"
        f"Fedops-Head: {head}\n"
        f"Fedops-Policy: {POLICY}\n"
    )
    assert parse_trailers(message) == {
        "Fedops-Site": "hospital-a",
        "Fedops-Author": "1001",
        "Fedops-Head": head,
        "Fedops-Policy": POLICY,
    }


def test_a_message_is_a_merges_for_its_own_site_and_head_alone() -> None:
    head, other = CommitId("ab" * 20), CommitId("cd" * 20)
    message = merge_message(SiteId("hospital-a"), 8, 12, Account("alice", 1001), head, POLICY)
    assert is_merge_message(message, "hospital-a", head)
    assert not is_merge_message(message, "hospital-b", head)
    assert not is_merge_message(message, "hospital-a", other)
    assert not is_merge_message(message, "hospital-a", None)
    for key in ("Site", "Author", "Head", "Policy"):
        cut = "".join(line for line in message.splitlines(keepends=True) if not line.startswith(f"Fedops-{key}:"))
        assert not is_merge_message(cut, "hospital-a", head)
    assert not is_merge_message("Merge by hand", "hospital-a", None)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "global: v9",  # a subject alone looks like a trailer
        "subject\n\nFedops-Version: 9\nand then prose\n",
        "subject\n\nFedops-Version: 9\n\nA last paragraph.\n",
        "subject\n\nFedops-Version:9\n",
        "subject\n\n 1x: y\n",
    ],
)
def test_anything_else_has_no_trailers(message: str) -> None:
    assert parse_trailers(message) == {}


def test_only_the_last_paragraph_counts_and_windows_line_ends_are_read() -> None:
    message = "subject\r\n\r\nFedops-Version: 1\r\n\r\nFedops-Version: 9\r\nSigned-off-by: A: B\r\n"
    assert parse_trailers(message) == {"Fedops-Version": "9", "Signed-off-by": "A: B"}


def test_a_key_that_says_two_things_says_nothing() -> None:
    assert parse_trailers("s\n\nFedops-Site: a\nFedops-Site: b\nFedops-Author: 1\n") == {"Fedops-Author": "1"}


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 10**9))
def test_trailers_read_back_what_a_merge_wrote(base: int, number: int, author: int) -> None:
    message = merge_message(SiteId("a"), base, number, Account("x", author), CommitId("0" * 40), POLICY)
    assert parse_trailers(message)["Fedops-Author"] == str(author)
    assert message.splitlines()[0] == f"merge(a): update on v{base} (#{number})"
