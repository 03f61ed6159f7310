"""Model bytes from the store to a checked, open file; what is wrong with them is a finding, a broken store an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedops.app.context import Context
from fedops.app.snapshot import Snapshot, version_record
from fedops.core.byte_faults import GONE, REFUSED, WRONG
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact
from fedops.core.findings import Finding, finding, slug_of
from fedops.core.ids import Digest, SiteId, repository_of, update_path
from fedops.core.records import ModelEntry, Record
from fedops.core.safetensors_header import encode_header
from fedops.core.settings import Limits
from fedops.core.validate import validate_artifact
from fedops.ports import OpenModel, Store


def store_finding(error: StoreError, where: str) -> Finding:
    """Turn a store's "no" about one object into a finding; raise again what says that the store itself is broken."""
    if error.slug in GONE | WRONG | REFUSED:
        return finding(slug_of(error.slug), where, got=error.message)
    raise error


def fetch(store: Store, repository: str, artifact: Artifact, folder: Path, *, md5: str) -> Path:
    """Download one model into folder, named by its digest; bytes that are already there were checked then."""
    target = folder / f"{artifact.layer.sha256}-{md5}.model"
    if not target.exists():
        store.get(repository, artifact.layer, target, md5=md5)
    return target


def find_update(
    ctx: Context, main: Snapshot, site: SiteId, record: Record
) -> tuple[Artifact | None, tuple[Finding, ...]]:
    """Read the manifest of a submission and hold it against the record; no bytes of the model are asked for.

    Raises:
        StoreError: the store is broken (temporary) or refuses us (auth).
    """
    store = ctx.site_store(main.federation, main.sites, site)
    try:
        artifact = store.manifest(repository_of(site), Digest(record.manifest))
    except StoreError as e:
        return None, (store_finding(e, _where(main, site)),)
    findings = validate_artifact(artifact, record, main.submission_policy, extension=main.federation.extension)
    return (None, findings) if findings else (artifact, ())


def fetch_update(
    ctx: Context, main: Snapshot, site: SiteId, record: Record, found: Artifact | None = None
) -> tuple[Path | None, tuple[Finding, ...]]:
    """Download a submission's bytes and check the artifact against the record.

    Args:
        found: the artifact, where `find_update` gave it already.

    Raises:
        StoreError: the store is broken (temporary) or refuses us (auth).
    """
    artifact, findings = (found, ()) if found is not None else find_update(ctx, main, site, record)
    if artifact is None:
        return None, findings
    store = ctx.site_store(main.federation, main.sites, site)
    try:
        return fetch(store, repository_of(site), artifact, ctx.scratch, md5=record.md5), ()
    except StoreError as e:
        return None, (store_finding(e, _where(main, site)),)


def _where(main: Snapshot, site: SiteId) -> str:
    return str(update_path(site, main.federation.extension))


def find_global(ctx: Context, main: Snapshot, model: ModelEntry) -> Artifact:
    """Read the manifest of a global model, which must name the bytes that the version record names.

    Raises:
        StoreError: it is missing or another one: without it nothing can be checked.
    """
    artifact = ctx.global_store(main.federation).manifest(repository_of(None), Digest(model.manifest))
    if artifact.layer.sha256 != model.sha256:
        raise StoreError(
            f"global {model.manifest[:19]}: layer {artifact.layer.sha256[:12]} -> {model.sha256[:12]}",
            slug="digest_mismatch",
            hint="the store or the version record was changed; run `fedops verify`",
        )
    return artifact


def fetch_global(ctx: Context, main: Snapshot, model: ModelEntry) -> Path:
    """Download a global model.

    Raises:
        StoreError: it is missing or damaged.
    """
    store = ctx.global_store(main.federation)
    return fetch(store, repository_of(None), find_global(ctx, main, model), ctx.scratch, md5=model.md5)


def open_checked(ctx: Context, path: Path, limits: Limits, where: str) -> tuple[OpenModel | None, tuple[Finding, ...]]:
    """Open a model of a repository: free metadata is refused here, a draft would drop it."""
    model, findings = ctx.models.open(path, limits, where)
    if model is not None and model.has_metadata:
        model.close()
        extra = finding("unexpected_keys", where, got="__metadata__", detail={"keys": ["__metadata__"]})
        return None, (*findings, extra)
    return model, findings


def open_update(ctx: Context, path: Path, limits: Limits, where: str) -> tuple[OpenModel | None, tuple[Finding, ...]]:
    """Open a site's update: besides, it must be the canonical file, so that nothing hides in its header."""
    model, findings = open_checked(ctx, path, limits, where)
    if model is not None and model.head != encode_header(model.specs):
        model.close()
        hidden = finding("unexpected_keys", where, got="a header that fedops did not write", expected="canonical bytes")
        return None, (*findings, hidden)
    return model, findings


def global_entry(main: Snapshot, number: int) -> ModelEntry:
    """What the record of a version on main says of its model.

    Raises:
        StoreError: no such version.
    """
    if number == main.version.version:
        return main.version.model
    made = version_record(main.repository, main, number)
    if made is None:
        raise StoreError(f"v{number}: no such version on main", slug="object_missing", hint="fetch main and its tags")
    return made[1].model


def open_global(ctx: Context, main: Snapshot, number: int) -> OpenModel:
    """Fetch and open the model of a global version.

    Raises:
        StoreError: no such version, or its bytes cannot be used.
    """
    entry = global_entry(main, number)
    path = fetch_global(ctx, main, entry)
    model, findings = open_checked(ctx, path, unlimited(main.submission_policy.limits, entry.size), f"v{number}")
    if model is None:
        raise StoreError(f"v{number}: the global model cannot be opened: {first(findings)}", slug="file_corrupt")
    return model


def unlimited(limits: Limits, size: int) -> Limits:
    """Limits under which our own global model of `size` bytes always opens: policy limits are for sites."""
    room = max(limits.update_bytes, limits.expanded_bytes, size)
    return limits.model_copy(
        update={"update_bytes": room, "expanded_bytes": room, "header_bytes": room, "tensors": 1_000_000}
    )


def first(findings: Sequence[Finding]) -> str:
    return findings[0].slug if findings else "unknown"
