"""One model in a store, and the filesystem by which DVC looks at it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fsspec.callbacks import Callback

from fedops.adapters.dvc_filesystem import StoreFileSystem
from fedops.core.artifacts import update_annotations
from fedops.core.documents import dump_json
from fedops.core.facts import Artifact
from fedops.core.ids import SiteId
from fedops.core.records import ModelEntry
from fedops.core.remotes import object_url
from fedops.ports import Progress, Store
from tests.core import samples

URL = "oci://host/fed"
SITE = "sites/hospital-a"
DATA = b"model bytes " * 1000
MD5 = hashlib.md5(DATA).hexdigest()
WHEN = "2026-03-02T09:30:00Z"
ANNOTATIONS = update_annotations(site=SiteId("hospital-a"), base_version=8, num_examples=150, created_at=WHEN)


def facts(artifact: Artifact) -> dict[str, Any]:
    """What a record says of DATA, put as this artifact."""
    sha256 = hashlib.sha256(DATA).hexdigest()
    kind = "opaque" if artifact.layer.title.endswith(".bin") else "safetensors"
    return {"format": kind, "size": len(DATA), "sha256": sha256, "md5": MD5, "manifest": artifact.manifest}


def submission_json(artifact: Artifact) -> bytes:
    return dump_json(samples.record(created_at=WHEN, **facts(artifact)))


def version_json(artifact: Artifact, number: int) -> bytes:
    entry = ModelEntry(**facts(artifact), tensors={})
    kind = "init" if number == 0 else "aggregate"
    return dump_json(samples.version(number, kind=kind).model_copy(update={"model": entry}))  # type: ignore[arg-type]  # a literal


def put(store: Store, folder: Path, name: str = "x.safetensors") -> Artifact:
    """Hand DATA in as `fedops submit` does."""
    (folder / name).write_bytes(DATA)
    return store.put(SITE, folder / name, ANNOTATIONS)


def opened(store: Store, root: Path | None = None) -> StoreFileSystem:
    """The filesystem of a store at URL, in a clone."""

    def open_store(url: str, _: Progress) -> Store:
        assert url == URL
        return store

    return StoreFileSystem(open_store, root, skip_instance_cache=True)


def path_of(repository: str = SITE, md5: str = MD5) -> str:
    return object_url(URL, repository, md5)


class Seen(Callback):  # type: ignore[misc]  # fsspec has no types
    """Keeps what it is told: (bytes in all, bytes so far)."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int]] = []

    def call(self, hook_name: str | None = None, **_: Any) -> None:
        self.told.append((self.size, self.value))
