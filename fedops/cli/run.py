"""`fedops run`: a site's loop, as a service or from a timer."""

from __future__ import annotations

import math
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from fedops.cli.console import NO, Format, document, emit, for_people, format_option, say, say_findings
from fedops.cli.params import site_here, site_option

if TYPE_CHECKING:
    from fedops.app.run import Ran
    from fedops.core.ids import SiteId
    from fedops.core.site_loop import Told
    from fedops.ports import Clock

PATH = click.Path(path_type=Path)
POLL_SECONDS, MOST_POLL_SECONDS = 60.0, 86_400.0


def parse_seconds(_: click.Context, __: click.Parameter, value: float) -> float:
    """A number of seconds; for click's `callback`, since its range lets nan pass."""
    if math.isnan(value):
        raise click.BadParameter("nan -> a number of seconds")
    return value


@click.command("run")
@click.option("--client", metavar="MODULE:CLASS", help="Python class with fit(parameters, config), see fedops.Client.")
@click.option("--command", help="Program with arguments, told by FEDOPS_* variables; see `fedops train --help`.")
@site_option
@click.option("--once", is_flag=True, help="Do what is possible now, then end instead of waiting.")
@click.option(
    "--poll",
    "poll_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True, max=MOST_POLL_SECONDS),
    callback=parse_seconds,
    default=POLL_SECONDS,
    show_default=True,
    help="How often to look while waiting.",
)
@click.option("--max-versions", type=click.IntRange(min=1), help="End once so many updates were handed in.")
@click.option("--again", is_flag=True, help="Train once more where the update on the current version was turned down.")
@click.option("--config", type=PATH, help="YAML or JSON file of hyperparameters, over those of policies/training.yaml.")
@click.option("--key", type=PATH, help="SSH private key that signs. Default: FEDOPS_KEY, or as `fedops join` noted.")
@format_option
def run_command(
    client: str | None,
    command: str | None,
    site: str | None,
    once: bool,
    poll_seconds: float,
    max_versions: int | None,
    again: bool,
    config: Path | None,
    key: Path | None,
    fmt: Format,
) -> None:
    """Pull, train and submit each new version by itself, until the federation is done.

    What it does follows from main alone: version.json and the policies. It may be killed at any time and started
    again: a training that was finished is not repeated, nothing is handed in twice. While origin or store do not
    answer it waits. What happens is told on stderr, the result at the end on stdout.

    With --once, for a timer: exit 0 also if it only waits for others; 3 if this site's update is refused here.
    """
    from fedops.adapters.site_lock import only_one
    from fedops.app.run import Asked, run
    from fedops.cli.site import read_overrides, trainer_of
    from fedops.cli.wire import federation_root, open_context, signing_key, with_late_stores

    trainer = trainer_of(client, command)
    overrides = read_overrides(config) if config is not None else None
    lock = federation_root(Path.cwd()) / ".fedops" / "lock"
    with only_one(lock, "fedops run"), open_context(key=key) as (root, ctx), ends_like_ctrl_c():
        here = site_here(root, site)
        asked = Asked(
            site=here,
            key=key or signing_key(root),
            once=once,
            poll_seconds=poll_seconds,
            max_versions=max_versions,
            again=again,
            overrides=overrides,
        )
        late = with_late_stores(ctx, root)
        ran = run(late, root, trainer, asked, tell=lambda told: _tell(told, here, ctx.clock), jitter=random.random)
    _finish(ran, here, fmt)


@contextmanager
def ends_like_ctrl_c() -> Iterator[None]:
    """Take a request to end, as services get it, for Ctrl-C: the site's own code is ended with us, and not left behind."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(told: Told, site: SiteId, clock: Clock) -> None:
    from fedops.app.snapshot import time_text
    from fedops.render.run import told_lines

    first, *more = told_lines(told, site)
    say(f"{time_text(clock.now())} {first}")
    for line in more:
        say(line)
    with for_people():
        sys.stderr.flush()


def _finish(ran: Ran, site: SiteId, fmt: Format) -> None:
    """Print the result, and leave with exit code 3 where the answer is no."""
    from fedops.render.run import ran_text

    no = ran.ended in ("unknown", "unsigned") or (ran.waiting is not None and ran.waiting.reason == "refused")
    emit(fmt, _result(ran, site, ok=not no), ran_text(ran.ended, ran.current, ran.handed_in, ran.waiting, site))
    if fmt == "text" and ran.ended in ("unknown", "unsigned"):
        say_findings(ran.findings)
    if no:
        raise click.exceptions.Exit(NO)


def _result(ran: Ran, site: SiteId, *, ok: bool) -> dict[str, Any]:
    waiting = ran.waiting
    return document(
        "run",
        ok=ok,
        changed=ran.changed,
        findings=ran.findings,
        site=site,
        ended=ran.ended,
        current=ran.current,
        handed_in=[{"version": d.version, "outcome": d.outcome, "pull": d.pull} for d in ran.handed_in],
        waiting=None
        if waiting is None
        else {
            "reason": waiting.reason,
            "version": waiting.version,
            "pull": waiting.pull.number if waiting.pull is not None else None,
            "text": waiting.pull.text if waiting.pull is not None else None,
        },
    )
