"""`fedops doctor`: what keeps this machine and this clone from working, and what to do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import click

from fedops.cli.console import NO, Format, document, emit, format_option
from fedops.core.errors import FedopsError
from fedops.core.health import Check
from fedops.core.ids import SiteId
from fedops.ports import Machine


@click.command("doctor")
@format_option
def doctor_command(fmt: Format) -> None:
    """Check programs, clone, policies, key, store, clock and this site's state; exit 3 if something is broken.

    Nothing is changed but what a fetch brings. A check that cannot run is broken, and says why.
    """
    from fedops.adapters.machine import ThisMachine
    from fedops.app.doctor import attempt, machine_checks
    from fedops.cli.author import author_here
    from fedops.render.health import health_text

    machine = ThisMachine(author_here())
    checks = (*machine_checks(machine, Path(), _site_here()), *attempt("clone", lambda: _clone(machine)))
    broken = any(c.state == "broken" for c in checks)
    result = document("doctor", ok=not broken, changed=False, checks=[dataclasses.asdict(c) for c in checks])
    emit(fmt, result, health_text(checks))
    if broken:
        raise click.exceptions.Exit(NO)


def _site_here() -> SiteId | None:
    """Whose clone the current folder is in; None also where that cannot be said, which the clone's own line tells."""
    from fedops.cli.params import own_site
    from fedops.cli.wire import federation_root

    try:
        return own_site(federation_root(Path.cwd()))
    except (FedopsError, OSError):
        return None


def _clone(machine: Machine) -> Iterator[Check]:
    """The checks of the clone around the current folder.

    Raises:
        FedopsError: there is none, or it cannot be opened.
    """
    from fedops.app.doctor import Patient, clone_checks
    from fedops.cli.params import own_site
    from fedops.cli.wire import open_context, signing_key

    with open_context() as (root, ctx):
        yield from clone_checks(Patient(ctx, machine, root, own_site(root), signing_key(root)))
