"""Secrets and variables for `fedops local`, as a repository's settings on GitHub have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedops.core.errors import ConfigError

if TYPE_CHECKING:
    from fedops.adapters.act_settings import Settings

MAX_BYTES = 65_536
_NAME = re.compile(r"(?!GITHUB_)[A-Z_][A-Z0-9_]*\Z")

secret_file_option = click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    help="File of NAME=VALUE lines for `secrets.NAME`, readable by you alone. Runs for pull requests get none of it.",
)
variables_option = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="For `vars.NAME`; repeatable. Runs for pull requests get none of it.",
)


def read_settings(secret_file: Path | None, variables: Sequence[str]) -> Settings:
    """What the options say.

    Raises:
        ConfigError: the file cannot be used, or others may read it.
        click.UsageError: a variable is none.
    """
    from fedops.adapters.act_settings import Settings

    try:
        named = _parse(enumerate(variables, 1))
    except ValueError as e:
        raise click.UsageError(f"--var, number {e.args[0]}: {e.args[1]}") from e
    return Settings(_secrets(secret_file) if secret_file is not None else {}, named)


def _secrets(path: Path) -> dict[str, str]:
    """A secret per line; its value goes to the end of the line and is taken as it stands."""
    from fedops.adapters.ssh_keygen import is_open_to_others

    try:
        if is_open_to_others(path):
            raise ConfigError(f"{path}: others on this machine may read it -> you alone", hint=f"chmod 600 {path}")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        lines = data.decode().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "is not UTF-8"
        raise ConfigError(f"{path}: {why}", hint="--secret-file names a file of NAME=VALUE lines") from e
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES} bytes")
    try:
        return _parse((i, line) for i, line in enumerate(lines, 1) if line.strip() and not line.startswith("#"))
    except ValueError as e:
        # NOTE: never the line itself.
        raise ConfigError(f"{path}:{e.args[0]}: {e.args[1]}") from e


def _parse(lines: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Raises:
    ValueError: number of the line, and what is wrong with it.
    """
    found: dict[str, str] = {}
    for number, line in lines:
        name, equals, value = line.partition("=")
        if not (equals and _NAME.match(name)):
            raise ValueError(number, "-> NAME=VALUE, with a name in capitals that does not begin with GITHUB_")
        if name in found:
            raise ValueError(number, f"{name} a second time")
        found[name] = value
    return found
