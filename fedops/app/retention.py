"""Delete the inputs that `retain_updates` says are no longer kept: a repair step, harmless when run twice or killed.

Only the archive's copies and, where the sites use the federation's own store, theirs; global models are never deleted.
By digest, oldest version first, and the archive's copy of an input last: so if the newest version that is too old has
none left in the archive, all older ones have gone before, and a look at one version is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedops.app.context import Context
from fedops.app.next_version import untagged
from fedops.app.snapshot import Snapshot, snapshot, version_record
from fedops.core.artifacts import ARCHIVE
from fedops.core.byte_faults import GONE
from fedops.core.documents import MAX_DOCUMENT_BYTES
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.findings import Finding, finding
from fedops.core.ids import CommitId, Digest, GlobalVersion, SiteId, record_path, repository_of
from fedops.core.parse_record import parse_record
from fedops.core.records import VersionRecord
from fedops.ports import Store

MAX_DROPS = 200  # copies in one pass
MAX_VERSIONS = 50  # looked at in one pass
_DIGEST = re.compile(rb"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Drop:
    """One input that is no longer kept.

    Attributes:
        version: that it was used in.
        own: also the site's copy, which lies in the federation's store.
    """

    version: int
    site: SiteId
    manifest: Digest
    own: bool

    @property
    def text(self) -> str:
        """For people: `v3 hospital-a`."""
        return f"{GlobalVersion(self.version).short} {self.site}"


@dataclass(frozen=True)
class Retired:
    """Attributes:
    dropped: inputs of which a copy was deleted.
    findings: what the store would not delete.
    left: more is to be deleted by the next pass.
    """

    dropped: tuple[Drop, ...] = ()
    findings: tuple[Finding, ...] = ()
    left: bool = False

    @property
    def texts(self) -> list[str]:
        """What was deleted, for people."""
        return [f"{drop.text}: deleted, no longer kept" for drop in self.dropped]


def retire(ctx: Context, main: Snapshot) -> Retired:
    """Delete what is no longer kept, a bounded number of copies.

    Args:
        main: as it was just fetched.

    Raises:
        StoreError: the store does not answer.
    """
    planned, left = plan_retirement(ctx, main)
    store = ctx.global_store(main.federation)
    done: list[Drop] = []
    for drop in planned:
        if drop.own:
            # A site's own copy is its own: where CI has no right to it, it stays.
            _drop(store, repository_of(drop.site), drop.manifest)
        if (fault := _drop(store, ARCHIVE, drop.manifest)) is not None:
            where = f"{GlobalVersion(drop.version).short}: {ARCHIVE}"
            kept = finding("update_kept", where, got=fault, expected="deleted", detail={"site": drop.site})
            return Retired(tuple(done), (kept,))
        done.append(drop)
    return Retired(tuple(done), (), left)


def _drop(store: Store, repository: str, manifest: Digest) -> str | None:
    """Why a copy cannot be deleted; None: it is gone."""
    try:
        return None if store.drop(repository, manifest) else "this store cannot delete"
    except StoreError as e:
        if e.cause == "temporary":
            raise
        return None if e.slug in GONE else e.message


def plan_retirement(ctx: Context, main: Snapshot) -> tuple[tuple[Drop, ...], bool]:
    """What is to be deleted now, oldest version first; and whether there is more.

    Fails closed: nothing, where a version's record or a site's cannot be read, or while a version that a person brought to
    main is not verified yet: it may have to be taken off again, and what is deleted does not come back.
    """
    retain, newest = main.federation.store.retain_updates, main.version.version
    if retain is None or newest - retain < 1 or untagged(main) is not None:
        return (), False
    try:
        look = _Look(ctx.global_store(main.federation), main, newest - retain)
        first = look.first_kept()
        if first is None:
            return (), False
        needed = _needed(main, range(newest - retain + 1, newest + 1))
        planned: list[Drop] = []
        end = min(first + MAX_VERSIONS, look.top + 1)
        for number in range(first, end):
            planned += [drop for drop in look.lying(number) if drop.manifest not in needed]
            if len(planned) >= MAX_DROPS:
                end = number + 1
                break
    except _Unreadable:
        return (), False
    return tuple(planned[:MAX_DROPS]), end <= look.top or len(planned) > MAX_DROPS


class _Unreadable(Exception):  # noqa: N818 not an error: nothing is deleted then
    """What must be known before anything is deleted cannot be read."""


class _Look:
    """The versions that are too old, and what is still there of their inputs.

    Args:
        top: the newest of them.
    """

    def __init__(self, store: Store, main: Snapshot, top: int) -> None:
        self._store, self._main = store, main
        self.top = top
        while self.top > 0 and not _record(main, self.top)[1].contributions:
            self.top -= 1

    def lying(self, number: int) -> list[Drop]:
        """The inputs of a version that the archive has."""
        commit, record = _record(self._main, number)
        return [
            Drop(number, SiteId(c.site), Digest(c.manifest), self._is_own_here(commit, SiteId(c.site)))
            for c in record.contributions
            if _is_there(self._store, Digest(c.manifest))
        ]

    def _is_own_here(self, commit: CommitId, site: SiteId) -> bool:
        """True if a site's own copies lie in the federation's store: by the roster of now, else by that of then."""
        roster = self._main.sites if site in self._main.sites.sites else snapshot(self._main.repository, commit).sites
        entry = roster.sites.get(site)
        return entry is not None and entry.store in (None, self._main.federation.store.url)

    def first_kept(self) -> int | None:
        """The oldest version of which something is there, by bisection; None: all are gone."""
        if not self._is_kept(self.top):
            return None
        low, high = 1, self.top
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_kept(middle) else (middle + 1, high)
        return low

    def _is_kept(self, number: int) -> bool:
        """Asked of a version without inputs, it is the next one's answer."""
        while number < self.top and not _record(self._main, number)[1].contributions:
            number += 1
        return bool(self.lying(number)) if number > 0 else False


def _record(main: Snapshot, number: int) -> tuple[CommitId, VersionRecord]:
    try:
        made = version_record(main.repository, main, number)
    except (GitError, ConfigError) as e:
        if e.cause != "permanent":
            raise
        raise _Unreadable from e
    if made is None:
        raise _Unreadable
    return made


def _is_there(store: Store, manifest: Digest) -> bool:
    try:
        store.manifest(ARCHIVE, manifest)
    except StoreError as e:
        if e.cause != "permanent":
            raise
        return e.slug not in GONE  # damaged: there, and to be deleted
    return True


def _needed(main: Snapshot, versions: range) -> frozenset[Digest]:
    """Manifests that must stay: of retained versions, and every one that a record on main names which is not used up."""
    found = {Digest(c.manifest) for number in versions for c in _record(main, number)[1].contributions}
    for site in main.folders:
        path = record_path(site)
        if main.files[path].size > MAX_DOCUMENT_BYTES:
            raise _Unreadable
        data = main.bytes_of(path)
        record, _ = parse_record(data, path, max_bytes=MAX_DOCUMENT_BYTES)
        if record is None or record.site != site or record.base_version > main.version.consumed.get(site, -1):
            found.update(Digest(name.decode()) for name in _DIGEST.findall(data))
    return frozenset(found)
