"""`fedops ci retain`: what `retain_updates` no longer keeps, deleted, or only shown."""

from __future__ import annotations

import click

from fedops.cli.console import Format, document, emit, format_option, say_findings
from fedops.render.text import printable


@click.command("retain")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@format_option
def retain(dry_run: bool, fmt: Format) -> None:
    """Delete the inputs of versions older than the newest `retain_updates` (federation.yaml) from the store.

    Copies in the archive, and the sites' own where they use the federation's store; never a global model, nor what a
    retained version or a submission that is not used yet needs. A bounded number each time, the oldest first;
    `ci reconcile` and `ci signal` do this too.
    """
    from fedops.app.inspect import refreshed
    from fedops.app.retention import Retired, plan_retirement, retire
    from fedops.cli.wire import open_context

    with open_context() as (_, ctx):
        main = refreshed(ctx)
        if dry_run:
            planned, left = plan_retirement(ctx, main)
            done = Retired(planned, (), left)
        else:
            done = retire(ctx, main)
    rows = [
        {"version": d.version, "site": d.site, "manifest": d.manifest, "own": d.own, "text": d.text}
        for d in done.dropped
    ]
    changed = bool(rows) and not dry_run
    result = document("retain", ok=True, changed=changed, findings=done.findings)
    lines = [f"{'would delete' if dry_run else 'deleted'}: {printable(d.text)}" for d in done.dropped]
    lines += ["more is to be deleted: run it again"] if done.left else []
    emit(fmt, result | {"dropped": rows, "left": done.left}, "\n".join(lines) or "nothing to delete")
    if fmt == "text":
        say_findings(done.findings)
