"""What the commands share that put a lead's change on main: as a push, or as a pull request."""

from __future__ import annotations

import random
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from fedops.app.change_main import Writing

PULL_REQUEST = "--pull-request"
pull_request_option = click.option(
    PULL_REQUEST, is_flag=True, help="Open a pull request for other leads to review, instead of pushing to main."
)


def writing(root: Path, *, pull_request: bool, dry_run: bool) -> Writing:
    """How the running command writes its commit."""
    from fedops.app.change_main import Writing
    from fedops.cli.wire import signing_key

    return Writing(random.random, signing_key(root), dry_run, pull_request, instead=_same_command(PULL_REQUEST))


def _same_command(option: str) -> str:
    """The command line that runs now, as a person would type it, with one more flag."""
    ctx = click.get_current_context()
    words = ctx.command_path.split()
    for param in ctx.command.params:
        if ctx.get_parameter_source(param.name) != ParameterSource.COMMANDLINE:
            continue
        value = ctx.params[param.name]
        if isinstance(param, click.Argument):
            words.append(str(value))
        elif isinstance(param, click.Option) and param.is_flag:
            words.append(param.opts[0])
        else:
            words += [word for one in (value if param.multiple else [value]) for word in (param.opts[0], str(one))]
    return shlex.join([*words, option])
