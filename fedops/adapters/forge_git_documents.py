"""The JSON documents of the git forge. Anybody who may push can edit them, so they are strict and bounded."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, StringConstraints

from fedops.core.documents import Document, validate
from fedops.core.errors import ConfigError, ForgeError
from fedops.core.ids import is_hex

MAX_BODY_BYTES = 65_536
MAX_NUMBER = 999_999_999


def _small(text: str) -> str:
    if len(text.encode()) > MAX_BODY_BYTES:
        raise ValueError(f"{len(text.encode())} bytes, at most {MAX_BODY_BYTES}")
    return text


def time_text(at: dt.datetime) -> str:
    """RFC 3339 in UTC with Z; microseconds only if there are any."""
    return at.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def parse_time(text: str) -> dt.datetime:
    """Inverse of time_text."""
    return dt.datetime.fromisoformat(text)


def _time(text: str) -> str:
    # NOTE: years near 1 and 9999 overflow as soon as somebody calculates with them.
    at = parse_time(text)
    if at.tzinfo is None or not 1970 <= at.year <= 9000 or time_text(at) != text:
        raise ValueError("must be a time in UTC such as 2026-03-02T09:30:00Z")
    return text


def _git_id(text: str) -> str:
    if not is_hex(text, 40):
        raise ValueError("must be 40 lower-case hex digits")
    return text


Number = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
Body = Annotated[str, AfterValidator(_small)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Text = Annotated[str, StringConstraints(max_length=1024)]
Time = Annotated[str, StringConstraints(max_length=40), AfterValidator(_time)]
GitId = Annotated[str, AfterValidator(_git_id)]


class ItemFile(Document):
    """A pull or an issue; `state` is "open" exactly for files below open/."""

    schema_: str = Field(alias="schema")
    number: Number
    state: str


class PullFile(ItemFile):
    schema_: Literal["fedops.pull/v1"] = Field(default="fedops.pull/v1", alias="schema")
    state: Literal["open", "merged", "closed"]
    branch: Line
    title: Line
    body: Body
    head: GitId = Field(description="published in the same push as refs/pull/N/head, which decides while it is open")
    opened_at: Time


class IssueFile(ItemFile):
    schema_: Literal["fedops.issue/v1"] = Field(default="fedops.issue/v1", alias="schema")
    state: Literal["open", "closed"]
    marker: Line | None
    title: Line
    body: Body
    labels: tuple[Line, ...] = Field(max_length=100)
    opened_at: Time


class MarkerFile(Document):
    """Leads from a hidden marker to its issue, so that finding one costs the same in every year."""

    schema_: Literal["fedops.marker/v1"] = Field(default="fedops.marker/v1", alias="schema")
    number: Number


class CommentFile(Document):
    schema_: Literal["fedops.comment/v1"] = Field(default="fedops.comment/v1", alias="schema")
    marker: Line | None
    body: Body
    at: Time


class StatusEntry(Document):
    state: Literal["success", "failure", "pending"]
    text: Text


class StatusFile(Document):
    schema_: Literal["fedops.status/v1"] = Field(default="fedops.status/v1", alias="schema")
    statuses: dict[str, StatusEntry]


class ReviewFile(Document):
    """Content of a signed commit of its own; the copy in the forge's tree is for people."""

    schema_: Literal["fedops.review/v1"] = Field(default="fedops.review/v1", alias="schema")
    pull: Number
    head: GitId
    state: Literal["approved", "changes_requested"]
    body: Body
    sequence: Number = Field(description="orders the reviews of one pull")
    at: Time


class BeatFile(Document):
    schema_: Literal["fedops.beat/v1"] = Field(default="fedops.beat/v1", alias="schema")
    site: Line
    version: Annotated[int, Field(ge=-1)]
    state: Text
    at: Time


Doc = TypeVar("Doc", bound=Document)
Item = TypeVar("Item", bound=ItemFile)


def make(model: type[Doc], where: str, fields: Mapping[str, object]) -> Doc:
    """Build a document that is going to be written.

    Raises:
        ForgeError: a text is too long or empty; it would be unreadable for the next one.
    """
    try:
        return validate(dict(fields), model, where)
    except ConfigError as e:
        raise ForgeError(f"{e.message} -> it cannot be kept on the forge") from e
