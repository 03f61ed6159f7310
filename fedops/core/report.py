"""What people are told about a pull request, a signal or a version, as data; `render/` turns it into text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedops.core.facts import Marker, Verdict
from fedops.core.findings import Finding, errors
from fedops.core.ids import Digest, SiteId
from fedops.core.records import Record, VersionRecord

Stage = Literal["change", "record", "artifact", "model"]
STAGES: tuple[Stage, ...] = ("change", "record", "artifact", "model")
Result = Literal["passed", "warning", "failed", "not run"]

# Stage -> (name of the check, what it means that it passed).
_SAYS: Mapping[Stage, tuple[str, str]] = {
    "change": ("Paths and identity", "one commit, the site's own files only, handed in by the site"),
    "record": ("Record and pointer", "complete and within the policy; the pointer belongs to the record"),
    "artifact": ("Stored artifact", "fetched by digest; one plain layer that says what the record says"),
    "model": ("Model", "names, shapes and dtypes of its base version; all values finite"),
}


@dataclass(frozen=True)
class Check:
    """One row of a report: a stage of validation and how it went."""

    name: str
    result: Result
    detail: str  # from the catalogue or from here; never text of a site


@dataclass(frozen=True)
class PullReport:
    """What the sticky comment of a pull request says.

    Attributes:
        site: None if the author belongs to no site.
        record: as handed in, if it could be parsed: **text of a site**.
        current: number of the current version, which the submission is compared with.
        metrics: of the current version, by name.
        note: for a pending verdict, what it waits for.
        next_step: what to do now, in words; trusted Markdown.
        delta_norm: L2 of the whole difference to the base, if it was computed and may be shown.
    """

    verdict: Verdict
    site: SiteId | None
    record: Record | None
    current: int
    metrics: Mapping[str, float]
    checks: tuple[Check, ...]
    note: str
    next_step: str
    delta_norm: float | None = None


@dataclass(frozen=True)
class SignalReport:
    """What a signal issue tells one site; a hint, since the site acts on version.json of main alone.

    Attributes:
        model: digest of the global model's bytes.
        size: of the global model, bytes.
        logins: accounts of the site, from the roster, to be notified.
        reason: why the site must hand in again, if what it handed in was not used.
        markers: hidden lines for the end of the issue; the last is the one by which it is found.
    """

    site: SiteId
    version: int
    model: Digest
    size: int
    metrics: Mapping[str, float]
    logins: tuple[str, ...]
    reason: Finding | None
    markers: tuple[Marker, ...]


def stage_of(finding: Finding) -> Stage:
    """The stage of validation to which a finding belongs, by its number."""
    number = int(finding.id.removeprefix("FO-"))
    if number in (205, 206, 207) or 252 <= number < 260 or number >= 500:
        return "artifact"
    if 201 <= number < 220 or number == 229:
        return "model"
    return "record" if 220 <= number < 230 or number in (250, 251) else "change"


def checks(findings: Sequence[Finding], ran: Collection[Stage], *, opaque: bool = False) -> tuple[Check, ...]:
    """One row for each stage, in order.

    Args:
        ran: stages that were judged; a stage after a failed one never is.
        opaque: the model is never opened.
    """
    rows: list[Check] = []
    for stage in STAGES:
        name, good = _SAYS[stage]
        here = [f for f in findings if stage_of(f) == stage]
        failed = errors(here)
        slugs = ", ".join(dict.fromkeys(f.slug for f in failed or here))
        if failed:
            rows.append(Check(name, "failed", slugs))
        elif stage not in ran or any(r.result == "failed" for r in rows):
            rows.append(Check(name, "not run", ""))
        elif stage == "model" and opaque:
            rows.append(Check(name, "not run", "opaque: never opened by fedops"))
        else:
            rows.append(Check(name, "warning" if here else "passed", slugs or good))
    return tuple(rows)


_NEXT = {
    "accepted": "nothing to do; the next run merges exactly this commit.",
    "rejected": "correct what the findings say, then run `fedops submit` again; "
    "`fedops check FILE` says the same before a pull request.",
    "pending": "nothing to do at the site; it is looked at again on every run.",
    "not_a_submission": "it touches nothing below `sites/`: people review it like any other change.",
}


def pull_report(
    site: SiteId | None,
    record: Record | None,
    verdict: Verdict,
    version: VersionRecord,
    *,
    note: str = "",
    ran: Collection[Stage] | None = None,
    next_step: str = "",
    delta_norm: float | None = None,
) -> PullReport:
    """Collect what a person needs to judge one submission.

    Args:
        version: the current version.
        note: for a pending verdict, what it waits for.
        ran: stages that were judged. Default: all, or none while the verdict is pending.
        next_step: trusted Markdown; default: by the verdict's state.
    """
    if ran is None:
        ran = STAGES if verdict.state in ("accepted", "rejected") else ()
    opaque = record is not None and record.format == "opaque"
    return PullReport(
        verdict=verdict,
        site=site,
        record=record,
        current=version.version,
        metrics=dict(version.metrics),
        checks=checks(verdict.findings, ran, opaque=opaque) if ran or verdict.findings else (),
        note=note,
        next_step=next_step or _NEXT[verdict.state],
        delta_norm=delta_norm,
    )
