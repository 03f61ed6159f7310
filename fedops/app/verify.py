"""Recompute versions from git and the bytes, and name each difference: which version, and what is wrong.

Nothing that the lead, the forge or the store says is believed: only what follows from commits and digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedops.app.context import Context
from fedops.app.deciding import Situation, situation, version_record, weighing
from fedops.app.publish import skips_of
from fedops.app.recompute import Level, recompute_aggregate, recompute_first
from fedops.app.snapshot import Snapshot, is_ruled, parse_time, snapshot
from fedops.core.documents import Json, dump_json, plain
from fedops.core.errors import FedopsError, GitError
from fedops.core.facts import Aggregate, Commit, VersionTag
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import (
    METRICS_PATH,
    VERSION_PATH,
    BlobId,
    CommitId,
    Digest,
    GlobalVersion,
    RepoPath,
    model_pointer_path,
)
from fedops.core.plan import plan_version
from fedops.core.policy import Weighing
from fedops.core.records import (
    Proposal,
    ProposedModel,
    VersionRecord,
    model_pointer,
    render_pointer,
)


@dataclass(frozen=True)
class Checked:
    """One version, verified.

    Attributes:
        level: "inputs" = recomputed bit for bit from its inputs; "lineage" = all but the bytes; "none" = failed.
    """

    version: int
    commit: CommitId
    level: Level
    findings: tuple[Finding, ...]


def verify(
    ctx: Context, main: Snapshot, wanted: Sequence[int] | None, *, fsck: Callable[[], Sequence[str]] | None = None
) -> Iterator[Checked]:
    """Verify versions, oldest first.

    Args:
        wanted: version numbers; None = all.
        fsck: lists ids of git objects that cannot be read.
    """
    damaged = frozenset(fsck()) if fsck is not None else frozenset()
    line = version_line(ctx, main)
    tags = {t.version: t for t in ctx.repository.versions()}
    for place, (commit, here) in enumerate(line):
        previous = line[place - 1] if place else None
        number = here.version.version
        if wanted is None or number in wanted:
            yield _verify_one(ctx, main, commit, here, previous, tags.get(number), damaged)
    known = {here.version.version for _, here in line}
    for number, tag in sorted(tags.items()):
        if number not in known and (wanted is None or number in wanted):
            stray = finding("tag_moved", tag.tag, got=tag.commit, expected="a version on main")
            yield Checked(number, tag.commit, "none", (stray,))
    for number in sorted(set(wanted or ()) - known - set(tags)):
        missing = finding("lineage_broken", f"v{number}", got=None, expected=f"v0 to v{main.version.version}")
        yield Checked(number, main.commit, "none", (missing,))


def version_line(ctx: Context, main: Snapshot) -> list[tuple[Commit, Snapshot]]:
    """The first-parent commits of main that changed the version record, oldest first."""
    out: list[tuple[Commit, Snapshot]] = []
    newer: tuple[Commit, Snapshot] | None = None
    for commit in ctx.repository.commits(None, main.commit):
        here = snapshot(ctx.repository, commit.id)
        if newer is not None and _blob(newer[1]) != _blob(here):
            out.append(newer)
        if VERSION_PATH not in here.files:
            newer = None
            break
        newer = (commit, here)
    if newer is not None:
        out.append(newer)
    out.reverse()
    return out


def _blob(here: Snapshot) -> BlobId | None:
    entry = here.files.get(VERSION_PATH)
    return entry.blob if entry is not None else None


def _verify_one(
    ctx: Context,
    main: Snapshot,
    commit: Commit,
    here: Snapshot,
    previous: tuple[Commit, Snapshot] | None,
    tag: VersionTag | None,
    damaged: frozenset[str],
) -> Checked:
    number = here.version.version
    findings: tuple[Finding, ...] = ()
    level: Level = "none"
    try:
        findings += _damage(here, commit, tag, damaged)
        findings += _tag_findings(here, commit, tag)
        findings += _commit_findings(ctx, here, commit, previous)
        if here.version.kind == "init":
            first = recompute_first(ctx, main, here.version)
            level, findings = first.level, findings + first.findings
        elif previous is not None:
            more, level = _aggregate_findings(ctx, main, here, commit, previous)
            findings += more
    except GitError as e:
        findings += (finding("object_corrupt", f"v{number}", got=e.message),)
    except FedopsError as e:
        if e.cause != "permanent":
            raise
        findings += (finding("record_mismatch", f"v{number}", got=e.message),)
    return Checked(number, commit.id, "none" if errors(findings) else level, findings)


def _damage(here: Snapshot, commit: Commit, tag: VersionTag | None, damaged: frozenset[str]) -> tuple[Finding, ...]:
    ids = {commit.id, *(e.blob for e in here.files.values())} | ({tag.object} if tag is not None else set())
    where = f"v{here.version.version}"
    return tuple(finding("object_corrupt", where, got=bad) for bad in sorted(ids & damaged))


def _tag_findings(here: Snapshot, commit: Commit, tag: VersionTag | None) -> tuple[Finding, ...]:
    """The tag must be the annotated one that was made with the version, byte for byte."""
    name = GlobalVersion(here.version.version).tag
    if tag is None:
        return (finding("tag_missing", name, expected=commit.id),)
    if tag.commit != commit.id:
        return (finding("tag_moved", name, got=tag.commit, expected=commit.id),)
    if not tag.annotated:
        return (finding("tag_moved", name, got="a lightweight tag", expected="an annotated tag"),)
    extension = here.federation.extension
    step = plan_version(
        here.version, model_pointer(here.version, extension), commit.id, extension=extension, at=commit.committed_at
    )
    if tag.message.strip() != step.tag_message.strip():
        return (finding("tag_moved", name, got=tag.message.strip()[:200], expected=step.tag_message.strip()),)
    return ()


def _commit_findings(
    ctx: Context, here: Snapshot, commit: Commit, previous: tuple[Commit, Snapshot] | None
) -> tuple[Finding, ...]:
    """A version's commit carries exactly its three files, canonical, and follows from the version before."""
    number, where = here.version.version, f"v{here.version.version}"
    out: list[Finding] = []
    extension = here.federation.extension
    for path, expected in _files(here.version, extension).items():
        entry = here.files.get(path)
        if entry is None or ctx.repository.read(entry.blob, max_bytes=16_777_216) != expected:
            out.append(
                finding("record_mismatch", f"{where}: {path}", detail={"path": path}, expected="canonical bytes")
            )
    if previous is None:
        if here.version.kind != "init" or number != 0:
            out.append(finding("lineage_broken", where, got=here.version.kind, expected="v0 of kind init at the root"))
        return tuple(out)
    if len(commit.parents) != 1:
        out.append(finding("lineage_broken", where, got=f"{len(commit.parents)} parents", expected="one parent"))
    else:
        changed = sorted(c.path for c in ctx.repository.changes(commit.parents[0], commit.id))
        stray = [p for p in changed if not p.startswith("global/")]
        if stray:
            out.append(finding("lineage_broken", where, got=stray[:5], expected="changes below global/ alone"))
    before = previous[1].version.version
    if number != before + 1 or here.version.base_version != before:
        got = {"version": number, "base_version": here.version.base_version}
        out.append(finding("lineage_broken", where, got=got, expected={"version": before + 1, "base_version": before}))
    return tuple(out)


def _files(record: VersionRecord, extension: str) -> dict[RepoPath, bytes]:
    return {
        VERSION_PATH: dump_json(record),
        METRICS_PATH: dump_json(dict(record.metrics)),
        model_pointer_path(extension): render_pointer(model_pointer(record, extension)),
    }


def _aggregate_findings(
    ctx: Context, main: Snapshot, here: Snapshot, commit: Commit, previous: tuple[Commit, Snapshot]
) -> tuple[tuple[Finding, ...], Level]:
    record = here.version
    placed, place = _input_commit(ctx, here, commit, previous)
    if placed is None:
        return place, "none"
    skips = skips_of(record)
    again = situation(ctx.repository, placed, now=parse_time(record.witness.decided_at), skips=skips)
    derived = _derived_findings(again, record)
    findings = place + derived
    if errors(findings) or not isinstance(again.decision, Aggregate):
        return findings, "none"
    weights = weighing(again.main, again.decision)
    assert isinstance(weights, Weighing)
    made = recompute_aggregate(ctx, main, again, weights, record, proposal_of(record))
    return findings + made.findings, made.level


def _input_commit(
    ctx: Context, here: Snapshot, commit: Commit, previous: tuple[Commit, Snapshot]
) -> tuple[CommitId | None, tuple[Finding, ...]]:
    """The commit whose tree was read, if it lies where it must; else the commit's parent, to say more of what is wrong."""
    where = f"v{here.version.version}"
    named = here.version.witness.input_commit
    parent = commit.parents[0] if commit.parents else None
    if parent is None:
        return None, (finding("lineage_broken", where, got="no parent", expected="a parent"),)
    line = {previous[0].id, *(c.id for c in ctx.repository.commits(previous[0].id, parent))}
    if named not in line:
        broken = finding(
            "lineage_broken", where, got={"input_commit": named}, expected=f"a commit of main before {where}"
        )
        return parent, (broken,)
    chosen = CommitId(str(named))
    before, at = snapshot(ctx.repository, parent), snapshot(ctx.repository, chosen)
    if _ruled(before) != _ruled(at):
        got = sorted(p for p, _ in _ruled(before) ^ _ruled(at))[:5]
        moved = finding("lineage_broken", where, got=got, expected="policies and global/ as at input_commit")
        return chosen, (moved,)
    return chosen, ()


def _ruled(here: Snapshot) -> set[tuple[str, str]]:
    return {(p, e.blob) for p, e in here.files.items() if is_ruled(p)}


def proposal_of(record: VersionRecord) -> Proposal:
    """The proposal that a record must have come from; its canonical bytes are the manifest's config blob."""
    model = record.model
    return Proposal(
        version=record.version,
        input_commit=str(record.witness.input_commit),
        model=ProposedModel(
            format=model.format, size=model.size, sha256=model.sha256, md5=model.md5, tensors=model.tensors
        ),
        norms={c.site: c.delta_norm for c in record.contributions if c.delta_norm is not None},
        scores={},
        metrics=record.metrics,
        excluded=tuple(e for e in record.excluded if e.judged == "bytes"),
        unavailable=record.witness.unavailable,
    )


def _derived_findings(again: Situation, record: VersionRecord) -> tuple[Finding, ...]:
    """Compare the record with the one that follows from the pinned commit, field by field."""
    where = f"v{record.version}"
    out: list[Finding] = []
    if again.main.policy != record.policy:
        out.append(finding("policy_mismatch", where, got=record.policy, expected=again.main.policy))
    out.extend(_input_findings(again, record))
    if not isinstance(again.decision, Aggregate):
        got = type(again.decision).__name__.lower()
        reason = again.decision.reason
        out.append(
            finding(
                "record_mismatch", where, got=f"{got}: {reason}", expected="aggregate", detail={"field": "decision"}
            )
        )
        return tuple(out)
    weights = weighing(again.main, again.decision)
    if isinstance(weights, Finding):
        return (*out, weights)
    expected = version_record(
        again, again.decision, weights, proposal_of(record), Digest(record.model.manifest), record.witness
    )
    want, have = plain(expected), plain(record)
    differ = [name for name in want if name not in ("witness", "policy") and want[name] != have[name]]
    out.extend(_field_finding(where, name, have[name], want[name]) for name in differ)
    if record.witness.trigger != again.decision.trigger:
        out.append(_field_finding(where, "witness.trigger", record.witness.trigger, again.decision.trigger))
    return tuple(out)


def _input_findings(again: Situation, record: VersionRecord) -> Iterator[Finding]:
    """Name the site whose record or pointer is not the one that the version used."""
    for c in record.contributions:
        blobs = again.main.site_blobs(c.site)  # type: ignore[arg-type]  # a site id of a parsed record
        for what, used, there in (
            ("record", c.record_blob, blobs and blobs[0]),
            ("pointer", c.pointer_blob, blobs and blobs[1]),
        ):
            if used != there:
                detail = {"site": c.site, "field": what}
                yield finding("record_mismatch", f"v{record.version}", got=there, expected=used, detail=detail)


def _field_finding(where: str, name: str, got: Json, expected: Json) -> Finding:
    return finding("record_mismatch", where, got=got, expected=expected, detail={"field": name})
