"""What a version writes, and the messages that git keeps; the plan of the signals is in `signals.py`."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping

from fedops.core.documents import dump_json
from fedops.core.facts import Account
from fedops.core.ids import (
    METRICS_PATH,
    VERSION_PATH,
    CommitId,
    Digest,
    GlobalVersion,
    SiteId,
    digest_of_hex,
    model_pointer_path,
)
from fedops.core.records import Pointer, VersionRecord, model_pointer, render_pointer
from fedops.core.signals import marker_in, plan_signals
from fedops.core.steps import CloseSignal, Publish, Signal, Step

__all__ = [
    "CloseSignal",
    "Publish",
    "Signal",
    "Step",
    "marker_in",
    "is_merge_message",
    "merge_message",
    "parse_trailers",
    "plan_signals",
    "plan_version",
    "reason_in",
    "version_title",
]

_TRAILER = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (.*)\Z")


def _message(subject: str, trailers: Mapping[str, object], body: str = "") -> str:
    lines = "".join(f"{key}: {value}\n" for key, value in trailers.items())
    return "\n\n".join(part for part in (subject, body, lines) if part)


def parse_trailers(message: str) -> Mapping[str, str]:
    """The `Key: value` lines of a message's last paragraph; inverse of what the messages here end with.

    Empty unless there is a paragraph before it and all of its lines are trailers. A key that stands there twice says
    two things, and is left out.
    """
    paragraphs = re.split(r"\n\s*\n", message.replace("\r\n", "\n").strip())
    matches = [_TRAILER.match(line) for line in paragraphs[-1].split("\n")]
    if len(paragraphs) < 2 or not all(matches):
        return {}
    pairs = [(m[1], m[2].strip()) for m in matches if m is not None]
    keys = [key for key, _ in pairs]
    return {key: value for key, value in pairs if keys.count(key) == 1}


def reason_in(message: str) -> str:
    """The reason that a version's commit message gives, one line; empty if it gives none."""
    paragraphs = message.strip().split("\n\n")
    return paragraphs[1] if len(paragraphs) == 3 and "\n" not in paragraphs[1] else ""


def merge_message(
    site: SiteId, base_version: int, number: int, author: Account, head: CommitId, policy_digest: Digest
) -> str:
    """Message of the merge commit that brings a submission: `merge(hospital-a): update on v8 (#12)` and trailers."""
    return _message(
        f"merge({site}): update on {GlobalVersion(base_version).short} (#{number})",
        {"Fedops-Site": site, "Fedops-Author": author.id, "Fedops-Head": head, "Fedops-Policy": policy_digest},
    )


def is_merge_message(message: str, site: str, head: CommitId | None) -> bool:
    """True if a commit's message says, as `merge_message` writes it, that CI merged this head of this site.

    Args:
        head: the commit's second parent; None: it has none.
    """
    said = parse_trailers(message)
    signed_off = {"Fedops-Author", "Fedops-Policy"} <= said.keys()
    return signed_off and (said.get("Fedops-Site"), said.get("Fedops-Head")) == (site, head)


def version_title(record: VersionRecord) -> str:
    """Subject of a version's commit: `global: v9 (fedavg, 3 sites)`."""
    source = (
        "" if record.source is None or record.source.version is None else GlobalVersion(record.source.version).short
    )
    sites = len(record.contributions)
    what = {
        "init": "init",
        "aggregate": f"{record.rule.strategy.name if record.rule else ''}, {sites} site{'' if sites == 1 else 's'}",
        "rollback": f"rollback to {source}",
        "revert": f"revert of {source}",
    }[record.kind]
    return f"{_title(record)} ({what})"


def _title(record: VersionRecord) -> str:
    return f"global: {GlobalVersion(record.version).short}"


def plan_version(
    record: VersionRecord,
    pointer: Pointer,
    parent: CommitId,
    *,
    extension: str,
    at: dt.datetime,
    reason: str = "",
    trailers: Mapping[str, object] | None = None,
) -> Publish:
    """The commit and tag of one version.

    Args:
        pointer: the one that the record implies.
        parent: the tip of main.
        extension: of the federation's model files.
        at: date of commit and tag.
        reason: of a rollback, one line for the commit's message.
        trailers: more lines at the message's end.
    """
    assert pointer == model_pointer(record, extension), (pointer, record.model)
    stored = dump_json(record)
    return Publish(
        version=record.version,
        parent=parent,
        files={
            VERSION_PATH: stored,
            model_pointer_path(extension): render_pointer(pointer),
            METRICS_PATH: dump_json(record.metrics),
        },
        commit_message=_message(
            version_title(record),
            {
                "Fedops-Version": record.version,
                "Fedops-Policy": record.policy,
                "Fedops-Inputs": len(record.contributions),
                **(trailers or {}),
            },
            reason,
        ),
        tag=GlobalVersion(record.version).tag,
        tag_message=_message(
            _title(record),
            {
                "Fedops-Record": digest_of_hex(hashlib.sha256(stored).hexdigest()),
                "Fedops-Model": digest_of_hex(record.model.sha256),
            },
        ),
        at=at,
    )
