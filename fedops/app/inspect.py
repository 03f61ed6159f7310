"""Judge open pull requests: documents first, from the base branch's policies; then the bytes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from fedops.app.context import Context
from fedops.app.leads_change import left_to_people, mending
from fedops.app.model_bytes import fetch_update, open_global, open_update
from fedops.app.snapshot import Snapshot, main_snapshot, site_record, version_record
from fedops.app.stored_findings import as_read_back
from fedops.app.verdict_cache import BytesKey, BytesMemory, BytesVerdict
from fedops.core.documents import MAX_DOCUMENT_BYTES
from fedops.core.errors import FedopsError, GitError, StoreError
from fedops.core.facts import Pull, TreeEntry, Verdict, VerdictState
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import CommitId, SiteId, record_path, update_path
from fedops.core.records import Record
from fedops.core.validate import (
    Known,
    parse_record,
    validate_change,
    validate_commit,
    validate_model,
    validate_record,
    validate_signature,
)

TEMPORARY = "the check could not finish"
# What git says of a head; anything else that goes wrong with git is this machine's fault, and may pass.
DAMAGED = ("object_corrupt", "file_too_large")


@dataclass(frozen=True)
class Judgement:
    """One pull request, judged at its present head.

    Attributes:
        note: for a pending verdict, what it waits for, in words.
        awaits_approval: the checks passed; a lead must approve this commit.
        reached: what its bytes alone say, if they were read, now or by an earlier run.
        left: its bytes were not looked at, since this pass may read no more; nobody is to be told anything yet.
    """

    pull: Pull
    verdict: Verdict
    site: SiteId | None = None
    record: Record | None = None
    note: str = ""
    awaits_approval: bool = False
    reached: BytesVerdict | None = None
    left: bool = False


class Takes(Protocol):
    """Says how much may still be read."""

    def take(self, size: int, now: dt.datetime) -> bool:
        """True if the bytes of one more update may be read; then they are counted."""
        ...


class _NoTurn(Exception):  # noqa: N818 not an error: the next pass reads it
    """No more bytes may be read now."""


def inspect_pull(
    ctx: Context, main: Snapshot, pull: Pull, memory: BytesMemory, allowance: Takes | None = None
) -> Judgement:
    """Judge one pull request whole; a fault of the machine gives `pending`, never a wrong answer.

    Args:
        allowance: asked before bytes are read; None: no limit.

    Raises:
        FedopsError: main's own documents cannot be read, so nothing can be judged but a lead's change, which may mend them.
    """
    try:
        main.require_documents()
    except FedopsError:
        if (verdict := mending(main, pull)) is None:
            raise
        return Judgement(pull, verdict)
    try:
        judged = judge_documents(ctx, main, pull)
        if judged.verdict.state != "accepted":
            return judged
        assert judged.site is not None
        assert judged.record is not None
        said = judge_bytes(ctx, main, pull.head, judged.site, judged.record, memory, allowance)
        state: VerdictState = "rejected" if errors(said.findings) else "accepted"
        verdict = replace(judged.verdict, state=state, findings=judged.verdict.findings + said.findings)
        return replace(judged, verdict=verdict, reached=said)
    except _NoTurn:
        return Judgement(pull, Verdict(pull.head, main.policy, main.commit, "pending", ()), left=True)
    except FedopsError as e:
        # NOTE: also where a store refuses us: it may be a site's own, and then stops nobody else.
        return _pending(main, pull, e)


def _pending(main: Snapshot, pull: Pull, error: FedopsError) -> Judgement:
    where = f"pull/{pull.number}"
    if isinstance(error, GitError) and error.slug == "lineage_broken":
        found = finding("commit_shape", where, got="no commit in common with main", expected="one commit on main")
        return Judgement(pull, Verdict(pull.head, main.policy, main.commit, "rejected", (found,)))
    if isinstance(error, GitError) and error.slug in DAMAGED:
        found = finding("object_corrupt", where, got=error.message)
        return Judgement(pull, Verdict(pull.head, main.policy, main.commit, "rejected", (found,)))
    verdict = Verdict(pull.head, main.policy, main.commit, "pending", ())
    return Judgement(pull, verdict, note=f"{TEMPORARY}: {error.message}")


def judge_documents(ctx: Context, main: Snapshot, pull: Pull) -> Judgement:
    """Judge everything but the bytes, from the head's blobs as data; nothing of the head is checked out."""
    repository = ctx.repository
    base_paths = [p for p in main.files if p.startswith("sites/")]
    changes = repository.changes(main.commit, pull.head)
    if (verdict := left_to_people(main, pull, changes)) is not None:
        return Judgement(pull, verdict)
    extension = main.federation.extension
    site, findings = validate_change(changes, pull.author, main.sites, extension=extension, base_paths=base_paths)

    def judged(findings: tuple[Finding, ...], record: Record | None = None) -> Judgement:
        state: VerdictState = "rejected" if errors(findings) else "accepted"
        return Judgement(pull, Verdict(pull.head, main.policy, main.commit, state, findings), site, record)

    if errors(findings) or site is None:
        return judged(findings)
    findings += _commit_findings(ctx, main, pull, site)
    if errors(findings):
        return judged(findings)
    blobs = _head_blobs(ctx, main, pull.head, site)
    if isinstance(blobs, Finding):
        return judged((*findings, blobs))
    head_record, head_pointer = blobs
    record, faults = parse_record(head_record, record_path(site), max_bytes=main.submission_policy.limits.record_bytes)
    if record is None:
        return judged(findings + faults)
    known = known_at(main, site, record.base_version)
    findings += validate_record(head_record, head_pointer, site, known, main.submission_policy, extension=extension)
    return judged(findings, record)


def _commit_findings(ctx: Context, main: Snapshot, pull: Pull, site: SiteId) -> tuple[Finding, ...]:
    """Exactly one signed commit on an ancestor of main."""
    repository = ctx.repository
    head = repository.commit(pull.head)
    on_main = bool(head.parents) and repository.is_ancestor(head.parents[0], main.commit)
    findings = validate_commit(head, on_main)
    keys = main.sites.sites[site].keys if site in main.sites.sites else ()
    signer = repository.signer(pull.head, keys)
    findings += validate_signature(
        signer, site, main.sites, main.submission_policy, same_repository=pull.same_repository
    )
    return findings + _clashes(ctx, main, pull.head, site)


def _clashes(ctx: Context, main: Snapshot, head: CommitId, site: SiteId) -> tuple[Finding, ...]:
    """Files of the site that main changed since the head was made: a merge would conflict, or mix what nobody judged."""
    ours = {e.path: e.blob for e in ctx.repository.entries(head, f"sites/{site}")}
    moved = [c.path for c in ctx.repository.changes(head, main.commit) if c.path in ours and c.blob != ours[c.path]]
    return tuple(
        finding("commit_shape", path, got="changed on main since", expected="made on the present main")
        for path in moved[:1]
    )


def _head_blobs(ctx: Context, main: Snapshot, head: CommitId, site: SiteId) -> tuple[bytes, bytes] | Finding:
    """The record's and the pointer's bytes of a head, after a look at their sizes."""
    limits = main.submission_policy.limits
    entries: Mapping[str, TreeEntry] = {e.path: e for e in ctx.repository.entries(head, f"sites/{site}")}
    out: list[bytes] = []
    for path, limit in (
        (record_path(site), limits.record_bytes),
        (update_path(site, main.federation.extension), limits.pointer_bytes),
    ):
        entry = entries.get(path)
        if entry is None:
            return finding("files_missing", path, detail={"site": site})
        if entry.size > limit:
            return finding("file_too_large", path, got=entry.size, expected=limit, detail={"site": site})
        out.append(ctx.repository.read(entry.blob, max_bytes=limit))
    return out[0], out[1]


def known_at(main: Snapshot, site: SiteId, base_version: int) -> Known:
    """What the record check must know of main: versions, what is used up, and whose bytes are already there."""
    version = main.version
    base_sha256 = _sha256_of(main, base_version)
    digests = {c.sha256: SiteId(c.site) for c in version.contributions if c.site != site}
    own: Record | None = None
    for other in main.folders:
        entry = main.files[record_path(other)]
        if entry.mode != "100644" or entry.size > MAX_DOCUMENT_BYTES:
            continue  # put there by hand; it can never count, and must not keep others from being judged
        record, _ = site_record(main, other, max_bytes=MAX_DOCUMENT_BYTES)
        if record is not None and other == site:
            own = record
        elif record is not None:
            digests[record.sha256] = other
    return Known(
        current=version.version,
        consumed=version.consumed,
        models={} if base_sha256 is None else {base_version: base_sha256},
        staleness_max=main.aggregation.staleness.max,
        own=own,
        taken=digests,
    )


def _sha256_of(main: Snapshot, number: int) -> str | None:
    """Digest of a version's model; None if main has no such version."""
    if number == main.version.version:
        return main.version.model.sha256
    made = version_record(main.repository, main, number)
    return made[1].model.sha256 if made is not None else None


def judge_bytes(
    ctx: Context,
    main: Snapshot,
    head: CommitId,
    site: SiteId,
    record: Record,
    memory: BytesMemory,
    allowance: Takes | None,
) -> BytesVerdict:
    """Fetch a submission's bytes by digest and check them against its base model, unless somebody has done so.

    Raises:
        StoreError: the store is broken; no verdict can be given now.
    """
    base_sha256 = _sha256_of(main, record.base_version)
    if base_sha256 is None:
        raise StoreError(f"v{record.base_version}: not on main's first-parent line", slug="object_missing")
    key = BytesKey(head, base_sha256, main.policy, ctx.software["fedops"])
    said = memory.get(ctx.repository, key)
    if said is None:
        if allowance is not None and not allowance.take(record.size, ctx.clock.now()):
            raise _NoTurn
        memory.tried.add(head)
        # As an earlier run would have left them, so that its words and ours do not differ.
        findings = tuple(map(as_read_back, judge_update(ctx, main, site, record)))
        said = memory.known[key] = BytesVerdict(key, findings)
        memory.tried.discard(head)
    return said


def judge_update(ctx: Context, main: Snapshot, site: SiteId, record: Record) -> tuple[Finding, ...]:
    """Fetch and open an update, and check its tensors against its base model; values too."""
    path, findings = fetch_update(ctx, main, site, record)
    if path is None or main.federation.model.format == "opaque":
        return findings
    findings = _judge_file(ctx, main, site, record, path)
    if errors(findings):
        path.unlink()  # nobody will use it, and there may be many
    return findings


def _judge_file(ctx: Context, main: Snapshot, site: SiteId, record: Record, path: Path) -> tuple[Finding, ...]:
    where = str(update_path(site, main.federation.extension))
    model, findings = open_update(ctx, path, main.submission_policy.limits, where)
    if model is None:
        return findings
    with closing(model), closing(open_global(ctx, main, record.base_version)) as base:
        more, _ = validate_model(model, base, main.submission_policy, where=where, payload=record.payload)
        return findings + more


def refreshed(ctx: Context) -> Snapshot:
    """Fetch, and read the tip of main.

    Raises:
        ConfigError: there is no main.
    """
    ctx.repository.fetch(pulls=())
    return main_snapshot(ctx.repository)


def open_work(ctx: Context, number: int | None = None) -> tuple[Sequence[Pull], Snapshot]:
    """The open pull requests, and main as it was then or later: so it holds what each head was made on.

    Args:
        number: of the one that is asked for, open or not; None: all that are open.

    Raises:
        ConfigError: there is no main.
    """
    pulls = [ctx.forge.pull(number)] if number is not None else ctx.forge.open_pulls()
    return pulls, refreshed(ctx)
