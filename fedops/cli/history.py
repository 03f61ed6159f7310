"""`fedops log` and `fedops show`: what the versions were made of."""

from __future__ import annotations

import json
from typing import Any

import click

from fedops.cli.console import Format, document, emit, format_option
from fedops.cli.params import no_fetch_option, parse_version
from fedops.core.documents import dump_json
from fedops.core.ids import GlobalVersion
from fedops.core.made import Made

DEFAULT_VERSIONS = 10


@click.command("log")
@click.option("-n", "limit", type=click.IntRange(min=1), help=f"So many versions. Default: {DEFAULT_VERSIONS}.")
@click.option("--all", "every", is_flag=True, help="All versions.")
@no_fetch_option
@format_option
def log_command(limit: int | None, every: bool, no_fetch: bool, fmt: Format) -> None:
    """Versions, newest first: who went in, with which share, and who did not."""
    from fedops.app.history import log
    from fedops.cli.wire import open_reader
    from fedops.render.history import log_text

    with open_reader() as (_, repository, _):
        if not no_fetch:
            repository.fetch(pulls=())
        versions = log(repository, limit=None if every else limit or DEFAULT_VERSIONS)
    result = document("log", ok=True, changed=False, versions=[made_document(made) for made in versions])
    emit(fmt, result, log_text(versions))


@click.command("show")
@click.argument("version", metavar="[vN]", required=False, callback=parse_version)
@no_fetch_option
@format_option
def show_command(version: int | None, no_fetch: bool, fmt: Format) -> None:
    """One version: what went in, with which weights. Without a version: the current one."""
    from fedops.app.history import show
    from fedops.cli.wire import open_reader
    from fedops.render.history import show_text

    with open_reader() as (_, repository, _):
        if not no_fetch:
            repository.fetch(pulls=())
        made = show(repository, number=version)
    emit(fmt, document("show", ok=True, changed=False, **made_document(made)), show_text(made))


def made_document(made: Made) -> dict[str, Any]:
    """A version as `--format json` gives it: its commit, its tag if it is the right one, and the stored record."""
    from fedops.app.snapshot import time_text

    return {
        "version": made.record.version,
        "commit": made.commit,
        "at": time_text(made.at),
        "tag": GlobalVersion(made.record.version).tag if made.tagged else None,
        "record": json.loads(dump_json(made.record)),
    }
