"""Bring the files that fedops writes to the installed version's; files that people changed are theirs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fedops.app.change_main import Writing, change_main
from fedops.app.context import Context
from fedops.app.dvc_config import DVC_CONFIG_PATH, with_site_remote
from fedops.app.founding import adopted
from fedops.app.lead_pull import Edit, LeadPull
from fedops.app.scaffold import BY_LINES, GENERATED, GENERATED_PATH, Generated, Scaffold, render
from fedops.app.snapshot import Snapshot
from fedops.core.documents import Json, load_document, load_json_document
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, finding
from fedops.core.ids import FEDERATION_PATH, SITES_PATH, CommitId, RepoPath, SiteId
from fedops.core.settings import Federation, Wheel
from fedops.ports import YamlEditor


@dataclass(frozen=True)
class Asked:
    """What `fedops upgrade` was given.

    Args:
        version: of the installed fedops.
        wheel: the file that CI shall install; None: as it is.
        overwrite, keep: generated files that people changed, and what shall become of them.
    """

    version: str
    wheel: Wheel | None = None
    overwrite: Collection[str] = ()
    keep: Collection[str] = ()


@dataclass(frozen=True)
class Upgraded:
    """What was, or would be, done.

    Attributes:
        before: the version that federation.yaml pinned.
        written: paths of the commit.
        findings: files that people changed; with one, nothing is written.
        commit: None if nothing changed, or in a dry run.
        pull: the pull request that it stands in, if it was to be one.
    """

    before: str
    written: tuple[RepoPath, ...]
    findings: tuple[Finding, ...]
    commit: CommitId | None
    pull: LeadPull | None = None

    @property
    def changed(self) -> bool:
        return bool(self.written) and (self.pull is None or self.pull.changed)


@dataclass(frozen=True)
class _Plan:
    files: Mapping[RepoPath, bytes]
    findings: tuple[Finding, ...]
    before: str


def upgrade(ctx: Context, editor: YamlEditor, asked: Asked, writing: Writing) -> Upgraded:
    """Rewrite federation.yaml's pin and the generated files in one commit on main; twice is once.

    Raises:
        ConfigError: the federation is ahead of this fedops, or pins a wheel of another version.
    """
    plans: list[_Plan] = []

    def plan(main: Snapshot) -> Edit | None:
        made = _plan(main, editor, asked)
        plans.append(made)
        if made.findings or not made.files:
            return None
        return Edit(made.files, f"policy: upgrade to fedops {asked.version}\n", "upgrade")

    done = change_main(ctx, writing, plan)
    last, files = plans[-1], done.edit.files if done.edit is not None else ()
    return Upgraded(last.before, tuple(sorted(files)), last.findings, done.commit, done.pull)


def _plan(main: Snapshot, editor: YamlEditor, asked: Asked) -> _Plan:
    federation = _federation(main, editor, asked)
    blank = Scaffold(name="any", store="ocidir:any", fedops=asked.version)
    rendered = render(adopted(blank, {FEDERATION_PATH: federation, SITES_PATH: main.bytes_of(SITES_PATH)}))
    recorded = _recorded(main)
    wanted: dict[RepoPath, bytes] = {FEDERATION_PATH: federation, GENERATED_PATH: rendered[GENERATED_PATH]}
    edited = []
    for path in GENERATED:
        if path in asked.keep:
            continue
        if _is_edited(main, path, rendered[path], recorded) and path not in asked.overwrite:
            edited.append(finding("file_edited", path))
        wanted[path] = rendered[path]
    for path in BY_LINES:
        wanted[path] = _with_lines(main, path, rendered[path])
    wanted[DVC_CONFIG_PATH] = _with_remotes(main) if DVC_CONFIG_PATH in main.files else rendered[DVC_CONFIG_PATH]
    changed = {p: data for p, data in wanted.items() if p not in main.files or main.bytes_of(p) != data}
    return _Plan(changed, tuple(edited), main.federation.fedops)


def _federation(main: Snapshot, editor: YamlEditor, asked: Asked) -> bytes:
    """federation.yaml with the new pin; nothing else of it changes."""
    before, data = main.federation, main.bytes_of(FEDERATION_PATH)
    if _number(before.fedops) > _number(asked.version):
        raise ConfigError(
            f"{FEDERATION_PATH}: fedops {before.fedops} -> at most {asked.version}, which is installed",
            hint=f"install fedops {before.fedops} or newer",
        )
    after = before
    if before.fedops != asked.version:
        if before.wheel is not None and asked.wheel is None:
            raise ConfigError(
                f"{FEDERATION_PATH}: wheel is that of {before.fedops} -> one of {asked.version}",
                hint="fedops upgrade --wheel-hash SHA256 [--wheel-url URL]",
            )
        data = editor.put(data, ("fedops",), asked.version)
        after = after.model_copy(update={"fedops": asked.version})
    if asked.wheel is not None and asked.wheel != before.wheel:
        value: Json = {"sha256": asked.wheel.sha256} | ({"url": asked.wheel.url} if asked.wheel.url else {})
        data = editor.put(data, ("wheel",), value)
        after = after.model_copy(update={"wheel": asked.wheel})
    if load_document(data, Federation, FEDERATION_PATH) != after:
        raise ConfigError(
            f"{FEDERATION_PATH}: cannot be edited without changing more than `fedops` and `wheel`",
            hint="edit these two by hand, then run `fedops upgrade` again",
        )
    return data


def _number(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}", version):
        raise ConfigError(f"{FEDERATION_PATH}: fedops {version[:40]!r} -> a version such as 0.1.0")
    return tuple(int(part) for part in version.split("."))


def _recorded(main: Snapshot) -> Mapping[str, str]:
    """Path -> sha256 of what an earlier version wrote; empty for a federation older than the record."""
    if GENERATED_PATH not in main.files:
        return {}
    return load_json_document(main.bytes_of(GENERATED_PATH), Generated, GENERATED_PATH).files


def _is_edited(main: Snapshot, path: RepoPath, new: bytes, recorded: Mapping[str, str]) -> bool:
    """True for a file that is neither as it was written nor as it will be; a recorded one that is gone is one too."""
    if path not in main.files:
        return path in recorded
    if main.files[path].mode != "100644":
        return True
    data = main.bytes_of(path)
    return data != new and hashlib.sha256(data).hexdigest() != recorded.get(path)


def _with_lines(main: Snapshot, path: RepoPath, new: bytes) -> bytes:
    """The file with those of our lines that it lacks added at its end."""
    if path not in main.files:
        return new
    data = main.bytes_of(path)
    there = set(data.splitlines())
    missing = [line for line in new.splitlines() if line not in there]
    gap = b"\n" if missing and data and not data.endswith(b"\n") else b""
    return data + gap + b"".join(line + b"\n" for line in missing)


def _with_remotes(main: Snapshot) -> bytes:
    data = main.bytes_of(DVC_CONFIG_PATH)
    for site in sorted(main.sites.sites):
        store = main.sites.sites[site].store or main.federation.store.url
        data = with_site_remote(data, SiteId(site), store)
    return data
