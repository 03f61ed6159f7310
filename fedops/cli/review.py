"""`fedops review`: a lead's approval of one pull request, bound to the commit that was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from fedops.cli.console import Format, document, dry_run_option, emit, format_option
from fedops.core.errors import ConfigError
from fedops.core.facts import Pull
from fedops.core.forge_settings import VERDICT
from fedops.render.text import printable

_WORDS = {"approved": "approved", "changes_requested": "changes requested"}


@click.command("review")
@click.argument("number", type=click.IntRange(min=1))
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
    """Show pull request NUMBER with what CI says of it; approve or reject its head. A later push voids an approval."""
    from fedops.cli.wire import open_context

    if state == "changes_requested" and not reason:
        raise click.UsageError("--reject needs --reason")
    with open_context(key=key) as (_, ctx):
        ctx.repository.fetch()
        pull = ctx.forge.pull(number)
        if state is None:
            verdict = ctx.forge.status(pull.head, VERDICT)
            show(pull, verdict, ctx.forge.comments(number), fmt)
            return
        _demand_reviewable(pull, head)
        changed = not dry_run and ctx.forge.review(number, pull.head, state, reason)
    note = " (dry run: nothing was written)" if dry_run else "" if changed else " (was said before)"
    result = document("review", ok=True, changed=changed, pull=number, head=pull.head, state=state)
    emit(fmt, result, f"#{number} {pull.head[:12]}: {_WORDS[state]}{note}")


def _demand_reviewable(pull: Pull, head: str | None) -> None:
    if pull.state != "open":
        raise ConfigError(f"pull request #{pull.number}: is {pull.state} -> an open one", hint="fedops status")
    if head is not None and not pull.head.startswith(head):
        raise ConfigError(
            f"pull request #{pull.number}: its head is {pull.head[:12]} -> {printable(head)}",
            hint=f"look at the new commit first: fedops review {pull.number}",
        )


def show(pull: Pull, verdict: tuple[str, str] | None, comments: Sequence[str], fmt: Format) -> None:
    """Print one pull request: who, which commit, the verdict, and the comments."""
    facts = {
        "pull": pull.number,
        "title": pull.title,
        "author": pull.author.login,
        "head": pull.head,
        "state": pull.state,
        "verdict": verdict[1] if verdict is not None else None,
        "comments": list(comments),
    }
    lines = [
        f"#{pull.number} {pull.title}",
        f"by {pull.author.login}, {pull.state}, head {pull.head[:12]}",
        f"verdict: {facts['verdict'] or 'none yet'}",
    ]
    for comment in comments:
        # The marker by which the comment is found again is hidden on a web page, and so it is here.
        lines += ["", *(line for line in comment.strip().splitlines() if not line.startswith("<!-- fedops:"))]
    emit(fmt, document("review", ok=True, changed=False) | facts, "\n".join(map(_line, lines)))


def _line(text: str) -> str:
    """One printable line that keeps its indentation."""
    return " " * (len(text) - len(text.lstrip(" "))) + printable(text)
