"""`fedops ci …`: what the workflows call; each is harmless when repeated."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedops.cli.console import Format, answer, document, emit, format_option, say, say_findings
from fedops.core.errors import ConfigError, FedopsError
from fedops.core.findings import errors
from fedops.core.ids import CommitId, Digest, is_digest, is_hex

output_option = click.option(
    "--github-output", type=click.Path(path_type=Path), help="File that job outputs are appended to."
)


@click.group("ci")
def ci_command() -> None:
    """What the workflows call; people may call it too: `fedops ci reconcile` does all of it."""


@ci_command.command()
@click.option("--pull", type=int, help="Only this pull request; exit 3 if it is rejected.")
@output_option
@format_option
def inspect(pull: int | None, github_output: Path | None, fmt: Format) -> None:
    """Judge open pull requests: documents and bytes. Writes nothing."""
    from fedops.app.inspect import BytesMemory, inspect_pull, refreshed
    from fedops.app.verdicts import dump_verdicts
    from fedops.cli.wire import open_context

    with open_context() as (_, ctx):
        main = refreshed(ctx)
        pulls = [ctx.forge.pull(pull)] if pull is not None else ctx.forge.open_pulls()
        memory = BytesMemory()
        judged = [inspect_pull(ctx, main, one, memory) for one in pulls]
    findings = [f for j in judged for f in j.verdict.findings]
    verdicts = dump_verdicts(judged)
    lines = [f"#{j.pull.number}  {j.pull.head[:12]}  {j.verdict.state}  {j.note}".rstrip() for j in judged]
    result = document("verdicts", ok=not errors(findings), changed=False, findings=findings)
    emit(fmt, result | verdicts, "\n".join(lines) or "no open pull requests")
    if fmt == "text":
        say_findings(findings)
    write_outputs(github_output, {"verdicts": json.dumps(verdicts, separators=(",", ":"))})
    if pull is not None:
        answer(findings)


@ci_command.command()
@click.option("--verdicts", required=True, help="Output of `ci inspect`: a file, or the JSON itself.")
@output_option
@format_option
def merge(verdicts: str, github_output: Path | None, fmt: Format) -> None:
    """Merge what inspect accepted, report to each pull request, and decide whether a version is due."""
    from fedops.app.deciding import situation_of
    from fedops.app.inspect import refreshed
    from fedops.app.merge import merge_pull
    from fedops.app.merged import merged_state
    from fedops.app.reconcile import stray_tags
    from fedops.app.snapshot import time_text
    from fedops.app.verdicts import load_verdicts
    from fedops.cli.wire import open_context
    from fedops.core.facts import Aggregate

    data = verdicts.encode() if verdicts.lstrip().startswith("{") else Path(verdicts).read_bytes()
    with open_context() as (_, ctx):
        refreshed(ctx)
        done = [merge_pull(ctx, one) for one in load_verdicts(data, ctx.forge.open_pulls())]
        main = refreshed(ctx)
        strays = stray_tags(ctx, main)
        now = ctx.clock.now().replace(microsecond=0)
        decision = situation_of(main, merged_state(ctx.repository, main), now=now).decision
        due = isinstance(decision, Aggregate) and not strays
    outputs = {"input_commit": main.commit, "decided_at": time_text(now), "due": "true" if due else "false"}
    lines = [f"#{m.judgement.pull.number}  {m.outcome}" for m in done]
    lines.append("a version is due" if due else f"no version now: {getattr(decision, 'reason', 'stray tags')}")
    changed = any(m.changed for m in done)
    emit(fmt, document("merge", ok=not strays, changed=changed, findings=strays) | outputs, "\n".join(lines))
    say_findings(strays if fmt == "text" else ())
    write_outputs(github_output, outputs)


@ci_command.command()
@click.option("--input-commit", required=True, help="Commit of main that was decided on.")
@click.option("--decided-at", required=True, help="Moment of the decision.")
@output_option
@format_option
def aggregate(input_commit: str, decided_at: str, github_output: Path | None, fmt: Format) -> None:
    """Compute the next version from the pinned commit and upload it as a proposal; no git write."""
    from fedops.app.merged import merged_state
    from fedops.app.propose import propose
    from fedops.app.snapshot import parse_time, snapshot
    from fedops.cli.wire import open_context

    with open_context() as (_, ctx):
        ctx.repository.fetch()
        main = snapshot(ctx.repository, _commit(input_commit))
        plan = propose(ctx, main, merged_state(ctx.repository, main), parse_time(decided_at), unavailable={})
    outputs = {"proposal": plan.manifest or ""}
    text = (
        f"proposed {plan.manifest}"
        if plan.manifest
        else f"no version now: {getattr(plan.decision, 'reason', 'see findings')}"
    )
    ok = not errors(plan.findings)
    emit(fmt, document("propose", ok=ok, changed=plan.manifest is not None, findings=plan.findings) | outputs, text)
    say_findings(plan.findings if fmt == "text" else ())
    write_outputs(github_output, outputs)


@ci_command.command()
@click.option("--input-commit", required=True, help="Commit of main that was decided on.")
@click.option("--decided-at", required=True, help="Moment of the decision.")
@click.option("--proposal", required=True, help="Manifest digest that `ci aggregate` put out.")
@output_option
@format_option
def publish(input_commit: str, decided_at: str, proposal: str, github_output: Path | None, fmt: Format) -> None:
    """Archive the inputs and push the version's commit and tag; never opens a tensor."""
    from fedops.app.publish import Published, Replan
    from fedops.app.publish import publish as publish_version
    from fedops.app.snapshot import parse_time
    from fedops.cli.wire import open_context

    if not is_digest(proposal):
        raise ConfigError(f"--proposal {proposal!r}: not a digest -> sha256:…")
    with open_context() as (_, ctx):
        ctx.repository.fetch()
        outcome = publish_version(
            ctx, _commit(input_commit), parse_time(decided_at), Digest(proposal), jitter=random.random
        )
    again = isinstance(outcome, Replan)
    version = outcome.record.version if isinstance(outcome, Published) else None
    text = (
        f"published v{version}" if version is not None else ("decide again" if again else "another run published first")
    )
    outputs = {"again": "true" if again else "false"}
    emit(fmt, document("publish", ok=True, changed=version is not None, version=version) | outputs, text)
    write_outputs(github_output, outputs)


@ci_command.command()
@format_option
def signal(fmt: Format) -> None:
    """Repair the registry's display tag, then open and close signal issues for the current version."""
    from fedops.app.inspect import refreshed
    from fedops.app.merged import merged_state
    from fedops.app.reconcile import repair
    from fedops.app.signals import signal as send
    from fedops.cli.wire import open_context

    with open_context() as (_, ctx):
        main = refreshed(ctx)
        repaired = repair(ctx, main)
        texts = send(ctx, main, merged_state(ctx.repository, main), {})
    emit(
        fmt,
        document("signal", ok=True, changed=bool(texts) or repaired, signals=texts),
        "\n".join(texts) or "nothing to do",
    )


@ci_command.command()
@click.option("--watch", type=click.FloatRange(min=1), help="Go on for ever, with a pause of so many seconds.")
@format_option
def reconcile(watch: float | None, fmt: Format) -> None:
    """Do everything that is missing: inspect, merge, aggregate, publish, signal, until nothing is left."""
    while True:
        try:
            _reconcile_once(fmt)
        except FedopsError as e:
            if watch is None or e.cause == "permanent":
                raise
            say(f"error: {e.message}; trying again in {watch:g} s")
        if watch is None:
            return
        time.sleep(watch)


def _reconcile_once(fmt: Format) -> None:
    from fedops.app.reconcile import reconcile as run
    from fedops.cli.wire import open_context
    from fedops.render.reconcile import reconcile_document, reconcile_text

    with open_context() as (_, ctx):
        done = run(ctx, jitter=random.random)
    facts = reconcile_document(done.merged_rows(), done.published, done.signals, done.decision, again=done.again)
    result = document("reconcile", ok=not errors(done.findings), changed=done.changed, findings=done.findings)
    emit(fmt, result | facts, reconcile_text(facts))
    say_findings(done.findings if fmt == "text" else ())


@ci_command.command()
@click.pass_context
def audit(ctx: click.Context) -> None:
    """Verify all versions from this clone; exit 3 if one is not what it says."""
    from fedops.cli.verify import verify_command

    ctx.invoke(verify_command, versions=(), every=True, no_fetch=False, fmt="text")


def _commit(text: str) -> CommitId:
    if not is_hex(text, 40):
        raise ConfigError(f"--input-commit {text!r}: not a commit id -> 40 hex digits")
    return CommitId(text)


def write_outputs(path: Path | None, outputs: Mapping[str, Any]) -> None:
    """Append job outputs in the form that Actions read; values are one line each."""
    if path is None:
        return
    with path.open("a", encoding="utf-8") as f:
        for name, value in outputs.items():
            text = str(value)
            if "\n" in text or "\r" in text:
                raise ConfigError(f"output {name}: more than one line")
            f.write(f"{name}={text}\n")
