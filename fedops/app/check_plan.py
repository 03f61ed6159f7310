"""The plan of `fedops check`: what to look at, and under which policies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fedops.app.plans import Content, Plan
from fedops.core.documents import Document
from fedops.core.settings import Natural

Json = Any


class _Item(Document):
    name: str | None = None


class SubmissionItem(_Item):
    """An update with its record and pointer; what is there is checked."""

    kind: Literal["submission"]
    update: str | None = None
    record: Content | None = None
    pointer: str | None = None
    placed_at: str | None = Field(default=None, description="path of the pointer in a repository")


class PointerItem(_Item):
    """A lone pointer; with a store its object is fetched and compared."""

    kind: Literal["pointer"]
    pointer: str
    placed_at: str


class ManifestItem(_Item):
    kind: Literal["manifest"]
    manifest: str


class TextItem(_Item):
    """An id, a tag or a store reference, as somebody wrote it: any value may stand here."""

    kind: Literal["site-id", "tag", "ref"]
    value: Json


class Author(Document):
    login: str
    id: Natural


class ChangeItem(_Item):
    """What a pull request changes, on real git objects."""

    kind: Literal["change"]
    repository: str
    base: str
    head: str
    expected_head: str | None = None
    author: Author


Item = Annotated[
    SubmissionItem | PointerItem | ManifestItem | TextItem | ChangeItem,
    Field(discriminator="kind"),
]


class CheckPlan(Plan):
    schema_: Literal["fedops.check-plan/v1"] = Field(alias="schema")
    store: str | None = None
    items: tuple[Item, ...]
