"""The options of `fedops init` -> what the federation shall be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedops import __version__
from fedops.core.errors import ConfigError
from fedops.core.github_hosts import host_of

if TYPE_CHECKING:
    from fedops.app.first_model import Generated
    from fedops.app.founding import Wanted
    from fedops.core.facts import Json
    from fedops.core.settings import Forge, Lead

DEFAULT_STORE = "ocidir:store"
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}\Z")


def demand_alone(*given: object) -> None:
    """Check that --example came without the options that it fixes."""
    if any(value is not None for value in given):
        raise ConfigError("--example: its name, store, lead and model are fixed", hint="leave the other options out")


def example() -> Wanted:
    from fedops.app import example as fixed

    return fixed.example()


def first_model(
    model: Path | None, generator: str | None, seed: int, tensors: Sequence[str]
) -> Path | Generated | None:
    """A file, or what to generate; None: neither was asked for."""
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


def wanted(
    folder: Path,
    name: str | None,
    forge: str,
    store: str | None,
    person: Lead | None,
    choice: Path | Generated | None,
    quorum: int,
    hyperparameters: Sequence[str],
) -> Wanted:
    """Everything that was asked for.

    Args:
        folder: where the command runs; gives the name where there is none.
        choice: the first model.

    Raises:
        ConfigError: an option that cannot be used.
    """
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
        leads=(person,) if person is not None else (),
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


def lead(text: str | None, keys: Sequence[str]) -> Lead | None:
    """LOGIN:ID and public keys -> a lead."""
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
