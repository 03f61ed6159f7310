"""The command `fedops`: a lazy group, so that `--help` imports no command and no library."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Sequence

import click

from fedops import __version__
from fedops.cli.console import BUG, INTERRUPTED, report_error
from fedops.core.errors import FedopsError

# numpy reads this at import: one-threaded BLAS is not used, and starting its threads costs time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Every day": {
        "status": ("status", "Who is where, and what the federation waits for."),
        "log": ("history", "Versions, newest first."),
        "show": ("history", "One version: what went in, with which weights."),
        "pull": ("site", "Fetch a global version's model."),
        "train": ("site", "Train on the pulled version with your own code."),
        "check": ("check", "Check a model file or a record as CI would."),
        "submit": ("site", "Hand in an update: upload, sign, open the pull request."),
    },
    "Lead": {
        "init": ("init", "Make this repository a federation."),
        "site": ("roster", "Add, suspend or list sites."),
        "join": ("roster", "Set this clone up as a site's."),
        "review": ("review", "Approve or reject a pull request."),
    },
    "Anyone": {
        "verify": ("verify", "Recompute versions from git and the bytes."),
        "demo": ("demo", "A whole federation in a folder, on real data."),
    },
    "Offline": {
        "aggregate": ("aggregate", "Aggregate files by a plan, without a repository."),
    },
    "CI": {
        "ci": ("ci", "What the workflows call."),
    },
}
COMMANDS = {name: where for section in SECTIONS.values() for name, where in section.items()}


class LazyGroup(click.Group):
    """Imports a command's module when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"fedops.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedops")
def cli() -> None:
    """fedops: a git repository as a federated-learning federation, with no server."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    as_json = any(a == "--format=json" for a in arguments) or any(
        a == "--format" and b == "json" for a, b in itertools.pairwise(arguments)
    )
    try:
        code = cli.main(args=list(arguments), prog_name="fedops", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except FedopsError as e:
        return report_error(e, "json" if as_json else "text", next((a for a in arguments if a in COMMANDS), "error"))
    except BrokenPipeError:
        # The reader went away (`fedops log | head`): nothing more to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BUG
    return code if isinstance(code, int) else 0


def main() -> None:
    """Entry point of the installed command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
