"""Verdicts on bytes from run to run, so that a pull request that did not change costs no download.

They are files in the tree of one commit without parents, `refs/fedops/verdicts`; the job that merges writes it, and so can
whoever may write to the repository, rules on main or not. Nothing is believed that is not exactly what would be written
here; and a submission that was merged for a verdict which is not true is judged again, by its bytes, before a version uses it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Literal

from pydantic import Field

from fedops.app.stored_findings import StoredFinding
from fedops.core.byte_faults import GONE, WRONG
from fedops.core.documents import Document, load_json_document
from fedops.core.errors import ConfigError, GitError
from fedops.core.facts import RefUpdate, TreeEntry
from fedops.core.findings import Finding, as_json
from fedops.core.ids import CommitId, Digest, RepoPath
from fedops.core.records import DigestText, Hex40, Hex64
from fedops.ports import Clock, Repository

VERDICTS_REF = "refs/fedops/verdicts"
MAX_ENTRIES = 1000  # one for each open pull request
MAX_ENTRY_BYTES = 131_072
MAX_BYTES = 8_000_000  # of all entries
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BytesKey:
    """Everything that a verdict on bytes depends on.

    Attributes:
        base_sha256: hex, of the base version's model.
        fedops: version of the program.
    """

    head: CommitId
    base_sha256: str
    policy: Digest
    fedops: str


@dataclass(frozen=True)
class BytesVerdict:
    """What the stages artifact and model found for one head; no error: accepted by them."""

    key: BytesKey
    findings: tuple[Finding, ...]

    @property
    def is_final(self) -> bool:
        """False where it hangs on the state of the store: bytes that are gone, or wrong, may be right tomorrow."""
        return not any(f.slug in GONE | WRONG for f in self.findings)


class CachedVerdict(Document):
    """One file of the cache."""

    schema_: Literal["fedops.cached-verdict/v1"] = Field(default="fedops.cached-verdict/v1", alias="schema")
    head: Hex40
    base_sha256: Hex64
    policy: DigestText
    fedops: str
    findings: tuple[StoredFinding, ...]

    @property
    def verdict(self) -> BytesVerdict | None:
        """What it says; None if a verdict could not say that."""
        if not all(f.is_known for f in self.findings):
            return None
        key = BytesKey(CommitId(self.head), self.base_sha256, Digest(self.policy), self.fedops)
        said = BytesVerdict(key, tuple(f.finding for f in self.findings))
        return said if said.is_final else None


def _path(head: str) -> RepoPath:
    return RepoPath(f"verdicts/{head}.json")


def _dumped(said: BytesVerdict) -> bytes:
    key = said.key
    value = {
        "schema": "fedops.cached-verdict/v1",
        "head": key.head,
        "base_sha256": key.base_sha256,
        "policy": key.policy,
        "fedops": key.fedops,
        "findings": [as_json(f) for f in said.findings],
    }
    # NOTE: not canonical JSON, which sorts keys: what is told to a site must be the same to the letter in every run.
    return (json.dumps(value, indent=2) + "\n").encode()


class VerdictCache:
    """The cache as it was last fetched."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    @cached_property
    def _files(self) -> Mapping[str, TreeEntry]:
        try:
            commit = self._repository.resolve(VERDICTS_REF)
            entries = self._repository.entries(commit, "verdicts") if commit is not None else ()
        except GitError as e:
            if e.cause != "permanent":
                raise
            _log.warning("%s: cannot be read and is not used: %s", VERDICTS_REF, e.message)
            return {}
        return {e.path: e for e in entries} if len(entries) <= MAX_ENTRIES else {}

    def data(self, head: CommitId) -> bytes | None:
        """The bytes of a head's entry; None if there is none that is small and plain."""
        entry = self._files.get(_path(head))
        if entry is None or entry.mode != "100644" or entry.size > MAX_ENTRY_BYTES:
            return None
        try:
            return self._repository.read(entry.blob, max_bytes=MAX_ENTRY_BYTES)
        except GitError as e:
            if e.cause != "permanent":
                raise
            return None

    def get(self, key: BytesKey) -> BytesVerdict | None:
        """The verdict that was reached for exactly this, if any."""
        data = self.data(key.head)
        try:
            stored = load_json_document(data, CachedVerdict, _path(key.head)) if data is not None else None
        except ConfigError:
            return None
        said = stored.verdict if stored is not None else None
        return said if said is not None and said.key == key and _dumped(said) == data else None

    def __len__(self) -> int:
        return len(self._files)


@dataclass
class BytesMemory:
    """Verdicts on bytes that this run has reached already, or that an earlier one has left in the cache.

    Attributes:
        tried: heads whose bytes were looked at without a verdict, since a store is broken.
    """

    known: dict[BytesKey, BytesVerdict] = field(default_factory=dict)
    tried: set[CommitId] = field(default_factory=set)
    cache: VerdictCache | None = None

    def get(self, repository: Repository, key: BytesKey) -> BytesVerdict | None:
        """The verdict for exactly this, without a look at any byte."""
        if key not in self.known:
            self.cache = self.cache or VerdictCache(repository)
            if (said := self.cache.get(key)) is not None:
                self.known[key] = said
        return self.known.get(key)


def remember(
    repository: Repository, clock: Clock, reached: Sequence[BytesVerdict], open_heads: Sequence[CommitId]
) -> bool:
    """Write what this run has reached, and drop what no open pull request asks for; True if the ref was written.

    A cache that cannot be written costs a download, and stops nobody.

    Args:
        reached: verdicts of this run; those that hang on the state of the store are left out.
        open_heads: of the pull requests that are open now, oldest first.
    """
    cache = VerdictCache(repository)
    wanted = set(open_heads)
    fresh = {said.key.head: _dumped(said) for said in reached if said.is_final and said.key.head in wanted}
    fresh = {head: data for head, data in fresh.items() if len(data) <= MAX_ENTRY_BYTES}
    if all(cache.data(head) == data for head, data in fresh.items()):
        return False
    kept = {head: data for head in open_heads if (data := fresh.get(head) or cache.data(head)) is not None}
    totals = accumulate(len(data) for data in kept.values())
    within = [head for head, total in zip(kept, totals, strict=True) if total <= MAX_BYTES][:MAX_ENTRIES]
    files = {_path(head): kept[head] for head in within}
    try:
        old = repository.refs_below("refs/fedops").get(VERDICTS_REF)
        commit = repository.write_commit([], files, f"verdicts: {len(files)} heads", at=clock.now())
        return repository.push([RefUpdate(VERDICTS_REF, old, commit)])
    except GitError as e:
        if e.cause == "temporary":
            raise
        _log.warning("%s: cannot be written, so that the next run reads all bytes again: %s", VERDICTS_REF, e.message)
        return False
