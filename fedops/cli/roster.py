"""`fedops site …`: the lead's roster; `fedops join`: a site's clone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedops.cli.console import Format, document, dry_run_option, emit, format_option, say_findings
from fedops.cli.group import Group
from fedops.cli.joining import DEFAULT_KEY
from fedops.cli.lead_change import pull_request_option, writing
from fedops.core.errors import ConfigError

if TYPE_CHECKING:
    from fedops.app.change_main import Writing
    from fedops.app.context import Context
    from fedops.app.roster import RosterChange, State
    from fedops.core.settings import Site
    from fedops.core.starter import Starter
    from fedops.ports import YamlEditor


@click.group("site", cls=Group)
def site_command() -> None:
    """Add, suspend or list sites: commits on origin's main that edit policies/sites.yaml and keep its comments."""


@site_command.command()
@click.argument("site")
@click.option("--login", help="Forge account that hands in for the site.")
@click.option("--id", "account_id", type=click.IntRange(min=0), help="Its numeric id; on forge git any free number.")
@click.option("--key", multiple=True, metavar="FILE.pub|LINE", help="SSH public key that signs; repeatable.")
@click.option("--store", help="The site's own store. Default: the federation's.")
@click.option(
    "--bundle", type=click.Path(path_type=Path), help="Also write the site's starter file, for `fedops join`."
)
@pull_request_option
@dry_run_option
@format_option
def add(
    site: str,
    login: str | None,
    account_id: int | None,
    key: Sequence[str],
    store: str | None,
    bundle: Path | None,
    pull_request: bool,
    dry_run: bool,
    fmt: Format,
) -> None:
    """Put a site on the roster, or add an account or a key to one that is there.

    The starter file tells the site's machine where the federation is and who the site is; there are no secrets in it.
    """
    from fedops.app.roster import add_site, addition
    from fedops.cli.public_keys import read_public_key

    new = addition(site, login, account_id, [read_public_key(k) for k in key], store)
    _edit(
        fmt,
        lambda ctx, editor, how: add_site(ctx, editor, new, how),
        pull_request=pull_request,
        dry_run=dry_run,
        bundle=bundle,
    )


@site_command.command()
@click.argument("site")
@pull_request_option
@dry_run_option
@format_option
def suspend(site: str, pull_request: bool, dry_run: bool, fmt: Format) -> None:
    """Neither merge nor use a site's updates any more; what was used stays."""
    _set_state(fmt, site, "suspended", pull_request=pull_request, dry_run=dry_run)


@site_command.command()
@click.argument("site")
@pull_request_option
@dry_run_option
@format_option
def activate(site: str, pull_request: bool, dry_run: bool, fmt: Format) -> None:
    """Let a suspended site take part again."""
    _set_state(fmt, site, "active", pull_request=pull_request, dry_run=dry_run)


@site_command.command("list")
@format_option
def list_sites(fmt: Format) -> None:
    """The roster on origin's main."""
    from fedops.app.roster import roster
    from fedops.cli.wire import open_context

    with open_context() as (_, ctx):
        sites = roster(ctx).sites
    rows = [(site, sites[site]) for site in sorted(sites)]
    result = document("site-list", ok=True, changed=False, sites=[_facts(site, entry) for site, entry in rows])
    width = max([4, *(len(site) for site, _ in rows)])
    lines = [f"{site:<{width}}  {e.state:<9}  {_accounts(e)}  {len(e.keys)} key(s)" for site, e in rows]
    emit(fmt, result, "\n".join(lines) or "no sites yet")


def _accounts(entry: Site) -> str:
    return ", ".join(f"{a.login} ({a.id})" for a in entry.accounts)


def _facts(site: str, entry: Site) -> dict[str, object]:
    return {
        "site": site,
        "state": entry.state,
        "accounts": [a.model_dump() for a in entry.accounts],
        "keys": list(entry.keys),
        "store": entry.store,
    }


def _set_state(fmt: Format, site: str, state: State, *, pull_request: bool, dry_run: bool) -> None:
    from fedops.app.roster import set_state

    _edit(
        fmt,
        lambda ctx, editor, how: set_state(ctx, editor, site, state, how),
        pull_request=pull_request,
        dry_run=dry_run,
    )


def _edit(
    fmt: Format,
    change: Callable[[Context, YamlEditor, Writing], RosterChange],
    *,
    pull_request: bool,
    dry_run: bool,
    bundle: Path | None = None,
) -> None:
    """Run one change of the roster, bring the work tree along, write the site's starter file if asked to, and report."""
    from fedops.adapters.yaml_edit import RoundTripEditor
    from fedops.cli.starter import write_starter
    from fedops.cli.wire import open_context
    from fedops.cli.work_tree import update_work_tree
    from fedops.render.lead_pull import lead_pull_text

    with open_context() as (root, ctx):
        done = change(ctx, RoundTripEditor(), writing(root, pull_request=pull_request, dry_run=dry_run))
        moved = None if dry_run or done.pull is not None else update_work_tree(ctx.repository)
        wrote = bundle is not None and not dry_run and write_starter(ctx, done.site, done.entry, bundle)
    facts = _facts(done.site, done.entry)
    files, changed = [str(p) for p in done.files], done.changed or wrote
    number = done.pull.number if done.pull is not None else None
    result = document(
        "site",
        ok=True,
        changed=changed,
        findings=done.findings,
        commit=done.commit,
        pull=number,
        files=files,
        work_tree=moved,
    )
    if done.pull is not None:
        text = lead_pull_text(done.pull.number, done.pull.outcome)
    elif not done.changed:
        text = f"{done.site}: {done.entry.state}, nothing to do"
    elif dry_run:
        text = f"{done.site}: would be {done.entry.state}; would change {', '.join(files)}"
    else:
        text = f"{done.site}: {done.entry.state}, commit {(done.commit or '')[:12]}"
    emit(fmt, result | facts, text)
    if fmt == "text":
        say_findings(done.findings)


# ---------------------------------------------------------------- join


@click.command("join")
@click.argument("site", required=False)
@click.option("--bundle", type=click.Path(path_type=Path), help="The starter file that your lead sent; clones, too.")
@click.option("--key", type=click.Path(path_type=Path), help=f"Private SSH key that signs. Default: {DEFAULT_KEY}.")
@click.option("--generate-key", is_flag=True, help="Make an ed25519 key there, if there is none.")
@click.option("--login", help="Your forge account, for the line that the lead runs.")
@click.option("--id", "account_id", type=click.IntRange(min=0), help="Its numeric id.")
@format_option
def join_command(
    site: str | None,
    bundle: Path | None,
    key: Path | None,
    generate_key: bool,
    login: str | None,
    account_id: int | None,
    fmt: Format,
) -> None:
    """Set this clone up as a site's, and say what a lead still has to do. Nothing but this clone is changed.

    On GitHub it asks whose account the token in the environment is, if there is one.

    With --bundle the clone is made, too: in a folder of the federation's name, below the current one.
    """
    from fedops.app.join import Applicant, demand_free_clone, join
    from fedops.app.starter import demand_federation
    from fedops.cli.joining import join_text, private_key, public_key, whoami
    from fedops.cli.starter import prepared_clone
    from fedops.cli.wire import open_context, read_federation

    starter: Starter | None = None
    folder: Path | None = None
    if bundle is None:
        if site is None:
            raise ConfigError("which site? -> fedops join SITE, or fedops join --bundle FILE")
    elif site is not None or login is not None or account_id is not None:
        raise ConfigError("--bundle says which site and account -> no SITE, --login or --id beside it")
    else:
        folder, starter = prepared_clone(bundle)
        site, login, account_id = starter.site, starter.login, starter.id
    with open_context(folder) as (root, ctx):
        if starter is not None:
            demand_federation(ctx, starter)
        checked = demand_free_clone(root, site)
        private = private_key(root, key, f"{checked}@fedops", generate=generate_key)
        public = public_key(private)
        who = Applicant(checked, private, public, login, account_id)
        joined = join(ctx, root, who, partial(whoami, ctx.forge, read_federation(root).forge))
    result = document(
        "join",
        ok=True,
        changed=joined.changed,
        site=joined.site,
        clone=str(root),
        state=joined.state,
        key=str(private) if private is not None else None,
        public_key=public,
        key_known=joined.key_known,
        line=joined.line,
        unknown=dict(joined.unknown),
        findings=joined.findings,
    )
    emit(fmt, result, join_text(joined, private))
    if fmt == "text":
        say_findings(joined.findings)
