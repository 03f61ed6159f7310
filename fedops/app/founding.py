"""What the first commit of a federation holds: the template's files next to those that are there, and v0; nothing is written."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fedops.app.first_model import FirstModel, Generated, first_model
from fedops.app.rules import WRITTEN, refuse_unusable
from fedops.app.scaffold import Scaffold, render
from fedops.app.snapshot import Snapshot, time_text
from fedops.core.documents import load_document
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, errors, finding
from fedops.core.ids import (
    FEDERATION_PATH,
    SITES_PATH,
    CommitId,
    GlobalVersion,
    RepoPath,
)
from fedops.core.plan import Publish, plan_version
from fedops.core.policy import policy_digest
from fedops.core.records import Carried, VersionRecord, Witness, model_pointer
from fedops.core.settings import Federation, Sites
from fedops.ports import Clock, Models, Repository, Store

V0 = GlobalVersion(0)
_NO_COMMIT = CommitId("0" * 40)  # parent of the first commit of an empty repository, as git writes it


@dataclass(frozen=True)
class Ground:
    """What there is before a federation is: a Context without the forge, which only federation.yaml will name.

    Args:
        work_tree: top of the clone; its files are looked at, never written.
    """

    repository: Repository
    stores: Callable[[str], Store]
    models: Models
    clock: Clock
    scratch: Path
    software: Mapping[str, str]
    work_tree: Path
    run_url: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What the federation shall be.

    Args:
        model: None is enough to finish what is there already.
        decided_at: of v0; None: now.
        software: in v0's record; None: this machine's.
        key: SSH private key that signs the commit.
    """

    scaffold: Scaffold
    model: Path | Generated | None
    decided_at: dt.datetime | None = None
    software: Mapping[str, str] | None = None
    key: Path | None = None


@dataclass(frozen=True)
class Draft:
    files: Mapping[RepoPath, bytes]
    record: VersionRecord | None
    model: FirstModel | None
    publish: Publish | None
    findings: tuple[Finding, ...]


def draft_federation(ground: Ground, main: Snapshot | None, wanted: Wanted) -> Draft:
    """Everything that the commit will hold; without a record if there is an error among the findings."""
    if wanted.model is None:
        raise ConfigError(
            "the first model: exactly one of --model FILE, --generator NAME, --example",
            hint="fedops init --generator zeros --tensor coef:F32:1,30 --tensor intercept:F32:1",
        )
    there = existing(main)
    scaffold = adopted(wanted.scaffold, there)
    rendered = render(scaffold)
    kept = _kept(ground.work_tree, there, rendered)
    new = {path: data for path, data in rendered.items() if path not in there and path not in kept}
    findings = tuple(finding("file_kept", path) for path in sorted(kept))
    findings += _unusable({**new, **there})
    model, faults = first_model(ground.models, wanted.model, ground.scratch)
    findings += faults
    if model is None or errors(findings):
        return Draft({}, None, None, None, findings)
    at = (wanted.decided_at or ground.clock.now()).replace(microsecond=0)
    software = ground.software if wanted.software is None else wanted.software
    record = first_record({**new, **there}, model, at, software, ground.run_url)
    extension = scaffold.extension
    publish = plan_version(record, model_pointer(record, extension), _NO_COMMIT, extension=extension, at=at)
    blocked = [p for p in publish.files if p in there or _differs(ground.work_tree, p, publish.files[p])]
    if blocked:
        findings += tuple(finding("policy_invalid", p, got="a file of another origin") for p in blocked)
        return Draft({}, None, None, None, findings)
    return Draft({**new, **publish.files}, record, model, publish, findings)


def first_record(
    files: Mapping[RepoPath, bytes],
    model: FirstModel,
    at: dt.datetime,
    software: Mapping[str, str],
    run_url: str | None = None,
) -> VersionRecord:
    """The record of v0.

    Args:
        files: of the whole tree; federation.yaml and everything below policies/ enter the policy digest.
        at: decided_at.
    """
    ruled: dict[str, str] = {p: hashlib.sha256(data).hexdigest() for p, data in files.items() if _is_policy(p)}
    return VersionRecord(
        version=V0.number,
        base_version=None,
        kind="init",
        source=model.source,
        status="running",
        model=model.entry,
        rule=None,
        policy=policy_digest(ruled),
        denominator=None,
        contributions=(),
        excluded=(),
        consumed={},
        carried=Carried(),
        metrics={},
        witness=Witness(
            input_commit=None,
            decided_at=time_text(at),
            trigger="init",
            software=dict(software),
            run_url=run_url,
        ),
    )


def _is_policy(path: str) -> bool:
    return path == FEDERATION_PATH or path.startswith("policies/")


def existing(main: Snapshot | None) -> dict[RepoPath, bytes]:
    """Files on main that init would write, or that a version depends on."""
    if main is None:
        return {}
    paths = {p for p in main.files if _is_policy(p) or p.startswith("global/")}
    return {p: main.bytes_of(p) for p in (paths | set(render(_ANY))) & set(main.files)}


_ANY = Scaffold(name="any", store="ocidir:any", fedops="0")  # its paths are those of every scaffold


def adopted(scaffold: Scaffold, there: Mapping[RepoPath, bytes]) -> Scaffold:
    """The scaffold with what an existing federation.yaml and roster say, so that the new files agree with them.

    Raises:
        ConfigError: federation.yaml asks for what init cannot make.
    """
    if FEDERATION_PATH in there:
        federation = load_document(there[FEDERATION_PATH], Federation, FEDERATION_PATH)
        if federation.model.format != "safetensors":
            raise ConfigError(f"{FEDERATION_PATH}: model.format {federation.model.format} -> safetensors for init")
        scaffold = replace(
            scaffold,
            name=federation.name,
            store=federation.store.url,
            fedops=federation.fedops,
            wheel=federation.wheel,
            forge=federation.forge,
            branch=federation.branch,
        )
    if SITES_PATH in there:
        roster = load_document(there[SITES_PATH], Sites, SITES_PATH)
        scaffold = replace(scaffold, leads=roster.leads, sites=roster.sites)
    return scaffold


def _kept(work_tree: Path, there: Mapping[RepoPath, bytes], rendered: Mapping[RepoPath, bytes]) -> set[RepoPath]:
    """Paths whose present content is another than init's: on main, or only in the work tree."""
    on_main = {p for p, data in rendered.items() if p in there and there[p] != data}
    return on_main | {p for p, data in rendered.items() if p not in there and _differs(work_tree, p, data)}


def _differs(work_tree: Path, path: RepoPath, data: bytes) -> bool:
    place = work_tree / path
    # NOTE: a link or a folder of that name is somebody's, whatever it holds.
    return place.is_symlink() or (place.exists() and not (place.is_file() and place.read_bytes() == data))


def _unusable(files: Mapping[RepoPath, bytes]) -> tuple[Finding, ...]:
    """Documents without which nothing works and that are not there, or cannot be read."""
    found = []
    for path in WRITTEN:
        if path not in files:
            found.append(finding("policy_invalid", path, got="only in the work tree", expected="on main"))
            continue
        try:
            refuse_unusable(path, files[path], path)
        except ConfigError as e:
            found.append(finding("policy_invalid", path, got=e.message))
    return tuple(found)
