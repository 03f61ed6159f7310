"""`fedops init`: make this repository a federation."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedops import __version__
from fedops.cli.console import Format, answer, document, dry_run_option, emit, format_option, say, say_findings
from fedops.cli.wheel import parse_wheel, wheel_hash_option, wheel_url_option
from fedops.core.errors import ConfigError
from fedops.core.findings import errors
from fedops.core.github_hosts import host_of
from fedops.core.ids import FEDERATION_PATH, GlobalVersion

if TYPE_CHECKING:
    from fedops.app.first_model import Generated
    from fedops.app.founding import Ground, Wanted
    from fedops.app.init import Founded
    from fedops.core.facts import Json
    from fedops.core.settings import Forge, Lead
    from fedops.ports import Store

PATH = click.Path(path_type=Path)
DEFAULT_STORE = "ocidir:store"
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}\Z")


@click.command("init")
@click.option("--origin", type=PATH, help="Make a bare repository there, and this folder a clone of it.")
@click.option("--name", help="Name of the federation. Default: this folder's name.")
@click.option("--forge", default="git", show_default=True, help="git, or github:OWNER/NAME[@API-URL].")
@click.option("--store", help=f"ocidir:PATH or oci://HOST/NAMESPACE. Default on forge git: {DEFAULT_STORE}, in origin.")
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
        _demand_alone(name, store, lead, model, generator, wheel_hash, wheel_url)
        wanted = _example()
    else:
        choice = _first_model(model, generator, seed, tensor)
        wanted = _wanted(folder, name, forge, store, _lead(lead, lead_key), choice, quorum, hyperparameter)
        wanted = replace(wanted, scaffold=replace(wanted.scaffold, wheel=parse_wheel(wheel_hash, wheel_url)))
    from fedops.app.init import init
    from fedops.cli.wire import signing_key
    from fedops.cli.work_tree import update_work_tree

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


# ---------------------------------------------------------------- from options to values


def _demand_alone(*given: object) -> None:
    if any(value is not None for value in given):
        raise ConfigError("--example: its name, store, lead and model are fixed", hint="leave the other options out")


def _example() -> Wanted:
    from fedops.app.example import example

    return example()


def _first_model(
    model: Path | None, generator: str | None, seed: int, tensors: Sequence[str]
) -> Path | Generated | None:
    from fedops.app.first_model import Generated
    from fedops.core.generate import parse_tensor

    if model is not None and generator is not None:
        raise ConfigError("the first model: got --model and --generator -> one of them")
    if generator is None:
        if tensors:
            raise ConfigError("--tensor: belongs to --generator")
        return model
    parsed = [parse_tensor(text) for text in tensors]
    names = [name for name, _ in parsed]
    if len(set(names)) < len(names):
        raise ConfigError(f"--tensor: a name is given twice among {', '.join(names)}")
    return Generated(generator, seed, dict(parsed))


def _wanted(
    folder: Path,
    name: str | None,
    forge: str,
    store: str | None,
    lead: Lead | None,
    choice: Path | Generated | None,
    quorum: int,
    hyperparameters: Sequence[str],
) -> Wanted:
    from fedops.app.founding import Wanted
    from fedops.app.scaffold import Scaffold, checked_store

    parsed = _forge(forge)
    if store is None and parsed.kind == "github":
        raise ConfigError("--store: needed on forge github -> oci://HOST/NAMESPACE")
    scaffold = Scaffold(
        name=_name(folder, name),
        store=checked_store(store or DEFAULT_STORE),
        fedops=__version__,
        forge=parsed,
        leads=(lead,) if lead is not None else (),
        quorum=quorum,
        # On GitHub sites hand in from forks, whose author the forge vouches for.
        require_signed=parsed.kind == "git",
        hyperparameters=_hyperparameters(hyperparameters),
    )
    return Wanted(scaffold, choice)


def _name(folder: Path, name: str | None) -> str:
    chosen = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") if name is None else name
    if not re.match(r"[a-z0-9-]{1,63}\Z", chosen):
        raise ConfigError(f"--name {chosen!r}: not a name -> 1 to 63 lower-case letters, digits and dashes")
    return chosen


def _forge(text: str) -> Forge:
    from fedops.core.settings import Forge

    if text == "git":
        return Forge()
    kind, _, rest = text.partition(":")
    repository, at, api_url = rest.partition("@")
    if kind != "github" or not _REPOSITORY.match(repository):
        raise ConfigError(f"--forge {text!r}: -> git, or github:OWNER/NAME")
    return Forge(kind="github", repository=repository, api_url=host_of(api_url).api if at else None)


def _lead(text: str | None, keys: Sequence[str]) -> Lead | None:
    from fedops.cli.public_keys import read_public_key
    from fedops.core.settings import Lead

    if text is None:
        if keys:
            raise ConfigError("--lead-key: whose key? -> --lead LOGIN:ID")
        return None
    login, _, number = text.rpartition(":")
    if not _LOGIN.match(login) or not (number.isascii() and number.isdigit()):
        raise ConfigError(f"--lead {text!r}: -> LOGIN:ID, such as lena:1")
    return Lead(login=login, id=int(number), keys=tuple(read_public_key(key) for key in keys))


def _hyperparameters(texts: Sequence[str]) -> dict[str, Json]:
    """NAME=VALUE with values as YAML reads them: numbers, true, false, text."""
    from fedops.core.yaml_reader import parse_yaml

    out: dict[str, Json] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in out:
            raise ConfigError(f"--hyperparameter {text!r}: -> NAME=VALUE, each name once, such as lr=0.1")
        out[name] = parse_yaml(f"value: {value}\n".encode(), f"--hyperparameter {name}")[0]["value"]
    return out


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
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedops-")))
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
                raise ConfigError(f"store {base / folder}: the folder cannot be made: {e.strerror}") from e
    return wire.store(url, relative_to=base, registries=wire.registries_of(url))
