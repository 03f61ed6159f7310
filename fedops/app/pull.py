"""Bring one global version's model into the clone: by digest, checked, and nothing done twice."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.snapshot import Snapshot, main_snapshot, version_record
from fedops.app.work import Work, write_through
from fedops.core.errors import STORE_EMPTY, ConfigError, StoreError
from fedops.core.ids import CommitId, Digest, GlobalVersion, repository_of
from fedops.core.records import ModelEntry, VersionRecord


@dataclass(frozen=True)
class Pulled:
    """Where a version's model lies now.

    Attributes:
        commit: the commit of main that made the version.
        current: number of the current version.
        status: of the federation, as the current version says: "running" or "final".
        path: the model in the work folder, for `train`.
        out: where `--out` put a copy.
        downloaded: the bytes came from the store (or were generated), not from the cache.
        changed: anything was written.
    """

    record: VersionRecord
    commit: CommitId
    current: int
    status: str
    path: Path
    out: Path | None
    downloaded: bool
    changed: bool


def pull(ctx: Context, root: Path, *, number: int | None = None, out: Path | None = None) -> Pulled:
    """Fetch main, and the model of its current (or an older) version.

    Args:
        root: of the federation's clone.
        number: of the version; None: the current one of fetched main, whatever an issue said.
        out: also copy the model there.

    Raises:
        ConfigError: there is no such version.
        StoreError: its bytes cannot be had.
    """
    ctx.repository.fetch(pulls=())
    main = main_snapshot(ctx.repository)
    work = Work(root, main.federation.extension)
    commit, record = made_version(main, number)
    cached, downloaded = cached_model(ctx, work, main, record)
    model = record.model
    path = work.model(record.version)
    changed = place_model(ctx, cached, path, model) or downloaded
    if out is not None:
        changed = place_model(ctx, cached, out, model, link=False) or changed
    if changed:
        facts = {"version": record.version, "sha256": model.sha256, "path": work.show(path)}
        work.note("pulled", ctx.clock.now(), facts)
    return Pulled(record, commit, main.version.version, main.version.status, path, out, downloaded, changed)


def made_version(main: Snapshot, number: int | None) -> tuple[CommitId, VersionRecord]:
    """A version's commit and record; None: the current one.

    Raises:
        ConfigError: there is no such version on main.
    """
    current = main.version.version
    made = version_record(main.repository, main, current if number is None else number)
    if made is None:
        wanted = GlobalVersion(current if number is None else number).short
        raise ConfigError(f"{wanted}: no such version on main -> v0 … v{current}", hint="fedops log")
    return made


def cached_model(ctx: Context, work: Work, main: Snapshot, record: VersionRecord) -> tuple[Path, bool]:
    """A version's model in the cache, its bytes checked now; and whether they had to be fetched.

    Raises:
        StoreError: the store does not have it, has other bytes, or is broken.
    """
    model = record.model
    path = work.cached(model.sha256)
    if _holds(ctx, path, model):
        return path, False
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _fetch(ctx, main, model, path)
    except StoreError as e:
        if e.slug not in ("object_missing", STORE_EMPTY) or not _recreate(ctx, record, path):
            raise
    return path, True


def _fetch(ctx: Context, main: Snapshot, model: ModelEntry, path: Path) -> None:
    store = ctx.global_store(main.federation)
    artifact = store.manifest(repository_of(None), Digest(model.manifest))
    if (artifact.layer.sha256, artifact.layer.size) != (model.sha256, model.size):
        raise StoreError(
            f"global@{model.manifest[:19]}: layer {artifact.layer.sha256[:12]} -> {model.sha256[:12]}",
            slug="digest_mismatch",
            hint="the store or the version record was changed; run `fedops verify`",
        )
    store.get(repository_of(None), artifact.layer, path, md5=model.md5)


def _recreate(ctx: Context, record: VersionRecord, path: Path) -> bool:
    """Write the bytes of a generated v0 again; False if they did not come from a generator."""
    from fedops.app.first_model import rewrite_first

    return rewrite_first(ctx.models, record, path)


def _holds(ctx: Context, path: Path, model: ModelEntry) -> bool:
    """True if a file has exactly the model's bytes; they are hashed, a name proves nothing."""
    if not path.is_file() or path.stat().st_size != model.size:
        return False
    return ctx.models.digests(path)[:2] == (model.sha256, model.md5)


def place_model(ctx: Context, cached: Path, target: Path, model: ModelEntry, *, link: bool = True) -> bool:
    """Put the model at target, as a hard link if the disk allows; True if it was not there."""
    if target.exists() and target.samefile(cached):
        return False
    if _holds(ctx, target, model):
        return False
    if target.is_dir():
        raise ConfigError(f"{target}: a folder -> the name of a file")
    target.parent.mkdir(parents=True, exist_ok=True)
    if link:
        target.unlink(missing_ok=True)
        with suppress(OSError):
            target.hardlink_to(cached)
            return True
    write_through(target, lambda part: shutil.copyfile(cached, part))
    return True
