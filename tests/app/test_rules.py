"""What is said of a policy whose strategy cannot be used as it is written: the line, and what will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedops.app.check_policy import check_policy
from fedops.app.rules import refuse_rules_as_written, refuse_unavailable_rules
from fedops.core.documents import load_document
from fedops.core.errors import MainFileError
from fedops.core.policy import trigger_of
from fedops.core.settings import Aggregation

HEAD = "schema: fedops.aggregation/v1\nmerge: {mode: auto, approvals: 1}\n"


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("trigger: {quorum: 4}\nstrategy: {name: krum, f: 1}", "3: trigger.quorum: 4 -> 5, as strategy krum f 1 needs"),
        (
            "strategy:\n  name: krum\n  f: 2\ntrigger:\n  quorum: 6",
            "7: trigger.quorum: 6 -> 7, as strategy krum f 2 needs",
        ),
        ("strategy: {name: krum, f: 1}", " trigger.quorum: 3 -> 5, as strategy krum f 1 needs"),
        (
            "strategy: {name: trimmed_mean, beta: '0.5'}",
            "3: strategy trimmed_mean: beta 0.5 leaves nothing of some numbers of updates -> less",
        ),
        ("strategy: {name: krum, f: -1}", "3: strategy krum: f: -1 -> a whole number from 0 on"),
        ("strategy: {name: median, f: 1}", "3: strategy median: parameters ['f'] -> none"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, rules: str, says: str) -> None:
    path = tmp_path / "aggregation.yaml"
    path.write_text(HEAD + rules)
    policy = load_document(path.read_bytes(), Aggregation, "a.yaml")
    with pytest.raises(MainFileError) as raised:
        refuse_rules_as_written(policy, path.read_bytes(), "a.yaml")
    assert raised.value.message == f"a.yaml:{says}"
    [found] = check_policy(path).findings
    assert (found.slug, found.got) == ("policy_invalid", f"{path}:{says}")


@pytest.mark.parametrize(
    "rules",
    [
        "trigger: {quorum: 5}\nstrategy: {name: krum, f: 1}",
        "trigger: {quorum: 1}\nstrategy: {name: median}",
        "trigger: {quorum: 1}\nstrategy: {name: trimmed_mean, beta: 0.49}",
        "trigger: {quorum: 1}",
    ],
)
def test_a_policy_that_can_be_used_is_not(tmp_path: Path, rules: str) -> None:
    path = tmp_path / "aggregation.yaml"
    path.write_text(HEAD + rules)
    refuse_rules_as_written(load_document(path.read_bytes(), Aggregation, "a.yaml"), path.read_bytes())
    assert check_policy(path).findings == ()


def test_ci_goes_on_with_a_quorum_that_it_has_raised() -> None:
    text = (HEAD + "trigger: {quorum: 3}\nstrategy: {name: krum, f: 1}").encode()
    policy = load_document(text, Aggregation, "a.yaml")
    refuse_unavailable_rules(policy, text)
    assert trigger_of(policy).quorum == 2 * 1 + 3
