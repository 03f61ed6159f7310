"""Make a repository a federation: bytes of v0 into the store, then one commit and one tag, then the store's tag `v0`.

Every step is done only if its effect is missing, so that a run after a kill finishes what the first began.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.first_model import rewrite_first
from fedops.app.founding import V0, Draft, Ground, Wanted, adopted, draft_federation, existing
from fedops.app.scaffold import render
from fedops.app.snapshot import Snapshot, snapshot, version_record
from fedops.core.artifacts import FIRST_ANNOTATIONS
from fedops.core.byte_faults import GONE, WRONG
from fedops.core.documents import load_document
from fedops.core.errors import ConfigError, GitError, StoreError
from fedops.core.facts import RefUpdate
from fedops.core.findings import Finding, finding
from fedops.core.ids import FEDERATION_PATH, VERSION_PATH, CommitId, Digest, RepoPath, repository_of
from fedops.core.records import VersionRecord
from fedops.core.settings import Federation
from fedops.ports import Store

MAX_TRIES = 3


@dataclass(frozen=True)
class Founded:
    """What init did, or would do.

    Attributes:
        record: of v0, or of the current version if the federation was there already; None if it cannot be made.
        commit: None in a dry run.
        written: paths of the commit.
        changed: something was, or would be, done.
    """

    record: VersionRecord | None
    commit: CommitId | None
    written: tuple[RepoPath, ...]
    findings: tuple[Finding, ...]
    changed: bool


def init(ground: Ground, wanted: Wanted, *, dry_run: bool = False) -> Founded:
    """Found the federation on origin's main, or finish what an earlier run left.

    Raises:
        ConfigError, StoreError, GitError: a broken machine; running again goes on.
    """
    for _ in range(MAX_TRIES):
        ground.repository.fetch()
        tip = ground.repository.resolve("main")
        main = snapshot(ground.repository, tip) if tip is not None else None
        if main is not None and VERSION_PATH in main.files:
            return _complete(ground, main, wanted, dry_run=dry_run)
        if ground.repository.resolve(f"refs/tags/{V0.tag}") is not None:
            raise ConfigError(
                f"{V0.tag}: the tag is on origin, but main has no {VERSION_PATH}",
                hint=f"this repository was a federation before; use a new one, or delete the tags {V0.tag} …",
            )
        draft = draft_federation(ground, main, wanted)
        if draft.record is None or dry_run:
            return Founded(draft.record, None, tuple(sorted(draft.files)), draft.findings, draft.record is not None)
        commit = _found(ground, main, wanted, draft)
        if commit is not None:
            return Founded(draft.record, commit, tuple(sorted(draft.files)), draft.findings, changed=True)
    raise GitError(
        f"main: moved {MAX_TRIES} times while {V0.short} was being pushed",
        hint="run `fedops init` again; nothing was published",
        cause="temporary",
    )


def _found(ground: Ground, main: Snapshot | None, wanted: Wanted, draft: Draft) -> CommitId | None:
    """Bytes, then commit and tag, then the store's tag; None if main moved meanwhile."""
    assert draft.publish is not None
    assert draft.model is not None
    federation = load_document(_file(draft, main, FEDERATION_PATH), Federation, FEDERATION_PATH)
    store = ground.stores(federation.store.url)
    _put(store, draft.model.path, Digest(draft.model.entry.manifest))
    publish, repository = draft.publish, ground.repository
    parent = main.commit if main is not None else None
    commit = repository.write_commit(
        [parent] if parent else [], draft.files, publish.commit_message, at=publish.at, key=wanted.key
    )
    tag = repository.write_tag(publish.tag, commit, publish.tag_message)
    updates = [
        RefUpdate(f"refs/heads/{federation.branch}", parent, commit),
        RefUpdate(f"refs/tags/{publish.tag}", None, tag),
    ]
    if not repository.push(updates):
        return None
    store.tag(repository_of(None), Digest(draft.model.entry.manifest), V0.short)
    return commit


def _file(draft: Draft, main: Snapshot | None, path: RepoPath) -> bytes:
    if path in draft.files or main is None:
        return draft.files[path]
    return main.bytes_of(path)


def _put(store: Store, path: Path, manifest: Digest) -> None:
    artifact = store.put(repository_of(None), path, FIRST_ANNOTATIONS)
    if artifact.manifest != manifest:
        raise StoreError(f"{artifact.ref}: the store made another manifest -> {manifest[:19]}", slug="digest_mismatch")


# ---------------------------------------------------------------- a federation that is there


def _complete(ground: Ground, main: Snapshot, wanted: Wanted, *, dry_run: bool) -> Founded:
    """Do what a killed run left undone: the bytes and the store's tag of v0. Files are people's now."""
    rendered = render(adopted(wanted.scaffold, existing(main)))
    differing = [p for p, data in sorted(rendered.items()) if p in main.files and main.bytes_of(p) != data]
    findings = tuple(finding("file_kept", path) for path in differing)
    changed = main.version.version == V0.number and recreate(ground, main, dry_run=dry_run)
    return Founded(main.version, main.commit, (), findings, changed)


def recreate(ctx: Context | Ground, main: Snapshot, *, dry_run: bool = False) -> bool:
    """Put a generated v0 back into a store that misses its bytes, and set the store's tag `v0`.

    Returns:
        True if anything was done, or in a dry run is to be done.

    Raises:
        StoreError: the bytes are missing and did not come from a generator.
    """
    made = version_record(main.repository, main, V0.number)
    if made is None:
        return False
    record = made[1]
    store, digest = ctx.stores(main.federation.store.url), Digest(record.model.manifest)
    target = ctx.scratch / "recreated.safetensors"
    missing = _missing(store, digest, record, target)
    if missing is not None:
        if not rewrite_first(ctx.models, record, target):
            raise missing
        if not dry_run:
            _put(store, target, digest)
    target.unlink()
    untagged = store.resolve(f"{repository_of(None)}:{V0.short}") != digest
    if untagged and not dry_run:
        store.tag(repository_of(None), digest, V0.short)
    return missing is not None or untagged


def _missing(store: Store, digest: Digest, record: VersionRecord, target: Path) -> StoreError | None:
    """What the store says of v0's bytes if they are gone or wrong; else they are at target."""
    try:
        artifact = store.manifest(repository_of(None), digest)
        store.get(repository_of(None), artifact.layer, target, md5=record.model.md5)
    except StoreError as e:
        if e.slug not in GONE | WRONG:
            raise
        return e
    return None
