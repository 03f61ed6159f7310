"""The bytes that sites handed in, from every place where they lie: checked, and one good copy is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedops.app.context import Context
from fedops.app.deciding import Situation
from fedops.app.global_models import GlobalModels
from fedops.app.known_bytes import KnownBytes, Lying, look
from fedops.app.model_bytes import fetch
from fedops.app.read_ahead import ReadAhead
from fedops.app.snapshot import Snapshot
from fedops.core.artifacts import ARCHIVE
from fedops.core.byte_faults import GONE, REFUSED, WRONG
from fedops.core.catalogue import CATALOGUE, Slug
from fedops.core.errors import StoreError
from fedops.core.facts import Artifact, Submission
from fedops.core.findings import Finding, finding, slug_of
from fedops.core.ids import Digest, SiteId, repository_of
from fedops.core.records import ModelEntry, Record, VersionRecord
from fedops.core.validate import validate_artifact
from fedops.ports import InPlace, Store


@dataclass(frozen=True)
class Tools:
    """What the verification of each version is given.

    Attributes:
        main: the newest commit whose federation.yaml and roster can be read: where the stores are today.
        retired: whether the policy, of now or of a version since, says that a version's inputs are no longer kept.
        known: what was read before.
        ahead: reads and hashes files where they lie.
        stored: False: no store is opened, and nothing is said of bytes.
        artifacts: what `artifact` has read; not to be given.
    """

    ctx: Context
    main: Snapshot
    models: GlobalModels
    retired: Callable[[int], bool]
    known: KnownBytes
    ahead: ReadAhead
    stored: bool = True
    artifacts: dict[tuple[Store, str, Digest], Artifact] = field(default_factory=dict)

    def artifact(self, store: Store, repository: str, digest: Digest) -> Artifact:
        """An artifact's manifest, read once.

        Raises:
            StoreError: it cannot be had, or is not what its digest says.
        """
        key = store, repository, digest
        if key not in self.artifacts:
            self.artifacts[key] = store.manifest(repository, digest)
        return self.artifacts[key]


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
    tools.known.spoil()
    site, version = submission.site, f"v{record.version}"
    found: Path | None = None
    findings: list[Finding] = []
    archive, own = stores_of(tools, here, site)
    is_archived = True
    for number, (store, repository) in enumerate([(archive, ARCHIVE), own]):
        place = folder / f"{site}-{number}"
        place.mkdir()
        where = f"{version}: {repository}"
        try:
            path, faults = _copy(store, repository, here, here.merged.records[site], place)
        except StoreError as e:
            # Whoever may read the archive alone, verifies by it; and a site may switch its own store off.
            if e.slug not in GONE and (found is None or e.slug in WRONG | REFUSED):
                findings.append(store_fault(e, where, site=site))
            is_archived = is_archived and not (repository == ARCHIVE and e.slug in GONE)
            continue
        findings += (replace(f, where=where, detail={**(f.detail or {}), "site": site}) for f in faults)
        if found is not None and path is not None:
            path.unlink()
        found = found or path
    if not is_archived and not findings and not tools.retired(record.version):
        slug: Slug = "update_missing" if found is None else "archive_missing"
        findings.append(finding(slug, version, got=submission.sha256, detail={"site": site}))
    return found, findings


def whole_global(tools: Tools, model: ModelEntry) -> Path:
    """The bytes of a global model, checked: where they lie if they can be read there, else a copy.

    Raises:
        StoreError: they cannot be had, or are wrong.
    """
    lying = lying_global(tools, model)
    if lying is not None:
        with suppress(StoreError):  # the copy is checked again, and what is wrong with it is told as for any store
            tools.ahead.check([lying], tools.known)
            return lying.path
    tools.known.spoil()
    return tools.models.fetch(model)


def lying_global(tools: Tools, model: ModelEntry) -> Lying | None:
    """The file of a global model where it lies, not read; None if there is none.

    Raises:
        StoreError: what may pass, or lacks a right.
    """
    found = tools.models.in_place(model)
    if found is None:
        return None
    for path in (found[0].path, *found[1]):
        tools.known.saw(path, look(path))
    return found[0]


def stores_of(tools: Tools, here: Situation, site: SiteId) -> tuple[Store, tuple[Store, str]]:
    """Where the copies of a site's updates are: the archive's store; and its own, as the roster of then says."""
    return tools.ctx.global_store(tools.main.federation), _own(tools, here, site)


def lying_at(tools: Tools, store: Store, repository: str, here: Situation, record: Record) -> Lying | None:
    """A copy of an update where it lies, not read; None if the store has no such files, or its artifact is another.

    Args:
        record: the submission's.

    Raises:
        StoreError: it cannot be had.
    """
    if not isinstance(store, InPlace):
        return None
    artifact = tools.artifact(store, repository, Digest(record.manifest))
    extension = here.main.federation.extension
    if validate_artifact(artifact, record, here.main.submission_policy, extension=extension):
        return None
    for small in store.small_files(repository, artifact):
        tools.known.saw(small, look(small))
    return Lying(store.layer_file(repository, artifact.layer), record.sha256, record.md5)


def is_own_whole(tools: Tools, here: Situation, record: Record) -> bool:
    """True if the copy in a site's own store was read where it lies, and is whole; else whoever copies it says more."""
    try:
        lying = lying_at(tools, *_own(tools, here, SiteId(record.site)), here, record)
        if lying is not None:
            tools.ahead.check([lying], tools.known)
    except StoreError:
        return False
    return lying is not None


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
    tools.known.spoil()
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
