"""The roster in policies/sites.yaml: add, suspend, activate and look up sites, on top of origin's main."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedops.app.change_main import Writing, change_main
from fedops.app.context import Context
from fedops.app.dvc_config import DVC_CONFIG_PATH, render_dvc_config, with_site_remote
from fedops.app.inspect import refreshed
from fedops.app.lead_pull import Edit, LeadPull
from fedops.app.own_key import asks_signature
from fedops.app.scaffold import checked_store
from fedops.app.snapshot import Snapshot, main_snapshot
from fedops.core.documents import load_document
from fedops.core.errors import ConfigError
from fedops.core.findings import Finding, finding
from fedops.core.ids import SITES_PATH, CommitId, RepoPath, SiteId, site_id_fault
from fedops.core.settings import Person, Site, Sites
from fedops.core.ssh_keys import key_body, normalised_key, public_key_fault
from fedops.ports import YamlEditor

State = Literal["active", "suspended"]


@dataclass(frozen=True)
class RosterChange:
    """What happened to one site's entry.

    Attributes:
        commit: None if nothing changed, or in a dry run.
        files: paths that the commit changes.
        pull: the pull request that it stands in, if it was to be one.
        findings: a warning, if a site that was added still lacks what it needs to hand in.
    """

    site: SiteId
    entry: Site
    changed: bool
    commit: CommitId | None
    files: tuple[RepoPath, ...]
    pull: LeadPull | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Addition:
    """What `fedops site add` was given.

    Args:
        account: forge account; needed for a site that is not on the roster yet.
        keys: SSH public key lines.
        store: the site's own store; None: the federation's.
    """

    site: SiteId
    account: Person | None
    keys: tuple[str, ...]
    store: str | None


def addition(site: str, login: str | None, account_id: int | None, keys: Sequence[str], store: str | None) -> Addition:
    """Check what a lead typed.

    Raises:
        ConfigError: a bad site id, key or store, or half an account.
    """
    checked = checked_site(site)
    if (login is None) != (account_id is None):
        raise ConfigError(f"{site}: an account is --login and --id together")
    for key in keys:
        if fault := public_key_fault(key):
            raise ConfigError(f"{site}: --key: {fault}")
    if store is not None:
        checked_store(store)
    account = Person(login=login, id=account_id) if login is not None and account_id is not None else None
    return Addition(checked, account, tuple(normalised_key(key) for key in keys), store)


def checked_site(site: str) -> SiteId:
    """A site id from a command line.

    Raises:
        ConfigError: not one.
    """
    fault = site_id_fault(site)
    if fault == "site_id_reserved":
        raise ConfigError(f"{site!r}: is a reserved name", hint="choose another id, such as hospital-a")
    if fault is not None:
        raise ConfigError(
            f"{site!r}: not a site id -> 1 to 63 lower-case letters, digits and inner dashes, such as hospital-a"
        )
    return SiteId(site)


def add_site(ctx: Context, editor: YamlEditor, new: Addition, writing: Writing) -> RosterChange:
    """Put a site on the roster, or add an account or keys to one that is there; nothing is ever taken away.

    Raises:
        ConfigError: an account or key belongs to another site, or the site has another store.
    """

    def plan(main: Snapshot) -> Edit | None:
        before = main.sites.sites.get(new.site)
        _demand_free(main.sites, new)
        after = _extended(before, new)
        if after == before:
            return None
        data = main.bytes_of(SITES_PATH)
        if before is None:
            data = editor.put(data, ("sites", new.site), _plain(after))
        else:
            data = _extend_text(editor, data, new.site, before, after)
        files = {SITES_PATH: _demand_entry(data, main.sites, new.site, after), **_dvc_config(main, new.site, after)}
        what = "add" if before is None else "extend"
        return Edit(files, f"policy: {what} site {new.site}\n", f"add-{new.site}")

    done = _change(ctx, writing, plan, new.site)
    if done.entry.keys or not asks_signature(main_snapshot(ctx.repository)):
        return done
    return replace(done, findings=(finding("key_missing", f"{SITES_PATH}: {new.site}"),))


def set_state(ctx: Context, editor: YamlEditor, site: str, state: State, writing: Writing) -> RosterChange:
    """Suspend a site (its updates are neither merged nor used) or activate it again.

    Raises:
        ConfigError: the site is not on the roster.
    """
    checked = checked_site(site)

    def plan(main: Snapshot) -> Edit | None:
        before = main.sites.sites.get(checked)
        if before is None:
            known = ", ".join(sorted(main.sites.sites)) or "none"
            raise ConfigError(f"{SITES_PATH}: no site {checked} -> {known}", hint="fedops site list")
        if before.state == state:
            return None
        data = editor.put(main.bytes_of(SITES_PATH), ("sites", checked, "state"), state)
        after = before.model_copy(update={"state": state})
        verb = {"active": "activate", "suspended": "suspend"}[state]
        files = {SITES_PATH: _demand_entry(data, main.sites, checked, after)}
        return Edit(files, f"policy: {verb} site {checked}\n", f"{verb}-{checked}")

    return _change(ctx, writing, plan, checked)


def roster(ctx: Context) -> Sites:
    """The roster on origin's main."""
    return refreshed(ctx).sites


def _change(ctx: Context, writing: Writing, plan: Callable[[Snapshot], Edit | None], site: SiteId) -> RosterChange:
    done = change_main(ctx, writing, plan)
    edit = done.edit
    if edit is None:
        return RosterChange(site, refreshed(ctx).sites.sites[site], changed=False, commit=None, files=())
    entry = load_document(edit.files[SITES_PATH], Sites, SITES_PATH).sites[site]
    files = tuple(sorted(edit.files))
    return RosterChange(site, entry, changed=done.changed, commit=done.commit, files=files, pull=done.pull)


def _demand_free(sites: Sites, new: Addition) -> None:
    """Raise if another site has the account or a key: one account hands in for one site."""
    keys = {key_body(key) for key in new.keys}
    for other, entry in sites.sites.items():
        if other == new.site:
            continue
        if new.account is not None and any(a.id == new.account.id for a in entry.accounts):
            raise ConfigError(f"{SITES_PATH}: account id {new.account.id} belongs to {other} already")
        if keys & {key_body(key) for key in entry.keys}:
            raise ConfigError(f"{SITES_PATH}: this key belongs to {other} already", hint="make one key per site")


def _extended(before: Site | None, new: Addition) -> Site:
    if before is None:
        if new.account is None:
            raise ConfigError(
                f"{new.site}: a new site needs an account -> --login LOGIN --id NUMBER",
                hint="the numeric id is the forge's; on forge git give any number that is free",
            )
        return Site(accounts=(new.account,), keys=new.keys, store=new.store)
    if new.store is not None and new.store != before.store:
        raise ConfigError(
            f"{SITES_PATH}: {new.site} has the store {before.store or 'of the federation'} -> {new.store}",
            hint="a change of store is edited in the file, by a reviewed pull request",
        )
    known_ids, known_keys = {a.id for a in before.accounts}, {key_body(k) for k in before.keys}
    accounts = (new.account,) if new.account is not None and new.account.id not in known_ids else ()
    keys = tuple(k for k in new.keys if key_body(k) not in known_keys)
    return before.model_copy(update={"accounts": before.accounts + accounts, "keys": before.keys + keys})


def _extend_text(editor: YamlEditor, data: bytes, site: SiteId, before: Site, after: Site) -> bytes:
    for account in after.accounts[len(before.accounts) :]:
        data = editor.append(data, ("sites", site, "accounts"), account.model_dump())
    for key in after.keys[len(before.keys) :]:
        data = editor.append(data, ("sites", site, "keys"), key)
    return data


def _plain(entry: Site) -> dict[str, object]:
    """An entry as YAML values, in the order of the template."""
    out: dict[str, object] = {"accounts": [a.model_dump() for a in entry.accounts], "keys": list(entry.keys)}
    if entry.store is not None:
        out["store"] = entry.store
    return out | {"state": entry.state}


def _demand_entry(data: bytes, before: Sites, site: SiteId, entry: Site) -> bytes:
    """The edited text, after a check that it says exactly what it said before, but for one site."""
    if load_document(data, Sites, SITES_PATH) != before.model_copy(update={"sites": {**before.sites, site: entry}}):
        raise ConfigError(
            f"{SITES_PATH}: cannot be edited without changing more than {site}",
            hint="edit the file by hand, in a reviewed pull request",
        )
    return data


def _dvc_config(main: Snapshot, site: SiteId, entry: Site) -> dict[RepoPath, bytes]:
    """`.dvc/config` with the site's remote, if that changes it."""
    store = entry.store or main.federation.store.url
    if DVC_CONFIG_PATH not in main.files:
        return {DVC_CONFIG_PATH: render_dvc_config(main.federation.store.url, {**main.sites.sites, site: entry})}
    before = main.bytes_of(DVC_CONFIG_PATH)
    after = with_site_remote(before, site, store)
    return {DVC_CONFIG_PATH: after} if after != before else {}
