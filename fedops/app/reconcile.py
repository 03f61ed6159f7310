"""The one loop: look at all open pull requests and at main, do what is missing, until nothing is left.

Level-triggered: harmless when run twice, late, or by two runners at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedops.app.context import Context
from fedops.app.inspect import BytesMemory, inspect_pull, refreshed
from fedops.app.merge import Merged, merge_pull
from fedops.app.merged import merged_state
from fedops.app.propose import propose
from fedops.app.publish import Published, Replan, publish
from fedops.app.signals import signal
from fedops.app.snapshot import Snapshot
from fedops.core.errors import FedopsError
from fedops.core.facts import Decision
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import BlobId, Digest, GlobalVersion, repository_of
from fedops.core.records import VersionRecord

MAX_PASSES = 50
MAX_PLANS = 3


@dataclass
class Reconciled:
    """What one run did, and what it waits for now."""

    merged: list[Merged] = field(default_factory=list)
    published: list[VersionRecord] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    decision: Decision | None = None
    again: bool = False  # something is left that another run must do
    changed: bool = False

    def merged_rows(self) -> list[dict[str, Any]]:
        """Each pull request that something was done with, as plain values."""
        return [
            {
                "pull": m.judgement.pull.number,
                "site": m.judgement.site,
                "head": m.judgement.verdict.head,
                "outcome": m.outcome,
                "reason": m.judgement.note or ", ".join(f.slug for f in errors(m.judgement.verdict.findings)),
            }
            for m in self.merged
        ]


def reconcile(ctx: Context, *, jitter: Callable[[], float]) -> Reconciled:
    """Run to the fixed point: merge, repair, aggregate, publish, signal.

    Returns:
        What was done in all passes; findings and decision are those of the last one.

    Raises:
        StoreError, GitError, ForgeError: a broken machine; what was done before stays done, running again goes on.
    """
    done = Reconciled()
    memory = BytesMemory()
    for _ in range(MAX_PASSES):
        done.findings, done.again = [], False
        moved = merge_all(ctx, memory, done)
        advanced, skipped = advance(ctx, done, jitter=jitter)
        moved |= advanced
        moved |= signal_all(ctx, done, skipped)
        done.changed |= moved
        if not moved:
            return done
    done.again = True
    return done


def merge_all(ctx: Context, memory: BytesMemory, done: Reconciled) -> bool:
    """Judge and merge every open pull request, oldest first; one that fails stops none of the others."""
    main = refreshed(ctx)
    pulls = ctx.forge.open_pulls()
    task = ctx.progress.start("pull requests", len(pulls), "steps") if pulls else None
    moved = False
    for pull in pulls:
        try:
            one = merge_pull(ctx, inspect_pull(ctx, main, pull, memory))
            if one.changed or one.outcome == "lost":
                done.merged.append(one)
            moved |= one.changed
        except FedopsError as e:
            if e.cause == "auth":
                raise
            done.findings.append(finding("github_rejected", f"pull/{pull.number}", got=e.message))
        if task is not None:
            ctx.progress.advance(task, 1)
    if task is not None:
        ctx.progress.finish(task)
    return moved


def stray_tags(ctx: Context, main: Snapshot) -> tuple[Finding, ...]:
    """Version tags above the current version: somebody made them by hand, so nothing is aggregated until they are gone.

    Args:
        main: as it was just fetched.
    """
    if not any(t.version > main.version.version for t in ctx.repository.versions()):
        return ()
    # NOTE: looked at twice, since a fetch may see the tag of a push that is under way before it sees its main.
    main = refreshed(ctx)
    above = [t for t in ctx.repository.versions() if t.version > main.version.version]
    return tuple(
        finding("tag_moved", t.tag, got=t.commit, expected=f"no tag above v{main.version.version}") for t in above
    )


def repair(ctx: Context, main: Snapshot) -> bool:
    """Set the registry's display tag of the current version to what git says."""
    store = ctx.global_store(main.federation)
    short = GlobalVersion(main.version.version).short
    digest = Digest(main.version.model.manifest)
    if store.resolve(f"{repository_of(None)}:{short}") == digest:
        return False
    store.tag(repository_of(None), digest, short)
    return True


def advance(ctx: Context, done: Reconciled, *, jitter: Callable[[], float]) -> tuple[bool, Mapping[BlobId, str]]:
    """Publish the next version if the policy says so.

    Returns:
        Whether something changed; and, if no version was made, the record blobs whose bytes cannot be used, with the
        slug that says why.
    """
    gone: dict[BlobId, str] = {}
    moved = False
    for _ in range(MAX_PLANS):
        main = refreshed(ctx)
        # Before the next version is made, so that no display tag is ever left out.
        moved |= repair(ctx, main)
        done.decision = None
        if strays := stray_tags(ctx, main):
            done.findings.extend(strays)
            return moved, gone
        decided_at = ctx.clock.now().replace(microsecond=0)
        plan = propose(ctx, main, merged_state(ctx.repository, main), decided_at, unavailable=gone)
        done.decision = plan.decision
        if plan.manifest is None:
            done.findings.extend(plan.findings)
            return moved, plan.skips.slugs()
        outcome = publish(ctx, main.commit, decided_at, plan.manifest, jitter=jitter)
        if isinstance(outcome, Published):
            done.published.append(outcome.record)
        if not isinstance(outcome, Replan):
            return True, {}
        gone |= outcome.gone
    done.again = True
    return moved, gone


def signal_all(ctx: Context, done: Reconciled, skipped: Mapping[BlobId, str]) -> bool:
    """Open, refresh and close signal issues for the current version."""
    main = refreshed(ctx)
    texts = signal(ctx, main, merged_state(ctx.repository, main), skipped)
    done.signals.extend(texts)
    return bool(texts)
