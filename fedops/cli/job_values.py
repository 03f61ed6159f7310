"""What CI jobs hand to each other: outputs of one, options of the next; whatever comes in is judged here."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedops.core.disk import disk_fault
from fedops.core.errors import ConfigError
from fedops.core.ids import BlobId, CommitId, is_hex

if TYPE_CHECKING:
    from fedops.app.next_version import Ticket
    from fedops.ports import Repository

MAX_VERDICTS_BYTES = 16_000_000  # of a file; a job output has at most 1 MB

output_option = click.option(
    "--github-output", type=click.Path(path_type=Path), help="File that job outputs are appended to."
)
input_commit_option = click.option("--input-commit", required=True, help="Commit of main that was decided on.")
decided_at_option = click.option("--decided-at", required=True, help="Moment of the decision.")


def pinned_commit(repository: Repository, text: str) -> CommitId:
    """The commit that was decided on; it must lie on main's own line, where versions are made.

    Raises:
        ConfigError: no commit id, no such commit, or one of another branch.
    """
    if not is_hex(text, 40):
        raise ConfigError(f"--input-commit {text!r}: not a commit id -> 40 hex digits")
    wanted, main = CommitId(text), repository.resolve("main")
    if main is None:
        raise ConfigError("main: no such branch on origin", hint="push the federation's main branch first")
    if all(commit.id != wanted for commit in repository.commits(None, main)):
        raise ConfigError(
            f"--input-commit {text[:12]}: not a commit of main's first-parent line",
            hint="take input_commit from the output of `fedops ci merge`",
        )
    return wanted


def moment(text: str) -> dt.datetime:
    """The moment of a decision.

    Raises:
        ConfigError: not a time in the form that `ci merge` puts out.
    """
    from fedops.app.snapshot import parse_time, time_text

    try:
        at = parse_time(text)
    except ValueError:
        at = None
    if at is None or time_text(at) != text:
        raise ConfigError(f"--decided-at {text!r}: not a time -> such as 2026-03-02T10:00:00Z")
    return at


def proposal_ticket(text: str) -> Ticket:
    """What `ci aggregate` prepared.

    Raises:
        ConfigError: not a digest.
    """
    from fedops.app.next_version import Ticket

    ticket = Ticket.parse(text)
    if ticket is None:
        raise ConfigError(f"--proposal {text!r}: not a digest -> sha256: and 64 hex digits")
    return ticket


def verdicts_bytes(text: str) -> bytes:
    """Verdicts given as JSON text or as the name of a file.

    Raises:
        ConfigError: the file cannot be read.
    """
    if text.lstrip().startswith("{"):
        return text.encode("utf-8", "surrogateescape")
    try:
        with Path(text).open("rb") as file:
            return file.read(MAX_VERDICTS_BYTES + 1)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else "not a file name"
        raise ConfigError(
            f"--verdicts {text[:80]!r}: {reason}", hint="a file, or the JSON itself: output `verdicts` of `ci inspect`"
        ) from e


def skipped_blobs(text: str) -> dict[BlobId, str]:
    """Record blob -> slug of the submissions that `ci aggregate` had to leave out; nothing for empty text.

    Raises:
        ConfigError: not what `ci aggregate` put out.
    """
    from fedops.core.documents import BadJson, parse_json

    try:
        value = parse_json((text or "{}").encode("utf-8", "surrogateescape"))
    except BadJson as e:
        raise ConfigError(f"--skipped: {e}") from e
    if not isinstance(value, dict) or not all(is_hex(k, 40) and isinstance(v, str) for k, v in value.items()):
        raise ConfigError("--skipped: got something else -> output `skipped` of `ci aggregate`")
    return {BlobId(blob): slug for blob, slug in value.items()}


def write_outputs(path: Path | None, outputs: Mapping[str, str]) -> None:
    """Append job outputs in the form that Actions read, one line each.

    Raises:
        ConfigError: the file cannot be written.
    """
    if path is None:
        return
    # A job that put half of its outputs out would start the next one on them.
    text = "".join(f"{name}={_one_line(value)}\n" for name, value in outputs.items())
    try:
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as e:
        raise disk_fault(e, str(path)) or ConfigError(f"--github-output {path}: {e.strerror}") from e


def compact(value: object) -> str:
    """JSON on one line, in ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _one_line(value: str) -> str:
    assert not {"\n", "\r"} & set(value), "outputs are ids, times, words and compact JSON"
    return value
