"""What the plans of the offline commands have in common; paths in a plan start from its own folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, field_validator

from fedops.core.documents import MAX_DOCUMENT_BYTES, Document, Model, load_document, load_json_document, validate
from fedops.core.errors import ConfigError
from fedops.core.records import Hex64
from fedops.core.settings import Aggregation, Natural, Sites, SubmissionPolicy

Content = dict[str, Any] | str  # a document's content, or the path of the document
_VERSION = re.compile(r"(0|[1-9][0-9]{0,9})\Z")


class GlobalFile(Document):
    """The model of one global version."""

    path: str
    sha256: Hex64 | None = None


class Plan(Document):
    """Base of all plans: the global models and the policies."""

    current_version: Natural | None = None
    globals: dict[str, GlobalFile] = Field(default_factory=dict)
    submission_policy: Content = Field(default_factory=dict)
    policy: Content = Field(default_factory=dict)
    sites: Content | None = None

    @field_validator("globals")
    @classmethod
    def _keys_are_versions(cls, value: dict[str, GlobalFile]) -> dict[str, GlobalFile]:
        for key in value:
            if not _VERSION.match(key):
                raise ValueError(f"{key!r}: not a version number")
        return value


AnyPlan = TypeVar("AnyPlan", bound=Plan)


def read_plan(path: Path, model: type[AnyPlan]) -> AnyPlan:
    """Read a plan.

    Raises:
        ConfigError: it cannot be read, is not strict JSON, or is not such a plan.
    """
    return load_json_document(read_bytes(path), model, path.name)


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


def submission_policy(plan: Plan, folder: Path) -> SubmissionPolicy:
    return _document(plan.submission_policy, folder, SubmissionPolicy, "submission_policy")


def aggregation(plan: Plan, folder: Path) -> Aggregation:
    return _document(plan.policy, folder, Aggregation, "policy")


def roster(plan: Plan, folder: Path) -> Sites | None:
    """The roster that the plan gives; None if it gives none."""
    if plan.sites is None:
        return None
    content = plan.sites if isinstance(plan.sites, str) else {"schema": "fedops.sites/v1"} | plan.sites
    return _document(content, folder, Sites, "sites")


def _document(content: Content, folder: Path, model: type[Model], where: str) -> Model:
    if isinstance(content, str):
        return load_document(read_bytes(folder / content), model, content)
    return validate(content, model, where)
