"""Validation, one code for `fedops check`, `fedops submit` and CI.

Four stages: change (who changes which paths, in which commit), record (the two documents), artifact (what the store
says), model (the bytes). Each is whole, so that a site sees all its faults at once, and a caller goes on to the next
only if the one before found no error.
"""

from __future__ import annotations

from fedops.core.parse_pointer import parse_pointer
from fedops.core.parse_record import draft_of, named_site, parse_draft, parse_record
from fedops.core.validate_artifact import validate_artifact
from fedops.core.validate_change import is_submission, validate_change, validate_commit, validate_signature
from fedops.core.validate_model import norm_faults, not_finite, validate_metadata, validate_model, validate_specs
from fedops.core.validate_record import (
    HandedIn,
    Known,
    pointer_faults,
    succession_faults,
    validate_draft,
    validate_record,
)

__all__ = [
    "HandedIn",
    "Known",
    "draft_of",
    "is_submission",
    "named_site",
    "norm_faults",
    "not_finite",
    "parse_draft",
    "parse_pointer",
    "parse_record",
    "pointer_faults",
    "succession_faults",
    "validate_artifact",
    "validate_change",
    "validate_commit",
    "validate_draft",
    "validate_metadata",
    "validate_model",
    "validate_record",
    "validate_signature",
    "validate_specs",
]
