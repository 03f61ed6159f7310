"""Everything that reaches a terminal: result on stdout, progress and errors on stderr, exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import click

from fedops.core.errors import ConfigError, FedopsError
from fedops.core.findings import Finding, as_json, errors, hint, message

Format = Literal["text", "json", "md"]
OK, BUG, USAGE, NO, AUTH, TEMPORARY, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

format_option = click.option(
    "--format",
    "fmt",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the result.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


def document(command: str, *, ok: bool, changed: bool, findings: Sequence[Finding] = (), **rest: Any) -> dict[str, Any]:
    """The frame that every JSON result has."""
    head = {"schema": f"fedops.{command}/v1", "ok": ok, "changed": changed, "findings": [as_json(f) for f in findings]}
    return head | rest


def emit(fmt: str, result: Mapping[str, Any], text: str) -> None:
    """Print the result: the document as JSON, or its text for people."""
    if fmt == "json":
        click.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))
    elif text:
        click.echo(text.rstrip("\n"))


def say(text: str) -> None:
    """A line for people on stderr."""
    click.echo(text, err=True)


def say_findings(findings: Sequence[Finding]) -> None:
    """Each finding with its hint, on stderr; equal hints once."""
    last = ""
    for f in findings:
        click.echo(message(f) if f.severity == "error" else f"warning: {message(f)}", err=True)
        if hint(f) != last:
            click.echo(f"  hint: {hint(f)}", err=True)
        last = hint(f)


def answer(findings: Sequence[Finding]) -> None:
    """Leave with exit code 3 if any finding is an error."""
    if errors(findings):
        raise click.exceptions.Exit(NO)


def exit_code(error: FedopsError) -> int:
    """Exit code of a raised error: configuration and permanent 2, authentication 4, temporary 5."""
    if isinstance(error, ConfigError):
        return USAGE
    return {"auth": AUTH, "temporary": TEMPORARY, "permanent": USAGE}[error.cause]


def report_error(error: FedopsError, fmt: str = "text", command: str = "error") -> int:
    """Print a raised error and return the exit code."""
    if fmt == "json":
        fault = {"slug": error.slug, "cause": error.cause, "message": error.message, "hint": error.hint}
        click.echo(json.dumps(document(command, ok=False, changed=False, error=fault), indent=2, ensure_ascii=False))
    else:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"  hint: {error.hint}", err=True)
    return exit_code(error)


class TerminalProgress:
    """Progress on stderr: one line per task, redrawn on a terminal, printed once elsewhere."""

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[str, int | None, str, int]] = {}
        self._tty = sys.stderr.isatty()

    def start(self, what: str, total: int | None, unit: Literal["bytes", "sites", "commits", "steps"]) -> int:
        task = len(self._tasks) + 1
        self._tasks[task] = (what, total, unit, 0)
        self._draw(task)
        return task

    def advance(self, task: int, amount: int) -> None:
        what, total, unit, done = self._tasks[task]
        self._tasks[task] = (what, total, unit, done + amount)
        self._draw(task)

    def finish(self, task: int, note: str = "") -> None:
        what, total, unit, done = self._tasks[task]
        end = note or f"{done if total is None else total} {unit}"
        click.echo(f"\r{what}: {end}\x1b[K" if self._tty else f"{what}: {end}", err=True)

    def _draw(self, task: int) -> None:
        if self._tty:
            what, total, unit, done = self._tasks[task]
            click.echo(f"\r{what}: {done}{'' if total is None else f'/{total}'} {unit}\x1b[K", err=True, nl=False)
