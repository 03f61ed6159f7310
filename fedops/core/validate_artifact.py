"""Third stage of validation: what the store says of the bytes, against the record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fedops.core.artifacts import EMPTY_CONFIG, layer_title, update_annotations
from fedops.core.facts import Artifact
from fedops.core.findings import Finding, finding
from fedops.core.ids import SiteId, repository_of
from fedops.core.records import Record
from fedops.core.settings import SubmissionPolicy
from fedops.core.validate_change import MAX_FINDINGS


def validate_artifact(
    artifact: Artifact, record: Record, policy: SubmissionPolicy, *, extension: str
) -> tuple[Finding, ...]:
    """Compare a manifest with the record that names it: digest, layer, annotations, empty config, nothing more.

    Args:
        artifact: as the store read it by `record.manifest`.
        policy: for the size that the bytes may have.
        extension: of the federation's model files.
    """
    return tuple(islice(_faults(artifact, record, policy, extension), MAX_FINDINGS))


def _faults(artifact: Artifact, record: Record, policy: SubmissionPolicy, extension: str) -> Iterator[Finding]:
    where, layer, site = artifact.ref, artifact.layer, SiteId(record.site)
    if artifact.manifest != record.manifest:
        yield finding("digest_mismatch", where, got=artifact.manifest, expected=record.manifest)
    if layer.sha256 != record.sha256:
        yield finding("hash_mismatch", where, got=layer.sha256, expected=record.sha256, detail={"field": "sha256"})
    if layer.size != record.size:
        yield finding("size_mismatch", where, got=layer.size, expected=record.size)
    if layer.size > policy.limits.update_bytes:
        yield finding("file_too_large", where, got=layer.size, expected=policy.limits.update_bytes)
    title = layer_title(repository_of(site), extension)
    if layer.title != title:
        yield finding("layer_title_invalid", where, got=layer.title[:100], expected=title)
    # The config carries a proposal of the federation; in a site's artifact it would be a channel that nobody looks at.
    if artifact.config != EMPTY_CONFIG:
        size = f"{len(artifact.config)} bytes"
        yield finding("foreign_layer_refused", where, got=size, expected="{}", detail={"field": "config"})
    expected = update_annotations(
        site=site,
        base_version=record.base_version,
        num_examples=record.num_examples,
        created_at=record.created_at,
    )
    for key in sorted(artifact.annotations.keys() | expected.keys()):
        got = artifact.annotations.get(key)
        if got != expected.get(key):
            yield finding(
                "annotation_mismatch",
                where,
                got="absent" if got is None else got[:100],
                expected=expected.get(key, "absent"),
                detail={"annotation": key[:100]},
            )
