"""The version that takes the model back to an earlier one: what its record says, for who makes it and who checks it."""

from __future__ import annotations

from fedops.core.ids import Digest
from fedops.core.records import Carried, Source, VersionRecord, Witness

TRIGGER = "rollback"


def rollback_record(
    current: VersionRecord, source: VersionRecord, *, policy: Digest, max_version: int | None, witness: Witness
) -> VersionRecord:
    """The record of the next version, whose model and metrics are those of an earlier one.

    The model entry is the source's to the last digit, manifest digest included: no byte is made, stored or changed.
    What was used up stays used up, and so does every carried state: a rollback is no way to hand in or to spend twice.
    A federation that is at its end stays there.

    Args:
        source: a version before the current one.
        policy: digest of the rules at the witness's input_commit.
        max_version: of the same rules.
    """
    number = current.version + 1
    is_last = current.status == "final" or (max_version is not None and number >= max_version)
    return VersionRecord(
        version=number,
        base_version=current.version,
        kind="rollback",
        source=Source(version=source.version),
        status="final" if is_last else "running",
        model=source.model,
        rule=None,
        policy=policy,
        denominator=None,
        contributions=(),
        excluded=(),
        consumed=dict(current.consumed),
        carried=Carried(
            optimizer=current.carried.optimizer, privacy=current.carried.privacy, counters=current.carried.counters
        ),
        metrics=dict(source.metrics),
        witness=witness.model_copy(update={"trigger": TRIGGER, "unavailable": ()}),
    )
