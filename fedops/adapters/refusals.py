"""What stores say no to: findings of the catalogue, raised as errors."""

from __future__ import annotations

from typing import Any

from fedops.core.catalogue import Slug
from fedops.core.errors import Cause, StoreError
from fedops.core.findings import Finding, finding, hint, message


def refused(found: Finding, cause: Cause = "permanent") -> StoreError:
    """A finding as the error that a store raises."""
    return StoreError(message(found), hint=hint(found), slug=found.slug, cause=cause)


def refusal(slug: Slug, where: str, *, got: Any = None, expected: Any = None, cause: Cause = "permanent") -> StoreError:
    """The error for one finding of the catalogue."""
    return refused(finding(slug, where, got=got, expected=expected), cause)
