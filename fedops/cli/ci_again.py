"""`fedops ci again`: a run that left something over starts the next one, a few times in a row."""

from __future__ import annotations

import os

import click

from fedops.cli.console import Format, document, emit, format_option
from fedops.core.errors import ConfigError

WORKFLOW = "reconcile.yml"
MAX_ATTEMPTS = 3  # then the schedule, so that what never gets better does not run for ever


def _number(_: click.Context, __: click.Parameter, value: str) -> int:
    """The input of the workflow: empty where another event started the run."""
    if not value:
        return 0
    if not (value.isascii() and value.isdigit() and len(value) < 6):
        raise click.BadParameter(f"{value[:40]!r} -> a number")
    return int(value)


@click.command("again")
@click.option("--attempt", default="", callback=_number, help="How many runs in a row were started like this one.")
@format_option
def again(attempt: int, fmt: Format) -> None:
    """Start the workflow once more, because something is left to do; after three in a row the schedule goes on.

    Runs in a job: GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_TOKEN say where and as whom.
    """
    from pathlib import Path

    from fedops.adapters.actions import Actions
    from fedops.cli.wire import federation_root, read_federation

    started = attempt < MAX_ATTEMPTS
    if started:
        branch = read_federation(federation_root(Path.cwd())).branch
        Actions(_given("GITHUB_API_URL"), _given("GITHUB_REPOSITORY"), _given("GITHUB_TOKEN")).dispatch(
            WORKFLOW, branch, {"attempt": str(attempt + 1)}
        )
    text = f"started {WORKFLOW}, attempt {attempt + 1}" if started else f"{attempt} in a row: left to the schedule"
    emit(fmt, document("again", ok=True, changed=started, attempt=attempt, started=started), text)


def _given(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError(
            f"{name}: not set -> as in a job of GitHub Actions", hint="fedops ci reconcile does all at once"
        )
    return value
