"""`fedops ci …`: what the workflows call; each is harmless when repeated."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

import click

from fedops.cli.ci_again import again as again_command
from fedops.cli.ci_decided import RULES, decided, why_not, word
from fedops.cli.ci_pulls import inspect, merge
from fedops.cli.ci_retain import retain
from fedops.cli.console import Format, document, emit, format_option, say, say_findings
from fedops.cli.group import Group
from fedops.cli.job_values import (
    compact,
    decided_at_option,
    input_commit_option,
    moment,
    output_option,
    pinned_commit,
    proposal_ticket,
    skipped_blobs,
    write_outputs,
)
from fedops.core.errors import FedopsError, MainFileError, passes
from fedops.core.findings import errors
from fedops.render.text import printable


@click.group("ci", cls=Group)
def ci_command() -> None:
    """What the workflows call; people may call it too: `fedops ci reconcile` does all of it."""


@ci_command.command()
@input_commit_option
@decided_at_option
@output_option
@format_option
def aggregate(input_commit: str, decided_at: str, github_output: Path | None, fmt: Format) -> None:
    """Compute the next version and upload it, or recompute one that people approved or merged; no git write."""
    from fedops.app.next_version import prepare
    from fedops.app.snapshot import snapshot
    from fedops.app.version_pulls import look
    from fedops.cli.uploads import noting_uploads
    from fedops.cli.wire import open_context

    at = moment(decided_at)
    with open_context() as (_, plain):
        plain.repository.fetch()
        main = snapshot(plain.repository, pinned_commit(plain.repository, input_commit))
        ctx, uploads = noting_uploads(plain)
        counting = look(ctx.repository, ctx.forge, main, ctx.forge.open_pulls()).counting
        plan = prepare(ctx, main, at, counting, unavailable={})
    write_outputs(
        github_output, {"proposal": plan.ticket.text if plan.ticket else "", "skipped": compact(plan.skipped)}
    )
    rules = [f for f in plan.findings if f.slug == RULES]
    why = why_not(plan.decision, rules) or "it does not recompute"
    text = f"proposed {plan.ticket.text}" if plan.ticket else f"no version now: {why}"
    ok = not errors(plan.findings)
    result = document("propose", ok=ok, changed=any(uploads), findings=plan.findings)
    emit(fmt, result | {"proposal": plan.ticket.text if plan.ticket else "", "skipped": dict(plan.skipped)}, text)
    if fmt == "text":
        say_findings(plan.findings)


@ci_command.command()
@input_commit_option
@decided_at_option
@click.option("--proposal", required=True, help="Output `proposal` of `ci aggregate`.")
@output_option
@format_option
def publish(input_commit: str, decided_at: str, proposal: str, github_output: Path | None, fmt: Format) -> None:
    """Archive the inputs and push the version's commit and tag, or open its pull request; never opens a tensor."""
    from fedops.app.announce import announce
    from fedops.app.next_version import bring
    from fedops.app.version_push import Opened, Published, Replan
    from fedops.cli.wire import open_context

    at, ticket = moment(decided_at), proposal_ticket(proposal)
    with open_context() as (_, ctx):
        ctx.repository.fetch()
        pinned = pinned_commit(ctx.repository, input_commit)
        outcome = bring(ctx, pinned, at, ticket, jitter=random.random)
        now = decided(ctx)
        if isinstance(outcome, Published):
            # Also where a person brought the version, and only its tag was pushed.
            announce(ctx, now.main.federation, outcome.record)
    version = outcome.record.version if isinstance(outcome, Published) else None
    pull = outcome.pull.number if isinstance(outcome, Opened) else None
    # What was handed in while this run was busy may make a version of its own.
    again = isinstance(outcome, Replan) or (version is not None and now.due)
    write_outputs(github_output, {"again": word(again)})
    text = f"published v{version}" if version is not None else "this version is published already"
    if isinstance(outcome, Opened):
        text = f"#{pull}: v{outcome.record.version} waits for the leads' review"
    changed = not (version is None and pull is None)
    result = document("publish", ok=True, changed=changed, version=version, pull=pull, again=again)
    replan = "what the version rests on changed: decide again"
    emit(fmt, result, replan if isinstance(outcome, Replan) else f"{text}; the next is due" if again else text)


@ci_command.command()
@click.option("--skipped", default="", help="Output of `ci aggregate`: what it had to leave out, and why.")
@output_option
@format_option
def signal(skipped: str, github_output: Path | None, fmt: Format) -> None:
    """Repair the registry's display tag, delete inputs that are no longer kept, then open and close signal issues."""
    from fedops.app.inspect import refreshed
    from fedops.app.reconcile import Reconciled, signal_all
    from fedops.app.repair import repair_tag
    from fedops.app.retention import retire
    from fedops.cli.wire import open_context

    left_out, done = skipped_blobs(skipped), Reconciled()
    with open_context() as (_, ctx):
        main = refreshed(ctx)
        # Not its page: this job may not write to the repository, nor to its releases. `ci merge` has it made again.
        repaired, retired = repair_tag(ctx, main), retire(ctx, main)
        told = signal_all(ctx, done, left_out)
    write_outputs(github_output, {"left": word(done.again)})
    findings, texts = (*retired.findings, *done.findings), [*done.signals, *retired.texts]
    texts += ["something is left: run it again"] * done.again
    changed = told or bool(retired.texts) or repaired
    told_of = {"signals": done.signals, "mended": list(retired.texts), "left": done.again}
    result = document("signal", ok=True, changed=changed, findings=findings, **told_of)
    emit(fmt, result, "\n".join(map(printable, texts)) or "nothing to do")
    if fmt == "text":
        say_findings(findings)


def _a_number(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """Refuses nan, which every range lets pass; for click's `callback`."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan -> a number of seconds")
    return value


@ci_command.command()
@click.option(
    "--watch",
    type=click.FloatRange(min=1, max=86_400),
    callback=_a_number,
    help="Go on for ever, with a pause of so many seconds.",
)
@click.option("--retry-rejected", is_flag=True, help="Propose versions again that leads rejected.")
@format_option
def reconcile(watch: float | None, retry_rejected: bool, fmt: Format) -> None:
    """Do everything that is missing: inspect, merge, aggregate, publish, signal, until nothing is left.

    With --watch a result is printed when it differs from the one before; what passes, such as a store that is away for
    a while, or a policy on main that cannot be used, is told and tried again.
    """
    last = broken = ""
    while True:
        try:
            last = _reconcile_once(fmt, last, retry_rejected=retry_rejected)
            retry_rejected = False
            if broken:
                say("main can be used again")
            broken = ""
        except MainFileError as e:
            if watch is None:
                raise
            if e.message != broken:
                say(f"waits until main can be used: {e.message}\n  hint: {e.hint}")
            broken = e.message
        except FedopsError as e:
            if watch is None or not passes(e):
                raise
            say(f"error: {e.message}; trying again in {watch:g} s")
        if watch is None:
            return
        time.sleep(watch)


def _reconcile_once(fmt: Format, last: str, *, retry_rejected: bool = False) -> str:
    """One run; its result is printed unless it is the same as the last one, and returned."""
    from fedops.app.reconcile import reconcile as run
    from fedops.app.version_review import end_holds
    from fedops.cli.wire import open_context
    from fedops.render.reconcile import reconcile_document, reconcile_text

    with open_context() as (_, ctx):
        freed = end_holds(ctx) if retry_rejected else []
        done = run(ctx, jitter=random.random)
    facts = reconcile_document(
        done.merged_rows(),
        done.published,
        done.signals,
        done.decision,
        again=done.again,
        mended=done.mended,
        reviews=[*freed, *done.reviews],
    )
    changed = done.changed or bool(freed)
    result = document("reconcile", ok=not errors(done.findings), changed=changed, findings=done.findings)
    shown = compact(result | facts)
    if shown != last:
        emit(fmt, result | facts, reconcile_text(facts))
        if fmt == "text":
            say_findings(done.findings)
    return shown


ci_command.add_command(again_command)
ci_command.add_command(inspect)
ci_command.add_command(merge)
ci_command.add_command(retain)


@ci_command.command()
@format_option
def audit(fmt: Format) -> None:
    """Verify all versions, the store's tags of them, and whether the forge can be read; exit 3 if something is wrong."""
    from fedops.cli.verify import audit as run

    run(fmt)
