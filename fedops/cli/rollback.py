"""`fedops rollback`: a lead takes the model back to an earlier version."""

from __future__ import annotations

from pathlib import Path

import click

from fedops.cli.console import Format, answer, document, dry_run_option, emit, format_option, say_findings
from fedops.cli.params import parse_version
from fedops.core.findings import Finding
from fedops.core.ids import GlobalVersion


@click.command("rollback")
@click.argument("version", metavar="vN", callback=parse_version)
@click.option("--reason", default="", help="Why, in one line; shown on the pull request and in the commit.")
@click.option("--key", type=click.Path(path_type=Path), help="Private key of a lead that signs the proposal.")
@dry_run_option
@format_option
def rollback_command(version: int, reason: str, key: Path | None, dry_run: bool, fmt: Format) -> None:
    """Propose the model of version vN as the next version, in a pull request that other leads review.

    Approved, `fedops ci reconcile` publishes it: a version of its own, with the same bytes. What was handed in and used
    stays used. While it is open no other version is made.
    """
    from fedops.app.rollback import rollback
    from fedops.cli.wire import open_context, signing_key

    with open_context(key=key) as (root, ctx):
        done = rollback(ctx, version, reason=reason, key=key or signing_key(root), dry_run=dry_run)
    if isinstance(done, Finding):
        emit(fmt, document("rollback", ok=False, changed=False, findings=[done]), "")
        if fmt == "text":
            say_findings([done])
        answer([done])
        return
    new, old = GlobalVersion(done.record.version).short, GlobalVersion(version).short
    texts = {
        "opened": f"#{done.pull}: {new} with the model of {old}; next: another lead runs `fedops review {done.pull} --approve`",
        "open": f"#{done.pull}: is open already, waits for {done.approvals} more approval(s)",
        "same": f"{new} has the model of {old}: nothing to do",
        "planned": f"{new} with the model of {old} (dry run: nothing was written)",
    }
    result = document("rollback", ok=True, changed=done.changed, outcome=done.outcome, version=done.record.version)
    emit(fmt, result | {"pull": done.pull, "source": version}, texts[done.outcome])
