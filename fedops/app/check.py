"""The use case of `fedops check`: every item is judged by itself, by the code that CI uses, without a federation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fedops.app.check_plan import (
    ChangeItem,
    CheckPlan,
    Item,
    ManifestItem,
    PointerItem,
    SubmissionItem,
    TextItem,
)
from fedops.app.check_submission import check_submission
from fedops.app.model_bytes import store_finding
from fedops.app.plans import GlobalFile, aggregation, read_bytes, read_plan
from fedops.app.terms import Terms, terms_of
from fedops.core.artifacts import MAX_MANIFEST_BYTES, manifest_digest, parse_manifest
from fedops.core.brief import brief
from fedops.core.documents import MAX_DOCUMENT_BYTES, load_document
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.facts import Account, Json
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import (
    FEDERATION_PATH,
    SITES_PATH,
    CommitId,
    GlobalVersion,
    RepoPath,
    StoreRef,
    repository_of,
    site_id_fault,
)
from fedops.core.records import Pointer
from fedops.core.settings import Federation, Sites, SubmissionPolicy
from fedops.core.validate import parse_pointer, validate_change
from fedops.ports import Models, Repository, Store

_MAX_PATHS = 100  # of one change, in its facts
_Facts = dict[str, Json]
_Result = tuple[_Facts, tuple[Finding, ...]]


@dataclass(frozen=True)
class Outside:
    """What a check may reach.

    Attributes:
        models: reader of model files.
        stores: opens the store of a URL.
        repositories: opens a clone or a bare repository; closed after use.
    """

    models: Models
    stores: Callable[[str], Store]
    repositories: Callable[[Path], AbstractContextManager[Repository]]


@dataclass(frozen=True)
class Checked:
    """What one item came to."""

    name: str
    kind: str
    facts: Mapping[str, Json]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not errors(self.findings)


def check_file(update: Path | None, record: Path | None, base: Path | None, outside: Outside) -> tuple[Checked, ...]:
    """Check one model file and its record, or one of the two, under the default policy.

    Args:
        update: the model file.
        record: the draft that goes with it.
        base: the global model that it was trained on; without it container and values only.

    Raises:
        ConfigError: a file cannot be read, or the base model cannot be used.
    """
    item = SubmissionItem(
        kind="submission",
        update=None if update is None else str(update),
        record=None if record is None else str(record),
    )
    terms = Terms(Path(), SubmissionPolicy(), base=None if base is None else GlobalFile(path=str(base)))
    name = item.update or str(item.record)
    facts, found = check_submission(item, name, terms, outside.models)
    return (Checked(name, "submission", facts, found),)


def check_plan(path: Path, outside: Outside) -> tuple[Checked, ...]:
    """Check every item of a plan; none stops another.

    Raises:
        ConfigError: the plan itself is at fault: not such a plan, or it names what is not there.
        StoreError, GitError: a store or a repository is broken, so that nothing can be said.
    """
    plan = read_plan(path, CheckPlan)
    terms = terms_of(plan, path.parent, aggregation(plan, path.parent))
    checker = _Checker(plan, path.parent, terms, outside)
    return tuple(checker.check(item, item.name or f"items/{i}") for i, item in enumerate(plan.items))


@dataclass(frozen=True)
class _Checker:
    plan: CheckPlan
    folder: Path
    terms: Terms
    outside: Outside

    def check(self, item: Item, name: str) -> Checked:
        match item:
            case SubmissionItem():
                facts, found = check_submission(item, name, self.terms, self.outside.models)
            case PointerItem():
                facts, found = self.pointer(item)
            case ManifestItem():
                facts, found = self.manifest(item)
            case ChangeItem():
                facts, found = self.change(item, name)
            case TextItem():
                facts, found = check_text(item.kind, item.value, name)
        return Checked(name, item.kind, facts, found)

    def pointer(self, item: PointerItem) -> _Result:
        limit = self.terms.policy.limits.pointer_bytes
        data = read_bytes(self.folder / item.pointer, max_bytes=limit)
        if len(data) > limit:
            return {}, (finding("file_too_large", item.pointer, got=f"more than {limit}", expected=limit),)
        pointer, found = parse_pointer(data, item.pointer, item.placed_at)
        if pointer is None:
            return {}, found
        facts: _Facts = {
            "site": pointer.site,
            "path": pointer.path,
            "size": pointer.size,
            "sha256": pointer.sha256,
            "md5": pointer.md5,
            "manifest": pointer.manifest,
        }
        if self.plan.store is not None:
            found = _stored(self.outside.stores(self.plan.store), pointer, item.pointer)
        return facts, found

    def manifest(self, item: ManifestItem) -> _Result:
        data = read_bytes(self.folder / item.manifest, max_bytes=MAX_MANIFEST_BYTES)
        parsed = parse_manifest(data, where=item.manifest, lenient_types=True)
        facts: _Facts = {"manifest": manifest_digest(data), "annotations": dict(parsed.annotations)}
        if parsed.layer is not None:
            facts |= {"title": parsed.layer.title, "sha256": parsed.layer.sha256, "size": parsed.layer.size}
        return facts, parsed.findings

    def change(self, item: ChangeItem, name: str) -> _Result:
        with self.outside.repositories(self.folder / item.repository) as repository:
            base, head = (_commit(repository, ref, item.repository) for ref in (item.base, item.head))
            facts: _Facts = {"base": base, "head": head}
            if item.expected_head is not None and head != item.expected_head:
                # Nothing is said of a commit that nobody asked about.
                return facts, (finding("head_moved", name, got=head, expected=item.expected_head),)
            try:
                changes = repository.changes(base, head)
            except GitError as e:
                if e.slug != "lineage_broken":
                    raise
                return facts, (finding("lineage_broken", name, got=head, expected=f"a descendant of {base}"),)
            federation, sites = self.federation(repository, base)
            site, found = validate_change(
                changes,
                Account(item.author.login, item.author.id),
                sites,
                extension=federation.extension if federation is not None else "safetensors",
                base_paths=[entry.path for entry in repository.entries(base)],
            )
        paths = sorted(change.path for change in changes)[:_MAX_PATHS]
        return facts | {"site": site, "paths": [brief(path) for path in paths]}, found

    def federation(self, repository: Repository, base: CommitId) -> tuple[Federation | None, Sites]:
        """federation.yaml of the base, if it has one; the plan's roster, else that of the base."""
        blobs = {entry.path: entry.blob for entry in repository.entries(base)}

        def read(path: RepoPath) -> bytes | None:
            return repository.read(blobs[path], max_bytes=MAX_DOCUMENT_BYTES) if path in blobs else None

        data = read(FEDERATION_PATH)
        federation = None if data is None else load_document(data, Federation, FEDERATION_PATH)
        sites = self.terms.sites
        if sites is None:
            data = read(SITES_PATH)
            if data is None:
                raise ConfigError(f"{SITES_PATH}: not in {base[:12]}", hint="add `sites` to the plan")
            sites = load_document(data, Sites, SITES_PATH)
        return federation, sites


def check_text(kind: str, value: Json, name: str) -> _Result:
    """Judge one id ("site-id"), tag ("tag") or store reference ("ref"), as somebody wrote it."""
    if kind == "site-id":
        fault = site_id_fault(value)
        if fault is None:
            return {"site": value}, ()
        return {}, (
            finding("site_id_reserved" if fault == "site_id_reserved" else "site_id_invalid", name, got=brief(value)),
        )
    if kind == "tag":
        version = GlobalVersion.from_tag(value) if isinstance(value, str) else None
        if version is not None:
            return {"site": repository_of(None), "version": version.number}, ()
        return {}, (finding("tag_name_invalid", name, got=brief(value), expected=GlobalVersion(9).tag),)
    ref = StoreRef.parse(value) if isinstance(value, str) else None
    if ref is not None:
        return {"site": ref.site or repository_of(None), "version": ref.version}, ()
    return {}, (finding("tag_name_invalid", name, got=brief(value), expected="sites/hospital-a:v3"),)


def _commit(repository: Repository, ref: str, where: str) -> CommitId:
    commit = repository.resolve(ref)
    if commit is None:
        raise ConfigError(f"{where}: {ref}: no such commit", hint="fetch it, or correct the plan")
    return commit


def _stored(store: Store, pointer: Pointer, where: str) -> tuple[Finding, ...]:
    """Fetch what a pointer names and compare; a store that is broken raises."""
    repository = repository_of(pointer.site)
    try:
        layer = store.manifest(repository, pointer.manifest).layer
        found = []
        if layer.size != pointer.size:
            found.append(finding("size_mismatch", where, got=pointer.size, expected=layer.size))
        if layer.sha256 != pointer.sha256:
            detail = {"field": "sha256"}
            found.append(finding("hash_mismatch", where, got=pointer.sha256, expected=layer.sha256, detail=detail))
        if found:
            return tuple(found)
        with tempfile.TemporaryDirectory(prefix="fedops-") as folder:
            store.get(repository, layer, Path(folder) / "model", md5=pointer.md5)
    except StoreError as e:
        return (store_finding(e, where),)
    return ()
