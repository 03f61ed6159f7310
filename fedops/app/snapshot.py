"""What one commit of main says: policies, the current version, and each site's record; read once, then pure data."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from weakref import WeakKeyDictionary

from fedops.core.documents import MAX_DOCUMENT_BYTES, Document, Model, load_document, load_json_document
from fedops.core.errors import ConfigError, MainFileError
from fedops.core.facts import TreeEntry
from fedops.core.findings import Finding
from fedops.core.ids import (
    AGGREGATION_PATH,
    FEDERATION_PATH,
    SITES_PATH,
    SUBMISSION_POLICY_PATH,
    TRAINING_PATH,
    VERSION_PATH,
    BlobId,
    CommitId,
    Digest,
    GlobalVersion,
    RepoPath,
    SiteId,
    record_path,
    site_id_fault,
    site_of_path,
    update_path,
)

# NOTE: not from core.validate, which imports numpy: `fedops status` comes through here.
from fedops.core.parse_record import parse_record
from fedops.core.policy import policy_digest
from fedops.core.records import MAX_VERSION_BYTES, Record, VersionRecord
from fedops.core.settings import Aggregation, Federation, Sites, SubmissionPolicy, Training
from fedops.ports import Repository

RULED = ("global/", "policies/")


# NOTE: one run looks at main a dozen times, and its documents seldom change; reading a roster of a hundred sites takes
# a third of a second. Documents are frozen, so the same bytes may give the same object.
@lru_cache(maxsize=64)
def _parsed(data: bytes, model: type[Document], path: RepoPath) -> Document:
    if path.endswith(".json"):
        return load_json_document(data, model, path, max_bytes=MAX_VERSION_BYTES)
    return load_document(data, model, path)


def is_ruled(path: str) -> bool:
    """True for paths that a version depends on besides the records: global/, policies/, federation.yaml."""
    return path == FEDERATION_PATH or path.startswith(RULED)


@dataclass(frozen=True)
class Snapshot:
    """One commit of main, read."""

    repository: Repository
    commit: CommitId
    files: Mapping[RepoPath, TreeEntry]

    def bytes_of(self, path: RepoPath, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
        """Bytes of one file.

        Raises:
            MainFileError: the file is not there.
        """
        entry = self.files.get(path)
        if entry is None:
            raise MainFileError(f"{path}: not in {self.commit[:12]}", hint="run `fedops init`, or fetch main")
        return self.repository.read(entry.blob, max_bytes=max_bytes)

    def _load(self, path: RepoPath, model: type[Model], *, max_bytes: int = MAX_DOCUMENT_BYTES) -> Model:
        data = self.bytes_of(path, max_bytes=max_bytes)
        try:
            loaded = _parsed(data, model, path)
        except ConfigError as e:
            raise MainFileError(e.message, hint=MainFileError.CORRECTED) from e
        assert isinstance(loaded, model)
        return loaded

    @cached_property
    def federation(self) -> Federation:
        return self._load(FEDERATION_PATH, Federation)

    @cached_property
    def sites(self) -> Sites:
        return self._load(SITES_PATH, Sites)

    @cached_property
    def submission_policy(self) -> SubmissionPolicy:
        return self._load(SUBMISSION_POLICY_PATH, SubmissionPolicy)

    @cached_property
    def training(self) -> Training:
        return self._load(TRAINING_PATH, Training)

    @cached_property
    def aggregation(self) -> Aggregation:
        return self._load(AGGREGATION_PATH, Aggregation)

    @cached_property
    def version(self) -> VersionRecord:
        """The current version's record: the authority on what is current."""
        return self._load(VERSION_PATH, VersionRecord, max_bytes=MAX_VERSION_BYTES)

    def require_documents(self) -> None:
        """Parse everything that judging rests on.

        Raises:
            ConfigError: one of them cannot be read.
        """
        _ = (self.federation, self.sites, self.submission_policy, self.aggregation, self.version, self.policy)

    @cached_property
    def policy(self) -> Digest:
        """Digest over federation.yaml and everything below policies/."""
        import hashlib

        ruled = [p for p in self.files if p == FEDERATION_PATH or p.startswith("policies/")]
        return policy_digest({p: hashlib.sha256(self.bytes_of(p)).hexdigest() for p in ruled})

    def site_blobs(self, site: SiteId) -> tuple[BlobId, BlobId] | None:
        """(record blob, pointer blob) of a site's submission on this commit, None if it has none."""
        record = self.files.get(record_path(site))
        pointer = self.files.get(update_path(site, self.federation.extension))
        return (record.blob, pointer.blob) if record is not None and pointer is not None else None

    @cached_property
    def _named(self) -> frozenset[str]:
        """Names of the folders below sites/."""
        return frozenset(site for p in self.files if (site := site_of_path(p)) is not None)

    @cached_property
    def folders(self) -> tuple[SiteId, ...]:
        """Sites that have a record here, ascending; folders with an impossible name are left out."""
        possible = (SiteId(name) for name in sorted(self._named) if site_id_fault(name) is None)
        return tuple(site for site in possible if record_path(site) in self.files)

    @cached_property
    def impossible(self) -> tuple[str, ...]:
        """Folders below sites/ that can be no site's, ascending: somebody put them there by hand."""
        return tuple(name for name in sorted(self._named) if site_id_fault(name) is not None)


Parsed = tuple[Record | None, tuple[Finding, ...]]
# NOTE: a blob never changes, and a run asks for the same thousand records again for every pull request. By clone, since
# in another one the same blob may be damaged.
_RECORDS: WeakKeyDictionary[Repository, dict[tuple[BlobId, RepoPath, int], Parsed]] = WeakKeyDictionary()
_MOST_RECORDS = 10_000


def site_record(main: Snapshot, site: SiteId, *, max_bytes: int) -> Parsed:
    """The record of a site that has one, of at most so many bytes, and what is wrong with it; read once in a run."""
    path = record_path(site)
    known, key = _RECORDS.setdefault(main.repository, {}), (main.files[path].blob, path, max_bytes)
    if key not in known:
        if len(known) >= _MOST_RECORDS:
            known.clear()
        known[key] = parse_record(main.bytes_of(path, max_bytes=max_bytes), path, max_bytes=max_bytes)
    return known[key]


def snapshot(repository: Repository, commit: CommitId) -> Snapshot:
    """Read the tree of one commit; documents are parsed when they are asked for."""
    return Snapshot(repository, commit, {e.path: e for e in repository.entries(commit)})


def main_snapshot(repository: Repository) -> Snapshot:
    """Read the tip of main.

    Raises:
        ConfigError: there is no main branch to read.
    """
    commit = repository.resolve("main")
    if commit is None:
        raise ConfigError("main: no such branch on origin", hint="push the federation's main branch first")
    return snapshot(repository, commit)


def version_record(repository: Repository, main: Snapshot, number: int) -> tuple[CommitId, VersionRecord] | None:
    """The commit that made a version on main's first-parent line, and its record; None if there is no such version.

    The tag is only a hint where to look: what it names must lie on main and be the first to say that number.
    """
    if number > main.version.version:
        return None
    tagged = repository.resolve(f"refs/tags/{GlobalVersion(number).tag}")
    if tagged is not None and repository.is_ancestor(tagged, main.commit):
        found, parents = record_at(repository, tagged), repository.commit(tagged).parents
        before = record_at(repository, parents[0]) if parents else None
        if found is not None and found.version == number and (before is None or before.version != number):
            return tagged, found
    newer: tuple[CommitId, VersionRecord] | None = None
    for commit in repository.commits(None, main.commit):
        here = record_at(repository, commit.id)
        if here is None or here.version < number:
            break
        newer = commit.id, here
    return newer if newer is not None and newer[1].version == number else None


def roster_at(repository: Repository, commit: CommitId) -> Sites:
    """The roster in a commit's tree; nothing else of the tree is looked at.

    Raises:
        ConfigError: there is none, or it cannot be used.
    """
    return Snapshot(repository, commit, {e.path: e for e in repository.entries(commit, SITES_PATH)}).sites


def record_at(repository: Repository, commit: CommitId) -> VersionRecord | None:
    """The version record in a commit's tree, if it has one."""
    entry = next((e for e in repository.entries(commit, VERSION_PATH) if e.path == VERSION_PATH), None)
    if entry is None:
        return None
    data = repository.read(entry.blob, max_bytes=MAX_VERSION_BYTES)
    return load_json_document(data, VersionRecord, VERSION_PATH, max_bytes=MAX_VERSION_BYTES)


def time_text(at: dt.datetime) -> str:
    """RFC 3339 UTC with Z, whole seconds."""
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> dt.datetime:
    """Inverse of time_text."""
    return dt.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
