"""`fedops init`: make this repository a federation."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedops.cli import init_options as options
from fedops.cli.console import Format, answer, document, dry_run_option, emit, format_option, say, say_findings
from fedops.cli.scratch import command_folder
from fedops.cli.wheel import parse_wheel, wheel_hash_option, wheel_url_option
from fedops.core.disk import disk_fault
from fedops.core.errors import ConfigError
from fedops.core.findings import errors
from fedops.core.ids import FEDERATION_PATH, VERSION_PATH, GlobalVersion

if TYPE_CHECKING:
    from fedops.app.founding import Ground, Wanted
    from fedops.app.init import Founded
    from fedops.core.settings import Forge
    from fedops.ports import Store

PATH = click.Path(path_type=Path)


@click.command("init")
@click.option("--origin", type=PATH, help="Make a bare repository there, and this folder a clone of it.")
@click.option("--name", help="Name of the federation. Default: this folder's name.")
@click.option("--forge", default="git", show_default=True, help="git, or github:OWNER/NAME[@API-URL].")
@click.option(
    "--store", help=f"ocidir:PATH or oci://HOST/NAMESPACE. Default on forge git: {options.DEFAULT_STORE}, in origin."
)
@click.option("--lead", metavar="LOGIN:ID", help="Forge account of a lead; on forge git any number.")
@click.option("--lead-key", multiple=True, metavar="FILE.pub", help="SSH public key of the lead; repeatable.")
@click.option("--model", type=PATH, help="First model: a .safetensors or .npz file.")
@click.option("--generator", type=click.Choice(["zeros", "normal"]), help="First model without a file.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of --generator.")
@click.option("--tensor", multiple=True, metavar="NAME:DTYPE:SHAPE", help="Of --generator: coef:F32:1,30; repeatable.")
@click.option("--quorum", type=click.IntRange(min=1), default=3, show_default=True, help="Updates that make a version.")
@click.option("--hyperparameter", multiple=True, metavar="NAME=VALUE", help="Handed to the sites' code; repeatable.")
@wheel_hash_option
@wheel_url_option
@click.option("--example", is_flag=True, help="The example federation, with three synthetic sites.")
@dry_run_option
@format_option
def init_command(
    origin: Path | None,
    name: str | None,
    forge: str,
    store: str | None,
    lead: str | None,
    lead_key: Sequence[str],
    model: Path | None,
    generator: str | None,
    seed: int,
    tensor: Sequence[str],
    quorum: int,
    hyperparameter: Sequence[str],
    wheel_hash: str | None,
    wheel_url: str | None,
    example: bool,
    dry_run: bool,
    fmt: Format,
) -> None:
    """Make this repository a federation: policies, workflows, and the first global version v0.

    Run it at the top of a clone, or with --origin in an empty folder. Files that are there are never overwritten; run
    twice, it changes nothing, and after a crash it finishes what was begun.
    """
    folder = Path.cwd()
    if example:
        options.demand_alone(name, store, lead, model, generator, wheel_hash, wheel_url)
        wanted = options.example()
    else:
        choice = options.first_model(model, generator, seed, tensor)
        wanted = options.wanted(
            folder, name, forge, store, options.lead(lead, lead_key), choice, quorum, hyperparameter
        )
        wanted = replace(wanted, scaffold=replace(wanted.scaffold, wheel=parse_wheel(wheel_hash, wheel_url)))
    from fedops.app.init import init
    from fedops.cli.author import demand_author
    from fedops.cli.wire import signing_key
    from fedops.cli.work_tree import update_work_tree

    if not (folder / VERSION_PATH).is_file():  # else there is nothing to commit
        demand_author(folder)
    with _ground(folder, origin, wanted.scaffold.forge, example=example, dry_run=dry_run) as ground:
        founded = init(ground, replace(wanted, key=signing_key(folder)), dry_run=dry_run)
        moved = None if dry_run or founded.record is None else update_work_tree(ground.repository)
    _report(founded, wanted, moved, fmt, dry_run=dry_run)


def _report(founded: Founded, wanted: Wanted, moved: str | None, fmt: Format, *, dry_run: bool) -> None:
    record = founded.record
    version = GlobalVersion(record.version) if record is not None else None
    result = document(
        "init",
        ok=not errors(founded.findings),
        changed=founded.changed and record is not None,
        findings=founded.findings,
        name=wanted.scaffold.name,
        version=version.number if version else None,
        tag=version.tag if version else None,
        commit=founded.commit,
        sha256=record.model.sha256 if record else None,
        manifest=record.model.manifest if record else None,
        files=list(founded.written),
        work_tree=moved,
    )
    emit(fmt, result, _text(founded, wanted.scaffold.name, dry_run=dry_run))
    if fmt == "text":
        say_findings(founded.findings)
        if founded.written and not dry_run:
            say("next: fedops site add SITE --login LOGIN --id ID --key KEY.pub")
            if wanted.scaffold.forge.kind == "github" and wanted.scaffold.wheel is None:
                say("and: fedops upgrade --wheel-hash SHA256 --wheel-url URL; until then CI stops at the installation")
    answer(founded.findings)


def _text(founded: Founded, name: str, *, dry_run: bool) -> str:
    record = founded.record
    if record is None:
        return "no federation: nothing was written"
    version = GlobalVersion(record.version)
    if founded.written:
        lines = [f"would write {p}" for p in founded.written] if dry_run else []
        did = "would be tagged" if dry_run else f"commit {(founded.commit or '')[:12]}, tag"
        return "\n".join([*lines, f"{version.short} of {name}: {did} {version.tag}, {len(founded.written)} files"])
    if founded.changed:
        return f"{name} is at {version.short}: {'would put' if dry_run else 'put'} the bytes of v0 back into the store"
    return f"{name} is at {version.short}: nothing to do"


# ---------------------------------------------------------------- from values to the outside


@contextmanager
def _ground(folder: Path, origin: Path | None, forge: Forge, *, example: bool, dry_run: bool) -> Iterator[Ground]:
    """The clone, made if --origin says so, and everything else that init needs."""
    from fedops.adapters.git_setup import demand_clone, is_clone, make_origin
    from fedops.app.founding import Ground
    from fedops.cli import wire
    from fedops.cli.tokens import git_environment

    branch = wire.read_federation(folder).branch if (folder / FEDERATION_PATH).is_file() else "main"
    if origin is not None and re.match(r"[^/\\]{2,}:", str(origin)):
        raise ConfigError(
            f"--origin {origin}: is the address of a server -> a folder on this machine",
            hint=f"make an empty repository there, git clone {origin}, and run fedops init in the clone",
        )
    with ExitStack() as stack:
        scratch = stack.enter_context(command_folder())
        clone = folder
        if origin is not None and dry_run and not is_clone(folder, branch):
            # A dry run leaves nothing behind, not even an empty repository.
            clone, origin = scratch / "clone", scratch / "origin.git"
            clone.mkdir()
        if origin is not None:
            make_origin(clone, origin, branch)
        demand_clone(clone, branch)
        repo = stack.enter_context(wire.repository(clone, branch, git_environment(forge, os.environ)))
        base = wire.origin_folder(repo, clone)
        yield Ground(
            repository=repo,
            stores=partial(_store, base=base, shared=base != clone or example, dry_run=dry_run),
            models=wire.models(),
            clock=wire.SystemClock(),
            scratch=scratch,
            software=wire.software(),
            work_tree=folder,
        )


def _store(url: str, *, base: Path, shared: bool, dry_run: bool) -> Store:
    """Open the store; a folder is made, which no later command does: an unmounted one must not look empty."""
    from fedops.cli import wire

    folder = url.removeprefix("ocidir:")
    if folder != url:
        if not Path(folder).is_absolute() and not shared:
            raise ConfigError(
                f"store {url}: a relative folder is one beside a folder origin, and this origin is none",
                hint="--store ocidir:/an/absolute/path that all sites can reach, or --store oci://HOST/NAMESPACE",
            )
        if not dry_run:
            try:
                (base / folder).mkdir(parents=True, exist_ok=True)
            except OSError as e:
                said = f"store {base / folder}: the folder cannot be made: {e.strerror}"
                raise disk_fault(e, f"store {base / folder}") or ConfigError(said) from e
    return wire.store(url, relative_to=base, registries=wire.registries_of(url))
