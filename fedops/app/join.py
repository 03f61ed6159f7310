"""Set a clone up as a site's, and say whether the federation knows the site yet."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from fedops.app.context import Context
from fedops.app.inspect import refreshed
from fedops.app.own_key import asks_signature
from fedops.app.roster import checked_site
from fedops.app.site_state import SiteState, read_site_state, write_site_state
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, finding
from fedops.core.ids import SiteId
from fedops.core.settings import Sites
from fedops.core.ssh_keys import key_body

FIRST_ID = 1001


@dataclass(frozen=True)
class Joined:
    """What `fedops join` found.

    Attributes:
        state: of the site on main's roster; None: it is not there.
        key_known: the roster has the public key under this site.
        line: what a lead has to run; None: nothing.
        changed: .fedops/site.yaml was written.
        findings: a warning, if the clone has no key where one is needed.
    """

    site: SiteId
    state: str | None
    key_known: bool
    line: str | None
    changed: bool
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Applicant:
    """What the site says of itself.

    Args:
        key: private key file; None: nothing is signed.
        public_key: its public line; None without a key.
    """

    site: SiteId
    key: Path | None = None
    public_key: str | None = None
    login: str | None = None
    account_id: int | None = None


def demand_free_clone(root: Path, site: str) -> SiteId:
    """Check the site id, and that the clone is no other site's.

    Raises:
        ConfigError: either does not hold.
    """
    checked = checked_site(site)
    state = read_site_state(root)
    if state is not None and state.site != checked:
        raise ConfigError(
            f".fedops/site.yaml: this clone is {state.site}'s -> {checked}",
            hint="one clone per site: git clone the federation again",
        )
    return checked


def join(ctx: Context, root: Path, who: Applicant) -> Joined:
    """Note site and key in the clone, and compare them with the roster on main; no other place is written."""
    main = refreshed(ctx)
    before = read_site_state(root)
    key = str(who.key) if who.key is not None else (before.key if before is not None else None)
    changed = write_site_state(root, SiteState(who.site, key))
    entry = main.sites.sites.get(who.site)
    known = {key_body(k) for k in entry.keys} if entry is not None else set()
    key_known = who.public_key is not None and key_body(who.public_key) in known
    complete = entry is not None and (key_known or who.public_key is None)
    git_forge = main.federation.forge.kind == "git"
    line = None if complete else request_line(who, main.sites, git_forge=git_forge)
    missing = who.public_key is None and asks_signature(main)
    found = (finding("key_missing", f".fedops/site.yaml: {who.site}"),) if missing else ()
    return Joined(who.site, entry.state if entry is not None else None, key_known, line, changed, found)


def request_line(who: Applicant, sites: Sites, *, git_forge: bool) -> str:
    """The command by which a lead puts the site, or its new key, on the roster."""
    words = ["fedops", "site", "add", who.site]
    if who.site not in sites.sites:
        login, number = who.login, who.account_id
        if git_forge:  # accounts are what the lead says they are: any free number will do
            login, number = login or who.site, next_id(sites) if number is None else number
        words += ["--login", login or "LOGIN", "--id", "NUMERIC-ID" if number is None else str(number)]
    if who.public_key is not None:
        words += ["--key", who.public_key]
    return shlex.join(words)


def next_id(sites: Sites) -> int:
    """A number that no account of the roster has."""
    people = [*sites.leads, *(a for entry in sites.sites.values() for a in entry.accounts)]
    return max([FIRST_ID - 1, *(p.id for p in people)]) + 1
