"""The bytes that sites handed in, from every place where they lie: checked, and one good copy is enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fedops.app.context import Context
from fedops.app.deciding import Situation
from fedops.app.global_models import GlobalModels
from fedops.app.model_bytes import GONE, fetch
from fedops.app.snapshot import Snapshot
from fedops.core.artifacts import ARCHIVE
from fedops.core.errors import StoreError
from fedops.core.facts import Submission
from fedops.core.findings import CATALOGUE, Finding, finding, slug_of
from fedops.core.ids import Digest, SiteId, repository_of
from fedops.core.records import Record, VersionRecord
from fedops.core.validate import validate_artifact
from fedops.ports import Store


@dataclass(frozen=True)
class Tools:
    """What the verification of each version is given.

    Attributes:
        main: the newest commit whose federation.yaml and roster can be read: where the stores are today.
        newest: number of the newest version.
    """

    ctx: Context
    main: Snapshot
    newest: int
    models: GlobalModels


def store_fault(error: StoreError, where: str, **detail: object) -> Finding:
    """What a store says for good, as a finding; what may pass, or lacks a right, is raised again."""
    if error.cause != "permanent":
        raise error
    slug = slug_of(error.slug) if error.slug in CATALOGUE else "registry_unavailable"
    return finding(slug, where, got=error.message, detail=detail or None)


def contribution(
    tools: Tools, here: Situation, submission: Submission, folder: Path, record: VersionRecord
) -> tuple[Path | None, list[Finding]]:
    """Fetch a contribution; every copy that is there is checked.

    Args:
        here: the situation at the version's input_commit.
        folder: for the bytes.
        record: of the version.
    """
    site, version = submission.site, f"v{record.version}"
    found: Path | None = None
    findings: list[Finding] = []
    archive = (tools.ctx.global_store(tools.main.federation), ARCHIVE)
    for number, (store, repository) in enumerate([archive, _own(tools, here, site)]):
        place = folder / f"{site}-{number}"
        place.mkdir()
        where = f"{version}: {repository}"
        try:
            path, faults = _copy(store, repository, here, here.merged.records[site], place)
        except StoreError as e:
            # Whoever may read the archive alone, verifies by it.
            if e.slug not in GONE and not (found is not None and e.cause != "permanent"):
                findings.append(store_fault(e, where, site=site))
            continue
        findings += (replace(f, where=where, detail={**(f.detail or {}), "site": site}) for f in faults)
        if found is not None and path is not None:
            path.unlink()
        found = found or path
    if found is None and not findings and not _retired(tools, here, record):
        findings.append(finding("update_missing", version, got=submission.sha256, detail={"site": site}))
    return found, findings


@contextmanager
def own_copy(
    tools: Tools, here: Situation, record: Record, folder: Path
) -> Iterator[tuple[Path | None, tuple[Finding, ...]]]:
    """The copy in a site's own store, for the length of the block; None with what its artifact says otherwise.

    Args:
        record: the submission's.

    Raises:
        StoreError: it cannot be had, or its bytes are wrong.
    """
    store, repository = _own(tools, here, SiteId(record.site))
    path, faults = _copy(store, repository, here, record, folder)
    try:
        yield path, faults
    finally:
        if path is not None:
            path.unlink()


def _own(tools: Tools, here: Situation, site: SiteId) -> tuple[Store, str]:
    """A site's store, as the roster of then says."""
    roster = here.main.sites if site in here.main.sites.sites else tools.main.sites
    return tools.ctx.site_store(tools.main.federation, roster, site), repository_of(site)


def _copy(
    store: Store, repository: str, here: Situation, record: Record, place: Path
) -> tuple[Path | None, tuple[Finding, ...]]:
    artifact = store.manifest(repository, Digest(record.manifest))
    extension = here.main.federation.extension
    if faults := validate_artifact(artifact, record, here.main.submission_policy, extension=extension):
        return None, faults
    return fetch(store, repository, artifact, place, md5=record.md5), ()


def _retired(tools: Tools, here: Situation, record: VersionRecord) -> bool:
    """True if the policy says that inputs of this age are no longer kept."""
    kept = tools.main.federation.store.retain_updates or here.main.federation.store.retain_updates
    return kept is not None and tools.newest - record.version >= kept
