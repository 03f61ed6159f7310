"""Removing a manifest from a registry with what only it needed, as far as the registry lets us."""

from __future__ import annotations

import logging

from fedops.adapters.registry_client import RegistryClient
from fedops.adapters.store_parts import digests_in
from fedops.core.artifacts import manifest_digest, manifest_tag, md5_tag, parse_manifest
from fedops.core.errors import StoreError
from fedops.core.ids import Digest, digest_of_hex, hex_of_digest, is_digest

_log = logging.getLogger(__name__)


class Dropper:
    """Drops manifests; remembers what the others of a repository name, and where nothing can be dropped."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._texts: dict[Digest, bytes] = {}  # manifest bytes by their own digest, which never change
        self._fixed: set[str] = set()  # repositories that take no deletion from us

    def drop(self, name: str, digest: Digest) -> bool:
        """Remove a manifest, its tags, and blobs that no other names; False if the registry does not do that for us.

        The manifest goes first: a kill leaves blobs without a manifest, which the registry's own collection finds.
        """
        if name in self._fixed:
            return False
        try:
            doomed = self._client.manifest(name, digest)
        except StoreError as e:
            if e.slug != "object_missing":
                raise
            return True
        others = self._others(name, digest)
        self._pass_on(name, digest, doomed, others)
        if not self._delete(name, "manifests", digest):
            self._fixed.add(name)
            return False
        shared = frozenset[str]().union(*map(digests_in, others.values()))
        for sha256 in sorted(digests_in(doomed) - shared - {hex_of_digest(digest)}):
            if not self._delete(name, "blobs", digest_of_hex(sha256)):
                break
        return True

    def _others(self, name: str, digest: Digest) -> dict[Digest, bytes]:
        """The other manifests of a repository, as far as a tag names them."""
        found: dict[Digest, bytes] = {}
        for tag in self._client.tags(name):
            other: Digest | None = digest_of_hex(tag.removeprefix(manifest_tag(digest_of_hex(""))))
            if tag.startswith(md5_tag("")):  # beside it there is always one by the manifest's digest
                continue
            if not is_digest(other):
                other = self._client.tagged(name, tag)
            if other is not None and other != digest and other not in found:
                data = self._text(name, other)
                if data is not None:
                    found[other] = data
        return found

    def _text(self, name: str, digest: Digest) -> bytes | None:
        if digest not in self._texts:
            try:
                data = self._client.manifest(name, digest)
            except StoreError as e:
                if e.slug != "object_missing":
                    raise
                return None
            if manifest_digest(data) != digest:  # damaged: what it names by now is kept all the same
                return data
            self._texts[digest] = data
        return self._texts[digest]

    def _pass_on(self, name: str, digest: Digest, doomed: bytes, others: dict[Digest, bytes]) -> None:
        """Let the tag by which DVC looks for bytes name another manifest of the same bytes."""
        layer = _layer_of(doomed)
        same = (data for d, data in others.items() if _layer_of(data) == layer and manifest_digest(data) == d)
        heir = next(same, None) if layer is not None else None
        if heir is None:
            return
        for tag in self._client.tags(name):
            if tag.startswith(md5_tag("")) and self._client.tagged(name, tag) == digest:
                self._client.put_manifest(name, tag, heir)

    def _delete(self, name: str, kind: str, digest: Digest) -> bool:
        try:
            return self._client.delete(name, kind, digest)
        except StoreError as e:
            if e.cause != "auth":
                raise
            _log.info("%s: not ours to delete from", name)
            return False


def _layer_of(data: bytes) -> str | None:
    layer = parse_manifest(data, where="").layer
    return None if layer is None else layer.sha256
