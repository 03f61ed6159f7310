"""A version under review: open its pull request, tell how it stands, close it, and publish it once leads approved it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.app.version_pulls import Look, Refused, VersionPull, judge, look
from fedops.app.version_push import Lost, Opened, Outcome, Published, Replan, push_once, raced, standing
from fedops.core.approvals import HOLD_LABELS, held_by, hold_marker
from fedops.core.facts import Marker, Pull
from fedops.core.findings import Finding
from fedops.core.forge_settings import VERDICT
from fedops.core.ids import CommitId, Digest, GlobalVersion, version_branch
from fedops.core.plan import plan_version, version_title
from fedops.core.policy import record_inputs
from fedops.core.records import VersionRecord, model_pointer
from fedops.core.signals import marker_in
from fedops.render.version_pull import State, hold_body, version_body, version_comment

_STATUS = {"waits": "pending", "approved": "success", "refused": "failure", "closed": "failure"}


@dataclass(frozen=True)
class Tended:
    """How things stand, and what was done about it.

    Attributes:
        counting: the version pull request on which the federation waits.
        texts: what was done, in words.
    """

    counting: VersionPull | None
    texts: tuple[str, ...]


def tend(ctx: Context, main: Snapshot) -> Tended:
    """Tell every pull request that brings a version how it stands; close what is out of date or was rejected.

    Never opens a tensor. Done twice it changes nothing.
    """
    pulls = ctx.forge.open_pulls()
    seen = look(ctx.repository, ctx.forge, main, pulls)
    texts = [
        f"#{refused.pull.number}: not counted"
        for refused in seen.refused
        if _report(ctx, refused.pull, "refused", _reason(refused), refused.findings)
    ]
    for stale in seen.stale:
        close(ctx, stale.pull, stale.why)
        texts.append(f"#{stale.pull.number}: closed, {stale.why}")
    rejected = [one for one in _standing(seen) if one.approval.rejected]
    for one in rejected:
        _reject(ctx, one)
        texts.append(f"#{one.pull.number}: closed, rejected by a lead")
    left = [one for one in _standing(seen) if one not in rejected]
    for place, one in enumerate(left):
        state, note = _stands(one, left[0] if place else None)
        if _report(ctx, one.pull, state, note):
            texts.append(f"#{one.pull.number}: {note}")
    if main.aggregation.publish.mode == "review":
        texts += _end_holds(ctx, main)
    return Tended(left[0] if left else None, tuple(texts))


def _standing(seen: Look) -> tuple[VersionPull, ...]:
    return (*([seen.counting] if seen.counting is not None else []), *seen.later)


def _stands(one: VersionPull, before: VersionPull | None) -> tuple[State, str]:
    if before is not None:
        return "waits", f"after #{before.pull.number}"
    if one.approval.given:
        return "approved", "approved"
    return "waits", f"waits for {one.approval.missing} more approval(s) of this commit by a lead"


def _reason(refused: Refused) -> str:
    return ", ".join(dict.fromkeys(f.slug for f in refused.findings))


def _marker(pull: Pull) -> Marker:
    return Marker("version", f"pull-{pull.number}")


def _report(ctx: Context, pull: Pull, state: State, note: str, findings: Sequence[Finding] = ()) -> bool:
    """The one sticky comment and the commit status; True if something changed."""
    text = version_comment(state, pull.number, pull.head, note, findings)
    changed = ctx.forge.upsert_comment(pull.number, _marker(pull), text)
    status = (_STATUS[state], note[:130])
    if ctx.forge.status(pull.head, VERDICT) != status:
        ctx.forge.set_status(pull.head, status[0], VERDICT, status[1])  # type: ignore[arg-type]  # of _STATUS
        changed = True
    return changed


def close(ctx: Context, pull: Pull, why: str, findings: Sequence[Finding] = ()) -> None:
    """Close a version's pull request; the reason is said first, so that no closed one lacks it."""
    _report(ctx, pull, "closed", why, findings)
    ctx.forge.close_pull(pull.number)


def _reject(ctx: Context, one: VersionPull) -> None:
    """Close what leads rejected; CI's own is held, so that the next run does not propose the same again."""
    if not one.is_rollback:
        marker = hold_marker(one.record.version, record_inputs(one.record), one.pull.number)
        title = f"{GlobalVersion(one.record.version).short} was rejected in #{one.pull.number}"
        ctx.forge.ensure_issue(marker, title, hold_body(one.record, one.pull.number), HOLD_LABELS)
    close(ctx, one.pull, "a lead rejected it")


def held(ctx: Context) -> frozenset[Digest]:
    """Inputs of the versions that leads rejected and that are not to be proposed again."""
    marks = [held_by(marker_in(issue.body)) for issue in ctx.forge.issues(HOLD_LABELS)]
    return frozenset(mark[1] for mark in marks if mark is not None)


def end_holds(ctx: Context) -> list[str]:
    """Let everything that leads rejected be proposed again."""
    issues = ctx.forge.issues(HOLD_LABELS)
    for issue in issues:
        ctx.forge.close_issue(issue.number)
    return [f"#{issue.number}: closed" for issue in issues]


def _end_holds(ctx: Context, main: Snapshot) -> list[str]:
    """Close the holds of versions that were made otherwise."""
    done = []
    for issue in ctx.forge.issues(HOLD_LABELS):
        mark = held_by(marker_in(issue.body))
        if mark is not None and mark[0] <= main.version.version:
            ctx.forge.close_issue(issue.number)
            done.append(f"#{issue.number}: closed")
    return done


# ---------------------------------------------------------------- open, publish


def open_version(
    ctx: Context, pinned: Snapshot, record: VersionRecord, at: dt.datetime, findings: Sequence[Finding] = ()
) -> Outcome:
    """Open the pull request of a version: the commit that would be pushed, on a branch of its own.

    Args:
        pinned: the commit that was decided on.
        at: date of the commit.
        findings: warnings that reviewers should know.
    """
    ctx.repository.fetch()
    main = main_snapshot(ctx.repository)
    state = standing(pinned, main, record.version)
    if state is not None:
        return state
    if look(ctx.repository, ctx.forge, main, ctx.forge.open_pulls()).counting is not None:
        return Lost()
    head = version_head(ctx, main, record, at)
    body = version_body(record, main.version.metrics, findings=findings)
    return Opened(record, ctx.forge.submit_pull(head, version_branch(record.version), version_title(record), body))


def version_head(
    ctx: Context,
    main: Snapshot,
    record: VersionRecord,
    at: dt.datetime,
    *,
    reason: str = "",
    key: Path | None = None,
) -> CommitId:
    """Write the commit that proposes a version on main; it is the one that a push would publish.

    Args:
        key: of the lead who proposes it.
    """
    extension = main.federation.extension
    pointer = model_pointer(record, extension)
    step = plan_version(record, pointer, main.commit, extension=extension, at=at, reason=reason)
    return ctx.repository.write_commit([main.commit], step.files, step.commit_message, at=at, key=key)


def version_merge(ctx: Context, main: Snapshot, found: VersionPull) -> CommitId:
    """Write the merge that would bring an approved version to main, to be verified; no ref moves."""
    extension, head = main.federation.extension, found.pull.head
    at = ctx.clock.now().replace(microsecond=0)
    step = plan_version(found.record, model_pointer(found.record, extension), head, extension=extension, at=at)
    parents = [main.commit, head, *found.proofs]
    return ctx.repository.write_commit(parents, step.files, step.commit_message, at=at)


def publish_pull(ctx: Context, found: VersionPull, *, jitter: Callable[[], float]) -> Outcome:
    """Push the merge of an approved version and its tag; what speaks against it is looked at again before each try."""
    head = found.pull.head

    def attempt() -> Outcome | None:
        main = main_snapshot(ctx.repository)
        if main.version.version >= found.record.version:
            return Lost()
        pull = ctx.forge.pull(found.pull.number)
        if pull.state != "open" or pull.head != head:
            return Replan({})
        now = judge(ctx.repository, ctx.forge, main, pull)
        is_tagged = ctx.repository.versions(above=found.record.version - 1)
        if not isinstance(now, VersionPull) or not now.approval.given or is_tagged:
            return Replan({})
        at = ctx.clock.now().replace(microsecond=0)
        trailers = merge_trailers(now)
        parents = [main.commit, head, *now.proofs]
        return push_once(ctx, main, now.record, parents, at, reason=now.reason, trailers=trailers)

    outcome = raced(ctx, found.record.version, attempt, jitter=jitter)
    if isinstance(outcome, Published) and ctx.forge.pull(found.pull.number).state == "merged":
        # The git forge sees the merge by itself, but leaves its own file open; elsewhere this does nothing.
        ctx.forge.close_pull(found.pull.number)
    return outcome


def merge_trailers(found: VersionPull) -> dict[str, object]:
    """What the merge of a version says of its pull request."""
    return {
        "Fedops-Pull": found.pull.number,
        "Fedops-Head": found.pull.head,
        "Fedops-Approved-By": ", ".join(map(str, found.approval.approved)),
    }
