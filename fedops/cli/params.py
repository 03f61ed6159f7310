"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click

from fedops.core.errors import ConfigError
from fedops.core.ids import GlobalVersion, SiteId

no_fetch_option = click.option("--no-fetch", is_flag=True, help="Look at this clone as it is.")
site_option = click.option("--site", help="Site id. Default: the one that `fedops join` noted here.")


def parse_version(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """A global version as people write it, v9 or its tag global@v9.0.0, to its number; for click's `callback`."""
    if value is None:
        return None
    version = GlobalVersion.from_short(value) or GlobalVersion.from_tag(value)
    if version is None:
        raise click.BadParameter(f"{value!r} is not a version -> v5; `fedops log` lists them")
    return version.number


def parse_metrics(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, float] | None:
    """`name=value` pairs with finite numbers to a map, None if there are none; for click's `callback`."""
    return dict(_metric(value) for value in values) or None


def _metric(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (name and equals and math.isfinite(value)):
        raise click.BadParameter(f"{text!r} -> a name and a finite number, such as loss=0.31")
    return name, value


def site_here(root: Path, given: str | None) -> SiteId:
    """The site that a command acts for.

    Raises:
        ConfigError: none was given, and this clone is no site's.
    """
    site = given or own_site(root)
    if site is None:
        raise ConfigError("which site is this? -> --site ID", hint="fedops join ID notes it for this clone")
    return SiteId(site)


def own_site(root: Path) -> SiteId | None:
    """The site that this clone was set up as, if any."""
    from fedops.app.site_state import read_site_state

    state = read_site_state(root)
    return SiteId(state.site) if state is not None else None
