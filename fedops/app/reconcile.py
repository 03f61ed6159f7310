"""The one loop: look at all open pull requests and at main, do what is missing, until nothing is left.

Level-triggered: harmless when run twice, late, or by two runners at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fedops.app.allowance import Allowance
from fedops.app.context import Context
from fedops.app.counted_forge import counted
from fedops.app.inspect import inspect_pull, open_work, refreshed
from fedops.app.merge import Merged
from fedops.app.merged import merge_warnings, merged_state
from fedops.app.next_version import Prepared, bring, prepare, untagged
from fedops.app.pull_pass import PullPass, turns
from fedops.app.repair import repair_page, repair_tag
from fedops.app.retag import restore_tags
from fedops.app.retention import retire
from fedops.app.signals import signal
from fedops.app.snapshot import Snapshot
from fedops.app.tag_faults import above, misplaced
from fedops.app.verdict_cache import BytesMemory
from fedops.app.version_push import Opened, Published, Replan
from fedops.app.version_review import close, tend
from fedops.core.facts import Decision
from fedops.core.findings import Finding, errors
from fedops.core.ids import BlobId, GlobalVersion
from fedops.core.plan import version_title
from fedops.core.records import VersionRecord

MAX_PASSES = 50
MAX_PLANS = 3


@dataclass
class Reconciled:
    """What one run did, and what it waits for now."""

    merged: list[Merged] = field(default_factory=list)
    published: list[VersionRecord] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)  # tags made again, and inputs deleted that are no longer kept
    reviews: list[str] = field(default_factory=list)  # what was done with the pull requests of versions
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
    """Run to the fixed point, or as far as one run may go: merge, repair, aggregate, publish, signal.

    Returns:
        What was done in all passes; findings and decision are those of the last one; `again` if something is left.

    Raises:
        StoreError, GitError, ForgeError: a broken machine; what was done before stays done, running again goes on.
    """
    done = Reconciled()
    memory = BytesMemory()
    allowance = Allowance(ctx.clock.now())
    ctx = counted(ctx, allowance)
    for _ in range(MAX_PASSES):
        done.findings, done.again = [], False
        moved = merge_all(ctx, memory, allowance, done)
        # Never put off for writes: a version is what the others wait for, and takes a handful.
        advanced, skipped = advance(ctx, done, jitter=jitter)
        moved |= advanced
        moved |= signal_all(ctx, done, skipped, allowance)
        done.changed |= moved
        if not moved:
            return done
        if allowance.is_spent(ctx.clock.now()):
            break
    done.again = True
    return done


def merge_all(ctx: Context, memory: BytesMemory, allowance: Allowance, done: Reconciled) -> bool:
    """Judge and merge every open pull request in turn, as far as the run may go; True if another pass has more to do."""
    pulls, main = open_work(ctx)
    task = ctx.progress.start("pull requests", len(pulls), "steps") if pulls else None
    run = PullPass(ctx, pulls, allowance)
    for pull in turns(ctx, main, pulls, memory):
        run.take(pull, partial(inspect_pull, ctx, main, pull, memory, allowance))
        if task is not None:
            ctx.progress.advance(task, 1)
    if task is not None:
        ctx.progress.finish(task)
    done.changed |= run.end()
    done.merged += [one for one in run.done if one.changed or one.outcome == "lost"]
    done.findings += run.failed
    done.again |= any(pull.head not in memory.tried for pull in run.left)
    return any(one.changed for one in run.done)


def stray_tags(ctx: Context, main: Snapshot) -> tuple[Finding, ...]:
    """Version tags that nobody published: nothing is aggregated until they are gone.

    These are tags above the current version, and a tag of the current one that names another commit than made it.

    Args:
        main: as it was just fetched.
    """
    if not ctx.repository.versions(above=main.version.version):
        return misplaced(main)
    # NOTE: looked at twice, since a fetch may see the tag of a push that is under way before it sees its main.
    main = refreshed(ctx)
    return (*above(main, ctx.repository.versions(above=main.version.version)), *misplaced(main))


def repair(ctx: Context, main: Snapshot) -> bool:
    """Set the registry's display tag and the forge's page of the current version, once that has its own tag."""
    return repair_tag(ctx, main) | repair_page(ctx, main)


def _mend(ctx: Context, main: Snapshot, done: Reconciled) -> bool:
    """Make deleted tags again, and delete what `retain_updates` no longer keeps; True if something was done."""
    retagged, retired = restore_tags(ctx, main), retire(ctx, main)
    texts = [f"{GlobalVersion(n).tag}: made again" for n in retagged.numbers]
    texts += retired.texts
    done.findings.extend((*retagged.findings, *retired.findings))
    done.mended.extend(texts)
    return bool(texts)


def advance(ctx: Context, done: Reconciled, *, jitter: Callable[[], float]) -> tuple[bool, Mapping[BlobId, str]]:
    """Publish the next version if the policy says so.

    Returns:
        Whether something changed; and, if no version was made, the record blobs whose bytes cannot be used, with the
        slug that says why.

    Raises:
        MainFileError: a document of main cannot be used.
    """
    gone: dict[BlobId, str] = {}
    moved = False
    for _ in range(MAX_PLANS):
        main = refreshed(ctx)
        main.require_documents()  # nothing is decided where one of them cannot be used
        # Before the next version is made, so that no display tag is ever left out.
        moved |= repair(ctx, main) | _mend(ctx, main, done)
        done.decision = None
        if strays := stray_tags(ctx, main):
            done.findings.extend(strays)
            return moved, gone
        tended = tend(ctx, main)
        done.reviews.extend(tended.texts)
        moved |= bool(tended.texts)
        decided_at = ctx.clock.now().replace(microsecond=0)
        step = prepare(ctx, main, decided_at, tended.counting, unavailable=gone)
        done.decision = step.decision
        if step.ticket is None:
            done.findings.extend(step.findings)
            return moved | _close_failed(ctx, step, done), step.skipped
        outcome = bring(ctx, main.commit, decided_at, step.ticket, jitter=jitter)
        if isinstance(outcome, Published):
            done.published.append(outcome.record)
        elif isinstance(outcome, Opened):
            done.reviews.append(f"#{outcome.pull.number}: opened, {version_title(outcome.record)}")
        if not isinstance(outcome, Replan):
            return True, {}
        gone |= outcome.gone
    done.again = True
    return moved, gone


def _close_failed(ctx: Context, step: Prepared, done: Reconciled) -> bool:
    """Close the pull request of a version that leads approved and that does not recompute; True if there is one."""
    if step.failed is None:
        return False
    close(ctx, step.failed.pull, "it does not recompute", step.findings)
    done.reviews.append(f"#{step.failed.pull.number}: closed, it does not recompute")
    return True


def signal_all(
    ctx: Context, done: Reconciled, skipped: Mapping[BlobId, str], allowance: Allowance | None = None
) -> bool:
    """Open, refresh and close signal issues for the current version, once it is verified and tagged.

    Args:
        skipped, allowance: as in `signal`.
    """
    main = refreshed(ctx)
    if untagged(main) is not None:
        return False
    merged = merged_state(ctx.repository, main)
    done.findings.extend(merge_warnings(merged, ctx.clock.now()))
    told = signal(ctx, main, merged, skipped, allowance)
    done.signals.extend(told.texts)
    done.again |= told.left
    return bool(told.texts)
