"""What the records of a clone say of the bytes that DVC moves.

`dvc push` may put what a record describes, under the manifest that it names; `dvc pull` gets what has the record's sha256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedops.adapters import durable
from fedops.core.artifacts import (
    EMPTY_CONFIG,
    EXTENSIONS,
    FIRST_ANNOTATIONS,
    build_manifest,
    layer_title,
    manifest_digest,
    md5_tag,
    update_annotations,
)
from fedops.core.documents import load_json_document
from fedops.core.errors import ConfigError, StoreError
from fedops.core.facts import Layer
from fedops.core.ids import VERSION_PATH, Digest, RepoPath, SiteId, record_path, repository_of
from fedops.core.records import MAX_VERSION_BYTES, ModelEntry, Record, VersionRecord
from fedops.ports import Store

_SITES = repository_of(SiteId(""))
_SUBMIT = "`fedops submit FILE` hands in an update: its bytes, record and pull request"
_OWN = "other data needs a remote of its own: `fedops dvc remote add mine URL`, `fedops dvc push -r mine`"


@dataclass(frozen=True)
class Offer:
    """Bytes as a record describes them, with all that makes the manifest that it names."""

    layer: Layer
    md5: str
    manifest: Digest
    annotations: Mapping[str, str]
    config: bytes


@dataclass(frozen=True)
class _Described:
    where: RepoPath
    model: Record | ModelEntry
    annotations: Sequence[Mapping[str, str]]  # that the manifest may have been made with


def offer(store: Store, repository: str, md5: str, root: Path | None) -> Offer:
    """The one artifact that bytes of this md5 may become in a repository.

    Args:
        root: of the clone whose records count, as they are in its work tree; None: not in a clone.

    Raises:
        StoreError: no record there describes such bytes, or what belongs to them is lost.
    """
    described = _described(repository, root) if root is not None else None
    if described is None:
        raise _refuse(f"{repository}: no record here describes what belongs there", f"{_SUBMIT}; {_OWN}")
    where, model = described.where, described.model
    if model.md5 != md5:
        hint = _SUBMIT if repository.startswith(_SITES) else "`fedops ci reconcile` makes global versions"
        raise _refuse(f"{repository}: bytes that {where} does not describe, got md5 {md5} -> {model.md5}", hint, _OWN)
    layer = Layer(model.sha256, model.size, layer_title(repository, EXTENSIONS[model.format]))
    manifest = Digest(model.manifest)
    made_of = [*_kept(store, repository, manifest), *((each, EMPTY_CONFIG) for each in described.annotations)]
    for values, config in made_of:
        if manifest_digest(build_manifest(layer, values, config, format=model.format)) == manifest:
            return Offer(layer, md5, manifest, values, config)
    raise _refuse(
        f"{repository}@{manifest}: gone from the store, and cannot be made of {where} alone",
        "restore the store from a copy: its manifest held what the aggregation said of itself",
    )


def check_record(layer: Layer, repository: str, md5: str, root: Path | None) -> None:
    """Hold what the store has under an md5 against the record of a clone that describes such bytes, if there is one.

    Raises:
        StoreError: slug hash_mismatch; or the record cannot be read.
    """
    described = _described(repository, root) if root is not None else None
    if described is None or described.model.md5 != md5 or described.model.sha256 == layer.sha256:
        return
    raise StoreError(
        f"{repository}:{md5_tag(md5)}: other bytes than {described.where} names, got sha256 {layer.sha256} -> "
        f"{described.model.sha256}",
        slug="hash_mismatch",
    )


def check_bytes(file: Path, wanted: Offer) -> None:
    """Read the file that is about to be put, and hold it against its record.

    Raises:
        StoreError: slug file_corrupt; or the file cannot be read.
    """
    with durable.reported(file, "read it"), file.open("rb") as handle:
        got = durable.stream(handle, md5=True)
    if (got.sha256, got.md5, got.size) != (wanted.layer.sha256, wanted.md5, wanted.layer.size):
        raise StoreError(
            f"{file}: damaged, got sha256 {got.sha256} -> {wanted.layer.sha256}",
            slug="file_corrupt",
            hint="remove it from DVC's cache, then `fedops dvc pull` it again",
        )


def _described(repository: str, root: Path) -> _Described | None:
    """What the work tree says of a repository's bytes; None: nothing, or nothing that can be read."""
    site = SiteId(repository.removeprefix(_SITES)) if repository.startswith(_SITES) else None
    if site is None and repository != repository_of(None):
        return None
    where = record_path(site) if site is not None else VERSION_PATH
    try:
        data = durable.read_up_to(root / where, MAX_VERSION_BYTES)
        if site is None:
            version = load_json_document(data, VersionRecord, where, max_bytes=MAX_VERSION_BYTES)
            return _Described(where, version.model, [FIRST_ANNOTATIONS] if version.version == 0 else [])
        record = load_json_document(data, Record, where, max_bytes=MAX_VERSION_BYTES)
    except FileNotFoundError:
        return None
    except ConfigError as e:
        raise StoreError(e.message, hint=e.hint) from e
    annotations = update_annotations(
        site=site, base_version=record.base_version, num_examples=record.num_examples, created_at=record.created_at
    )
    return _Described(where, record, [annotations])


def _kept(store: Store, repository: str, manifest: Digest) -> list[tuple[Mapping[str, str], bytes]]:
    """Annotations and config of the manifest, if the store still has it and has only lost the tag for DVC."""
    try:
        artifact = store.manifest(repository, manifest)
    except StoreError as e:
        if e.cause != "permanent":
            raise
        return []
    return [(artifact.annotations, artifact.config)]


def _refuse(what: str, *hints: str) -> StoreError:
    return StoreError(what, slug="path_not_allowed", hint="; ".join(hints))
