"""What a site runs: `fedops pull`, `fedops train`, `fedops submit`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from fedops.cli.console import NO, Format, document, dry_run_option, emit, for_people, format_option, say, say_findings
from fedops.cli.params import parse_metrics, parse_version, site_here, site_option
from fedops.core.errors import ConfigError
from fedops.core.facts import Json
from fedops.core.findings import Finding
from fedops.core.ids import GlobalVersion

if TYPE_CHECKING:
    from fedops.app.submit import Submitted
    from fedops.app.train import LastVersion, TrainedNow
    from fedops.core.documents import Document
    from fedops.ports import Trainer

PATH = click.Path(path_type=Path)


@click.command("pull")
@click.argument("version", metavar="[vN]", required=False, callback=parse_version)
@click.option("--out", type=PATH, help="Also copy the model there.")
@format_option
def pull_command(version: int | None, out: Path | None, fmt: Format) -> None:
    """Fetch a global version's model, by digest. Without a version: the current one.

    The model lies in .fedops/versions/vN/ afterwards, where `fedops train` takes it from.
    """
    from fedops.app.pull import pull
    from fedops.cli.wire import open_context
    from fedops.render.site import pull_text

    with open_context() as (root, ctx):
        got = pull(ctx, root, number=version, out=out.absolute() if out is not None else None)
    model = got.record.model
    result = document(
        "pull",
        ok=True,
        changed=got.changed,
        version=got.record.version,
        current=got.current,
        status=got.status,
        commit=got.commit,
        sha256=model.sha256,
        md5=model.md5,
        size=model.size,
        manifest=model.manifest,
        path=str(got.path),
        out=str(got.out) if got.out is not None else None,
        downloaded=got.downloaded,
    )
    where = shown(got.out or got.path)
    emit(fmt, result, pull_text(got.record, got.current, where, final=got.status == "final", changed=got.changed))


@click.command("train")
@click.option("--client", metavar="MODULE:CLASS", help="Python class with fit(parameters, config), see fedops.Client.")
@click.option("--command", help="Program with arguments; told by FEDOPS_* variables what to read and write.")
@click.option(
    "--base",
    metavar="vN",
    callback=parse_version,
    help="Global version to start from. Default: the newest that was pulled.",
)
@site_option
@click.option("--config", type=PATH, help="YAML or JSON file of hyperparameters, over those of policies/training.yaml.")
@click.option("--again", is_flag=True, help="Train although there is a result for this version.")
@format_option
def train_command(
    client: str | None,
    command: str | None,
    base: int | None,
    site: str | None,
    config: Path | None,
    again: bool,
    fmt: Format,
) -> None:
    """Train on a pulled version with your own code, in a process of its own.

    \b
    --command is told by environment variables:
      FEDOPS_MODEL   the global model, a safetensors file; to be read only
      FEDOPS_UPDATE  where to write the new model
      FEDOPS_RESULT  where to write {"num_examples": 150, "metrics": {"loss": 0.31}}
      FEDOPS_CONFIG  {"hyperparameters": …, "version": 8}, as JSON
      FEDOPS_SITE, FEDOPS_VERSION
    """  # noqa: D301 click takes a real backspace for "do not wrap"
    from fedops.app.train import LastVersion, Refused, TrainedNow, train
    from fedops.cli.wire import open_context

    trainer = trainer_of(client, command)
    with open_context() as (root, ctx):
        got = train(
            ctx,
            root,
            trainer,
            site=site_here(root, site),
            number=base,
            overrides=read_overrides(config) if config is not None else None,
            again=again,
        )
    if isinstance(got, LastVersion):
        _tell_last("train", got, fmt, result=None, update=None, log=None)
        return
    if isinstance(got, Refused):
        if fmt == "text":
            say(f"the update is not taken; it is kept for looking at: {shown(got.kept)}")
        _refuse("train", got.findings, fmt, kept=str(got.kept))
    if not isinstance(got, TrainedNow):
        _refuse("train", got, fmt)
    _tell_training(got, fmt)


@click.command("submit")
@click.argument("file", type=PATH, required=False)
@click.option("--examples", type=click.IntRange(min=1), help="Local training examples. Default: as training said.")
@click.option(
    "--metric",
    "metrics",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parse_metrics,
    help="A metric; those given here replace those of training.",
)
@click.option(
    "--base",
    metavar="vN",
    callback=parse_version,
    help="Global version it was trained on. Default: as training said, or the current one.",
)
@site_option
@click.option("--key", type=PATH, help="SSH private key that signs. Default: FEDOPS_KEY, or as `fedops join` noted.")
@dry_run_option
@format_option
def submit_command(
    file: Path | None,
    examples: int | None,
    metrics: dict[str, float] | None,
    base: int | None,
    site: str | None,
    key: Path | None,
    dry_run: bool,
    fmt: Format,
) -> None:
    """Hand in an update: check it as CI would, upload it, sign, open the pull request.

    Without FILE: the newest finished `fedops train`. Running it again is harmless: it does what is still missing.
    """
    from fedops.app.offer import Wanted
    from fedops.app.submit import Refused, submit
    from fedops.app.train import LastVersion
    from fedops.cli.wire import open_context, signing_key

    with open_context(key=key) as (root, ctx):
        wanted = Wanted(
            site=site_here(root, site),
            file=file.absolute() if file is not None else None,
            base=base,
            num_examples=examples,
            metrics=metrics,
        )
        got = submit(ctx, root, wanted, key=key or signing_key(root), dry_run=dry_run)
    if isinstance(got, Refused):
        _refuse("submit", got.findings, fmt)
    if isinstance(got, LastVersion):
        _tell_last("submit", got, fmt, outcome="final", pull=None, uploaded=False, record=None)
        return
    _tell_submission(got, fmt)


def _tell_last(command: str, got: LastVersion, fmt: Format, **nothing: Json) -> None:
    """Say that there is nothing more to do; the document has its usual fields, without values."""
    from fedops.render.submission import last_version_text

    result = document(command, ok=True, changed=False, **nothing, current=got.version, status="final")
    emit(fmt, result, last_version_text(got.version))


def _tell_training(got: TrainedNow, fmt: Format) -> None:
    from fedops.render.site import train_text

    result = document(
        "train",
        ok=True,
        changed=got.changed,
        result=_plain(got.result),
        update=str(got.update),
        log=str(got.log),
        current=got.newest,
        status="running",
    )
    said = got.result
    text = train_text(
        said.site,
        said.base_version,
        said.num_examples,
        said.metrics,
        said.sha256,
        shown(got.update),
        changed=got.changed,
    )
    emit(fmt, result, text)
    if got.newest > got.result.base_version:
        newest = GlobalVersion(got.newest).short
        say(f"note: {newest} is out; this update counts with staleness {got.newest - got.result.base_version}")


def _tell_submission(got: Submitted, fmt: Format) -> None:
    from fedops.render.submission import submit_text

    result = document(
        "submit",
        ok=True,
        changed=got.changed,
        findings=got.findings,
        outcome=got.outcome,
        pull=got.pull,
        uploaded=got.uploaded,
        current=got.current,
        status="final" if got.final else "running",
        record=_plain(got.record),
    )
    text = submit_text(got.record, got.outcome, got.pull, current=got.current, uploaded=got.uploaded, final=got.final)
    emit(fmt, result, text)
    if fmt == "text":
        say_findings(got.findings)


def shown(path: Path) -> str:
    """A path as people type it: relative to the current folder if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _refuse(command: str, findings: tuple[Finding, ...], fmt: Format, **rest: Json) -> NoReturn:
    """Say why, and leave with exit code 3."""
    emit(fmt, document(command, ok=False, changed=False, findings=findings, **rest), "")
    if fmt == "text":
        say_findings(findings)
    raise click.exceptions.Exit(NO)


def _plain(record: Document) -> Json:
    from fedops.core.documents import dump_json

    return json.loads(dump_json(record))


def trainer_of(client: str | None, command: str | None) -> Trainer:
    """The site's own code, as --client or --command name it.

    Raises:
        ConfigError: neither, both, or not to be understood.
    """
    from fedops.adapters.training_process import ClientTrainer, CommandTrainer

    if (client is None) == (command is None):
        raise ConfigError("give either --client MODULE:CLASS or --command 'PROGRAM ARGUMENTS'")
    folder, environment = Path.cwd(), dict(os.environ)
    if client is not None:
        return ClientTrainer(client, folder=folder, environment=environment, echo=_echo)
    assert command is not None
    try:
        words = shlex.split(command, posix=os.name == "posix")
    except ValueError as e:
        raise ConfigError(f"--command: {e}") from e
    return CommandTrainer(words, folder=folder, environment=environment, echo=_echo)


def _echo(data: bytes) -> None:
    """Pass on what the site's code prints: to stderr, since stdout carries the result alone."""
    with for_people():
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


def read_overrides(path: Path) -> Mapping[str, Json]:
    """A site's own hyperparameters; JSON is YAML here."""
    from fedops.core.yaml_reader import parse_yaml

    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    value, _ = parse_yaml(path.read_bytes(), str(path))
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: got a {type(value).__name__} -> a map of hyperparameters")
    return value
