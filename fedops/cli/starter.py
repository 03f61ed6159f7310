"""The starter file at the terminal: written beside the lead's clone, read where a site's clone shall be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedops.cli.console import say
from fedops.core.disk import disk_fault
from fedops.core.errors import ConfigError
from fedops.core.ids import SiteId

if TYPE_CHECKING:
    from fedops.app.context import Context
    from fedops.core.settings import Site
    from fedops.core.starter import Starter


def write_starter(ctx: Context, site: SiteId, entry: Site, path: Path) -> bool:
    """Write a site's starter file; False if it is there already.

    Raises:
        ConfigError: something else is there, or the folder cannot be written.
    """
    from fedops.adapters.git_repo import GitRepository
    from fedops.app.starter import starter_of
    from fedops.core.starter import render_starter

    assert isinstance(ctx.repository, GitRepository)
    origin = ctx.repository.remote_url()
    assert origin is not None, "the roster is there"
    data = render_starter(starter_of(ctx, site, entry, origin))
    if path.is_file() and path.read_bytes() == data:
        return False
    if path.exists():
        raise ConfigError(f"{path}: is there already, with other content", hint="remove it, or name another file")
    try:
        path.write_bytes(data)
    except OSError as e:
        raise disk_fault(e, str(path)) or ConfigError(f"{path}: cannot be written: {e.strerror}") from e
    say(f"starter of {site}: {path}; send it to the site, who runs: fedops join --bundle {path.name} --generate-key")
    return True


def prepared_clone(path: Path) -> tuple[Path, Starter]:
    """The clone that a starter is for: the one around the current folder, or a new one below it.

    Raises:
        ConfigError: no starter, or the clone is on another forge; whether it is that federation, `demand_federation` says.
    """
    from fedops.adapters.git_setup import make_clone
    from fedops.cli.wire import federation_root, read_federation
    from fedops.core.documents import load_document
    from fedops.core.starter import Starter

    if not path.is_file():
        raise ConfigError(f"{path}: no such file", hint="ask your lead for it: fedops site add … --bundle FILE")
    starter = load_document(path.read_bytes(), Starter, str(path))
    try:
        folder = federation_root(Path.cwd())
    except ConfigError:
        folder = Path.cwd() / starter.shared.federation
        if make_clone(folder, starter.shared.origin, starter.shared.branch):
            say(f"cloned {starter.shared.origin} into {folder}")
    found = read_federation(folder)
    if found.forge != starter.shared.forge:
        # NOTE: before anything that sends a token: it goes to the server that federation.yaml names.
        raise ConfigError(
            f"{folder}: federation.yaml: another forge than the starter says",
            hint="ask your lead for a new starter file, and compare its origin and forge with what the lead tells you",
        )
    return folder, starter
