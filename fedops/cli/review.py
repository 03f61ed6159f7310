"""`fedops review`: a lead's approval of one pull request, bound to the commit that was looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from fedops.cli.console import Format, document, dry_run_option, emit, format_option
from fedops.core.errors import ConfigError


@click.command("review")
@click.argument("number", type=int)
@click.option("--approve", "state", flag_value="approved", help="Approve the present head.")
@click.option("--reject", "state", flag_value="changes_requested", help="Ask for changes; needs --reason.")
@click.option("--reason", default="", help="Why, in words; shown on the pull request.")
@click.option("--head", help="Only if this is still the head (the first characters are enough).")
@click.option("--key", type=click.Path(path_type=Path), help="Private key of a lead that signs the review.")
@dry_run_option
@format_option
def review_command(
    number: int,
    state: Literal["approved", "changes_requested"] | None,
    reason: str,
    head: str | None,
    key: Path | None,
    dry_run: bool,
    fmt: Format,
) -> None:
    """Approve or reject pull request NUMBER; a later push voids the approval."""
    from fedops.cli.wire import open_context

    if state is None:
        raise click.UsageError("give --approve or --reject")
    if state == "changes_requested" and not reason:
        raise click.UsageError("--reject needs --reason")
    with open_context(key=key) as (_, ctx):
        ctx.repository.fetch()
        pull = ctx.forge.pull(number)
        if pull.state != "open":
            raise ConfigError(f"pull request #{number}: {pull.state} -> open")
        if head is not None and not pull.head.startswith(head):
            raise ConfigError(
                f"pull request #{number}: head is {pull.head[:12]} -> {head}", hint="look at the new commit first"
            )
        if not dry_run:
            ctx.forge.review(number, pull.head, state, reason)
    words = {"approved": "approved", "changes_requested": "changes requested"}[state]
    text = f"#{number} {pull.head[:12]}: {words}" + (" (dry run: nothing was written)" if dry_run else "")
    emit(fmt, document("review", ok=True, changed=not dry_run, pull=number, head=pull.head, state=state), text)
