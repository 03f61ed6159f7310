"""One folder in OCI image layout: blobs by digest, and an index that names manifests by tag.

What is written is complete before it is named: blobs first, the index last, each by rename. Readers take no lock.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedops.adapters import durable
from fedops.adapters.refusals import refusal
from fedops.adapters.store_parts import digests_in
from fedops.core.artifacts import (
    MANIFEST_TYPE,
    MAX_MANIFEST_BYTES,
    manifest_digest,
    manifest_tag,
    parse_manifest,
)
from fedops.core.errors import StoreError
from fedops.core.ids import Digest, digest_of_hex, hex_of_digest, is_digest

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"

_MARKER = b'{"imageLayoutVersion":"1.0.0"}'
_MAX_INDEX_BYTES = 64 << 20
_MAX_FOREIGN_BYTES = 4 << 20  # the largest manifest that registries take

Entry = dict[str, Any]  # one descriptor of index.json; other tools' keys are kept


def tag_of(entry: Entry) -> str | None:
    annotations = entry.get("annotations")
    tag = annotations.get(REF_NAME) if isinstance(annotations, dict) else None
    return tag if isinstance(tag, str) else None


def descriptor(digest: Digest, size: int, tag: str) -> Entry:
    """The index entry by which a tag names a manifest; one entry for each tag."""
    return {"mediaType": MANIFEST_TYPE, "digest": digest, "size": size, "annotations": {REF_NAME: tag}}


class ImageLayout:
    """The layout in `folder`, called `name` in messages; it may be absent, which reads as empty."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self._blobs = folder / "blobs" / "sha256"
        self._index = folder / "index.json"
        self._marker = folder / "oci-layout"

    @property
    def scratch(self) -> Path:
        """Name beside which unfinished files are written: outside blobs/, where only whole blobs may be."""
        return self.folder / "blob"

    def blob(self, sha256: str) -> Path:
        """The place of a blob, there or not."""
        return self._blobs / sha256

    def write_fault(self) -> str | None:
        """A folder or file that must be changed to keep a blob and may not be; None if there is none."""
        folders = [p for p in (self.folder, self._blobs) if p.is_dir()]
        if not folders:
            folders = [next(p for p in self.folder.parents if p.is_dir())]
        for folder in folders:
            if not os.access(folder, os.W_OK | os.X_OK):
                return f"{folder}: no right to write"
        lock = self.folder / ".lock"
        return f"{lock}: no right to write" if lock.exists() and not os.access(lock, os.W_OK) else None

    def exists(self) -> bool:
        return self._index.is_file()

    def is_begun(self) -> bool:
        """True if there is any sign of a layout, whole or not."""
        return self._marker.is_file() or self.exists()

    def create(self) -> None:
        """Make the layout if it is absent or unfinished, and remove what killed writers left in it."""
        self._blobs.mkdir(parents=True, exist_ok=True)
        durable.clean_parts(self.folder)
        if self.exists() and self._marker.is_file():
            return
        with self.locked():
            if not self.exists():
                self.write_entries(self._recovered())
            # The marker comes last: the folder is no layout to other tools before everything else is there.
            durable.replace(self._marker, _MARKER, scratch=self._marker)
        # From blobs/ up to the store's root, in which each level may be new.
        for folder in (self._blobs.parent, *self.folder.parents[: self.name.count("/") + 1]):
            durable.sync_folder(folder)

    def _recovered(self) -> list[Entry]:
        """Entries of the manifests among the blobs: none in a new layout, all if somebody lost the index.

        Without them a later drop would take blobs that manifests outside the index share. Other tags are not recovered.
        """
        found = []
        for path in sorted(self._blobs.iterdir()):
            data = durable.read_up_to(path, MAX_MANIFEST_BYTES)
            digest = manifest_digest(data)
            if digest == digest_of_hex(path.name) and parse_manifest(data, where=path.name).layer is not None:
                found.append(descriptor(digest, len(data), manifest_tag(digest)))
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the right to change the index; the layout must exist. What killed writers left in it is removed."""
        with durable.locked(self.folder / ".lock"):
            durable.clean_parts(self.folder)
            yield

    def entries(self) -> list[Entry]:
        """The descriptors of index.json.

        Raises:
            StoreError: index.json is not an OCI image index.
        """
        try:
            data = durable.read_up_to(self._index, _MAX_INDEX_BYTES)
        except FileNotFoundError:
            return []
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        entries = document.get("manifests") if isinstance(document, dict) else None
        if len(data) > _MAX_INDEX_BYTES or not isinstance(entries, list) or not all(map(_is_entry, entries)):
            raise StoreError(
                f"{self._index}: damaged, got {len(data)} bytes -> expected an OCI image index",
                hint="remove it: models are read by digest, and the next upload lists their manifests anew",
            )
        return entries

    def write_entries(self, entries: Sequence[Entry]) -> None:
        """Replace index.json; only under the lock."""
        document = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries}
        durable.replace(self._index, json.dumps(document, separators=(",", ":")).encode(), scratch=self._index)

    def set_tags(self, wanted: Sequence[Entry]) -> None:
        """Let each tag name its descriptor, leave all others; nothing is written if that is so. Only under the lock."""
        before = self.entries()
        new = {tag_of(entry): entry for entry in wanted}
        after = [new.pop(tag_of(entry), entry) for entry in before]
        after += new.values()
        if after != before:
            self.write_entries(after)

    def read(self, sha256: str, *, max_bytes: int) -> bytes:
        """A small blob, checked against its digest.

        Raises:
            StoreError: slug object_missing, or digest_mismatch: other bytes, or more than max_bytes.
        """
        where = f"{self.name}@sha256:{sha256}"
        path = self.blob(sha256)
        if not path.is_file():
            raise refusal("object_missing", where)
        data = durable.read_up_to(path, max_bytes)
        if len(data) > max_bytes:
            raise refusal("digest_mismatch", where, got=f"more than {max_bytes} bytes", expected=f"at most {max_bytes}")
        got = hashlib.sha256(data).hexdigest()
        if got != sha256:
            raise refusal("digest_mismatch", where, got=f"sha256:{got}", expected=f"sha256:{sha256}")
        return data

    def is_whole(self, sha256: str, size: int) -> bool:
        """True if a blob is there with the right bytes; reads it to its end."""
        path = self.blob(sha256)
        if not path.is_file() or path.stat().st_size != size:
            return False
        with path.open("rb") as handle:
            return durable.stream(handle).sha256 == sha256

    def write(self, data: bytes) -> None:
        """Keep a small blob; a damaged one is replaced."""
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.is_whole(sha256, len(data)):
            durable.replace(self.blob(sha256), data, scratch=self.scratch)

    def adopt(self, temporary: Path, sha256: str) -> None:
        """Take a synced file of this layout as a blob, if it is there; else the blob must be. Only under the lock."""
        target = self.blob(sha256)
        if temporary.exists():
            temporary.replace(target)
            durable.sync_folder(self._blobs)
        elif not target.is_file():
            raise StoreError(
                f"{self.name}@sha256:{sha256}: removed while it was being used",
                hint="repeat the command",
                cause="temporary",
            )

    def references(self, digest: Digest) -> frozenset[str]:
        """Hex of every digest that a manifest blob names, itself included."""
        path = self.blob(hex_of_digest(digest))
        data = durable.read_up_to(path, _MAX_FOREIGN_BYTES) if path.is_file() else b""
        return digests_in(data) | {hex_of_digest(digest)}

    def remove(self, sha256s: Sequence[str]) -> None:
        """Delete blobs in this order; those that are gone are fine."""
        for sha256 in sha256s:
            self.blob(sha256).unlink(missing_ok=True)


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and is_digest(entry.get("digest")) and type(entry.get("size")) is int
