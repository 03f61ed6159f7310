"""Asks everything that can keep a clone from working, and goes on where one question cannot be answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from fedops.app.context import Context
from fedops.app.own_key import asks_signature
from fedops.app.rules import WRITTEN
from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.app.tag_faults import misplaced
from fedops.app.usable import unusable
from fedops.core.artifacts import ARCHIVE
from fedops.core.errors import FedopsError, StoreError
from fedops.core.forge_settings import packages_of
from fedops.core.health import (
    Check,
    cannot,
    check_attributes,
    check_distributions,
    check_git,
    check_identity,
    check_ignored,
    check_key,
    check_no_key,
    check_python,
    check_site,
    check_ssh,
    check_work_tree,
)
from fedops.core.health_federation import check_ci_store, check_clock, check_own_store, check_pin, check_tags
from fedops.core.health_forge import check_forge
from fedops.core.health_policy import check_sense
from fedops.core.health_roster import check_roster
from fedops.core.ids import (
    VERSION_PATH,
    Digest,
    GlobalVersion,
    SiteId,
    model_pointer_path,
    record_path,
    repository_of,
    update_path,
)
from fedops.ports import ForgeProbe, Machine, WriteProbe

_UNASKED = "this store cannot be asked without writing"
SOME_SITE = SiteId("site")  # whose files do not exist: attributes go by the path alone


@dataclass(frozen=True)
class Patient:
    """One clone.

    Args:
        root: of the federation.
        site: that `fedops join` noted; None: none.
        key: SSH private key that signs here; None: none.
    """

    ctx: Context
    machine: Machine
    root: Path
    site: SiteId | None
    key: Path | None

    @cached_property
    def main(self) -> Snapshot:
        return main_snapshot(self.ctx.repository)


def attempt(name: str, ask: Callable[[], Iterable[Check]]) -> tuple[Check, ...]:
    """The answers to a question; a broken one if it cannot be asked: nothing is ever raised."""
    try:
        return tuple(ask())
    except FedopsError as e:
        return (cannot(name, e.message, e.hint),)
    except Exception as e:  # noqa: BLE001 whoever calls a doctor must get an answer
        return (cannot(name, f"cannot be checked, {type(e).__name__}: {e}"),)


def machine_checks(machine: Machine, folder: Path, site: SiteId | None = None) -> tuple[Check, ...]:
    """What can be asked anywhere.

    Args:
        folder: where commands are given; git's configuration may be that of a clone.
        site: whose clone that is, if any.
    """
    return (
        *attempt("git", lambda: [check_git(machine.git_version())]),
        *attempt("ssh-keygen", lambda: [check_ssh(machine.ssh_version())]),
        *attempt("python", lambda: [check_python(machine.python_version())]),
        *attempt("distribution", lambda: [check_distributions(machine.distributions())]),
        *attempt("identity", lambda: [check_identity(machine.identity(folder), site)]),
    )


def clone_checks(patient: Patient) -> tuple[Check, ...]:
    """What can be asked in a clone; what needs main is not asked where there is none."""
    origin = attempt("origin", lambda: _origin(patient))
    main = attempt("main", lambda: _main(patient))
    own = (*attempt("work tree", lambda: _work_tree(patient)), *attempt("git settings", lambda: _settings(patient)))
    if any(c.state == "broken" for c in main):
        return (*origin, *main, *own)
    policies = attempt("policies", lambda: _policies(patient.main))
    asked: Sequence[tuple[str, Callable[[Patient], Iterable[Check]]]] = (
        ("fedops", _pin),
        ("tags", _tags),
        ("clock", _clock),
        ("site", _site),
        ("key", _key),
        ("store", _store),
        ("own store", _own_store),
        ("stores of CI", _ci_stores),
        ("forge", _forge),
    )
    rest = (check for name, ask in asked for check in attempt(name, partial(ask, patient)))
    return (*origin, *main, *policies, *own, *rest)


def _origin(patient: Patient) -> Iterator[Check]:
    patient.ctx.repository.fetch()
    yield Check("origin", "ok", "answers")


def _main(patient: Patient) -> Iterator[Check]:
    yield Check("main", "ok", f"{patient.main.commit[:12]}")


def _policies(main: Snapshot) -> Iterator[Check]:
    """One line for each document that cannot be used, with file and line; else one for all, and what makes no sense."""
    broken = list(unusable(main, WRITTEN))
    try:
        _ = main.version
    except FedopsError as e:
        broken.append((VERSION_PATH, e))
    for path, fault in broken:
        yield Check(path, "broken", fault.message, next=fault.hint or f"a lead corrects {path} on main")
    if not broken:
        yield Check("policies", "ok", "all documents of main can be used")
        kind = main.federation.forge.kind
        yield from check_sense(kind, main.sites, main.submission_policy, main.aggregation, main.version)
        yield from check_roster(main.sites)


def _work_tree(patient: Patient) -> Iterator[Check]:
    tree = patient.machine.work_tree(patient.root, patient.main.federation.branch)
    yield check_work_tree(tree, patient.main.federation.branch)
    yield check_ignored(tree)


def _settings(patient: Patient) -> Iterator[Check]:
    extension = patient.main.federation.extension
    site = patient.site or SOME_SITE
    paths = (VERSION_PATH, model_pointer_path(extension), record_path(site), update_path(site, extension))
    found = patient.machine.attributes(patient.root, paths)
    yield check_attributes(found, patient.machine.git_config(patient.root, "core.autocrlf"))


def _pin(patient: Patient) -> Iterator[Check]:
    yield check_pin(patient.main.federation.fedops, patient.ctx.software["fedops"])


def _tags(patient: Patient) -> Iterator[Check]:
    stray = next(iter(misplaced(patient.main)), None)
    elsewhere = str(stray.got) if stray is not None else None
    yield check_tags(patient.ctx.repository.versions(), patient.main.version.version, elsewhere)


def _clock(patient: Patient) -> Iterator[Check]:
    repository, main = patient.ctx.repository, patient.main
    yield check_clock(repository.commit(main.commit).committed_at, patient.ctx.clock.now())


def _site(patient: Patient) -> Iterator[Check]:
    yield check_site(patient.site, patient.main.sites)


def _key(patient: Patient) -> Iterator[Check]:
    main = patient.main
    if patient.key is None:
        yield check_no_key(patient.site, needed=asks_signature(main))
        return
    yield check_key(patient.machine.key_facts(patient.key), patient.site, main.sites)


def _store(patient: Patient) -> Iterator[Check]:
    """Whether the current version's model can be read, by its manifest."""
    main = patient.main
    version, name = main.version, GlobalVersion(main.version.version).short
    try:
        patient.ctx.global_store(main.federation).manifest(repository_of(None), Digest(version.model.manifest))
    except StoreError as e:
        if e.slug != "object_missing" or version.source is None or version.source.generator is None:
            raise
        yield Check("store", "ok", f"answers; {name} is made by its generator")
        return
    yield Check("store", "ok", f"has the model of {name}")


def _own_store(patient: Patient) -> Iterator[Check]:
    """Whether the site's updates could be written; nothing is."""
    main, site = patient.main, patient.site
    if site is None:
        return
    store, where = patient.ctx.site_store(main.federation, main.sites, site), repository_of(site)
    if isinstance(store, WriteProbe):
        yield check_own_store(where, store.write_fault(where))
    else:
        yield Check("own store", "ok", f"{where}: {_UNASKED}")


def _ci_stores(patient: Patient) -> Iterator[Check]:
    """Whether CI's part of the store could be written from here, in a clone that is no site's; nothing is written."""
    if patient.site is not None:
        return
    store = patient.ctx.global_store(patient.main.federation)
    for where in (repository_of(None), ARCHIVE):
        if isinstance(store, WriteProbe):
            yield check_ci_store(where, store.write_fault(where))
        else:
            yield Check(f"store: {where}", "ok", _UNASKED)


def _forge(patient: Patient) -> Iterator[Check]:
    """Whether the repository's settings let the loop work, where the forge has settings."""
    main, forge = patient.main, patient.ctx.forge
    if not isinstance(forge, ForgeProbe):
        return
    branch, packages = main.federation.branch, packages_of(main.federation.store.url)
    for_lead = patient.site is None
    seen = forge.settings(branch, GlobalVersion(main.version.version).tag, packages, for_lead=for_lead)
    yield from check_forge(seen, branch, main.sites, patient.site, main.aggregation)
