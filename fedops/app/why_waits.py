"""What CI would decide now, as far as git and the forge tell: no byte of a model is asked for."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedops.app.deciding import Skips, situation_of
from fedops.app.merged import MergedState
from fedops.app.rules import refuse_unavailable_rules
from fedops.app.snapshot import Snapshot, record_at
from fedops.app.tag_faults import above, misplaced
from fedops.app.told import OpenSignal, Told
from fedops.core.byte_faults import UNAVAILABLE
from fedops.core.errors import MainFileError
from fedops.core.facts import Aggregate, Decision, Stop, Submission, Wait
from fedops.core.findings import Finding, finding, slug_of
from fedops.core.ids import AGGREGATION_PATH, VERSION_PATH, CommitId, SiteId, record_path
from fedops.core.policy import inputs_digest
from fedops.core.report import stage_of
from fedops.core.status import Blocked

_PULL = re.compile(r"#([1-9][0-9]{0,8})\b")


# ---------------------------------------------------------------- tags


@dataclass(frozen=True)
class Tags:
    """How the tags of versions stand, from the current version's on.

    Attributes:
        made: the commit that the current version's tag names; None: it has no tag.
        strays: tags that nobody published, as CI finds them: it makes no version until they are gone.
    """

    made: CommitId | None
    strays: tuple[Finding, ...]


def tags_of(main: Snapshot) -> Tags:
    """Look at the current version's tag and at those above it, by one listing."""
    number, repository = main.version.version, main.repository
    tags = repository.versions(above=number - 1)
    made = next((repository.resolve(t.commit) for t in tags if t.version == number), None)
    # A walk over main is for the rare case alone.
    beside = () if made is None or _has_brought(main, made) else misplaced(main)
    return Tags(made, (*above(main, tags), *beside))


def _has_brought(main: Snapshot, commit: CommitId) -> bool:
    """True if a commit brought the very record that main has, by its tree and its parent's.

    Whether it is on main's first-parent line is not asked, which would be a walk: of a tag beside the line, on a commit
    that was merged, CI's own findings tell.
    """
    here = main.files.values() if commit == main.commit else main.repository.entries(commit, VERSION_PATH)
    if main.files[VERSION_PATH].blob not in (entry.blob for entry in here if entry.path == VERSION_PATH):
        return False
    parents = main.repository.commit(commit).parents
    before = record_at(main.repository, parents[0]) if parents else None
    return before is None or before.version != main.version.version


# ---------------------------------------------------------------- rules


def unavailable_rules(main: Snapshot) -> tuple[Finding, ...]:
    """Why CI, as the fedops of here, makes no version by the policy that main has: it asks for what is not computed."""
    try:
        refuse_unavailable_rules(main.aggregation, main.bytes_of(AGGREGATION_PATH))
    except MainFileError as e:
        return (finding("policy_invalid", AGGREGATION_PATH, got=e.message),)
    return ()


# ---------------------------------------------------------------- bytes


def bytes_faults(main: Snapshot, ready: Mapping[SiteId, Submission], told: Told) -> dict[SiteId, Finding]:
    """Why CI could not use the bytes of submissions that would count, by what the open signals of their sites say."""
    current = [signal for signal in told.signals if signal.version == main.version.version and signal.site in ready]
    found: dict[SiteId, Finding] = {}
    for signal in current:
        slug = _said(main, ready[signal.site], signal)
        if slug is not None:
            found[signal.site] = finding(slug_of(slug), record_path(signal.site), detail={"site": signal.site})
    return found


def _said(main: Snapshot, submission: Submission, signal: OpenSignal) -> str | None:
    """What a signal says of the bytes of this very submission; None if it speaks of an earlier one, or of other things."""
    version = main.version
    earlier = {(e.site, e.slug) for e in version.excluded} | {(u.site, u.slug) for u in version.witness.unavailable}
    slugs = (slug for slug in signal.reasons if _is_of_bytes(slug) and (signal.site, slug) not in earlier)
    slug = next(slugs, None)
    return None if slug is None or _came_later(main, submission, signal) else slug


def _is_of_bytes(slug: str) -> bool:
    found = finding(slug_of(slug), "")
    return found.slug == slug and (stage_of(found) in ("artifact", "model") or slug == "non_finite_result")


def _came_later(main: Snapshot, submission: Submission, signal: OpenSignal) -> bool:
    """True if the submission's pull request was opened after the signal: a forge counts both in one row."""
    subject = main.repository.commit(submission.commit).message.partition("\n")[0]
    return any(int(number) > signal.number for number in _PULL.findall(subject)[-1:])


# ---------------------------------------------------------------- decision


@dataclass(frozen=True)
class Outlook:
    """What CI would do now.

    Attributes:
        held_by: as in StatusReport.
    """

    decision: Decision | Blocked
    held_by: int | None = None


def outlook(
    main: Snapshot,
    merged: MergedState,
    faults: Mapping[SiteId, Finding],
    told: Told,
    stopping: tuple[Finding, ...],
    now: dt.datetime,
) -> Outlook:
    """Decide as CI does, with what it is known to have found in the bytes and with what leads rejected.

    Args:
        faults: of the bytes of submissions that would count.
        stopping: what makes CI stop before it decides: tags that nobody published, rules that are not computed.
    """
    blobs = {s.site: s.record_blob for s in merged.submissions}
    skips = Skips(
        {blobs[site]: fault.slug for site, fault in faults.items() if fault.slug in UNAVAILABLE},
        {blobs[site]: fault for site, fault in faults.items() if fault.slug not in UNAVAILABLE},
    )
    decision = situation_of(main, merged, now=now, skips=skips, open_version_pull=told.version).decision
    if stopping and not isinstance(decision, Stop):
        return Outlook(Blocked(stopping))
    if isinstance(decision, Wait) and decision.reason in ("quorum", "nothing_new") and skips.unavailable:
        return Outlook(replace(decision, reason="unavailable"))
    if isinstance(decision, Aggregate) and told.holds:
        held_by = told.holds.get(inputs_digest(decision, main.version, main.policy))
        if held_by is not None:
            here = {s.site for s in decision.use}
            return Outlook(Wait("rejected", tuple(s for s in main.sites.active() if s not in here)), held_by)
    return Outlook(decision)
