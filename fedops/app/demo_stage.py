"""Where the demo plays: its folder, its people's clones, and how their commands are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedops.core.ids import GlobalVersion
from fedops.ports import YamlEditor


@dataclass(frozen=True)
class Ran:
    """One finished process."""

    code: int
    out: str
    err: str


class Runner(Protocol):
    """Runs a program in a folder and waits for its end; several threads may do so at once."""

    def fedops(self, folder: Path, *arguments: str, expect: Sequence[int] = (0,)) -> Ran: ...

    def kill(self, folder: Path, begun: Path, *arguments: str) -> None:
        """Start a command, and kill it with all that it started as soon as the file `begun` is there."""
        ...

    def git(self, folder: Path, *arguments: str) -> Ran: ...

    def python(self, folder: Path, *arguments: str) -> Ran: ...


@dataclass(frozen=True)
class Stage:
    """Where everything lies.

    Args:
        prepare: puts a site's own data and code into its clone.
        tell: progress for people.
        parse: reads a command's JSON result.
        editor: edits policies as a lead does by hand.
        keys: lead -> private key file; the public one lies beside it.
        workers: sites that compute at the same time.
        workflows: CI is the workflow files, run by act, and not one process that does all of it.
    """

    folder: Path
    run: Runner
    prepare: Callable[[str, Path], None]
    tell: Callable[[str], None]
    parse: Callable[[str], Any]
    editor: YamlEditor
    keys: Mapping[str, Path]
    workers: int = 2
    workflows: bool = False

    def clone_of(self, who: str) -> Path:
        return self.folder / who

    def model(self, version: int) -> Path:
        """Where a version's model is put for scoring."""
        return self.folder / "models" / f"{GlobalVersion(version).short}.safetensors"

    def json(self, who: str, *arguments: str, expect: Sequence[int] = (0,)) -> Any:
        """Run a command that prints a JSON document."""
        return self.parse(self.run.fedops(self.clone_of(who), *arguments, "--format", "json", expect=expect).out)
