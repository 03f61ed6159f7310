"""The canonical bytes and the record of one submission; the same input gives the same record, whenever it is asked."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.model_bytes import unlimited
from fedops.app.offer import Offer
from fedops.app.pull import cached_model
from fedops.app.snapshot import Snapshot, time_text
from fedops.app.work import Work, write_through
from fedops.core.artifacts import build_manifest, layer_title, manifest_digest, update_annotations
from fedops.core.documents import dump_json, load_json_document
from fedops.core.errors import ConfigError, StoreError
from fedops.core.facts import Layer
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import GlobalVersion, RepoPath, SiteId, record_path, repository_of, update_path
from fedops.core.records import Record, VersionRecord, render_pointer, update_pointer
from fedops.core.validate import validate_metadata, validate_model


@dataclass(frozen=True)
class Canonical:
    """An update's bytes as they are handed in."""

    file: Path
    sha256: str
    md5: str
    size: int


def canonical(
    ctx: Context, main: Snapshot, offer: Offer, target: Path, where: str
) -> tuple[Canonical | None, tuple[Finding, ...]]:
    """Write the canonical file of an update to target: npz becomes safetensors, free metadata is dropped.

    Returns:
        The file, None if the update cannot be opened; and all findings.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if main.federation.model.format == "opaque":
        if offer.file.stat().st_size == 0:
            return None, (finding("empty_update", where),)
        write_through(target, lambda part: shutil.copyfile(offer.file, part))
        return Canonical(target, *ctx.models.digests(target)), ()
    model, findings = ctx.models.open(offer.file, main.submission_policy.limits, where)
    if model is None:
        return None, findings
    try:
        dropped = validate_metadata(model.has_metadata, where, draft=True)
        return Canonical(target, *ctx.models.rewrite(model, target)), (*findings, *dropped)
    finally:
        model.close()


def check_values(
    ctx: Context, work: Work, main: Snapshot, update: Canonical, base: VersionRecord, where: str
) -> tuple[Finding, ...]:
    """Compare an update's tensors with those of its base and look at every value, as CI will.

    Raises:
        StoreError: the base model cannot be had.
    """
    if main.federation.model.format == "opaque":
        return ()
    limits = main.submission_policy.limits
    path, _ = cached_model(ctx, work, main, base)
    with ExitStack() as opened:
        base_model, faults = ctx.models.open(path, unlimited(limits, base.model.size), path.name)
        if base_model is None:
            name = GlobalVersion(base.version).short
            raise StoreError(f"{name}: the global model cannot be opened: {faults[0].slug}", slug="file_corrupt")
        opened.callback(base_model.close)
        model, findings = ctx.models.open(update.file, limits, where)
        if model is None:
            return findings
        opened.callback(model.close)
        found, _ = validate_model(model, base_model, main.submission_policy, where=where)
        return (*errors(findings), *found)


def make_record(
    ctx: Context, main: Snapshot, offer: Offer, update: Canonical, base: VersionRecord, earlier: Iterable[Record]
) -> Record:
    """The record of a submission; its time is that of an earlier one which says the same of the same bytes.

    Args:
        earlier: records of this site that were drafted, handed in or merged before.
    """

    def at(created_at: str) -> Record:
        annotations = update_annotations(
            site=offer.site, base_version=base.version, num_examples=offer.num_examples, created_at=created_at
        )
        extension = main.federation.extension
        layer = Layer(update.sha256, update.size, layer_title(repository_of(offer.site), extension))
        manifest = manifest_digest(build_manifest(layer, annotations, format=main.federation.model.format))
        return Record(
            site=offer.site,
            base_version=base.version,
            num_examples=offer.num_examples,
            format=main.federation.model.format,
            payload="full",
            sha256=update.sha256,
            md5=update.md5,
            size=update.size,
            manifest=manifest,
            metrics=dict(offer.metrics),
            created_at=created_at,
            base_sha256=base.model.sha256,
            software={"fedops": ctx.software["fedops"]},
        )

    same = next((e for e in earlier if at(e.created_at) == e), None)
    return same if same is not None else at(time_text(ctx.clock.now()))


def drafted(work: Work, number: int) -> tuple[Record, ...]:
    """The record that an earlier `submit` drafted on a base version, if there is a readable one."""
    path = work.draft(number)
    try:
        return (load_json_document(path.read_bytes(), Record, work.show(path)),) if path.is_file() else ()
    except ConfigError:
        return ()


def files_of(record: Record, extension: str) -> Mapping[RepoPath, bytes]:
    """The two files that a submission's commit brings."""
    site = SiteId(record.site)
    return {
        record_path(site): dump_json(record),
        update_path(site, extension): render_pointer(update_pointer(record, extension)),
    }
