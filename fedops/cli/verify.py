"""`fedops verify`: recompute versions from a clone and the bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedops.cli.console import Format, answer, document, emit, format_option, say, say_findings
from fedops.core.errors import ConfigError, GitError
from fedops.core.findings import Finding, as_json, errors, finding
from fedops.core.ids import GlobalVersion

if TYPE_CHECKING:
    from fedops.adapters.git_repo import GitRepository
    from fedops.app.recompute import Level
    from fedops.app.verify import Checked


@click.command("verify")
@click.argument("versions", nargs=-1, metavar="[vN]...")
@click.option("--all", "every", is_flag=True, help="All versions of main.")
@click.option("--no-fetch", is_flag=True, help="Judge this clone as it is.")
@click.option(
    "--level",
    "asked",
    type=click.Choice(["inputs", "lineage"]),
    help="Exit 3 also where a version does not reach at least this level.",
)
@click.option(
    "--remembered",
    is_flag=True,
    help="Do not read files again that an earlier verification of this clone has read, if size, time of modification "
    "and inode are the same. Faster, and blind to who changes bytes and sets the time back.",
)
@format_option
def verify_command(
    versions: tuple[str, ...], every: bool, no_fetch: bool, asked: Level | None, remembered: bool, fmt: Format
) -> None:
    """Recompute versions from git history and stored bytes; exit 3 if one is not what it says.

    Without a version: the current one. Needs read access only, and writes nothing but what it fetches and, in .fedops/,
    which files it has read.

    \b
    How far a version was recomputed:
      inputs   bit for bit from its inputs; v0 from its generator
      lineage  everything but that its bytes follow from its inputs: these are no longer kept (retain_updates in
               federation.yaml), or v0 came from a file
      none     it is not what it says
    """  # noqa: D301 click wants the character, not its escape
    from fedops.app.known_bytes import KnownBytes
    from fedops.app.tip import tip_of
    from fedops.app.verify import verify
    from fedops.app.work import Work
    from fedops.cli.wire import federation_root, open_clone
    from fedops.render.verify import verify_text

    numbers = [_number(v) for v in versions]
    with open_clone() as (ctx, clone):
        known = KnownBytes(Work(federation_root(Path.cwd())).verified, trust=remembered)
        if not no_fetch:
            _fetch(clone)
        wanted = None if every else numbers
        checked = verify(ctx, tip_of(clone), wanted, fsck=clone.fsck, seen=clone.seen_main(), known=known)
        done = [_asked(one, asked) for one in checked]
        if not any(errors(one.findings) for one in done):
            with suppress(OSError):  # a clone that may only be read is verified all the same
                known.save()
    findings, rows, whole = parts(done)
    trusted = dict(zip(("files", "bytes"), known.spared, strict=True)) if remembered else None
    result = document("verify", ok=not errors(findings), changed=False, findings=findings, versions=rows)
    result |= {"remembered": trusted} if trusted is not None else {}
    emit(fmt, result, verify_text(rows, whole=whole, remembered=trusted))
    if fmt == "text":
        say_findings(findings)
    answer(findings)


def _asked(one: Checked, level: Level | None) -> Checked:
    """With an error where a version that holds does not reach the level that was asked for."""
    if level != "inputs" or one.version is None or one.level != "lineage":
        return one
    short = finding("level_not_reached", GlobalVersion(one.version).short, got=one.level, expected=level)
    return dataclasses.replace(one, findings=(*one.findings, short))


def audit(fmt: Format) -> None:
    """Verify all versions, and look at what stands beside them; exit 3 if anything is not what it says."""
    from fedops.app.audit import standing
    from fedops.app.tip import tip_of
    from fedops.app.verify import verify
    from fedops.cli.wire import open_clone
    from fedops.render.verify import audit_text

    with open_clone() as (ctx, clone):
        _fetch(clone)
        main = tip_of(clone)
        done = list(verify(ctx, main, None, fsck=clone.fsck, seen=clone.seen_main()))
        beside = standing(ctx, main)
    findings, rows, whole = parts(done)
    findings += beside.findings
    forge = {"open_pulls": beside.open_pulls, "open_signals": beside.open_signals}
    result = document("audit", ok=not errors(findings), changed=False, findings=findings, versions=rows, forge=forge)
    emit(fmt, result, audit_text(rows, forge, whole=whole and not errors(beside.findings)))
    if fmt == "text":
        say_findings(findings)
    answer(findings)


def parts(done: Sequence[Checked]) -> tuple[list[Finding], list[dict[str, Any]], bool]:
    """All findings, the versions as rows, and whether nothing is wrong beside them."""
    findings = [f for one in done for f in one.findings]
    whole = not any(errors(one.findings) for one in done if one.version is None)
    return findings, [_row(one) for one in done if one.version is not None], whole


def _row(one: Checked) -> dict[str, Any]:
    return {
        "version": one.version,
        "commit": one.commit,
        "level": one.level,
        "ok": not errors(one.findings),
        "findings": [as_json(f) for f in one.findings],
    }


def _fetch(repository: GitRepository) -> None:
    """Fetch; a damaged clone cannot always, and then is judged as it is, which names the damage.

    Raises:
        GitError: the clone is whole, so that it is the origin or the connection.
    """
    try:
        repository.fetch()
    except GitError as e:
        if not _is_damaged(repository):
            raise
        say(f"warning: {e.message}; this clone is damaged and is judged as it is")


def _is_damaged(repository: GitRepository) -> bool:
    try:
        return bool(repository.fsck())
    except GitError as e:
        return e.slug == "object_corrupt"


def _number(text: str) -> int:
    version = GlobalVersion.from_short(text) or GlobalVersion.from_tag(text)
    if version is None:
        raise ConfigError(f"{text!r}: not a version -> v5", hint="fedops log")
    return version.number
