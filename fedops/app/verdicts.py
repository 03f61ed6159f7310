"""Verdicts on their way from the job that reads tensors to the job that merges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedops.app.inspect import Judgement
from fedops.core.documents import BadJson, Json, parse_json
from fedops.core.errors import ConfigError
from fedops.core.facts import Pull, Verdict
from fedops.core.findings import Finding, as_json, finding, slug_of
from fedops.core.ids import CommitId, Digest

SCHEMA = "fedops.verdicts/v1"
STATES = ("accepted", "rejected", "pending", "not_a_submission")


def dump_verdicts(judged: Iterable[Judgement]) -> Json:
    """The verdicts as a JSON value; inverse of load_verdicts for the same pull requests."""
    return {
        "schema": SCHEMA,
        "verdicts": [
            {
                "pull": j.pull.number,
                "head": j.verdict.head,
                "policy": j.verdict.policy,
                "main": j.verdict.main,
                "state": j.verdict.state,
                "findings": [as_json(f) for f in j.verdict.findings],
                "note": j.note,
            }
            for j in judged
        ],
    }


def load_verdicts(data: bytes, pulls: Sequence[Pull]) -> tuple[Judgement, ...]:
    """Verdicts of the open pull requests whose head is still the one that was judged.

    Raises:
        ConfigError: the text is not what dump_verdicts wrote.
    """
    try:
        value = parse_json(data, "verdicts")
        if value["schema"] != SCHEMA:
            raise ConfigError(f"verdicts: schema {value['schema']!r} -> {SCHEMA!r}")
        by_head = {(one["pull"], one["head"]): _verdict(one) for one in value["verdicts"]}
        notes = {one["pull"]: str(one["note"]) for one in value["verdicts"]}
    except (BadJson, KeyError, TypeError) as e:
        raise ConfigError(f"verdicts: {e}", hint="pass the output of `fedops ci inspect --format json`") from e
    return tuple(
        Judgement(pull, by_head[pull.number, pull.head], note=notes[pull.number])
        for pull in pulls
        if (pull.number, pull.head) in by_head
    )


def _verdict(one: Json) -> Verdict:
    if one["state"] not in STATES:
        raise ConfigError(f"verdicts: state {one['state']!r} -> one of {', '.join(STATES)}")
    return Verdict(
        CommitId(one["head"]),
        Digest(one["policy"]),
        CommitId(one["main"]),
        one["state"],
        tuple(_finding(f) for f in one["findings"]),
    )


def _finding(one: Json) -> Finding:
    return finding(slug_of(one["slug"]), one["where"], got=one["got"], expected=one["expected"], detail=one["detail"])
