"""`fedops ci inspect` and `ci merge`: what is done with open pull requests, by a job that reads and one that writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedops.cli.ci_decided import decided, why_not, word
from fedops.cli.console import TEMPORARY, Format, answer, document, emit, format_option, say, say_findings
from fedops.cli.job_values import compact, output_option, verdicts_bytes, write_outputs
from fedops.core.errors import FedopsError, ForgeError
from fedops.core.findings import errors
from fedops.core.ids import GlobalVersion
from fedops.render.text import printable

if TYPE_CHECKING:
    from fedops.app.context import Context
    from fedops.app.inspect import Judgement
    from fedops.app.pull_pass import PullPass
    from fedops.app.snapshot import Snapshot
    from fedops.core.facts import Pull


@click.command()
@click.option(
    "--pull", type=int, help="Only this pull request; exit 3 if it is rejected, 5 if that cannot be said now."
)
@click.option("--head", help="Only if this is the pull request's head; exit 5 if it has moved on.")
@output_option
@format_option
def inspect(pull: int | None, head: str | None, github_output: Path | None, fmt: Format) -> None:
    """Judge open pull requests: documents and bytes. Writes nothing."""
    from fedops.app.inspect import inspect_pull, open_work
    from fedops.app.pull_pass import inspect_all
    from fedops.app.verdict_cache import BytesMemory
    from fedops.app.verdicts import dump_verdicts, fitted
    from fedops.cli.wire import open_context

    if head is not None and pull is None:
        raise click.UsageError("--head needs --pull")
    with open_context() as (_, ctx):
        pulls, main = open_work(ctx, pull)
        if head is not None and pulls[0].head != head:
            moved = f"pull request #{pull}: its head is {pulls[0].head[:12]} -> {printable(head)[:12]}"
            raise ForgeError(moved, hint="the newer head has a run of its own", slug="head_moved", cause="temporary")
        judged = inspect_all(ctx, main, pulls) if pull is None else (inspect_pull(ctx, main, pulls[0], BytesMemory()),)
        unusable = _why_unusable(main)
    findings = [f for j in judged for f in j.verdict.findings]
    verdicts = dump_verdicts(judged)
    output = fitted(verdicts)
    write_outputs(github_output, {"verdicts": compact(output)})
    if unusable:
        say(f"note: {unusable}; only leads' own changes are judged")
    if len(judged) < len(pulls):
        say(f"note: {len(pulls) - len(judged)} pull request(s) are left to the next run")
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


def _why_unusable(main: Snapshot) -> str:
    """What is wrong with main's documents; empty: they can be used."""
    try:
        main.require_documents()
    except FedopsError as e:
        return printable(e.message)
    return ""


def _judged_line(judged: Judgement) -> str:
    pull = judged.pull
    return "  ".join([f"#{pull.number}", pull.head[:12], judged.verdict.state, printable(judged.note)]).rstrip()


@click.command()
@click.option("--verdicts", required=True, help="Output of `ci inspect`: a file, or the JSON itself.")
@output_option
@format_option
def merge(verdicts: str, github_output: Path | None, fmt: Format) -> None:
    """Merge what inspect accepted, report to each pull request, and decide whether a version is due."""
    from fedops.app.inspect import open_work, refreshed
    from fedops.app.repair import repair_page
    from fedops.app.retag import restore_tags
    from fedops.app.snapshot import time_text
    from fedops.app.verdicts import load_verdicts
    from fedops.cli.wire import open_context

    data = verdicts_bytes(verdicts)
    with open_context() as (_, ctx):
        pulls, _ = open_work(ctx)
        judged = load_verdicts(data, pulls)
        run = _merge_each(ctx, pulls, judged)
        remembered = run.end()
        main = refreshed(ctx)
        main.require_documents()  # of a lead's change that mends one, it was said already
        retagged = restore_tags(ctx, main)
        now = decided(ctx, tending=True)
        # Here, since of the jobs that always run this one alone may write to the repository, and to its releases.
        paged = repair_page(ctx, now.main)
    done = sorted(run.done, key=lambda m: m.judgement.pull.number)
    left = len(judged) < len(pulls) or bool(run.left) or any(m.outcome == "lost" and m.changed for m in done)
    outputs = {
        "input_commit": now.main.commit,
        "decided_at": time_text(now.at),
        "due": word(now.due),
        "left": word(left),
    }
    write_outputs(github_output, outputs)
    lines = [f"#{m.judgement.pull.number}  {m.outcome}" for m in done]
    lines += map(printable, now.reviews)
    lines.append("a version is due" if now.due else f"no version now: {why_not(now.decision, now.stops)}")
    lines += ["something is left: run it again"] * left
    lines += [f"{GlobalVersion(number).tag}  made again" for number in retagged.numbers]
    lines += [f"{GlobalVersion(now.main.version.version).tag}  has its page"] * paged
    findings = [*run.failed, *now.stops, *retagged.findings]
    changed = remembered or paged or any(m.changed for m in done) or bool(retagged.numbers) or bool(now.reviews)
    emit(fmt, document("merge", ok=not findings, changed=changed, findings=findings) | outputs, "\n".join(lines))
    if fmt == "text":
        say_findings(findings)


def _merge_each(ctx: Context, pulls: Sequence[Pull], judged: Sequence[Judgement]) -> PullPass:
    """Merge one after the other, then tell the others why not: reports must not use up what merges need."""
    from fedops.app.pull_pass import PullPass

    run = PullPass(ctx, pulls)
    for one in sorted(judged, key=lambda j: (j.verdict.state != "accepted", j.pull.number)):
        run.take(one.pull, partial(_as_judged, one))
    return run


def _as_judged(one: Judgement) -> Judgement:
    return one
