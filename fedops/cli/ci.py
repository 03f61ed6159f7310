"""`fedops ci …`: what the workflows call; each is harmless when repeated."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedops.cli.console import TEMPORARY, Format, answer, document, emit, format_option, say, say_findings
from fedops.cli.group import Group
from fedops.cli.job_values import (
    compact,
    decided_at_option,
    input_commit_option,
    moment,
    output_option,
    pinned_commit,
    proposal_digest,
    skipped_blobs,
    verdicts_bytes,
    write_outputs,
)
from fedops.core.errors import FedopsError
from fedops.core.findings import Finding, errors, finding
from fedops.render.text import printable

if TYPE_CHECKING:
    from fedops.app.context import Context
    from fedops.app.inspect import Judgement
    from fedops.app.merge import Merged
    from fedops.core.facts import Decision


@click.group("ci", cls=Group)
def ci_command() -> None:
    """What the workflows call; people may call it too: `fedops ci reconcile` does all of it."""


@ci_command.command()
@click.option(
    "--pull", type=int, help="Only this pull request; exit 3 if it is rejected, 5 if that cannot be said now."
)
@output_option
@format_option
def inspect(pull: int | None, github_output: Path | None, fmt: Format) -> None:
    """Judge open pull requests: documents and bytes. Writes nothing."""
    from fedops.app.inspect import BytesMemory, inspect_pull, refreshed
    from fedops.app.verdicts import dump_verdicts, fitted
    from fedops.cli.wire import open_context

    with open_context() as (_, ctx):
        main = refreshed(ctx)
        pulls = [ctx.forge.pull(pull)] if pull is not None else ctx.forge.open_pulls()
        memory = BytesMemory()
        judged = [inspect_pull(ctx, main, one, memory) for one in pulls]
    findings = [f for j in judged for f in j.verdict.findings]
    verdicts = dump_verdicts(judged)
    output = fitted(verdicts)
    write_outputs(github_output, {"verdicts": compact(output)})
    if github_output is not None and len(output["verdicts"]) < len(judged):
        say(
            f"note: {len(judged) - len(output['verdicts'])} verdict(s) do not fit into the output; the next run is theirs"
        )
    result = document("verdicts", ok=not errors(findings), changed=False, findings=findings)
    emit(fmt, result | verdicts, "\n".join(map(_judged_line, judged)) or "no open pull requests")
    if fmt == "text":
        say_findings(findings)
    if pull is not None:
        answer(findings)
        if any(j.verdict.state == "pending" for j in judged):
            raise click.exceptions.Exit(TEMPORARY)


def _judged_line(judged: Judgement) -> str:
    pull = judged.pull
    return "  ".join([f"#{pull.number}", pull.head[:12], judged.verdict.state, printable(judged.note)]).rstrip()


@ci_command.command()
@click.option("--verdicts", required=True, help="Output of `ci inspect`: a file, or the JSON itself.")
@output_option
@format_option
def merge(verdicts: str, github_output: Path | None, fmt: Format) -> None:
    """Merge what inspect accepted, report to each pull request, and decide whether a version is due."""
    from fedops.app.deciding import situation_of
    from fedops.app.inspect import refreshed
    from fedops.app.merged import merged_state
    from fedops.app.reconcile import stray_tags
    from fedops.app.snapshot import time_text
    from fedops.app.verdicts import load_verdicts
    from fedops.cli.wire import open_context
    from fedops.core.facts import Aggregate

    data = verdicts_bytes(verdicts)
    with open_context() as (_, ctx):
        refreshed(ctx)
        done, failed = _merge_each(ctx, load_verdicts(data, ctx.forge.open_pulls()))
        main = refreshed(ctx)
        strays = stray_tags(ctx, main)
        now = ctx.clock.now().replace(microsecond=0)
        decision = situation_of(main, merged_state(ctx.repository, main), now=now).decision
        due = isinstance(decision, Aggregate) and not strays
    outputs = {"input_commit": main.commit, "decided_at": time_text(now), "due": "true" if due else "false"}
    write_outputs(github_output, outputs)
    lines = [f"#{m.judgement.pull.number}  {m.outcome}" for m in done]
    lines.append("a version is due" if due else f"no version now: {_why_not(decision, stray=bool(strays))}")
    findings = [*failed, *strays]
    changed = any(m.changed for m in done)
    emit(fmt, document("merge", ok=not findings, changed=changed, findings=findings) | outputs, "\n".join(lines))
    if fmt == "text":
        say_findings(findings)


def _merge_each(ctx: Context, judged: tuple[Judgement, ...]) -> tuple[list[Merged], list[Finding]]:
    """Merge one after the other; one that fails stops none of the others."""
    from fedops.app.merge import merge_pull

    done: list[Merged] = []
    failed: list[Finding] = []
    for one in judged:
        try:
            done.append(merge_pull(ctx, one))
        except FedopsError as e:
            if e.cause == "auth":
                raise
            failed.append(finding("github_rejected", f"pull/{one.pull.number}", got=e.message))
    return done, failed


def _why_not(decision: Decision, *, stray: bool) -> str:
    from fedops.render.reconcile import decision_text

    return "version tags that nobody published" if stray else decision_text(decision)


@ci_command.command()
@input_commit_option
@decided_at_option
@output_option
@format_option
def aggregate(input_commit: str, decided_at: str, github_output: Path | None, fmt: Format) -> None:
    """Compute the next version from the pinned commit and upload it as a proposal; no git write."""
    from fedops.app.merged import merged_state
    from fedops.app.propose import propose
    from fedops.app.snapshot import snapshot
    from fedops.cli.wire import noting_uploads, open_context

    at = moment(decided_at)
    with open_context() as (_, plain):
        plain.repository.fetch()
        main = snapshot(plain.repository, pinned_commit(plain.repository, input_commit))
        ctx, uploads = noting_uploads(plain)
        plan = propose(ctx, main, merged_state(ctx.repository, main), at, unavailable={})
    skipped = plan.skips.slugs()
    write_outputs(github_output, {"proposal": plan.manifest or "", "skipped": compact(skipped)})
    text = f"proposed {plan.manifest}" if plan.manifest else f"no version now: {_why_not(plan.decision, stray=False)}"
    ok = not errors(plan.findings)
    result = document("propose", ok=ok, changed=any(uploads), findings=plan.findings)
    emit(fmt, result | {"proposal": plan.manifest or "", "skipped": skipped}, text)
    if fmt == "text":
        say_findings(plan.findings)


@ci_command.command()
@input_commit_option
@decided_at_option
@click.option("--proposal", required=True, help="Manifest digest that `ci aggregate` put out.")
@output_option
@format_option
def publish(input_commit: str, decided_at: str, proposal: str, github_output: Path | None, fmt: Format) -> None:
    """Archive the inputs and push the version's commit and tag; never opens a tensor."""
    from fedops.app.publish import Published, Replan
    from fedops.app.publish import publish as publish_version
    from fedops.cli.wire import open_context

    at, manifest = moment(decided_at), proposal_digest(proposal)
    with open_context() as (_, ctx):
        ctx.repository.fetch()
        pinned = pinned_commit(ctx.repository, input_commit)
        outcome = publish_version(ctx, pinned, at, manifest, jitter=random.random)
    version = outcome.record.version if isinstance(outcome, Published) else None
    again = isinstance(outcome, Replan)
    write_outputs(github_output, {"again": "true" if again else "false"})
    text = f"published v{version}" if version is not None else "this version is published already"
    result = document("publish", ok=True, changed=version is not None, version=version, again=again)
    emit(fmt, result, "what the version rests on changed: decide again" if again else text)


@ci_command.command()
@click.option("--skipped", default="", help="Output of `ci aggregate`: what it had to leave out, and why.")
@format_option
def signal(skipped: str, fmt: Format) -> None:
    """Repair the registry's display tag, then open and close signal issues for the current version."""
    from fedops.app.inspect import refreshed
    from fedops.app.merged import merged_state
    from fedops.app.reconcile import repair
    from fedops.app.signals import signal as send
    from fedops.cli.wire import open_context

    left_out = skipped_blobs(skipped)
    with open_context() as (_, ctx):
        main = refreshed(ctx)
        repaired = repair(ctx, main)
        texts = send(ctx, main, merged_state(ctx.repository, main), left_out)
    result = document("signal", ok=True, changed=bool(texts) or repaired, signals=texts)
    emit(fmt, result, "\n".join(map(printable, texts)) or "nothing to do")


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
@format_option
def reconcile(watch: float | None, fmt: Format) -> None:
    """Do everything that is missing: inspect, merge, aggregate, publish, signal, until nothing is left.

    With --watch a result is printed when it differs from the one before; what passes, such as a store that is away for
    a while, is told and tried again.
    """
    last = ""
    while True:
        try:
            last = _reconcile_once(fmt, last)
        except FedopsError as e:
            if watch is None or e.cause != "temporary":
                raise
            say(f"error: {e.message}; trying again in {watch:g} s")
        if watch is None:
            return
        time.sleep(watch)


def _reconcile_once(fmt: Format, last: str) -> str:
    """One run; its result is printed unless it is the same as the last one, and returned."""
    from fedops.app.reconcile import reconcile as run
    from fedops.cli.wire import open_context
    from fedops.render.reconcile import reconcile_document, reconcile_text

    with open_context() as (_, ctx):
        done = run(ctx, jitter=random.random)
    facts = reconcile_document(done.merged_rows(), done.published, done.signals, done.decision, again=done.again)
    result = document("reconcile", ok=not errors(done.findings), changed=done.changed, findings=done.findings)
    shown = compact(result | facts)
    if shown != last:
        emit(fmt, result | facts, reconcile_text(facts))
        if fmt == "text":
            say_findings(done.findings)
    return shown


@ci_command.command()
@format_option
def audit(fmt: Format) -> None:
    """Verify all versions, the store's tags of them, and whether the forge can be read; exit 3 if something is wrong."""
    from fedops.cli.verify import audit as run

    run(fmt)
