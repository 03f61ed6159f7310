"""The plan of `fedops check`: what to look at, under which policies; paths in it start from its own folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from fedops.core.documents import MAX_DOCUMENT_BYTES, Document, Model, load_document, load_json_document, validate
from fedops.core.errors import ConfigError
from fedops.core.records import Hex64
from fedops.core.settings import Aggregation, Natural, Sites, SubmissionPolicy

Json = Any
_VERSION = re.compile(r"(0|[1-9][0-9]{0,9})\Z")
_Content = dict[str, Any] | str  # a document's content, or the path of the document


class GlobalFile(Document):
    """The model of one global version."""

    path: str
    sha256: Hex64 | None = None


class _Item(Document):
    name: str | None = None


class SubmissionItem(_Item):
    """An update with its record and pointer; what is there is checked."""

    kind: Literal["submission"]
    update: str | None = None
    record: _Content | None = None
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


class CheckPlan(Document):
    schema_: Literal["fedops.check-plan/v1"] = Field(alias="schema")
    current_version: Natural | None = None
    globals: dict[str, GlobalFile] = Field(default_factory=dict)
    submission_policy: _Content = Field(default_factory=dict)
    policy: _Content = Field(default_factory=dict)
    sites: _Content | None = None
    store: str | None = None
    items: tuple[Item, ...]

    @field_validator("globals")
    @classmethod
    def _keys_are_versions(cls, value: dict[str, GlobalFile]) -> dict[str, GlobalFile]:
        for key in value:
            if not _VERSION.match(key):
                raise ValueError(f"{key!r}: not a version number")
        return value


def read_plan(path: Path) -> CheckPlan:
    """Read a plan.

    Raises:
        ConfigError: it cannot be read, is not strict JSON, or is not such a plan.
    """
    return load_json_document(read_bytes(path), CheckPlan, path.name)


def read_bytes(path: Path, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The bytes of a small file that a plan or a command line names; longer ones are cut one byte after max_bytes.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror or e}", hint="correct the path") from e


def submission_policy(plan: CheckPlan, folder: Path) -> SubmissionPolicy:
    return _document(plan.submission_policy, folder, SubmissionPolicy, "submission_policy")


def aggregation(plan: CheckPlan, folder: Path) -> Aggregation:
    return _document(plan.policy, folder, Aggregation, "policy")


def roster(plan: CheckPlan, folder: Path) -> Sites | None:
    """The roster that the plan gives; None if it gives none."""
    if plan.sites is None:
        return None
    content = plan.sites if isinstance(plan.sites, str) else {"schema": "fedops.sites/v1"} | plan.sites
    return _document(content, folder, Sites, "sites")


def _document(content: _Content, folder: Path, model: type[Model], where: str) -> Model:
    if isinstance(content, str):
        return load_document(read_bytes(folder / content), model, content)
    return validate(content, model, where)
