"""`fedops rollback`: a lead proposes to take the model back to an earlier version; other leads approve, CI publishes."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedops.app.context import Context
from fedops.app.inspect import refreshed
from fedops.app.lead_pull import not_a_lead
from fedops.app.next_version import untagged
from fedops.app.pull import made_version
from fedops.app.snapshot import Snapshot, time_text
from fedops.app.version_pulls import VersionPull, look
from fedops.app.version_review import version_head
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, finding
from fedops.core.ids import SITES_PATH, CommitId, Digest, GlobalVersion, repository_of, version_branch
from fedops.core.plan import version_title
from fedops.core.records import VersionRecord, Witness
from fedops.core.rollback import TRIGGER, rollback_record
from fedops.render.text import printable
from fedops.render.version_pull import version_body

MAX_REASON = 500

Outcome = Literal["opened", "open", "same", "planned"]


@dataclass(frozen=True)
class RolledBack:
    """What one call did, or found done.

    Attributes:
        outcome: "opened" a pull request; found: already "open", or the current version has the "same" model; "planned":
            a dry run.
        record: of the version that is proposed; with "same" the current one's.
        pull: number of the pull request, if one is open.
        approvals: how many more it takes; None if none is open.
    """

    outcome: Outcome
    record: VersionRecord
    pull: int | None = None
    approvals: int | None = None

    @property
    def changed(self) -> bool:
        return self.outcome == "opened"


def rollback(
    ctx: Context, number: int, *, reason: str = "", key: Path | None = None, dry_run: bool = False
) -> RolledBack | Finding:
    """Propose the model of an earlier version as the next one; nothing changes before leads approve it.

    The same call again finds what it did.

    Args:
        number: of the version to go back to.
        reason: one line, for the pull request and the commits.
        key: of the lead, who signs the proposal; None: unsigned, which only an account on GitHub makes good.

    Returns:
        What was done; or the finding that says why this account may not.

    Raises:
        ConfigError: there is no such earlier version, the current one is not verified yet, or nobody signs on forge git.
        StoreError: its bytes are gone.
    """
    main = refreshed(ctx)
    source = _source(main, number)
    if source.model.sha256 == main.version.model.sha256:
        return RolledBack("same", main.version)
    found = _open(ctx, main, number)
    if found is not None:
        return RolledBack("open", found.record, found.pull.number, found.approval.missing)
    if key is None and main.federation.forge.kind == "git":
        short = GlobalVersion(number).short
        raise ConfigError(
            f"rollback to {short}: no key signs it, and on forge git the signature is the account -> a lead's key",
            hint=f"fedops rollback {short} --key FILE, the private key; export FEDOPS_KEY=FILE names it for all commands",
        )
    ctx.global_store(main.federation).manifest(repository_of(None), Digest(source.model.manifest))
    at = ctx.clock.now().replace(microsecond=0)
    record = _record(ctx, main, source, at)
    text = printable(reason.strip())[:MAX_REASON]
    head = version_head(ctx, main, record, at, reason=text, key=key)
    refused = _not_a_lead(ctx, main, head)
    if refused is not None or dry_run:
        return refused or RolledBack("planned", record)
    branch = version_branch(record.version, rollback=True)
    body = version_body(record, main.version.metrics, reason=text)
    pull = ctx.forge.submit_pull(head, branch, version_title(record), body)
    return RolledBack("opened", record, pull.number, main.aggregation.publish.approvals)


def _source(main: Snapshot, number: int) -> VersionRecord:
    current, short = main.version.version, GlobalVersion(number).short
    if untagged(main) is not None:
        raise ConfigError(
            f"v{current}: came to main by hand and is not verified yet -> a version with its tag",
            hint=f"fedops ci reconcile tags it if it can be verified; fedops verify v{current} says what is wrong",
        )
    if number == current:
        raise ConfigError(f"{short}: is the current version -> an earlier one", hint="fedops log")
    return made_version(main, number)[1]


def _open(ctx: Context, main: Snapshot, number: int) -> VersionPull | None:
    """The open pull request that proposes the same."""
    seen = look(ctx.repository, ctx.forge, main, ctx.forge.open_pulls())
    counted = [one for one in (seen.counting, *seen.later) if one is not None and one.is_rollback]
    return next((one for one in counted if one.record.source and one.record.source.version == number), None)


def _record(ctx: Context, main: Snapshot, source: VersionRecord, at: dt.datetime) -> VersionRecord:
    witness = Witness(
        input_commit=main.commit,
        decided_at=time_text(at),
        trigger=TRIGGER,
        software=dict(ctx.software),
        run_url=ctx.run_url,
    )
    last = main.aggregation.stop.max_version
    return rollback_record(main.version, source, policy=main.policy, max_version=last, witness=witness)


def _not_a_lead(ctx: Context, main: Snapshot, head: CommitId) -> Finding | None:
    """Why a proposal of this account would not count; None if it does."""
    other = not_a_lead(ctx, main, head)
    if other is None:
        return None
    return finding("lead_required", SITES_PATH, got=other.login, expected="a lead's account or key")
