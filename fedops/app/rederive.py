"""What a version record must say, from the commit that it was decided on: place, decision, and every derived field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedops.app.deciding import Situation, situation_of, skips_of, unavailable_entries, version_record, weighing
from fedops.app.main_line import MainLine
from fedops.app.merged import merged_state
from fedops.app.rules import refuse_unavailable_rules
from fedops.app.snapshot import Snapshot, is_ruled, parse_time
from fedops.core.byte_faults import UNAVAILABLE
from fedops.core.documents import Json, plain
from fedops.core.errors import ConfigError
from fedops.core.facts import Aggregate
from fedops.core.findings import Finding, finding
from fedops.core.ids import Digest, SiteId, record_path, update_path
from fedops.core.policy import Weighing
from fedops.core.records import Carried, Proposal, ProposedModel, VersionRecord
from fedops.core.rollback import rollback_record

# Lists of a record that have one entry for each site.
BY_SITE = ("contributions", "excluded")


@dataclass(frozen=True)
class Rederived:
    """How a record stands against the repository.

    Attributes:
        here: what follows from input_commit, with the weights; None if it gives no version.
    """

    findings: tuple[Finding, ...]
    here: Situation | None = None
    weights: Weighing | None = None


def mismatch(where: str, name: str, got: Json, expected: Json, **detail: Json) -> Finding:
    """One field of a version record that does not follow."""
    return finding("record_mismatch", where, got=got, expected=expected, detail={"field": name, **detail})


def rederive_first(here: Snapshot) -> tuple[Finding, ...]:
    """Compare v0's record with the one that `fedops init` writes: model, source and witness are given."""
    record = here.version
    where = f"v{record.version}"
    faults = (*_time_findings(where, record), *unusable_documents(here, where, rules=False))
    if faults:
        return faults
    expected = VersionRecord(
        version=0,
        base_version=None,
        kind="init",
        source=record.source,
        status="running",
        model=record.model,
        rule=None,
        policy=here.policy,
        denominator=None,
        contributions=(),
        excluded=(),
        consumed={},
        carried=Carried(),
        metrics={},
        witness=record.witness.model_copy(update={"input_commit": None, "unavailable": ()}),
    )
    return (*_policy_findings(where, here, record), *_compared(where, record, expected))


def rederive(line: MainLine | None, parent: Snapshot, at: Snapshot, record: VersionRecord) -> Rederived:
    """Decide again on a commit, and compare the record with the one that follows.

    Args:
        line: main's, if it was read; else it is walked as far as it must be.
        parent: of the version's commit.
        at: the commit that was decided on, or the parent if the record names none that can be.
    """
    where = f"v{record.version}"
    faults = (*_time_findings(where, record), *unusable_documents(at, where))
    found = [*faults, *_moved(where, parent, at)]
    if faults:
        return Rederived(tuple(found))
    merged = merged_state(at.repository, at, history=line)
    now = parse_time(record.witness.decided_at)
    again = situation_of(at, merged, now=now, skips=skips_of(record))
    found += merged.by_hand
    found += _policy_findings(where, at, record)
    found += _input_findings(again, record)
    found += _unavailable_findings(where, again, record)
    if not isinstance(again.decision, Aggregate):
        got = f"{type(again.decision).__name__.lower()}: {again.decision.reason}"
        return Rederived((*found, mismatch(where, "decision", got, "aggregate")))
    weights = weighing(at, again.decision)
    if isinstance(weights, Finding):
        return Rederived((*found, weights))
    manifest = Digest(record.model.manifest)
    expected = version_record(again, again.decision, weights, proposal_of(record), manifest, record.witness)
    found += _compared(where, record, expected)
    if record.witness.trigger != again.decision.trigger:
        found.append(mismatch(where, "witness.trigger", record.witness.trigger, again.decision.trigger))
    return Rederived(tuple(found), again, weights)


def rederive_rollback(
    source: VersionRecord | None, parent: Snapshot, at: Snapshot, record: VersionRecord
) -> tuple[Finding, ...]:
    """Compare a rollback's record with the one that follows from the version that it goes back to.

    Args:
        source: that version's record; None: the record names no earlier version of main.
        parent, at: as in `rederive`.
    """
    where = f"v{record.version}"
    faults = (*_time_findings(where, record), *unusable_documents(at, where, rules=False))
    found = (*faults, *_moved(where, parent, at))
    if source is None:
        named = plain(record.source) if record.source is not None else None
        found += (mismatch(where, "source", named, "an earlier version of main"),)
    if faults or source is None:
        return found
    last = at.aggregation.stop.max_version
    expected = rollback_record(at.version, source, policy=at.policy, max_version=last, witness=record.witness)
    return (*found, *_policy_findings(where, at, record), *_compared(where, record, expected))


def unusable_documents(here: Snapshot, where: str, *, rules: bool = True) -> tuple[Finding, ...]:
    """One finding for each document of a commit that stops everything.

    Args:
        rules: also where nothing can be made by what the policy asks for.

    Raises:
        GitError: one cannot be read.
    """
    found = []
    reads: list[Callable[[], object]] = [lambda: here.federation, lambda: here.sites, lambda: here.submission_policy]
    reads += [lambda: here.aggregation, lambda: here.policy]
    if rules:
        reads.append(lambda: refuse_unavailable_rules(here.aggregation))
    for read in reads:
        try:
            read()
        except ConfigError as e:
            one = finding("policy_invalid", where, got=e.message, detail={"commit": here.commit})
            if one not in found:
                found.append(one)
    return tuple(found)


def proposal_of(record: VersionRecord) -> Proposal:
    """The proposal that a record must have come from; its canonical bytes are the manifest's config blob."""
    model = record.model
    return Proposal(
        version=record.version,
        input_commit=record.witness.input_commit or "0" * 40,
        model=ProposedModel(
            format=model.format, size=model.size, sha256=model.sha256, md5=model.md5, tensors=model.tensors
        ),
        norms={c.site: c.delta_norm for c in record.contributions if c.delta_norm is not None},
        scores={c.site: c.score for c in record.contributions if c.score is not None},
        metrics=record.metrics,
        excluded=tuple(e for e in record.excluded if e.judged == "bytes"),
        unavailable=record.witness.unavailable,
    )


def _time_findings(where: str, record: VersionRecord) -> tuple[Finding, ...]:
    try:
        parse_time(record.witness.decided_at)
    except ValueError:
        got = record.witness.decided_at
        return (mismatch(where, "witness.decided_at", got, "a time such as 2026-03-02T10:00:00Z"),)
    return ()


def _moved(where: str, parent: Snapshot, at: Snapshot) -> tuple[Finding, ...]:
    """Between the decision and its version nothing may change that the version depends on."""
    moved = sorted({path for path, _ in _ruled(parent) ^ _ruled(at)})
    if not moved:
        return ()
    detail = {"commit": at.commit}
    expected = "global/, policies/ and federation.yaml as at input_commit"
    return (finding("lineage_broken", where, got=moved[:5], expected=expected, detail=detail),)


def _ruled(here: Snapshot) -> set[tuple[str, str]]:
    return {(path, entry.blob) for path, entry in here.files.items() if is_ruled(path)}


def _policy_findings(where: str, here: Snapshot, record: VersionRecord) -> tuple[Finding, ...]:
    if here.policy == record.policy:
        return ()
    return (finding("policy_mismatch", where, got=here.policy, expected=record.policy, detail={"commit": here.commit}),)


def _input_findings(again: Situation, record: VersionRecord) -> Iterator[Finding]:
    """Name the site whose record or pointer is not the one that the version read, or no plain file."""
    main = again.main
    read = [(c.site, "record", c.record_blob, record_path(SiteId(c.site))) for c in record.contributions]
    extension = main.federation.extension
    read += [(c.site, "pointer", c.pointer_blob, update_path(SiteId(c.site), extension)) for c in record.contributions]
    read += [(e.site, "record", e.record_blob, record_path(SiteId(e.site))) for e in record.excluded]
    for site, what, used, path in read:
        entry = main.files.get(path)
        if entry is not None and entry.mode != "100644":
            yield mismatch(f"v{record.version}", what, f"mode {entry.mode}", "mode 100644", site=site)
        elif entry is None or entry.blob != used:
            there = entry.blob if entry is not None else None
            yield mismatch(f"v{record.version}", what, there, used, site=site)


def _unavailable_findings(where: str, again: Situation, record: VersionRecord) -> Iterator[Finding]:
    """The witness decides which bytes could not be had, but only of submissions that were eligible, and as it may say."""
    name = "witness.unavailable"
    claimed = record.witness.unavailable
    rejected = {e.record_blob for e in record.excluded if e.judged == "bytes"}
    for entry in claimed:
        if entry.slug not in UNAVAILABLE:
            yield mismatch(where, name, entry.slug, sorted(UNAVAILABLE), site=entry.site)
        if entry.record_blob in rejected:
            yield mismatch(where, name, "excluded too", "unavailable or excluded", site=entry.site)
    expected = unavailable_entries(again)
    if claimed != expected:
        yield mismatch(where, name, [e.site for e in claimed], [e.site for e in expected])
    for bad in record.excluded:
        if bad.judged == "bytes" and bad.slug in UNAVAILABLE:
            yield mismatch(where, "excluded", bad.slug, "unavailable, which uses nothing up", site=bad.site)


def _compared(where: str, record: VersionRecord, expected: VersionRecord) -> Iterator[Finding]:
    want, have = plain(expected), plain(record)
    for name in {**want, **have}:
        # The policy digest has a finding of its own; of the witness, v0's alone is fixed, and by its caller.
        is_, must = have.get(name), want.get(name)
        if name == "policy" or is_ == must:
            continue
        if name in BY_SITE:
            yield _by_site(where, name, have[name], want[name])
        elif isinstance(must, dict) and isinstance(is_, dict):
            keys = sorted(k for k in must.keys() | is_.keys() if must.get(k) != is_.get(k))
            got = {k: is_.get(k) for k in keys}
            yield mismatch(where, name, got, {k: must.get(k) for k in keys}, keys=keys)
        else:
            yield mismatch(where, name, is_, must)


def _by_site(where: str, name: str, have: Sequence[Mapping[str, Json]], want: Sequence[Mapping[str, Json]]) -> Finding:
    """Only the sites that differ, and of sites in both only the fields that do."""
    got, expected = ({e["site"]: e for e in entries} for entries in (have, want))
    sites = sorted(s for s in got.keys() | expected.keys() if got.get(s) != expected.get(s))
    if not sites:  # the same entries in another order, or one of them twice
        return mismatch(where, name, [e["site"] for e in have], [e["site"] for e in want])

    def shown(mine: Mapping[str, Mapping[str, Json]], other: Mapping[str, Mapping[str, Json]], site: str) -> Json:
        if site not in mine:
            return None
        if site not in other:
            return "present"
        return {k: v for k, v in mine[site].items() if other[site].get(k) != v}

    return mismatch(
        where,
        name,
        {s: shown(got, expected, s) for s in sites},
        {s: shown(expected, got, s) for s in sites},
        sites=sites,
    )
