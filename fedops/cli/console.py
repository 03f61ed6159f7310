"""Everything that reaches a terminal: result on stdout, progress and errors on stderr, exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import click

from fedops.core.disk import disk_fault
from fedops.core.errors import ConfigError, FedopsError
from fedops.core.findings import Finding, as_json, errors, hint, message
from fedops.render.text import clean

Format = Literal["text", "json", "md"]
OK, BUG, USAGE, NO, AUTH, TEMPORARY, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
READER_GONE = 141  # as a shell reports a program that SIGPIPE ended

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
    """A line for people on stderr; it does not go on in a line of progress."""
    _to_stderr("\n" + text if TerminalProgress.drawing else text)
    TerminalProgress.drawing = False


def _to_stderr(text: str, *, nl: bool = True) -> None:
    with for_people():
        click.echo(text, err=True, nl=nl)


@contextmanager
def for_people() -> Iterator[None]:
    """Print to stderr; where a full disk takes no more of it, the command goes on all the same."""
    try:
        yield
    except OSError as e:
        if disk_fault(e) is None:
            raise


def say_findings(findings: Sequence[Finding]) -> None:
    """Each finding with its hint, on stderr; equal hints once."""
    last = ""
    for f in findings:
        say(message(f) if f.severity == "error" else f"warning: {message(f)}")
        if hint(f) != last:
            say(f"  hint: {hint(f)}")
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
    """Tell a raised error, and return the exit code."""
    message, advice = _safe(error.message), _safe(error.hint)
    if fmt == "json":
        _emit_fault(command, error.slug, error.cause, message, advice)
    else:
        say(f"error: {message}")
        if advice:
            say(f"  hint: {advice}")
    return exit_code(error)


def report_usage(error: click.ClickException, fmt: str, command: str) -> int:
    """Tell what is wrong with the command line, with its usage, and return the exit code."""
    with for_people():
        error.show()
    if fmt == "json":
        _emit_fault(command, "usage", "permanent", error.format_message(), "")
    return error.exit_code


def report_bug(error: Exception, fmt: str, command: str, *, trace: bool) -> int:
    """Tell an exception that nobody expected in one line, or with its trace; no secret is repeated."""
    message, advice = clean(_safe(f"{type(error).__name__}: {error}"), 300), "set FEDOPS_TRACEBACK=1 for the trace"
    if trace:
        say(_safe("".join(traceback.format_exception(error))).rstrip("\n"))
    say(f"bug: {message}" + ("" if trace else f" ({advice})"))
    if fmt == "json":
        _emit_fault(command, "bug", "bug", message, advice)
    return BUG


def _emit_fault(command: str, slug: str, cause: str, message: str, hint: str) -> None:
    fault = {"slug": slug, "cause": cause, "message": message, "hint": hint}
    emit("json", document(command, ok=False, changed=False, error=fault), "")


_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|APIKEY|API_KEY", re.IGNORECASE)
_SECRET_LENGTH = 6  # shorter values are words like `true`, which must not vanish from messages


def _safe(text: str) -> str:
    """The text, lines kept, with nothing that acts on a terminal and without secrets.

    Secrets are credentials in addresses, and the values of environment variables that are called so.
    """
    text = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SECRET_LENGTH:
            text = text.replace(value, "***")
    return _CREDENTIALS.sub("***@", text)


def silence_stdout() -> None:
    """Let nothing more be written to a closed stdout, not even at the interpreter's end."""
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, sys.stdout.fileno())
    finally:
        os.close(sink)


class TerminalProgress:
    """Progress on stderr: one line per task, redrawn on a terminal, printed once elsewhere.

    Attributes:
        drawing: the cursor stands behind an unfinished line; there is one terminal for all of them.
    """

    drawing: ClassVar[bool] = False

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
        _to_stderr(f"\r{what}: {end}\x1b[K" if self._tty else f"{what}: {end}")
        TerminalProgress.drawing = False

    def _draw(self, task: int) -> None:
        if self._tty:
            what, total, unit, done = self._tasks[task]
            _to_stderr(f"\r{what}: {done}{'' if total is None else f'/{total}'} {unit}\x1b[K", nl=False)
            TerminalProgress.drawing = True
