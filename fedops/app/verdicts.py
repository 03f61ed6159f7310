"""Verdicts on their way from the job that reads tensors to the job that merges."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from fedops.app.inspect import Judgement
from fedops.app.stored_findings import StoredFinding
from fedops.app.verdict_cache import BytesKey, BytesVerdict
from fedops.core.documents import Document, Json, load_json_document
from fedops.core.errors import ConfigError
from fedops.core.facts import Pull, Verdict, VerdictState
from fedops.core.findings import as_json, errors
from fedops.core.ids import CommitId, Digest
from fedops.core.records import DigestText, Hex40, Hex64
from fedops.core.settings import Natural, Positive

SCHEMA = "fedops.verdicts/v1"
MAX_BYTES = 16_000_000
# NOTE: Linux starts no process with a single argument or variable of 128 KiB; a job output may have 1 MB.
MAX_OUTPUT_BYTES = 100_000
MAX_FINDINGS_BYTES = 4_000  # of one verdict
_HINT = "pass output `verdicts` of `fedops ci inspect`, or a file of `fedops ci inspect --format json`"


class _Bytes(Document):
    """What the bytes alone say: the findings from this one on, by this base; None in a verdict: they were not read."""

    base_sha256: Hex64
    fedops: str
    findings_from: Natural


class _Verdict(Document):
    pull: Positive
    head: Hex40
    policy: DigestText
    main: Hex40
    state: VerdictState
    findings: tuple[StoredFinding, ...]
    note: str
    bytes: _Bytes | None = None


class _Verdicts(Document):
    """The verdicts alone, or in the frame that every `--format json` result has."""

    schema_: Literal["fedops.verdicts/v1"] = Field(alias="schema")
    ok: bool | None = None
    changed: bool | None = None
    findings: tuple[StoredFinding, ...] = ()
    verdicts: tuple[_Verdict, ...]


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
                "note": _encodable(j.note),
                "bytes": _bytes_part(j),
            }
            for j in judged
        ],
    }


def _bytes_part(judged: Judgement) -> Json:
    if judged.reached is None:
        return None
    key, count = judged.reached.key, len(judged.verdict.findings) - len(judged.reached.findings)
    return {"base_sha256": key.base_sha256, "fedops": key.fedops, "findings_from": count}


def fitted(verdicts: Json) -> Json:
    """As much of dump_verdicts' value as fits into one job output and one environment variable.

    Each verdict keeps the findings that fit, accepted ones go before others; a pull request that is left out is judged
    again by the next run, and no site can take up the room of the others.
    """
    cut = [_cut(one) for one in verdicts["verdicts"]]
    kept: set[int] = set()
    room = MAX_OUTPUT_BYTES
    for one in sorted(cut, key=lambda v: v["state"] != "accepted"):
        size = _size(one)
        if size <= room:
            room -= size
            kept.add(one["pull"])
    return verdicts | {"verdicts": [one for one in cut if one["pull"] in kept]}


def _cut(verdict: Json) -> Json:
    findings: list[Json] = []
    room = MAX_FINDINGS_BYTES
    for one in verdict["findings"]:
        size = _size(one)
        if size > room and not findings:
            # Never none at all: the reason must reach the site, if not every detail of it.
            findings.append(one | {"where": one["where"][:200], "got": None, "expected": None, "detail": None})
        if size > room:
            break
        room -= size
        findings.append(one)
    return verdict | {"findings": findings, "note": verdict["note"][:1000]}


def _size(value: Json) -> int:
    return len(json.dumps(value, separators=(",", ":"))) + 1


def load_verdicts(data: bytes, pulls: Sequence[Pull]) -> tuple[Judgement, ...]:
    """Verdicts of the open pull requests whose head is still the one that was judged.

    Raises:
        ConfigError: the text is not what dump_verdicts wrote.
    """
    try:
        stored = load_json_document(data, _Verdicts, "verdicts", max_bytes=MAX_BYTES)
    except ConfigError as e:
        raise ConfigError(e.message, hint=_HINT) from e
    by_head = {(one.pull, one.head): one for one in stored.verdicts}
    if len(by_head) < len(stored.verdicts):
        raise ConfigError("verdicts: two for one head", hint=_HINT)
    return tuple(
        Judgement(pull, _verdict(one), note=one.note, reached=_reached(one))
        for pull in pulls
        if (one := by_head.get((pull.number, pull.head))) is not None
    )


def _verdict(one: _Verdict) -> Verdict:
    findings = tuple(f.finding for f in one.findings)
    if one.state == "accepted" and errors(findings):
        raise ConfigError(f"verdicts: pull {one.pull} is accepted with errors", hint=_HINT)
    return Verdict(CommitId(one.head), Digest(one.policy), CommitId(one.main), one.state, findings)


def _reached(one: _Verdict) -> BytesVerdict | None:
    """What is to be remembered of the bytes; None where not all of it came through: nothing may look better than it is."""
    if one.bytes is None or one.state not in ("accepted", "rejected"):
        return None
    stored = one.findings[one.bytes.findings_from :]
    findings = tuple(f.finding for f in stored)
    if not all(f.is_known for f in stored) or bool(errors(findings)) != (one.state == "rejected"):
        return None
    key = BytesKey(CommitId(one.head), one.bytes.base_sha256, Digest(one.policy), one.bytes.fedops)
    return BytesVerdict(key, findings)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
