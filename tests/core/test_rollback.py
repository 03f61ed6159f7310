"""A rollback's record: the model of one version, everything else of the current one."""

from __future__ import annotations

import pytest

from fedops.core.ids import Digest
from fedops.core.records import Carried, Source, Unavailable, Witness
from fedops.core.rollback import rollback_record
from tests.core.samples import blob, hex64, submission, version

POLICY = Digest("sha256:" + hex64("rules of now"))
WITNESS = Witness(
    input_commit=blob("tip"), decided_at="2026-03-02T10:00:00Z", trigger="?", software={"fedops": "0.1.0"}
)


def test_the_model_and_its_metrics_are_the_source_s_and_all_state_is_the_current_version_s() -> None:
    carried = Carried(optimizer={"m": "x"}, privacy={"epsilon": 1.5}, counters={"steps": 7})
    current = version(9, consumed={"a": 8, "b": 6}, metrics={"loss": 9.0}).model_copy(update={"carried": carried})
    source = version(4, metrics={"loss": 0.25})
    made = rollback_record(current, source, policy=POLICY, max_version=None, witness=WITNESS)
    assert (made.version, made.base_version, made.kind, made.source) == (10, 9, "rollback", Source(version=4))
    assert (made.model, made.metrics) == (source.model, {"loss": 0.25})
    assert (made.consumed, made.carried) == ({"a": 8, "b": 6}, carried)
    assert (made.rule, made.denominator, made.contributions, made.excluded) == (None, None, (), ())
    assert made.policy == POLICY


def test_the_witness_says_rollback_and_nothing_of_submissions() -> None:
    lost = Unavailable(site="a", record_blob=submission("a").record_blob, slug="object_missing")
    witness = WITNESS.model_copy(update={"unavailable": (lost,)})
    made = rollback_record(version(9), version(4), policy=POLICY, max_version=None, witness=witness)
    assert made.witness == WITNESS.model_copy(update={"trigger": "rollback"})


@pytest.mark.parametrize(
    ("status", "last", "expected"),
    [
        ("running", None, "running"),
        ("running", 11, "running"),
        ("running", 10, "final"),
        ("running", 3, "final"),
        ("final", None, "final"),
        ("final", 99, "final"),
    ],
)
def test_a_federation_that_is_at_its_end_stays_there(status: str, last: int | None, expected: str) -> None:
    current = version(9).model_copy(update={"status": status})
    made = rollback_record(current, version(4), policy=POLICY, max_version=last, witness=WITNESS)
    assert made.status == expected
