"""`fedops verify`: recompute versions from a clone and the bytes."""

from __future__ import annotations

import click

from fedops.cli.console import Format, answer, document, emit, format_option, say_findings
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, as_json, errors
from fedops.core.ids import GlobalVersion


@click.command("verify")
@click.argument("versions", nargs=-1, metavar="[vN]...")
@click.option("--all", "every", is_flag=True, help="All versions of main.")
@click.option("--no-fetch", is_flag=True, help="Judge this clone as it is.")
@format_option
def verify_command(versions: tuple[str, ...], every: bool, no_fetch: bool, fmt: Format) -> None:
    """Recompute versions from git history and stored bytes; exit 3 if one is not what it says.

    Without a version: the current one. Needs read access only.
    """
    from fedops.app.snapshot import main_snapshot
    from fedops.app.verify import verify
    from fedops.cli.wire import open_clone

    with open_clone() as (ctx, fsck):
        if not no_fetch:
            ctx.repository.fetch()
        main = main_snapshot(ctx.repository)
        wanted = None if every else [_number(v) for v in versions] or [main.version.version]
        findings: list[Finding] = []
        lines, rows = [], []
        for one in verify(ctx, main, wanted, fsck=fsck):
            bad = errors(one.findings)
            lines.append(
                f"{GlobalVersion(one.version).short}  {one.commit[:12]}  {'FAILED' if bad else f'ok ({one.level})'}"
            )
            rows.append(
                {
                    "version": one.version,
                    "commit": one.commit,
                    "level": one.level,
                    "ok": not bad,
                    "findings": [as_json(f) for f in one.findings],
                }
            )
            findings.extend(one.findings)
    failed = sum(1 for row in rows if not row["ok"])
    lines.append(f"{len(rows)} version(s) verified, {failed} failed")
    emit(fmt, document("verify", ok=not failed, changed=False, findings=findings, versions=rows), "\n".join(lines))
    if fmt == "text":
        say_findings(findings)
    answer(findings)


def _number(text: str) -> int:
    version = GlobalVersion.from_short(text) or GlobalVersion.from_tag(text)
    if version is None:
        raise ConfigError(f"{text!r}: not a version -> v5", hint="fedops log")
    return version.number
