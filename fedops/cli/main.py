"""The command `fedops`: a lazy group, so that `--help` imports no command and no library."""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import sys
from collections.abc import Sequence

import click

from fedops import __version__
from fedops.cli.console import (
    INTERRUPTED,
    OK,
    READER_GONE,
    report_bug,
    report_error,
    report_usage,
    say,
    silence_stdout,
)
from fedops.cli.group import Group
from fedops.cli.unwritable import unwritable
from fedops.core.errors import FedopsError

# numpy reads this at import: one-threaded BLAS is not used, and starting its threads costs time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# And pydantic: looking through all installed packages for plugins of its own costs as much as reading five documents.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# New objects after which Python looks for cycles. What imports make stays, and looking through it again and again takes a
# twentieth of the start-up.
_GARBAGE = 100_000

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Every day": {
        "join": ("roster", "Set a clone up as a site's, once."),
        "status": ("status", "Who is where, and what the federation waits for."),
        "log": ("history", "Versions, newest first."),
        "show": ("history", "One version: what went in, with which weights."),
        "pull": ("site", "Fetch a global version's model."),
        "train": ("site", "Train on the pulled version with your own code."),
        "check": ("check", "Check a model file or a record as CI would."),
        "submit": ("site", "Hand in an update: upload, sign, open the pull request."),
        "run": ("run", "Pull, train and submit each new version by itself."),
    },
    "Lead": {
        "init": ("init", "Make this repository a federation."),
        "site": ("roster", "Add, suspend or list sites."),
        "upgrade": ("upgrade", "Bring the generated files to this fedops."),
        "review": ("review", "Approve or reject a pull request."),
        "rollback": ("rollback", "Take the model back to an earlier version."),
    },
    "Anyone": {
        "verify": ("verify", "Recompute versions from git and the bytes."),
        "doctor": ("doctor", "What keeps this clone from working, and what to do."),
        "dvc": ("dvc", "DVC's own commands, with the stores as remotes."),
        "demo": ("demo", "A whole federation in a folder, on real data."),
        "local": ("local", "Run the workflow files on this machine, with act."),
    },
    "Offline": {
        "aggregate": ("aggregate", "Aggregate files by a plan, without a repository."),
    },
    "CI": {
        "ci": ("ci", "What the workflows call."),
    },
}
COMMANDS = {name: where for section in SECTIONS.values() for name, where in section.items()}


GROUPS = tuple(name for name in COMMANDS if name in ("ci", "dvc", "local", "site"))
# Commands whose document has another name than the command.
DOCUMENTS: dict[tuple[str, ...], str] = {
    ("ci", "inspect"): "verdicts",
    ("ci", "aggregate"): "propose",
    ("dvc", "install-hook"): "dvc-hook",
    ("dvc", "remove-hook"): "dvc-hook",
    ("local", "run"): "local",
    ("local", "up"): "local",
    ("site", "list"): "site-list",
}


# What the same command does after it was broken off; all others go on.
_AFRESH = "run the same command again: it begins anew"
_INTERRUPTED = {
    "train": "run the same command again: it trains from the start; the result of an earlier training stays as it was",
    "demo": "run the same command again with --replace: it removes what is there, and begins anew",
} | dict.fromkeys(("status", "log", "show", "check", "verify", "doctor", "aggregate"), _AFRESH)


class LazyGroup(Group):
    """Imports a command's module when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"fedops.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def known_names(self, ctx: click.Context) -> list[str]:
        """All commands, those of the groups as `ci merge`."""
        below = []
        for name in GROUPS:
            group = self.get_command(ctx, name)
            assert isinstance(group, click.Group)
            below += [f"{name} {command}" for command in group.list_commands(ctx)]
        return [*COMMANDS, *below]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedops")
def cli() -> None:
    """fedops: a git repository as a federated-learning federation, with no server."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every way to fail ends here, in words or as a document."""
    fmt, command = _asked_format(arguments), _document_name(arguments)
    try:
        # NOTE: not cli.main(), which takes a lost reader and an EOFError anywhere for an end by the user.
        with cli.make_context("fedops", list(arguments)) as ctx:
            cli.invoke(ctx)
        sys.stdout.flush()
    except click.exceptions.Exit as e:
        return e.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        say(f"interrupted; {_after_interrupt(arguments)}")
        return INTERRUPTED
    except click.ClickException as e:
        return report_usage(e, fmt, command)
    except FedopsError as e:
        return report_error(unwritable(e, arguments) or e, fmt, command)
    except BrokenPipeError:
        # The reader went away (`fedops log | head`): nothing more to say.
        silence_stdout()
        return READER_GONE
    except Exception as e:  # noqa: BLE001 the last place where a bug can be told from an answer
        if (told := unwritable(e, arguments)) is not None:
            return report_error(told, fmt, command)
        return report_bug(e, fmt, command, trace=bool(os.environ.get("FEDOPS_TRACEBACK")))
    return OK


def _after_interrupt(arguments: Sequence[str]) -> str:
    """What a person does who has broken a command off, and what that will do."""
    if tuple(arguments[:2]) == ("local", "run"):
        return _AFRESH
    name = arguments[0] if arguments else ""
    return _INTERRUPTED.get(name, "run the same command again: it goes on where it stopped")


def _asked_format(arguments: Sequence[str]) -> str:
    """`json` if the command line asks for it; looked up here, since it must hold for errors of the command line too."""
    pairs = itertools.pairwise(arguments)
    asked = "--format=json" in arguments or ("--format", "json") in pairs
    return "json" if asked else "text"


def _document_name(arguments: Sequence[str]) -> str:
    """The name in the schema of a command's document."""
    path = tuple(arguments[: 2 if arguments and arguments[0] in GROUPS else 1])
    if not path or path[0] not in COMMANDS or path[-1].startswith("-"):
        return "error"
    return DOCUMENTS.get(path, path[0] if path[0] == "site" else path[-1])


def main() -> None:
    """Entry point of the installed command."""
    if "_FEDOPS_COMPLETE" in os.environ:
        cli(prog_name="fedops")  # a shell asks what may come next; click answers and ends the process
    gc.set_threshold(_GARBAGE)
    code = run(sys.argv[1:])
    gc.freeze()  # the process ends: nobody needs the cycles among all that was imported to be found first
    sys.exit(code)


if __name__ == "__main__":
    main()
