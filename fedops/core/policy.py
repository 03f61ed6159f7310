"""What the policies decide: which submissions count, and whether the next version is due. All pure.

How much each counts is in `weights.py`, the discount in `staleness.py`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from fedops.core.errors import ConfigError
from fedops.core.facts import Aggregate, Decision, Excluded, Stop, Submission, Wait
from fedops.core.findings import Finding, finding
from fedops.core.ids import BlobId, Digest, SiteId, digest_of_hex, record_path
from fedops.core.records import VersionRecord
from fedops.core.settings import Aggregation, Sites, Trigger
from fedops.core.strategies import least_updates
from fedops.core.weights import Weighing, aggregate_metrics, cap_shares, effective_examples, weigh

__all__ = [
    "Weighing",
    "aggregate_metrics",
    "cap_shares",
    "consumed_after",
    "decide",
    "effective_examples",
    "eligible",
    "inputs_digest",
    "is_impossible",
    "overtaken",
    "policy_digest",
    "record_inputs",
    "trigger_of",
    "weigh",
]

CLOCKS_APART = dt.timedelta(hours=1)  # more than machines that are looked after differ
_AT_ONCE = dt.datetime.min.replace(tzinfo=dt.UTC)
NEVER = -1  # base version of a site that no version has used or excluded: below every version


def policy_digest(files: Mapping[str, str]) -> Digest:
    """Digest of the rules: sha256 over lines `<sha256>  <path>`, sorted by path bytes, as `sha256sum` prints them.

    Args:
        files: path -> sha256 hex of its stored bytes, of federation.yaml and everything below policies/.

    Raises:
        ConfigError: a path holds a line break, with which two sets of files could have one digest.
    """
    lines = []
    for path in sorted(files, key=lambda p: p.encode("utf-8", "surrogateescape")):
        if "\n" in path:
            raise ConfigError(f"{path!r}: a line break in the name of a policy file", hint="rename the file")
        lines.append(f"{files[path]}  {path}\n")
    return digest_of_hex(hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest())


def eligible(
    merged: Sequence[Submission],
    record: VersionRecord,
    sites: Sites,
    policy: Aggregation,
    *,
    taken: Mapping[str, SiteId] | None = None,
) -> tuple[tuple[Submission, ...], tuple[Excluded, ...]]:
    """Split the submissions that the next version reads into those to use and those that a rule excludes.

    A submission whose base version is already consumed is passed over, and so is one on a version that does not
    exist yet: neither is used, excluded or consumed. The rules need the tree alone (judged "tree"): the site is not
    on the roster, is suspended, the update is too stale, or its bytes are those of another site.

    Args:
        merged: at most one submission of each site, its record on main; any order.
        record: the current version.
        taken: sha256 of bytes -> site, of the records on main that are used up.

    Returns:
        (to use, excluded with the first reason that holds), each in ascending site.
    """
    candidates = sorted(
        (s for s in merged if record.consumed.get(s.site, NEVER) < s.base_version <= record.version),
        key=lambda s: s.site,
    )
    owners = _owners(candidates, record, taken or {})
    use: list[Submission] = []
    excluded: list[Excluded] = []
    for s in candidates:
        reason = next(_reasons(s, record, sites, policy, owners), None)
        if reason is None:
            use.append(s)
        else:
            excluded.append(Excluded(s, reason, "tree"))
    return tuple(use), tuple(excluded)


def _owners(candidates: Sequence[Submission], record: VersionRecord, taken: Mapping[str, SiteId]) -> dict[str, SiteId]:
    """Whom bytes belong to: the site whose used record has them, else the earliest merge.

    Merges of the same second are ranked by site id.
    """
    owners = {**taken, **{c.sha256: SiteId(c.site) for c in record.contributions}}
    for s in sorted(candidates, key=lambda s: (s.merged_at, s.site)):
        owners.setdefault(s.sha256, s.site)
    return owners


def _reasons(
    s: Submission, record: VersionRecord, sites: Sites, policy: Aggregation, owners: Mapping[str, SiteId]
) -> Iterator[Finding]:
    where, detail = record_path(s.site), {"site": s.site}
    entry = sites.sites.get(s.site)
    if entry is None:
        yield finding("site_unknown", where, got=s.site, detail=detail)
    elif entry.state != "active":
        yield finding("site_suspended", where, got=entry.state, expected="active", detail=detail)
    staleness, limit = record.version - s.base_version, policy.staleness.max
    if limit is not None and staleness > limit:
        yield finding(
            "too_stale", where, got=staleness, expected=limit, detail={**detail, "base_version": s.base_version}
        )
    if owners[s.sha256] != s.site:
        yield finding("duplicate_submission", where, got=s.sha256, detail={**detail, "same_as": owners[s.sha256]})


def decide(
    policy: Aggregation,
    use: Sequence[Submission],
    excluded: Sequence[Excluded],
    record: VersionRecord,
    *,
    sites: Sites,
    open_version_pull: int | None,
    now: dt.datetime,
) -> Decision:
    """Say whether the next version is made now, and if not, what it waits for.

    In this order: the last version is made -> Stop; a version is under review -> Wait("review"); nothing to use ->
    Wait("nothing_new"), also if something was excluded, since a version without contributions would repeat the model;
    then two windows, of which one that is over is enough:

    - quorum: `quorum` submissions are there, or as many as the strategy needs (`trigger_of`), and `grace_minutes` have
      passed since the merge that completed it;
    - max_wait: `quorum_after_wait` are there, and `max_wait_hours` have passed since the oldest merge. So a submission
      more never makes the others wait longer than without it.

    Clocks: windows run from committer dates of merges on main, never from times that a site wrote, and mean "not
    before". A merge dated in the future has age 0, so its window ends the later by that difference. One that is dated
    more than CLOCKS_APART ahead says nothing of when it was made: it counts, but the others' dates are what windows run
    from, so that one broken clock holds up nobody else. `until` is the end of the window that runs (for a quorum not
    reached: when `quorum_after_wait` becomes enough), None if none runs.

    Args:
        use: usable submissions, one of each site, any order; only they count for the quorum.
        excluded: carried into the Aggregate; an excluded site counts as missing, since it must hand in again.
        open_version_pull: number of an open PR that brings a version, of a lead or of reconcile.
        now: aware; the deciding clock.

    Returns:
        Aggregate with both lists in ascending site, Wait with the active sites of which nothing is usable, or Stop.
    """
    last = policy.stop.max_version
    if record.status == "final" or (last is not None and record.version >= last):
        return Stop("max_version")
    here = {s.site for s in use}
    missing = tuple(site for site in sites.active() if site not in here)
    if open_version_pull is not None:
        return Wait("review", missing, pull=open_version_pull)
    if not use:
        return Wait("nothing_new", missing)
    merges, trigger = _believable(sorted(s.merged_at for s in use), now), trigger_of(policy)
    ends = _ends(trigger, merges)
    for name, end in ends.items():
        if now >= end:
            return Aggregate(_by_site(use), tuple(sorted(excluded, key=lambda e: e.submission.site)), name)
    if "quorum" in ends:
        return Wait("grace", missing, min(ends.values()))
    wait_over = _wait_over(trigger, merges)
    return Wait("quorum", missing, wait_over if wait_over is not None and now < wait_over else None)


def trigger_of(policy: Aggregation) -> Trigger:
    """When a version is made: as the policy says, but never of fewer submissions than its strategy can be used on."""
    trigger, least = policy.trigger, least_updates(policy.strategy)
    raised = {name: max(getattr(trigger, name), least) for name in ("quorum", "quorum_after_wait")}
    return trigger.model_copy(update=raised)


def _believable(merges: Sequence[dt.datetime], now: dt.datetime) -> Sequence[dt.datetime]:
    """The dates of merges, ascending; in place of impossible ones the newest other, if there is any."""
    possible = [at for at in merges if not is_impossible(at, now)]
    return [*possible, *possible[-1:] * (len(merges) - len(possible))] if possible else merges


def is_impossible(at: dt.datetime, now: dt.datetime) -> bool:
    """True for a date so far ahead of the deciding clock that one of the two clocks must be broken."""
    return at - now > CLOCKS_APART


def inputs_digest(decision: Aggregate, record: VersionRecord, policy: Digest) -> Digest:
    """What a version is made of, whenever it is decided: two decisions with one digest give the same model.

    Args:
        record: the current version.
        policy: digest of the rules.
    """
    excluded = [(e.submission.record_blob, e.finding.slug) for e in decision.excluded]
    return _inputs(record.version, policy, [s.record_blob for s in decision.use], excluded)


def record_inputs(record: VersionRecord) -> Digest:
    """The `inputs_digest` of a version, by its record."""
    excluded = [(e.record_blob, e.slug) for e in record.excluded]
    used = [c.record_blob for c in record.contributions]
    return _inputs(record.version - 1, Digest(record.policy), used, excluded)


def _inputs(current: int, policy: Digest, used: Sequence[str], excluded: Sequence[tuple[str, str]]) -> Digest:
    rows = [f"{current} {policy}", *(f"use {blob}" for blob in used)]
    rows += [f"exclude {blob} {slug}" for blob, slug in excluded]
    return digest_of_hex(hashlib.sha256("\n".join(rows).encode()).hexdigest())


def _ends(trigger: Trigger, merges: Sequence[dt.datetime]) -> dict[str, dt.datetime]:
    """When each window ends of which the number is reached: "quorum" first, then "max_wait".

    Args:
        merges: of the usable submissions, ascending, not empty.
    """
    ends: dict[str, dt.datetime] = {}
    if len(merges) >= trigger.quorum:
        # No window asked for: at once, also where the merging clock is ahead.
        grace = trigger.grace_minutes
        ends["quorum"] = _later(merges[trigger.quorum - 1], minutes=grace) if grace else _AT_ONCE
    wait_over = _wait_over(trigger, merges)
    if wait_over is not None and len(merges) >= trigger.quorum_after_wait:
        ends["max_wait"] = wait_over
    return ends


def _wait_over(trigger: Trigger, merges: Sequence[dt.datetime]) -> dt.datetime | None:
    """When `quorum_after_wait` becomes enough; None if it never does."""
    return None if trigger.max_wait_hours is None else _later(merges[0], minutes=60 * trigger.max_wait_hours)


def _by_site(submissions: Sequence[Submission]) -> tuple[Submission, ...]:
    return tuple(sorted(submissions, key=lambda s: s.site))


def _later(moment: dt.datetime, *, minutes: float) -> dt.datetime:
    try:
        return moment + dt.timedelta(minutes=minutes)
    except OverflowError:  # a window beyond the year 9999 never ends
        return dt.datetime.max.replace(tzinfo=dt.UTC)


def consumed_after(record: VersionRecord, use: Sequence[Submission], excluded: Sequence[Excluded]) -> dict[SiteId, int]:
    """The `consumed` of the next version: site -> base version of its last used or excluded submission, sorted.

    Carried forward from the current version, and never lower than there.
    """
    after = {SiteId(site): base for site, base in record.consumed.items()}
    for s in (*use, *(e.submission for e in excluded)):
        after[s.site] = max(s.base_version, after.get(s.site, NEVER))
    return dict(sorted(after.items()))


class OnMain(Protocol):
    """A site's record on main, as far as `overtaken` looks at it; a Submission is one."""

    @property
    def site(self) -> SiteId: ...

    @property
    def base_version(self) -> int: ...

    @property
    def record_blob(self) -> BlobId: ...


def overtaken(site_record: OnMain, record: VersionRecord) -> bool:
    """True if a site's record on main came after the current version had read its earlier one on the same base.

    Such a record is never used, and its site must train on the current version. Later versions cannot tell it from
    one that was used earlier, since they do not list its blobs; its site was signalled then, so they say False.

    Args:
        site_record: the site's record on main.
        record: the current version.
    """
    read = [c.record_blob for c in record.contributions if c.site == site_record.site]
    read += [e.record_blob for e in record.excluded if e.site == site_record.site]
    used_up = site_record.base_version <= record.consumed.get(site_record.site, NEVER)
    return used_up and bool(read) and site_record.record_blob not in read
