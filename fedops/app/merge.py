"""Merge what is accepted, and tell each pull request its verdict. Never opens a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedops.app.context import Context
from fedops.app.inspect import Judgement, judge_documents, refreshed
from fedops.app.snapshot import Snapshot
from fedops.core.errors import FedopsError
from fedops.core.facts import Marker
from fedops.core.findings import errors
from fedops.core.plan import merge_message
from fedops.core.report import STAGES, PullReport, pull_report
from fedops.render.markdown import pull_comment

STATUS_CONTEXT = "fedops/verdict"
_STATES = {"accepted": "success", "rejected": "failure", "pending": "pending"}


@dataclass(frozen=True)
class Merged:
    """What was done with one pull request: merged | rejected | waiting | ignored | lost."""

    judgement: Judgement
    outcome: str
    changed: bool


def merge_pull(ctx: Context, inspected: Judgement) -> Merged:
    """Merge one pull request if inspect accepted exactly this head, then report.

    The documents are judged again on the main of this moment: another merge may have brought the same bytes.
    """
    pull = inspected.pull
    if inspected.verdict.state == "not_a_submission":
        return Merged(inspected, "ignored", changed=False)
    main = refreshed(ctx)
    now = _again(ctx, main, inspected)
    if now.verdict.state != "accepted":
        return Merged(now, "rejected" if now.verdict.state == "rejected" else "waiting", report(ctx, main, now))
    note = missing_approvals(ctx, main, now)
    if note:
        waiting = replace(now, verdict=replace(now.verdict, state="pending"), note=note, awaits_approval=True)
        return Merged(waiting, "waiting", report(ctx, main, waiting))
    assert now.record is not None
    assert now.site is not None
    # NOTE: reported before the merge, so that a merged pull request never lacks its verdict.
    report(ctx, main, now)
    message = merge_message(now.site, now.record.base_version, pull.number, pull.author, pull.head, main.policy)
    outcome = ctx.forge.merge(pull.number, pull.head, message)
    ctx.repository.fetch()
    return Merged(now, "merged" if outcome in ("merged", "already_merged") else "lost", changed=True)


def _again(ctx: Context, main: Snapshot, inspected: Judgement) -> Judgement:
    """Documents judged anew, the bytes' part taken from inspect; another policy voids that part."""
    if inspected.verdict.state != "accepted":
        return inspected
    try:
        documents = judge_documents(ctx, main, inspected.pull)
    except FedopsError as e:
        return replace(inspected, verdict=replace(inspected.verdict, state="pending"), note=e.message)
    if documents.verdict.state != "accepted":
        return documents
    if inspected.verdict.policy != main.policy:
        stale = replace(documents.verdict, state="pending")
        return replace(documents, verdict=stale, note="the policies changed meanwhile; it is checked again")
    return replace(documents, verdict=replace(documents.verdict, findings=inspected.verdict.findings))


def missing_approvals(ctx: Context, main: Snapshot, judged: Judgement) -> str:
    """What a reviewed merge still waits for, in words; empty when nothing."""
    policy = main.aggregation.merge
    if policy.mode == "auto":
        return ""
    leads = {lead.id for lead in main.sites.leads}
    reviews = [
        r
        for r in ctx.forge.reviews(judged.pull.number)
        if r.head == judged.pull.head and r.author.id in leads and r.author.id != judged.pull.author.id
    ]
    if any(r.state == "changes_requested" for r in reviews):
        return "a lead asks for changes"
    approvals = len({r.author.id for r in reviews if r.state == "approved"})
    if approvals >= policy.approvals:
        return ""
    return f"waits for {policy.approvals - approvals} more approval(s) of this commit by a lead"


def report(ctx: Context, main: Snapshot, judged: Judgement) -> bool:
    """Write the one sticky comment and the commit status; True if something changed."""
    pull, verdict = judged.pull, judged.verdict
    facts: PullReport = pull_report(
        judged.site,
        judged.record,
        verdict,
        main.version,
        note=judged.note,
        ran=STAGES if judged.awaits_approval else None,
        next_step=f"a lead runs `fedops review {pull.number} --approve`." if judged.awaits_approval else "",
    )
    marker = Marker("submission", judged.site or f"pull-{pull.number}")
    changed = ctx.forge.upsert_comment(pull.number, marker, pull_comment(facts, marker))
    state = _STATES[verdict.state]
    text = _status_text(judged)
    if ctx.forge.status(pull.head, STATUS_CONTEXT) != (state, text):
        ctx.forge.set_status(pull.head, state, STATUS_CONTEXT, text)  # type: ignore[arg-type]  # values of _STATES
        changed = True
    return changed


def _status_text(judged: Judgement) -> str:
    bad: Sequence[object] = errors(judged.verdict.findings)
    if bad:
        return f"rejected: {errors(judged.verdict.findings)[0].slug}" + (
            f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        )
    return "accepted" if judged.verdict.state == "accepted" else (judged.note or "pending")[:130]
