"""`fedops aggregate`: the next version from files, by a plan, without a repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedops.cli.console import NO, Format, document, dry_run_option, emit, format_option

if TYPE_CHECKING:
    from fedops.core.aggregated import Outcome

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("aggregate")
@click.option("--plan", type=_FILE, required=True, help="What to aggregate (fedops.aggregate-plan/v1).")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder for model.safetensors, version.json."
)
@click.option(
    "--noise-key-file",
    type=_FILE,
    expose_value=False,
    help="Key of the noise. This version makes none, so it reads no key.",
)
@dry_run_option
@format_option
def aggregate_command(plan: Path, out: Path, dry_run: bool, fmt: Format) -> None:
    """Aggregate the submissions of a plan as CI would; no repository, no network.

    \b
    fedops aggregate --plan plan.json --out next --format json

    What a site supplied and what is wrong with it is told, and left out. Exit code 3, and nothing is written, if too
    few remain or the result is not a number. Equal plans and files give equal bytes.
    """  # noqa: D301 click reads the control character, which marks a paragraph that is not to be wrapped
    from fedops.app.aggregate import aggregate_files
    from fedops.cli import wire
    from fedops.cli.scratch import command_folder
    from fedops.render.aggregate import aggregate_text

    with command_folder():
        outcome = aggregate_files(plan, out, wire.models(), dry_run=dry_run)
    emit(fmt, _document(outcome), aggregate_text(outcome, str(out), dry_run=dry_run))
    if outcome.made is None:
        raise click.exceptions.Exit(NO)


def _document(outcome: Outcome) -> dict[str, Any]:
    from fedops.core.documents import plain

    made = outcome.made
    result: dict[str, Any] = {"version": None, "model": None, "denominator": None, "contributions": [], "chosen": None}
    if made is not None:
        written = plain(made)
        result = {key: written[key] for key in result}
        del result["model"]["tensors"]
    head = {"outcome": outcome.word, **result}
    return document("aggregate", ok=made is not None, changed=outcome.changed, findings=outcome.findings, **head)
