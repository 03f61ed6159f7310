"""What is raised when the machine is broken; an expected "no" is a Finding instead."""

from __future__ import annotations

from typing import Literal

Cause = Literal["auth", "temporary", "permanent"]
STORE_EMPTY = "store_empty"  # slug: a store's folder has no layout at all, though there are versions
ORIGIN_MISSING = "origin_missing"  # slug: the folder that origin names is not there


class FedopsError(Exception):
    """Base of the errors that a person can act on.

    Args:
        message: where, what, got, expected; one line.
        hint: the next command or file, or empty.
        slug: stable word that other tools compare.
        cause: "auth" (exit 4), "temporary" (exit 5: retry) or "permanent" (exit 2: a person must change something).
    """

    slug = "error"

    def __init__(self, message: str, *, hint: str = "", slug: str | None = None, cause: Cause = "permanent") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.slug = slug or self.slug
        self.cause: Cause = cause


class ConfigError(FedopsError):
    """A file that people edit, or a command line, cannot be used."""

    slug = "config_invalid"


class MainFileError(ConfigError):
    """A file of main cannot be used: whoever goes on for ever waits until a lead has corrected it."""

    CORRECTED = "a lead corrects it on main; nothing of yours is lost"


class StoreError(FedopsError):
    """The store of model bytes did not do what was asked."""

    slug = "registry_unavailable"


class ForgeError(FedopsError):
    """The forge did not do what was asked."""

    slug = "github_rejected"


class SpentError(ForgeError):
    """The forge takes no more requests for a while: whatever else a run would ask for, it would ask in vain."""

    slug = "rate_limited"


class GitError(FedopsError):
    """git did not do what was asked."""

    slug = "git_failed"


class BusyError(FedopsError):
    """Another process of this clone is at work, which excludes this one."""

    slug = "busy"


class TrainingError(FedopsError):
    """A site's own training code did not give a usable result."""

    slug = "training_failed"


def passes(error: FedopsError) -> bool:
    """True if a service that meets the error waits and tries again: an origin's folder may not be mounted yet."""
    return error.cause == "temporary" or error.slug == ORIGIN_MISSING
