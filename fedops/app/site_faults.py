"""What a store's fault says of one submission: its bytes are lost, its site's own store is away, or the federation's is broken.

One site that switches its store off, or closes its repository, stops no others; a broken store of the federation stops all.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from fedops.app.context import Context
from fedops.app.model_bytes import find_global, store_finding
from fedops.app.snapshot import Snapshot
from fedops.core.artifacts import ARCHIVE
from fedops.core.byte_faults import GONE, REFUSED, WRONG
from fedops.core.catalogue import Slug
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact, Layer
from fedops.core.findings import Finding, finding
from fedops.core.ids import Digest, SiteId
from fedops.core.registry_address import SCHEME, parse_registry_url
from fedops.ports import BlobReader, Store, Streaming

T = TypeVar("T")

# Of this machine, whoever it was that it could not write down, or ask.
_OURS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS})


def site_fault(ctx: Context, main: Snapshot, site: SiteId, error: StoreError, where: str) -> Finding:
    """Turn what a store said about one submission into a finding, if that concerns its site alone.

    So do lost and wrong bytes; any fault of a store of the site's own on another host than the federation's; and a
    refusal (auth) of its repository. Of the last two only while the federation's own repositories answer: else the
    network, or CI's password, is to blame.

    Args:
        main: whose roster and federation.yaml say where the stores are.
        error: what the store raised.
        where: for the finding.

    Raises:
        StoreError: no version can be made: the federation's store is broken, or this machine.
    """
    if error.slug in GONE | WRONG | REFUSED:
        return store_finding(error, where)
    if _is_ours(ctx, error) or not _is_the_sites(main, site, error):
        raise error
    _ask_own(ctx, main)
    slug: Slug = "auth_failed" if error.cause == "auth" else "registry_unavailable"
    return finding(slug, where, got=error.message, detail={"site": site})


def _is_ours(ctx: Context, error: StoreError) -> bool:
    """True if this machine could not keep what came."""
    fault = error.__cause__
    return error.message.startswith(str(ctx.scratch)) or (isinstance(fault, OSError) and fault.errno in _OURS)


def _is_the_sites(main: Snapshot, site: SiteId, error: StoreError) -> bool:
    entry, home = main.sites.sites.get(site), main.federation.store.url
    own = entry.store if entry is not None and entry.store else home
    # Whoever runs a host alone can make it silent, but who may read a repository is its owner's to say.
    return error.cause == "auth" or _place(own) != _place(home)


def _place(url: str) -> str:
    """What is up or down as one: a registry's host, or a folder."""
    return parse_registry_url(url).host if url.startswith(SCHEME) else url


def _ask_own(ctx: Context, main: Snapshot) -> None:
    """See whether the federation's own repositories can be read: global is often public, the archive is not.

    Raises:
        StoreError: they cannot.
    """
    find_global(ctx, main, main.version.model)
    for used in main.version.contributions[:1]:
        try:
            ctx.global_store(main.federation).manifest(ARCHIVE, Digest(used.manifest))
        except StoreError as e:
            if e.slug not in GONE | WRONG:  # an answer too
                raise


class Heard:
    """A store to copy from that remembers what it said last, so that a copy's fault can be told from its target's."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._said: StoreError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def manifest(self, repository: str, digest: Digest) -> Artifact:
        return self._hear(lambda: self._inner.manifest(repository, digest))

    def get(self, repository: str, layer: Layer, target: Path, *, md5: str | None = None) -> None:
        try:
            self._inner.get(repository, layer, target, md5=md5)
        except StoreError as e:
            if not e.message.startswith(str(target)):  # what could not be written is the target's fault
                self._said = e
            raise

    def is_blamed(self, error: StoreError) -> bool:
        """True if an error of the copy began here."""
        link: BaseException | None = error
        while link is not None and link is not self._said:
            link = link.__cause__
        return link is not None

    def _hear(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except StoreError as e:
            self._said = e
            raise


class HeardStream(Heard):
    """The same of a store whose layers can be read while they come."""

    def open_blob(self, repository: str, layer: Layer, *, md5: str | None = None) -> BlobReader:
        store = cast("Streaming", self._inner)
        return _HeardReader(self._hear(lambda: store.open_blob(repository, layer, md5=md5)), self._hear)


class _HeardReader:
    def __init__(self, inner: BlobReader, hear: Callable[[Callable[[], int]], int]) -> None:
        self._inner, self._hear = inner, hear

    def readinto(self, buffer: memoryview, /) -> int:
        return self._hear(lambda: self._inner.readinto(buffer))

    def close(self) -> None:
        self._inner.close()


def heard(store: Store) -> Heard:
    """A store to copy from, listened to."""
    return HeardStream(store) if isinstance(store, Streaming) else Heard(store)
