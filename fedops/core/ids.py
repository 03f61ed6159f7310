"""Identifiers: every name that is parsed is also written here, and the two are inverse."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

SiteId = NewType("SiteId", str)
CommitId = NewType("CommitId", str)  # 40 hex
BlobId = NewType("BlobId", str)  # 40 hex
Digest = NewType("Digest", str)  # "sha256:<64 hex>"
RepoPath = NewType("RepoPath", str)  # "sites/hospital-a/submission.json"

# NOTE: \Z, not $: $ also matches before a final newline.
_SITE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_NUMBER = r"(0|[1-9][0-9]{0,9})"
_TAG = re.compile(r"global@v" + _NUMBER + r"\.0\.0\Z")
_SITE_REF = re.compile(r"sites/([^/:]+):v" + _NUMBER + r"\Z")
_GLOBAL_REF = re.compile(r"global:v" + _NUMBER + r"\Z")
_SHORT = re.compile(r"v" + _NUMBER + r"\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_HEX = {32: re.compile(r"[0-9a-f]{32}\Z"), 40: re.compile(r"[0-9a-f]{40}\Z"), 64: re.compile(r"[0-9a-f]{64}\Z")}

# Windows cannot check out a folder of a device name, so no site may have one.
RESERVED_SITES = frozenset({"global", "archive", "latest", "con", "nul", "aux", "prn"}) | {
    f"{device}{n}" for device in ("com", "lpt") for n in range(1, 10)
}
SUBMIT_PREFIX = "submit/"
FOLDER_SCHEME, REGISTRY_SCHEME = "ocidir", "oci"  # of store URLs, and of the DVC remotes made of them
VERSION_PREFIX = "fedops/"
LEAD_PREFIX = "lead/"


def site_id_fault(text: object) -> str | None:
    """Say what is wrong with a site id: "site_id_invalid", "site_id_reserved", or None when it is good."""
    if not isinstance(text, str) or not _SITE.match(text):
        return "site_id_invalid"
    return "site_id_reserved" if text in RESERVED_SITES else None


def is_hex(text: object, length: int) -> bool:
    """True if text is `length` (32, 40 or 64) lower-case hex digits."""
    return isinstance(text, str) and _HEX[length].match(text) is not None


def is_digest(text: object) -> bool:
    """True if text is `sha256:` and 64 lower-case hex digits."""
    return isinstance(text, str) and _DIGEST.match(text) is not None


def digest_of_hex(sha256_hex: str) -> Digest:
    """Write a bare hex sha256 as a Digest."""
    return Digest(f"sha256:{sha256_hex}")


def hex_of_digest(digest: Digest) -> str:
    """Read the bare hex out of a Digest; inverse of digest_of_hex."""
    return digest.removeprefix("sha256:")


@dataclass(frozen=True, order=True)
class GlobalVersion:
    """The aggregated model number N, in each of its written forms."""

    number: int

    @property
    def tag(self) -> str:
        """The git tag, in the grammar that gto and DVC read."""
        return f"global@v{self.number}.0.0"

    @property
    def short(self) -> str:
        return f"v{self.number}"

    @classmethod
    def from_tag(cls, text: str) -> GlobalVersion | None:
        """Inverse of `tag`; None for anything else."""
        match = _TAG.match(text)
        return cls(int(match[1])) if match else None

    @classmethod
    def from_short(cls, text: str) -> GlobalVersion | None:
        """Inverse of `short`; None for anything else."""
        match = _SHORT.match(text)
        return cls(int(match[1])) if match else None


@dataclass(frozen=True)
class StoreRef:
    """A display reference in the store: `sites/hospital-a:v3` or `global:v12`. Never a source of identity."""

    site: SiteId | None  # None: the global model
    version: int

    @property
    def text(self) -> str:
        return f"{repository_of(self.site)}:v{self.version}"

    @classmethod
    def parse(cls, text: str) -> StoreRef | None:
        """Inverse of `text`; None for anything else."""
        if match := _GLOBAL_REF.match(text):
            return cls(None, int(match[1]))
        match = _SITE_REF.match(text)
        if match is None or site_id_fault(match[1]) is not None:
            return None
        return cls(SiteId(match[1]), int(match[2]))


def repository_of(site: SiteId | None) -> str:
    """Name the store repository of a site's updates, or of the global model."""
    return "global" if site is None else f"sites/{site}"


def remote_of(site: SiteId) -> str:
    """Name the DVC remote of a site; fixed, so that a site chooses nothing."""
    return f"sites-{site}"


def submit_branch(site: SiteId) -> str:
    """Name the one branch from which a site hands in."""
    return SUBMIT_PREFIX + site


def version_branch(version: int, *, rollback: bool = False) -> str:
    """Name the branch of the pull request that brings a version: CI's own, or a lead's that takes the model back."""
    return f"{VERSION_PREFIX}v{version}{'-rollback' if rollback else ''}"


def lead_branch(what: str) -> str:
    """Name the branch of a lead's pull request that changes policies, roster or workflows."""
    return LEAD_PREFIX + what


def is_version_branch(branch: str) -> bool:
    """True if pull requests of this branch may bring a version; the content decides whether one does."""
    return branch.startswith(VERSION_PREFIX)


def site_folder(site: SiteId) -> RepoPath:
    return RepoPath(f"sites/{site}")


def record_path(site: SiteId) -> RepoPath:
    return RepoPath(f"sites/{site}/submission.json")


def update_path(site: SiteId, extension: str) -> RepoPath:
    """Path of a site's pointer; extension is that of the federation's model format."""
    return RepoPath(f"sites/{site}/update.{extension}.dvc")


def site_of_path(path: str) -> str | None:
    """The folder name after `sites/`, unchecked; None if the path is not below sites/."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "sites" else None


FEDERATION_PATH = RepoPath("federation.yaml")
SITES_PATH = RepoPath("policies/sites.yaml")
SITES_GUIDE_PATH = RepoPath("sites/README.md")  # the one file below sites/ that is no site's
SUBMISSION_POLICY_PATH = RepoPath("policies/submission.yaml")
TRAINING_PATH = RepoPath("policies/training.yaml")
AGGREGATION_PATH = RepoPath("policies/aggregation.yaml")
VERSION_PATH = RepoPath("global/version.json")
METRICS_PATH = RepoPath("global/metrics.json")


def model_pointer_path(extension: str) -> RepoPath:
    """Path of the global model's pointer."""
    return RepoPath(f"global/model.{extension}.dvc")
