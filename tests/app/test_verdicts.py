"""Verdicts between jobs: what goes in comes out, and nothing that a site does makes them too large."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedops.app.inspect import Judgement
from fedops.app.verdicts import MAX_OUTPUT_BYTES, dump_verdicts, fitted, load_verdicts
from fedops.core.catalogue import SLUGS
from fedops.core.errors import ConfigError
from fedops.core.facts import Account, Pull, Verdict, VerdictState
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import CommitId, Digest
from tests.core.samples import minutes

POLICY = Digest("sha256:" + "0" * 64)


def pull(number: int) -> Pull:
    head = CommitId(f"{number:040x}")
    return Pull(number, True, Account("a", 1), head, "submit/a", "title", "open", minutes(0))


def judged(number: int, state: VerdictState, *findings: Finding, note: str = "") -> Judgement:
    one = pull(number)
    return Judgement(one, Verdict(one.head, POLICY, CommitId("1" * 40), state, findings), note=note)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FINDINGS = st.builds(
    lambda slug, where, got, expected, detail: finding(slug, where, got=got, expected=expected, detail=detail),
    st.sampled_from(SLUGS), TEXTS, JSON, JSON, st.none() | st.dictionaries(TEXTS, JSON, max_size=3),
)  # fmt: skip
JUDGED = st.builds(
    # Nothing with errors is ever accepted, and what says so is refused (below).
    lambda number, state, findings, note: judged(
        number, "rejected" if state == "accepted" and errors(findings) else state, *findings, note=note
    ),
    st.integers(1, 5),
    st.sampled_from(("accepted", "rejected", "pending", "not_a_submission")),
    st.lists(FINDINGS, max_size=3),
    TEXTS,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(JUDGED, max_size=4, unique_by=lambda j: j.pull.number))
def test_what_one_job_says_the_next_one_hears(said: list[Judgement]) -> None:
    data = json.dumps(dump_verdicts(said)).encode()
    heard = load_verdicts(data, [j.pull for j in said])
    assert list(heard) == said
    assert json.dumps(fitted(dump_verdicts(said))).encode() == data  # small ones are left as they are
    assert load_verdicts(data, []) == ()


def test_text_that_is_not_unicode_passes() -> None:
    data = json.dumps(dump_verdicts([judged(1, "pending", note="a\udcff")])).encode()
    assert load_verdicts(data, [pull(1)])[0].note == "a\\udcff"


def test_an_unknown_slug_of_a_later_release_is_still_a_finding() -> None:
    value = dump_verdicts([judged(1, "rejected", finding("non_finite", "x"))])
    value["verdicts"][0]["findings"][0] |= {"slug": "from_the_future", "severity": "warning"}
    (heard,) = load_verdicts(json.dumps(value).encode(), [pull(1)])
    assert [f.slug for f in heard.verdict.findings] == ["record_unreadable"]


def test_a_verdict_that_accepts_errors_is_refused() -> None:
    said = judged(1, "accepted", finding("non_finite", "sites/a"))
    with pytest.raises(ConfigError, match="accepted with errors"):
        load_verdicts(json.dumps(dump_verdicts([said])).encode(), [said.pull])


def test_two_verdicts_on_one_head_are_a_fault() -> None:
    value = dump_verdicts([judged(1, "accepted"), judged(1, "rejected")])
    with pytest.raises(ConfigError, match="two for one head"):
        load_verdicts(json.dumps(value).encode(), [pull(1)])


def shapes(count: int, width: int = 10) -> list[Finding]:
    return [
        finding("shape_mismatch", "update.safetensors", got=[i], expected=[2], detail={"tensor": "w" * width})
        for i in range(count)
    ]


def sizes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def test_ten_thousand_findings_of_one_site_leave_room_for_the_others() -> None:
    said = [judged(n, "rejected", *shapes(10_000)) for n in range(1, 20)] + [judged(99, "accepted")]
    value = fitted(dump_verdicts(said))
    assert sizes(value) < MAX_OUTPUT_BYTES + 100
    heard = load_verdicts(json.dumps(value).encode(), [j.pull for j in said])
    assert [j.pull.number for j in heard] == [j.pull.number for j in said]
    assert all(10 < len(j.verdict.findings) < 100 for j in heard[:-1])
    assert [j.verdict.state for j in heard] == ["rejected"] * 19 + ["accepted"]


def test_one_huge_finding_is_told_without_its_values() -> None:
    huge = finding("missing_keys", "w" * 9000, got="g" * 9000, detail={"keys": ["k" * 9000]})
    (heard,) = load_verdicts(
        json.dumps(fitted(dump_verdicts([judged(1, "rejected", huge, note="n" * 9000)]))).encode(), [pull(1)]
    )
    assert heard.verdict.findings == (finding("missing_keys", "w" * 200),)
    assert len(heard.note) == 1000


def test_of_very_many_pull_requests_the_accepted_ones_come_first() -> None:
    said = [judged(n, "rejected", *shapes(100)) for n in range(1, 400)] + [
        judged(n, "accepted") for n in range(400, 410)
    ]
    value = fitted(dump_verdicts(said))
    assert sizes(value) < MAX_OUTPUT_BYTES + 100
    numbers = [v["pull"] for v in value["verdicts"]]
    assert numbers[-10:] == list(range(400, 410))
    assert numbers[:-10] == list(range(1, len(numbers) - 9))
    assert len(numbers) > 20


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b'{"schema": "fedops.verdicts/v1"}'])
def test_what_inspect_did_not_write_is_a_fault_with_a_hint(text: bytes) -> None:
    with pytest.raises(ConfigError) as e:
        load_verdicts(text, [pull(1)])
    assert e.value.message.startswith("verdicts: ")
    assert "ci inspect" in e.value.hint
