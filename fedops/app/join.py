"""Set a clone up as a site's, and say whether the federation knows the site yet."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedops.app.context import Context
from fedops.app.inspect import refreshed
from fedops.app.own_key import asks_signature
from fedops.app.roster import checked_site
from fedops.app.site_state import SiteState, read_site_state, write_site_state
from fedops.app.snapshot import Snapshot
from fedops.core.errors import ConfigError
from fedops.core.facts import Account
from fedops.core.findings import Finding, finding
from fedops.core.github_hosts import host_of
from fedops.core.ids import SiteId
from fedops.core.settings import Forge, Sites
from fedops.core.ssh_keys import key_body

FIRST_ID = 1001
# What stands in the line for a lead where something is not known.
LOGIN, NUMBER = "LOGIN", "NUMERIC-ID"


@dataclass(frozen=True)
class Joined:
    """What `fedops join` found.

    Attributes:
        state: of the site on main's roster; None: it is not there.
        key_known: the roster has the public key under this site.
        line: what a lead has to run; None: nothing.
        unknown: word of the line that stands for something that is not known -> where to find it.
        changed: .fedops/site.yaml was written.
        findings: a warning, if the clone has no key where one is needed.
    """

    site: SiteId
    state: str | None
    key_known: bool
    line: str | None
    changed: bool
    unknown: Mapping[str, str] = field(default_factory=dict)
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


def join(ctx: Context, root: Path, who: Applicant, whoami: Callable[[], Account | None] = lambda: None) -> Joined:
    """Note site and key in the clone, and compare them with the roster on main; no other place is written.

    Args:
        whoami: the forge's account of whoever runs this, None if that cannot be said; asked only where the line for the
            lead needs it.
    """
    main = refreshed(ctx)
    before = read_site_state(root)
    key = str(who.key) if who.key is not None else (before.key if before is not None else None)
    changed = write_site_state(root, SiteState(who.site, key))
    entry = main.sites.sites.get(who.site)
    known = {key_body(k) for k in entry.keys} if entry is not None else set()
    key_known = who.public_key is not None and key_body(who.public_key) in known
    complete = entry is not None and (key_known or who.public_key is None)
    if entry is None:
        who = _with_account(who, main, whoami)
    line = None if complete else request_line(who, main.sites)
    missing = who.public_key is None and asks_signature(main)
    found = (finding("key_missing", f".fedops/site.yaml: {who.site}"),) if missing else ()
    unknown = _unknown(who, main.federation.forge) if entry is None else {}
    return Joined(who.site, entry.state if entry is not None else None, key_known, line, changed, unknown, found)


def _with_account(who: Applicant, main: Snapshot, whoami: Callable[[], Account | None]) -> Applicant:
    """Fill in what is not said of the account, as far as it can be known."""
    if main.federation.forge.kind == "git":  # accounts are what the lead says they are: any free number will do
        number = next_id(main.sites) if who.account_id is None else who.account_id
        return replace(who, login=who.login or who.site, account_id=number)
    if who.login is not None and who.account_id is not None:
        return who
    me = whoami()
    # What is said already may be of another account than whoever runs this; halves of two make none.
    if me is None or who.login not in (None, me.login) or who.account_id not in (None, me.id):
        return who
    return replace(who, login=me.login, account_id=me.id)


def _unknown(who: Applicant, forge: Forge) -> dict[str, str]:
    host = host_of(forge.api_url)
    login = who.login or LOGIN
    found = {}
    if who.login is None:
        found[LOGIN] = f"the name of your account on {host.web}, which hands in for the site"
    if who.account_id is None:
        found[NUMBER] = f"`id` at {host.api}/users/{login}, or what `gh api users/{login} --jq .id` prints"
    return found


def request_line(who: Applicant, sites: Sites) -> str:
    """The command by which a lead puts the site, or its new key, on the roster."""
    words = ["fedops", "site", "add", who.site]
    if who.site not in sites.sites:
        words += ["--login", who.login or LOGIN, "--id", NUMBER if who.account_id is None else str(who.account_id)]
    if who.public_key is not None:
        words += ["--key", who.public_key]
    return shlex.join(words)


def next_id(sites: Sites) -> int:
    """A number that no account of the roster has."""
    people = [*sites.leads, *(a for entry in sites.sites.values() for a in entry.accounts)]
    return max([FIRST_ID - 1, *(p.id for p in people)]) + 1
