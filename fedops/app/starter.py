"""A site's starter: made from main by the lead, compared with its clone by the site."""

from __future__ import annotations

from fedops.app.context import Context
from fedops.app.inspect import refreshed
from fedops.core.errors import ConfigError
from fedops.core.ids import CommitId, SiteId
from fedops.core.settings import Site
from fedops.core.starter import Shared, Starter, address


def starter_of(ctx: Context, site: SiteId, entry: Site, origin: str) -> Starter:
    """The starter of a site.

    Args:
        entry: of the roster; the pull request that brings it may still be open.
        origin: URL or absolute folder of the federation.

    Raises:
        ConfigError: there is no v0 yet.
    """
    main, first = refreshed(ctx), first_version(ctx)
    if first is None:
        raise ConfigError("the federation has no tag of v0", hint="fedops doctor says what is missing")
    known = main.federation
    shared = Shared(
        federation=known.name,
        origin=address(origin),
        branch=known.branch,
        first_version=first,
        fedops=known.fedops,
        forge=known.forge,
        store=known.store.url,
    )
    account = entry.accounts[0]
    return Starter(site=site, login=account.login, id=account.id, store=entry.store, shared=shared)


def demand_federation(ctx: Context, starter: Starter) -> None:
    """Check that this clone is the federation that the starter is for.

    Raises:
        ConfigError: it is another one, whatever its name.
    """
    main, shared = refreshed(ctx), starter.shared
    first = first_version(ctx)
    if main.federation.name != shared.federation or first != shared.first_version:
        raise ConfigError(
            f"this clone: federation {main.federation.name} with v0 at {(first or 'nowhere')[:12]}"
            f" -> {shared.federation} with v0 at {shared.first_version[:12]}",
            hint="run it in an empty folder, or ask your lead for a new starter file",
        )


def first_version(ctx: Context) -> CommitId | None:
    """The commit of v0."""
    return next((tag.commit for tag in ctx.repository.versions() if tag.version == 0), None)
