"""`fedops upgrade`: the generated files as the installed version writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fedops import __version__
from fedops.cli.console import NO, Format, answer, document, dry_run_option, emit, format_option, say, say_findings
from fedops.cli.lead_change import pull_request_option, writing
from fedops.cli.wheel import parse_wheel, wheel_hash_option, wheel_url_option
from fedops.core.errors import ConfigError

if TYPE_CHECKING:
    from fedops.app.upgrade import Upgraded


@click.command("upgrade")
@click.option("--check", is_flag=True, help="Only look; exit 3 if something is to be done.")
@click.option(
    "--overwrite", multiple=True, metavar="PATH", help="Replace this file although it was edited; repeatable."
)
@click.option("--keep", multiple=True, metavar="PATH", help="Leave this file as it is; repeatable.")
@wheel_hash_option
@wheel_url_option
@pull_request_option
@dry_run_option
@format_option
def upgrade_command(
    check: bool,
    overwrite: Sequence[str],
    keep: Sequence[str],
    wheel_hash: str | None,
    wheel_url: str | None,
    pull_request: bool,
    dry_run: bool,
    fmt: Format,
) -> None:
    """Rewrite workflows, schemas and the other generated files as this fedops writes them, and its pin in federation.yaml.

    One commit on origin's main, or in a pull request. Files that people edited stop it until --overwrite or --keep decides about each. Policies,
    README.md and what people added to .gitignore and .gitattributes stay as they are.
    """
    from fedops.adapters.yaml_edit import RoundTripEditor
    from fedops.app.upgrade import Asked, upgrade
    from fedops.cli.wire import open_context
    from fedops.cli.work_tree import update_work_tree

    _demand_generated(overwrite, keep)
    asked = Asked(__version__, parse_wheel(wheel_hash, wheel_url), overwrite, keep)
    dry = dry_run or check
    with open_context() as (root, ctx):
        done = upgrade(ctx, RoundTripEditor(), asked, writing(root, pull_request=pull_request, dry_run=dry))
        on_main = done.commit is not None and done.pull is None
        moved = update_work_tree(ctx.repository) if on_main else None
    result = document(
        "upgrade",
        ok=not done.findings and not (check and done.written),
        changed=done.changed,
        findings=done.findings,
        before=done.before,
        version=__version__,
        files=list(done.written),
        commit=done.commit,
        pull=done.pull.number if done.pull is not None else None,
        work_tree=moved,
    )
    emit(fmt, result, _text(done, dry=dry))
    if fmt == "text":
        say_findings(done.findings)
        if check and done.written:
            say("  hint: fedops upgrade")
    answer(done.findings)
    if check and done.written:
        raise click.exceptions.Exit(NO)


def _demand_generated(overwrite: Sequence[str], keep: Sequence[str]) -> None:
    from fedops.app.scaffold import GENERATED

    for option, paths in (("--overwrite", overwrite), ("--keep", keep)):
        for path in paths:
            if path not in GENERATED:
                raise ConfigError(f"{option} {path}: not a generated file -> {', '.join(GENERATED)}")
    if both := set(overwrite) & set(keep):
        raise ConfigError(f"{', '.join(sorted(both))}: both --overwrite and --keep -> one of them")


def _text(done: Upgraded, *, dry: bool) -> str:
    from fedops.render.lead_pull import lead_pull_text

    if done.findings:
        return "nothing was written"
    if not done.written:
        return f"everything is as fedops {__version__} writes it"
    verb = "would write" if dry else "wrote" if done.pull is None else "proposed"
    lines = [f"fedops {done.before} -> {__version__}: {verb} {len(done.written)} files"]
    lines += [f"  {path}" for path in done.written]
    if done.pull is not None:
        lines.append(lead_pull_text(done.pull.number, done.pull.outcome))
    elif done.commit is not None:
        lines.append(f"commit {done.commit[:12]}")
    return "\n".join(lines)
