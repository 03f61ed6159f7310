"""`fedops local`: the federation's own workflow files, run on this machine by act."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedops import __version__
from fedops.cli.console import NO, Format, document, emit, format_option, say
from fedops.cli.group import Group
from fedops.cli.local_settings import read_settings, secret_file_option, variables_option
from fedops.cli.scratch import command_folder
from fedops.core.errors import BusyError, ConfigError

if TYPE_CHECKING:
    from fedops.adapters.act_settings import Settings
    from fedops.app.local import Driver, Ran
    from fedops.core.workflows import Event

PATH = click.Path(path_type=Path)
EVENTS = ("pull_request", "pull_request_review", "push", "schedule", "workflow_dispatch")
LOGS = "fedops-local"  # folder in the origin, unless --logs names another
KEPT = ("TMPDIR", "PYTHONPATH", "COVERAGE_PROCESS_START")
LOCK_SECONDS = 0.2

origin_option = click.option("--origin", type=PATH, help="Bare repository. Default: this one, or this clone's origin.")
logs_option = click.option("--logs", type=PATH, help=f"Folder for logs and state. Default: {LOGS} in the origin.")


@click.group("local", cls=Group)
def local_command() -> None:
    """Run the federation's workflow files, unedited, on this machine, with act in host mode; no docker, no network.

    What differs from GitHub: steps run as you, with no sandbox (so main's copy of a file runs, never a pull request's);
    actions are replaced by stand-ins, and the jobs use the fedops that you started; permissions, job timeouts and the
    rights of tokens are not enforced; pushes are told apart by who committed; github.sha of a pull request is main's.
    """


@local_command.command()
@origin_option
@logs_option
@click.option("--once", is_flag=True, help="Run what came since the last time, then end.")
@click.option(
    "--poll",
    "poll_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=86_400),
    default=5.0,
    show_default=True,
    help="How often to look.",
)
@secret_file_option
@variables_option
@format_option
def up(
    origin: Path | None,
    logs: Path | None,
    once: bool,
    poll_seconds: float,
    secret_file: Path | None,
    variables: Sequence[str],
    fmt: Format,
) -> None:
    """Watch a bare repository, and run what GitHub would run: on pull requests, reviews, pushes to main, and by the clock.

    It goes on where it stopped. With --once: exit 3 if a run failed, as the validation of a bad pull request does.
    """
    from fedops.adapters.site_lock import only_one
    from fedops.app.local import catch_up
    from fedops.app.local_state import read_seen, write_seen
    from fedops.cli.run import ends_like_ctrl_c

    settings = read_settings(secret_file, variables)
    with (
        ends_like_ctrl_c(),
        _driver(origin, logs, fmt, settings) as (driver, folder),
        only_one(folder / "up.lock", "fedops local up"),
    ):
        state = folder / "seen.json"
        seen = read_seen(state)
        while True:
            runs, seen = catch_up(driver, seen, lambda now: write_seen(state, now))
            if once or runs:
                _report(runs, fmt)
            if once:
                _answer(runs)
                return
            time.sleep(poll_seconds)


@local_command.command()
@click.argument("event", type=click.Choice(EVENTS))
@click.option(
    "--pull", type=click.IntRange(min=1), help="Which pull request; for pull_request and pull_request_review."
)
@click.option(
    "--workflow", "files", multiple=True, metavar="FILE", help="Only this file of .github/workflows; repeatable."
)
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Of workflow_dispatch; repeatable.")
@click.option("--alone", is_flag=True, help="Do not run what the end of a run starts.")
@origin_option
@logs_option
@secret_file_option
@variables_option
@format_option
def run(
    event: str,
    pull: int | None,
    files: Sequence[str],
    inputs: Sequence[str],
    alone: bool,
    origin: Path | None,
    logs: Path | None,
    secret_file: Path | None,
    variables: Sequence[str],
    fmt: Format,
) -> None:
    """Run the workflows that EVENT starts, as things are now. Exit 3 if a run failed."""
    from fedops.cli.run import ends_like_ctrl_c

    values = dict(_input(text) for text in inputs)
    _demand_fitting(event, pull, files, values)
    settings = read_settings(secret_file, variables)
    with ends_like_ctrl_c(), _driver(origin, logs, fmt, settings, only=files, follow=not alone) as (driver, _):
        runs = driver.drain(_events(driver, event, pull, files, values))
    _report(runs, fmt)
    _answer(runs)


def _demand_fitting(event: str, pull: int | None, files: Sequence[str], inputs: dict[str, str]) -> None:
    of_pull = event.startswith("pull_request")
    if of_pull != (pull is not None):
        raise click.UsageError(f"{event} {'needs' if of_pull else 'has no'} --pull")
    if event == "workflow_dispatch" and len(files) != 1:
        raise click.UsageError("workflow_dispatch needs one --workflow")
    if inputs and event != "workflow_dispatch":
        raise click.UsageError(f"{event} has no --input")


def _input(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--input {text!r}: -> NAME=VALUE")
    return name, value


def _events(driver: Driver, name: str, pull: int | None, files: Sequence[str], inputs: dict[str, str]) -> list[Event]:
    """The event as it would come now."""
    from fedops.app import local_events as make

    place = driver.place
    seen, _ = make.look(place)
    workflows = make.workflows_of(place.repository, seen.main)
    unknown = set(files) - {w.file for w in workflows}
    if unknown:
        known = ", ".join(w.file for w in workflows) or "none"
        raise ConfigError(f"--workflow {', '.join(sorted(unknown))}: no such file on main -> {known}")
    if pull is not None:
        action = "opened" if name == "pull_request" else "submitted"
        return [make.pull_event(place, place.forge.pull(pull), seen.main, name, action)]
    if name == "workflow_dispatch":
        return [make.dispatch_event(place, seen.main, files[0], inputs)]
    if name == "schedule":
        return [
            make.schedule_event(place, seen.main, cron) for cron in dict.fromkeys(c for w in workflows for c in w.crons)
        ]
    tip = place.repository.commit(seen.main)
    before = tip.parents[0] if tip.parents else seen.main
    paths = tuple(e.path for e in place.repository.entries(seen.main))
    if tip.parents:
        paths = tuple(c.path for c in place.repository.changes(before, seen.main))
    return [make.push_event(place, before, seen.main, paths)]


@contextmanager
def _driver(
    origin: Path | None,
    logs: Path | None,
    fmt: Format,
    settings: Settings,
    *,
    only: Sequence[str] = (),
    follow: bool = True,
) -> Iterator[tuple[Driver, Path]]:
    """Everything that a run needs, on a fresh clone of the origin; and the folder of logs."""
    from fedops.adapters.act_runner import ActRunner, find_act
    from fedops.adapters.git_repo import GitRepository
    from fedops.adapters.git_setup import head_branch
    from fedops.app.local import Driver
    from fedops.app.local_events import Place
    from fedops.app.scaffold import NO_REPOSITORY
    from fedops.cli import wire

    bare = _origin(origin)
    folder = (logs or bare / LOGS).absolute()
    path = os.environ.get("PATH", os.defpath)
    act = find_act(path)
    with command_folder() as scratch:
        clone = scratch / "clone"
        with GitRepository.clone(str(bare), clone, main=head_branch(bare)) as repository:
            root = wire.federation_root(clone)
            federation = wire.read_federation(root)
            _demand_git(federation.forge.kind, federation.fedops)
            forge = wire.forge(federation, repository, None)
            place = Place(repository, forge, wire.SystemClock(), NO_REPOSITORY, federation.branch)
            kept = {name: os.environ[name] for name in KEPT if name in os.environ}
            runner = ActRunner(bare, NO_REPOSITORY, folder, act, path, kept, settings=settings)
            yield (
                Driver(place, runner, lambda group: _locked(folder, group), lambda ran: _tell(ran, fmt), only, follow),
                folder,
            )


def _origin(given: Path | None) -> Path:
    """The bare repository: the given one, the one that we are in, or the origin of the clone that we are in."""
    from fedops.adapters.git_setup import is_bare
    from fedops.cli import wire

    if given is not None or is_bare(Path.cwd()):
        bare = (given or Path.cwd()).absolute()
    else:
        root = wire.federation_root(Path.cwd())
        with wire.repository(root, wire.read_federation(root).branch) as repository:
            bare = wire.origin_folder(repository, root)
    if not is_bare(bare):
        raise ConfigError(f"{bare}: no bare repository -> the origin as a folder", hint="fedops local … --origin PATH")
    return bare


def _demand_git(kind: str, pinned: str) -> None:
    if kind != "git":
        raise ConfigError(
            f"federation.yaml: forge.kind {kind}: its jobs would speak to that forge -> git",
            hint="a local run needs a federation whose pull requests lie in the origin itself",
        )
    if pinned != __version__:
        say(f"note: federation.yaml pins fedops {pinned}; the jobs run {__version__}, which is installed here")


@contextmanager
def _locked(folder: Path, group: str) -> Iterator[None]:
    """Wait until no other process on this origin runs something of the group."""
    from fedops.adapters.site_lock import only_one

    if not group:
        yield
        return
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in group)[:100]
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(only_one(folder / "groups" / name, f"a run of {group}"))
            except BusyError:
                time.sleep(LOCK_SECONDS)
            else:
                break
        yield


def _facts(ran: Ran) -> dict[str, Any]:
    result = ran.result
    return {
        "number": result.number if result is not None else None,
        "workflow": ran.workflow.file,
        "event": ran.event.label,
        "result": ran.conclusion,
        "jobs": dict(result.jobs) if result is not None else {},
        "seconds": round(result.seconds, 3) if result is not None else None,
        "log": str(result.log) if result is not None else None,
    }


def _tell(ran: Ran, fmt: Format) -> None:
    from fedops.render.local import run_line

    if fmt == "text":
        say(run_line(_facts(ran)))


def _report(runs: Sequence[Ran], fmt: Format) -> None:
    from fedops.render.local import runs_text

    facts = [_facts(ran) for ran in runs]
    emit(fmt, document("local", ok=not _failed(runs), changed=bool(runs), runs=facts), runs_text(facts))


def _failed(runs: Sequence[Ran]) -> bool:
    return any(ran.conclusion in ("failure", "timed_out") for ran in runs)


def _answer(runs: Sequence[Ran]) -> None:
    if _failed(runs):
        raise click.exceptions.Exit(NO)
