"""Merge what is accepted, and tell each pull request its verdict. Never opens a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from fedops.app.context import Context
from fedops.app.inspect import Judgement, judge_documents, refreshed
from fedops.app.leads_change import leads_change
from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.core.errors import FedopsError
from fedops.core.facts import Marker, VerdictState
from fedops.core.findings import Finding, errors
from fedops.core.forge_settings import VERDICT
from fedops.core.plan import merge_message
from fedops.core.report import STAGES, PullReport, pull_report
from fedops.render.markdown import pull_comment
from fedops.render.text import printable

LEADS_CHANGE = "no submission: a lead's change, for people to review"
NO_MORE = "no lead's change any more"  # who opened it has left the roster, or it was changed
_NOTHING_AGAINST: tuple[Literal["success"], str] = ("success", LEADS_CHANGE)
_SHOWN = 130  # characters of a status' text
_STATES = {"accepted": "success", "rejected": "failure", "pending": "pending"}


@dataclass(frozen=True)
class Merged:
    """What was done with one pull request.

    Attributes:
        outcome: "lost": something moved meanwhile, and it is to be looked at again; "ignored": nothing to decide; a lead's
            own change is told so once.
        changed: something is not as it was before, or not as it was judged: another look may find more to do.
    """

    judgement: Judgement
    outcome: Literal["merged", "rejected", "waiting", "ignored", "lost"]
    changed: bool


def merge_pull(ctx: Context, inspected: Judgement) -> Merged:
    """Merge one pull request if inspect accepted exactly this head, then report.

    The documents are judged again on the main of this moment: another merge may have brought the same bytes.
    """
    if inspected.verdict.state == "not_a_submission":
        return _leave(ctx, inspected)
    # As last fetched, that is after the pull requests were listed: what is not merged needs no newer one.
    main = main_snapshot(ctx.repository)
    now = _stands(ctx, main, inspected)
    if now is not None and now.verdict.state == "accepted" and (moved := refreshed(ctx)).commit != main.commit:
        main, now = moved, _stands(ctx, moved, inspected)
    if now is None:
        return Merged(inspected, "lost", changed=True)
    match now.verdict.state:
        case "accepted":
            return _merge(ctx, main, now)
        case "rejected":
            return Merged(now, "rejected", report(ctx, main, now))
        case "pending":
            return Merged(now, "waiting", report(ctx, main, now))
        case "not_a_submission":  # another run has merged it
            return Merged(now, "ignored", changed=False)
        case never:
            assert_never(never)


def _leave(ctx: Context, inspected: Judgement) -> Merged:
    """Tell a lead's own change that CI has nothing to say of it; all else that is no submission is told nothing.

    Where the status is required, nobody could merge a change of the policies without it; who may is for people to say.
    It is taken back from what is no lead's any more, and withheld where a document could not be used.
    """
    pull, main = inspected.pull, main_snapshot(ctx.repository)
    # NOTE: what inspect said of it comes from another job; here the one is asked that writes.
    found = leads_change(main, pull, ctx.repository.changes(main.commit, pull.head))
    told = ctx.forge.status(pull.head, VERDICT)
    if found is None and told != _NOTHING_AGAINST:
        return Merged(inspected, "ignored", changed=False)
    state, text = _on_leads_change(found)
    if told == (state, text):
        return Merged(inspected, "ignored", changed=False)
    ctx.forge.set_status(pull.head, state, VERDICT, text)
    return Merged(replace(inspected, note=text), "ignored", changed=True)


def _on_leads_change(found: Sequence[Finding] | None) -> tuple[Literal["success", "failure"], str]:
    """State and text; None: it is a lead's no more."""
    if found is None:
        return "failure", NO_MORE
    if not found:
        return _NOTHING_AGAINST
    where, got = found[0].where, str(found[0].got)
    text = printable(got if got.startswith(where) else f"{where}: {got}")
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return "failure", text[: _SHOWN - len(more)] + more


def _stands(ctx: Context, main: Snapshot, inspected: Judgement) -> Judgement | None:
    """How the pull request stands with this main, approvals counted; None as in `_again`."""
    now = _again(ctx, main, inspected)
    if now is None or now.verdict.state != "accepted" or not (note := missing_approvals(ctx, main, now)):
        return now
    return replace(now, verdict=replace(now.verdict, state="pending"), note=note, awaits_approval=True)


def _again(ctx: Context, main: Snapshot, inspected: Judgement) -> Judgement | None:
    """Documents judged anew, the bytes' part taken from inspect; None if the policies changed, which voids that part."""
    if inspected.verdict.policy != main.policy:
        return None
    if inspected.verdict.state == "not_a_submission":
        return inspected
    try:
        documents = judge_documents(ctx, main, inspected.pull)
    except FedopsError as e:
        state: VerdictState = "pending" if inspected.verdict.state == "accepted" else inspected.verdict.state
        return replace(inspected, verdict=replace(inspected.verdict, state=state), note=inspected.note or e.message)
    if inspected.verdict.state != "accepted":
        return replace(inspected, site=documents.site, record=documents.record)
    if documents.verdict.state != "accepted":
        return documents
    return replace(documents, verdict=replace(documents.verdict, findings=inspected.verdict.findings))


def _merge(ctx: Context, main: Snapshot, accepted: Judgement) -> Merged:
    """Merge exactly the head that was judged."""
    pull, record = accepted.pull, accepted.record
    assert record is not None
    assert accepted.site is not None
    # NOTE: reported before the merge, so that a merged pull request never lacks its verdict.
    report(ctx, main, accepted)
    message = merge_message(accepted.site, record.base_version, pull.number, pull.author, pull.head, main.policy)
    outcome = ctx.forge.merge(pull.number, pull.head, message)
    if outcome in ("merged", "already_merged"):
        return Merged(accepted, "merged", changed=outcome == "merged")
    # A forge that refuses although nothing moved would refuse again at once.
    moved = ctx.forge.pull(pull.number).head != pull.head or refreshed(ctx).commit != main.commit
    return Merged(accepted, "lost", changed=moved)


def missing_approvals(ctx: Context, main: Snapshot, judged: Judgement) -> str:
    """What a reviewed merge still waits for, in words; empty when nothing."""
    policy = main.aggregation.merge
    if policy.mode == "auto":
        return ""
    assert judged.site is not None
    leads = main.sites.judges_of(judged.site)
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
    # NOTE: not by site: a verdict that fails early does not know it, and one pull request has one comment.
    marker = Marker("submission", f"pull-{pull.number}")
    changed = ctx.forge.upsert_comment(pull.number, marker, pull_comment(facts, marker))
    state = _STATES[verdict.state]
    text = _status_text(judged)
    if ctx.forge.status(pull.head, VERDICT) != (state, text):
        ctx.forge.set_status(pull.head, state, VERDICT, text)  # type: ignore[arg-type]  # values of _STATES
        changed = True
    return changed


def _status_text(judged: Judgement) -> str:
    bad: Sequence[object] = errors(judged.verdict.findings)
    if bad:
        return f"rejected: {errors(judged.verdict.findings)[0].slug}" + (
            f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        )
    return "accepted" if judged.verdict.state == "accepted" else (judged.note or "pending")[:_SHOWN]
