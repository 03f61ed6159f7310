"""`fedops dvc …`: DVC's own command line, which knows the federation's stores; and the hook for the plain command."""

from __future__ import annotations

import os
import shutil
import sysconfig
import time
from contextlib import suppress
from pathlib import Path

import click

from fedops.cli.console import Format, document, dry_run_option, emit, format_option, say
from fedops.cli.group import Group

_FOR_DVC = f"{__name__}.arguments"


class _Dvc(Group):
    """Two commands of our own; every other command line goes to DVC as it is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not (args[0] in self.commands or args[0] in ctx.help_option_names):
            ctx.meta[_FOR_DVC] = tuple(args)
            return []
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        if _FOR_DVC in ctx.meta:
            _run(ctx.meta[_FOR_DVC])
        else:
            super().invoke(ctx)


@click.group("dvc", cls=_Dvc, subcommand_metavar="COMMAND [ARGS]...", options_metavar="")
def dvc_command() -> None:
    """Run a command of DVC, which then knows the federation's stores as remotes.

    All arguments go to DVC, and its output and exit code come back: `fedops dvc pull --help` is DVC's own help. What it
    downloads is checked against size, sha256 and md5. No usage statistics are sent.

    \b
      pull global/model.safetensors    the current global model
      pull                             all that the stores let you read, and
                                       exit code 1 if that is not everything
      get URL global/model.safetensors --rev global@v9.0.0
      artifacts get URL global --rev v9.0.0
      metrics diff global@v3.0.0 global@v9.0.0
      plots diff global@v3.0.0 global@v9.0.0
      status -c                        of the global model alone: of files with
                                       a remote of their own DVC says nothing
      push                             what a store has lost, if a record here
                                       describes it; an update is handed in by
                                       `fedops submit`

    `gto show` lists the versions; gto comes with DVC and needs no help of ours. No DVC command is ever to be run on a pull
    request's files: a pointer can write anywhere. `fedops check` reads them safely.
    """  # noqa: D301 click wants the character itself, not two


def _run(arguments: tuple[str, ...]) -> None:
    # NOTE: outside of a federation no .dvc/config says so.
    os.environ["DVC_NO_ANALYTICS"] = "1"
    # NOTE: by default DVC keeps pickles of its own in a folder of the machine that everybody may write to.
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("DVC_SITE_CACHE_DIR", str(Path(cache, "fedops", "dvc")))
    from fedops.adapters.dvc_command import run_dvc
    from fedops.adapters.dvc_sweep import sweep
    from fedops.cli.scratch import command_folder
    from fedops.cli.wire import dvc_stores, federation_root
    from fedops.core.errors import ConfigError

    with suppress(ConfigError):  # no federation, as for `dvc get URL`
        sweep(federation_root(Path.cwd()), now=time.time())
    with (
        command_folder()
    ):  # so that the clones which DVC makes of other repositories do not outlive it, if it is killed
        code = run_dvc(arguments, dvc_stores())
    if code != 0:
        raise click.exceptions.Exit(code)


@dvc_command.command("install-hook")
@dry_run_option
@format_option
def install_hook(dry_run: bool, fmt: Format) -> None:
    """Let the plain `dvc` command of this Python environment know the stores too: one file, run when Python starts."""
    from fedops.adapters.dvc_hook import install, is_installed

    folder = _packages()
    changed = not is_installed(folder) if dry_run else install(folder)
    _tell(fmt, changed, dry_run, folder, ("installed", "there already"))
    plain = shutil.which("dvc")
    scripts = Path(sysconfig.get_path("scripts"))
    if plain is None or Path(plain).parent.resolve() != scripts.resolve():
        say(f"note: `dvc` is {plain or 'not on PATH'}; the hook is for {scripts / 'dvc'}")


@dvc_command.command("remove-hook")
@dry_run_option
@format_option
def remove_hook(dry_run: bool, fmt: Format) -> None:
    """Undo `install-hook`."""
    from fedops.adapters.dvc_hook import NAME, remove

    folder = _packages()
    changed = (folder / NAME).exists() if dry_run else remove(folder)
    _tell(fmt, changed, dry_run, folder, ("removed", "there is none"))


def _packages() -> Path:
    return Path(sysconfig.get_path("purelib"))


def _tell(fmt: Format, changed: bool, dry_run: bool, folder: Path, words: tuple[str, str]) -> None:
    from fedops.adapters.dvc_hook import NAME

    what = words[0] if changed else words[1]
    would = "would be " if dry_run and changed else ""
    result = document("dvc-hook", ok=True, changed=changed and not dry_run, file=str(folder / NAME), hook=what)
    emit(fmt, result, f"{folder / NAME}: {would}{what}")
