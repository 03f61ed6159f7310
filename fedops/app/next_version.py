"""What brings the federation to its next version, in two halves: one that may read models, and one that may write git.

The first gives a ticket, which the second holds against what it finds itself: the digest of the version's record where
that exists already (in an approved pull request, or on main without a tag), else of the proposal's manifest.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedops.app.context import Context
from fedops.app.deciding import situation_of
from fedops.app.merged import merged_state
from fedops.app.propose import propose
from fedops.app.publish import publish
from fedops.app.snapshot import Snapshot, main_snapshot, snapshot, version_record
from fedops.app.verify import verify
from fedops.app.version_commit import commit_findings, planned
from fedops.app.version_merge import approval_findings
from fedops.app.version_pulls import VersionPull, look
from fedops.app.version_push import Lost, Outcome, Published, Replan, display_tag
from fedops.app.version_review import held, publish_pull, version_merge
from fedops.app.why_waits import unavailable_rules
from fedops.core.byte_faults import WRONG
from fedops.core.documents import dump_json
from fedops.core.facts import Aggregate, Decision, RefUpdate
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import BlobId, CommitId, Digest, GlobalVersion, digest_of_hex, is_digest
from fedops.core.records import VersionRecord


@dataclass(frozen=True)
class Ticket:
    """What was prepared.

    Attributes:
        of: "record": a version that people made, recomputed; "proposal": a new one, uploaded.
    """

    of: Literal["record", "proposal"]
    digest: Digest

    @property
    def text(self) -> str:
        """A proposal's manifest digest as it is, a record's after its name."""
        return self.digest if self.of == "proposal" else f"record:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Ticket | None:
        """Inverse of `text`; None for anything else."""
        named, digest = text.startswith("record:"), text.removeprefix("record:")
        return cls("record" if named else "proposal", Digest(digest)) if is_digest(digest) else None


@dataclass(frozen=True)
class Prepared:
    """What the first half came to.

    Attributes:
        ticket: for the second half; None: no version now, see decision and findings.
        skipped: record blob -> slug of submissions whose bytes cannot be used.
        failed: an approved version pull request whose version does not recompute.
    """

    decision: Decision | None
    ticket: Ticket | None
    findings: tuple[Finding, ...] = ()
    skipped: Mapping[BlobId, str] = field(default_factory=dict)
    failed: VersionPull | None = None


def untagged(main: Snapshot) -> int | None:
    """The oldest version above the newest tag, which a person brought to main; None: main's current one has its tag.

    Until it is verified and tagged nobody builds upon it, and no site is told of it.
    """
    current = main.version.version
    if main.repository.resolve(f"refs/tags/{GlobalVersion(current).tag}") is not None:
        return None
    return 1 + max((t.version for t in main.repository.versions() if t.version <= current), default=-1)


def prepare(
    ctx: Context,
    main: Snapshot,
    decided_at: dt.datetime,
    counting: VersionPull | None,
    *,
    unavailable: Mapping[BlobId, str],
) -> Prepared:
    """Find out what is due on a commit of main, and read what must be read for it; no git write.

    Args:
        decided_at: the deciding clock, whole seconds.
        counting: the version pull request on which the federation waits.
        unavailable: record blobs known to be lost.

    Raises:
        StoreError: the store is broken: nothing is made.
    """
    if untagged(main) is not None:
        # NOTE: a fetch may see the main of a push that is under way before it sees its tag.
        ctx.repository.fetch()
    number = untagged(main)
    if number is not None:
        return _prepare_tag(ctx, main, number)
    if counting is not None and counting.approval.given:
        faults = _faults(ctx, snapshot(ctx.repository, version_merge(ctx, main, counting)), counting.record.version)
        if faults:
            return Prepared(None, None, faults, failed=counting)
        return Prepared(None, Ticket("record", record_digest(counting.record)))
    merged = merged_state(ctx.repository, main)
    if counting is not None:
        here = situation_of(main, merged, now=decided_at, open_version_pull=counting.pull.number)
        return Prepared(here.decision, None)
    if rules := unavailable_rules(main):
        # Fail closed, but for this alone: nothing else that CI does takes a value from these rules.
        return Prepared(None, None, rules)
    rejected = held(ctx) if main.aggregation.publish.mode == "review" else ()
    plan = propose(ctx, main, merged, decided_at, unavailable=unavailable, held=rejected)
    ticket = Ticket("proposal", plan.manifest) if plan.manifest is not None else None
    return Prepared(plan.decision, ticket, plan.findings, plan.skips.slugs())


def due_now(
    ctx: Context, main: Snapshot, decided_at: dt.datetime, counting: VersionPull | None
) -> tuple[bool, Decision | None]:
    """Whether `prepare` has something to do, as far as documents tell; and what the policy says, if it was asked."""
    if untagged(main) is not None or (counting is not None and counting.approval.given):
        return True, None
    if unavailable_rules(main):
        return False, None
    number = counting.pull.number if counting is not None else None
    merged = merged_state(ctx.repository, main)
    decision = situation_of(main, merged, now=decided_at, open_version_pull=number).decision
    return isinstance(decision, Aggregate), decision


def _prepare_tag(ctx: Context, main: Snapshot, number: int) -> Prepared:
    made = version_record(ctx.repository, main, number)
    if made is None:
        where = GlobalVersion(number).short
        return Prepared(None, None, (finding("lineage_broken", where, expected="a commit of main that made it"),))
    faults = _faults(ctx, main, number)
    return Prepared(None, None, faults) if faults else Prepared(None, Ticket("record", record_digest(made[1])))


def _faults(ctx: Context, main: Snapshot, number: int) -> tuple[Finding, ...]:
    """What verify has against a version on a line of commits, but that its tag is not there yet.

    Of two with that number the newer one is meant: what a person brought to main by hand, and took off again, stays beside.
    """
    where = GlobalVersion(number)
    faults: list[Finding] = []
    for one in [one for one in verify(ctx, main, [number]) if one.version == number][-1:]:
        # One whole copy of each input is enough: a site that damages its own must not stop all others.
        enough, own = one.reached == "inputs", f"{where.short}: sites/"
        faults += (f for f in errors(one.findings) if not (enough and f.where.startswith(own) and f.slug in WRONG))
    return tuple(f for f in faults if (f.slug, f.where) != ("tag_missing", where.tag))


def record_digest(record: VersionRecord) -> Digest:
    """Digest of a version record's canonical bytes."""
    return digest_of_hex(hashlib.sha256(dump_json(record)).hexdigest())


def bring(
    ctx: Context, input_commit: CommitId, decided_at: dt.datetime, ticket: Ticket, *, jitter: Callable[[], float]
) -> Outcome:
    """Do what was prepared: tag a person's version, merge an approved one, or publish the proposal; no tensor is opened.

    Args:
        input_commit, decided_at: as given to `prepare`.
        ticket: as it gave.
        jitter: uniform in [0, 1), spreads the retries of several runners.

    Raises:
        StoreError, GitError, ForgeError: a broken machine.
    """
    ctx.repository.fetch()
    main = main_snapshot(ctx.repository)
    number = untagged(main)
    if number is not None:
        return _tag(ctx, main, number, ticket)
    counting = look(ctx.repository, ctx.forge, main, ctx.forge.open_pulls()).counting
    if ticket.of == "proposal":
        # A pull request that came since is what the next run decides on.
        return publish(ctx, input_commit, decided_at, ticket.digest, jitter=jitter) if counting is None else Replan({})
    if counting is None or record_digest(counting.record) != ticket.digest:
        return Replan({})
    return publish_pull(ctx, counting, jitter=jitter)


def _tag(ctx: Context, main: Snapshot, number: int, ticket: Ticket) -> Outcome:
    """Tag the commit by which a person brought a verified version."""
    repository = ctx.repository
    made = version_record(repository, main, number)
    if made is None or Ticket("record", record_digest(made[1])) != ticket:
        return Replan({})
    commit, here = repository.commit(made[0]), snapshot(repository, made[0])
    plan, parent = planned(here, commit), snapshot(repository, commit.parents[0]) if commit.parents else None
    # The bytes were verified for this record; what git alone says is asked again, for exactly this commit.
    faults = [*commit_findings(here, commit, parent, plan)]
    if parent is not None:
        faults += approval_findings(here, parent, commit)
    if errors(faults):
        return Replan({})
    # Before the tag: of an older version nobody would set it any more.
    display_tag(ctx, main, made[1])
    tag = repository.write_tag(plan.tag, commit.id, plan.tag_message)
    if not repository.push([RefUpdate(f"refs/tags/{plan.tag}", None, tag)]):
        return Lost()
    return Published(made[1], commit.id)
