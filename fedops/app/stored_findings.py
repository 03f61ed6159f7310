"""Findings in documents that jobs and runs leave for each other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

from fedops.core.catalogue import CATALOGUE
from fedops.core.documents import Document, Json
from fedops.core.findings import Finding, finding, slug_of


def as_read_back(found: Finding) -> Finding:
    """The finding as it is once it was written and read: lists where it had tuples."""
    got, expected, detail = json.loads(json.dumps([found.got, found.expected, found.detail]))
    return replace(found, got=got, expected=expected, detail=detail)


class StoredFinding(Document):
    """A finding as `as_json` shows it."""

    id: str
    slug: str
    severity: Literal["error", "warning"]
    where: str
    got: Json
    expected: Json
    detail: dict[str, Json] | None

    @property
    def finding(self) -> Finding:
        """Text and severity come from the catalogue again, whatever the other job said."""
        return finding(slug_of(self.slug), self.where, got=self.got, expected=self.expected, detail=self.detail)

    @property
    def is_known(self) -> bool:
        """True if the catalogue of this release says the same of it: nothing that is an error can pass for a warning."""
        rule = CATALOGUE[slug_of(self.slug)]
        return self.slug in CATALOGUE and (self.id, self.severity) == (rule.id, rule.severity)
