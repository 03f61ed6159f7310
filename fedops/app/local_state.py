"""What `fedops local up` saw last, kept in a file, so that a later start goes on from there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from fedops.app.local_events import Seen
from fedops.app.snapshot import parse_time, time_text
from fedops.app.work import write_through
from fedops.core.documents import Document, dump_json, load_json_document
from fedops.core.errors import ConfigError
from fedops.core.ids import CommitId
from fedops.core.records import Hex40
from fedops.core.settings import Positive

MAX_BYTES = 16_000_000


class _Pull(Document):
    number: Positive
    head: Hex40
    reviews: tuple[str, ...]


class _Seen(Document):
    schema_: Literal["fedops.local-seen/v1"] = Field(default="fedops.local-seen/v1", alias="schema")
    at: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
    main: Hex40
    pulls: tuple[_Pull, ...]


def read_seen(path: Path) -> Seen | None:
    """What was seen last; None if nothing was.

    Raises:
        ConfigError: the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        stored = load_json_document(path.read_bytes(), _Seen, str(path), max_bytes=MAX_BYTES)
    except ConfigError as e:
        raise ConfigError(e.message, hint=f"rm {path}; open pull requests are then looked at again") from e
    return Seen(
        at=parse_time(stored.at),
        main=CommitId(stored.main),
        pulls={p.number: CommitId(p.head) for p in stored.pulls},
        reviews={p.number: p.reviews for p in stored.pulls},
    )


def write_seen(path: Path, seen: Seen) -> None:
    """Replace the file; a kill leaves the old one or the new one."""
    pulls = tuple(_Pull(number=n, head=head, reviews=seen.reviews[n]) for n, head in sorted(seen.pulls.items()))
    data = dump_json(_Seen(at=time_text(seen.at), main=seen.main, pulls=pulls))
    write_through(path, lambda part: part.write_bytes(data))
