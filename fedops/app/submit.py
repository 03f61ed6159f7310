"""Hand in an update: check as CI would, upload, sign, open the pull request; each step only if its effect is missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedops.app.context import Context
from fedops.app.deliver import HANDED_IN, STORED, UPLOADING, SoFar, deliver, journal_facts
from fedops.app.inspect import Judgement, judge_documents
from fedops.app.offer import Offer, Wanted, describe, find_file, sniff
from fedops.app.own_key import no_key, with_key
from fedops.app.prepare import Canonical, canonical, check_values, drafted, files_of, make_record
from fedops.app.snapshot import Snapshot, main_snapshot, parse_time, version_record
from fedops.app.train import LastVersion, site_faults
from fedops.app.work import Work, write_document
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import Pull, Verdict
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import (
    CommitId,
    GlobalVersion,
    SiteId,
    record_path,
    submit_branch,
)
from fedops.core.records import Record, VersionRecord
from fedops.core.validate import parse_record
from fedops.render.submission import pull_body, pull_title

Outcome = Literal["opened", "moved", "open", "merged", "used", "planned", "final"]


@dataclass(frozen=True)
class Submitted:
    """What one submit did, or found done.

    Attributes:
        outcome: "opened" a new pull request, "moved" the open one to this update; found: already "open", "merged" and
            not yet used, or "used" up by a version; "planned": a dry run; "final": not handed in, for there will be no
            further version.
        pull: number of the pull request, if one is open.
        uploaded: the store did not have the artifact before.
        current: number of the current version.
        final: it is the last one.
        findings: warnings.
    """

    record: Record
    outcome: Outcome
    pull: int | None
    uploaded: bool
    current: int
    final: bool
    findings: tuple[Finding, ...]

    @property
    def changed(self) -> bool:
        return self.uploaded or self.outcome in ("opened", "moved")


@dataclass(frozen=True)
class Refused:
    """Why nothing was handed in; nothing was uploaded."""

    findings: tuple[Finding, ...]


def submit(
    ctx: Context, root: Path, wanted: Wanted, *, key: Path | None, dry_run: bool = False
) -> Submitted | LastVersion | Refused:
    """Hand in one update.

    After a crash the same call goes on where it stopped; when all is done it changes nothing.

    Args:
        root: of the federation's clone.
        key: SSH private key that signs the commit; None: unsigned.
        dry_run: check everything, upload and publish nothing.

    Raises:
        ConfigError: what to hand in is not clear.
        StoreError, ForgeError, GitError: a broken machine; nothing is lost, the same call again goes on.
    """
    at_hand = main_snapshot(ctx.repository)
    work = Work(root, at_hand.federation.extension)
    try:
        file, number = find_file(work, wanted)
    except ConfigError:
        if at_hand.version.status == "final" and wanted.file is None:
            return LastVersion(at_hand.version.version)
        raise
    where = work.show(file)
    if data := sniff(ctx, at_hand, file, where):
        return Refused(data)
    offer = describe(ctx, work, wanted, file, number)
    so_far = SoFar(where, _command(work, wanted))
    with nullcontext() if dry_run else so_far.told():
        return _submit(ctx, work, offer, where, so_far, key=key, dry_run=dry_run)


def _submit(
    ctx: Context, work: Work, offer: Offer, where: str, so_far: SoFar, *, key: Path | None, dry_run: bool
) -> Submitted | Refused:
    """Everything that asks others."""
    pulls = ctx.forge.open_pulls()
    ctx.repository.fetch(pulls=())
    main = main_snapshot(ctx.repository)
    base = _base(main, work, offer)
    refused = site_faults(main, offer.site)
    if base is None:
        refused += (finding("base_version_unknown", where, got=offer.base, expected=main.version.version),)
    if refused or base is None:
        return Refused(refused)
    if not dry_run:
        work.tidy()
    target = work.outgoing(base.version)
    update, found = canonical(ctx, main, offer, ctx.scratch / target.name if dry_run else target, where)
    if update is None or errors(found):
        return Refused(found)
    return _Handing(ctx, work, main, offer, base, update, where, key, found, so_far).hand_in(pulls, dry_run=dry_run)


def _command(work: Work, wanted: Wanted) -> str:
    """What a person runs again; dots stand for the same numbers."""
    file = "" if wanted.file is None else f" {work.show(wanted.file)}"
    base = "" if wanted.base is None else f" --base {GlobalVersion(wanted.base).short}"
    return f"fedops submit{file}{base}" + (" …" if wanted.num_examples or wanted.metrics else "")


def _base(main: Snapshot, work: Work, offer: Offer) -> VersionRecord | None:
    """The record of the version that the update was trained on; None if there is no such version.

    Raises:
        ConfigError: nobody said which, and the clone's newest model is not the current version's.
    """
    if offer.base is not None:
        made = version_record(main.repository, main, offer.base)
        return made[1] if made is not None else None
    pulled = work.pulled()
    if pulled and pulled[-1] != main.version.version:
        here, current = GlobalVersion(pulled[-1]).short, GlobalVersion(main.version.version).short
        raise ConfigError(
            f"{work.show(offer.file)}: was it trained on {here}, which was pulled here, or on {current}, the current one?",
            hint=f"fedops submit {work.show(offer.file)} --base {here} …",
        )
    return main.version


@dataclass(frozen=True)
class _Handing:
    """One submission on its way, and all that its steps need."""

    ctx: Context
    work: Work
    main: Snapshot
    offer: Offer
    base: VersionRecord
    update: Canonical
    where: str
    key: Path | None
    warnings: tuple[Finding, ...]
    so_far: SoFar

    def hand_in(self, pulls: Sequence[Pull], *, dry_run: bool) -> Submitted | Refused:
        """Find out how far it is, and do the rest."""
        current = self._open_pull(pulls)
        merged = _record_on_main(self.main, self.offer.site)
        record = self._record([r for r in (current.record if current else None, merged) if r is not None])
        if record == merged:
            used = record.base_version <= self.main.version.consumed.get(record.site, -1)
            return self._found(record, "used" if used else "merged", dry_run=dry_run)
        if self.main.version.status == "final":
            return self._done(record, "final", current.pull if current is not None else None, uploaded=False)
        if current is not None and record == current.record:
            return self._found(record, "open", current.pull, dry_run=dry_run)
        if unsigned := no_key(self.main, self.offer.site, self.key):
            return Refused(unsigned)
        head = self._commit(record)
        if refused := self._faults(record, head):
            return Refused(refused)
        if dry_run:
            return self._done(record, "planned", uploaded=False)
        # From here on a second run makes the same record, so that what was uploaded is found again.
        write_document(self.work.draft(record.base_version), record)
        self.so_far.reached = UPLOADING
        uploaded = deliver(self.ctx, self.work, self.main, record, self.update.file)
        self.so_far.reached = STORED
        title, body = pull_title(record), pull_body(record)
        pull = self.ctx.forge.submit_pull(head, submit_branch(self.offer.site), title, body)
        self.work.note("submitted", self.ctx.clock.now(), {**journal_facts(record), "pull": pull.number})
        return self._done(record, "moved" if current is not None else "opened", pull, uploaded=uploaded)

    def _open_pull(self, pulls: Sequence[Pull]) -> Judgement | None:
        """The site's open pull request as CI would judge its documents; its record is None if they are not good."""
        branch = submit_branch(self.offer.site)
        pull = next((p for p in pulls if p.branch == branch), None)
        if pull is None:
            return None
        try:
            judged = judge_documents(self.ctx, self.main, pull)
        except GitError:  # its head moved since it was listed, or cannot be read: it is replaced
            return Judgement(pull, Verdict(pull.head, self.main.policy, self.main.commit, "pending", ()))
        return judged if judged.verdict.state == "accepted" else replace(judged, record=None)

    def _record(self, earlier: Sequence[Record]) -> Record:
        drafts = (*drafted(self.work, self.base.version), *earlier)
        return make_record(self.ctx, self.main, self.offer, self.update, self.base, drafts)

    def _commit(self, record: Record) -> CommitId:
        """The submission's commit on fresh main; the same record on the same main gives the same commit."""
        return self.ctx.repository.write_commit(
            [self.main.commit],
            files_of(record, self.main.federation.extension),
            f"submit({record.site}): update on {GlobalVersion(record.base_version).short}",
            at=parse_time(record.created_at),
            key=self.key,
        )

    def _found(self, record: Record, outcome: Outcome, pull: Pull | None = None, *, dry_run: bool) -> Submitted:
        """The update is handed in already: do what a killed run could not do any more.

        Bytes that were lost meanwhile are uploaded again, unless they are used: the pull request waits for them.
        """
        uploaded = False
        if not dry_run and outcome != "used":
            self.so_far.reached = HANDED_IN
            uploaded = deliver(self.ctx, self.work, self.main, record, self.update.file)
        lines = self.work.noted_of(record.site, record.base_version)
        told = any(e.get("step") == "submitted" and e.get("sha256") == record.sha256 for e in lines)
        if not dry_run and not told:
            number = {"pull": pull.number} if pull is not None else {}
            self.work.note("submitted", self.ctx.clock.now(), journal_facts(record) | number)
        return self._done(record, outcome, pull, uploaded=uploaded)

    def _faults(self, record: Record, head: CommitId) -> tuple[Finding, ...]:
        """Everything that CI would refuse; so far the commit is an object of this clone alone."""
        pull = Pull(
            number=0,
            same_repository=_is_git(self.main),
            author=self.ctx.forge.whoami(),
            head=head,
            branch=submit_branch(self.offer.site),
            title=pull_title(record),
            state="open",
            opened_at=self.ctx.clock.now(),
        )
        documents = judge_documents(self.ctx, self.main, pull).verdict.findings
        values = check_values(self.ctx, self.work, self.main, self.update, self.base, self.where)
        named = with_key(documents, self.key) if _is_git(self.main) else documents
        return errors((*named, *values))

    def _done(self, record: Record, outcome: Outcome, pull: Pull | None = None, *, uploaded: bool) -> Submitted:
        number, version = pull.number if pull is not None else None, self.main.version
        final = version.status == "final"
        return Submitted(record, outcome, number, uploaded, version.version, final, self.warnings)


def _is_git(main: Snapshot) -> bool:
    return main.federation.forge.kind == "git"


def _record_on_main(main: Snapshot, site: SiteId) -> Record | None:
    if record_path(site) not in main.files:
        return None
    limit = main.submission_policy.limits.record_bytes
    return parse_record(main.bytes_of(record_path(site)), record_path(site), max_bytes=limit)[0]
