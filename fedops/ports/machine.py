"""This machine: its clock, its programs, the site's own code, and whoever watches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from fedops.core.facts import Json
from fedops.core.health import Attributes, KeyFacts, WorkTree
from fedops.core.ids import SiteId


class Clock(Protocol):
    def now(self) -> dt.datetime:
        """Aware, UTC."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Progress(Protocol):
    def start(self, what: str, total: int | None, unit: Literal["bytes", "sites", "commits", "steps"]) -> int:
        """Begin a task; returns its id."""
        ...

    def advance(self, task: int, amount: int) -> None: ...

    def finish(self, task: int, note: str = "") -> None: ...


@dataclass(frozen=True)
class TrainingJob:
    """One local training, as the site's own code is asked to do it; all paths are absolute.

    Args:
        model: the global model to start from; to be read only.
        update: where the code leaves the new model.
        result: where the code leaves {"num_examples": N, "metrics": {name: number}}.
        fault: where fedops' own wrapper leaves one line that says what was wrong with the code.
        log: everything that the code prints.
        config: {"hyperparameters": …, "version": N}.
    """

    site: SiteId
    version: int
    model: Path
    update: Path
    result: Path
    fault: Path
    log: Path
    config: Mapping[str, Json]


class Trainer(Protocol):
    """Runs the site's own code."""

    def run(self, job: TrainingJob) -> None:
        """Run one training to its end.

        Raises:
            TrainingError: the code could not be started, failed, or was killed; the log says more.
        """
        ...


class Machine(Protocol):
    """What `fedops doctor` looks at besides the other ports; nothing is changed.

    Every call may raise a FedopsError that says why the question cannot be answered.
    """

    def git_version(self) -> str:
        """As `git --version` prints it."""
        ...

    def ssh_version(self) -> str:
        """As `ssh -V` prints it; ssh-keygen is there."""
        ...

    def python_version(self) -> tuple[int, int, int]: ...

    def distributions(self) -> Mapping[str, str]:
        """Installed distributions that could be taken for fedops -> version."""
        ...

    def identity(self, folder: Path) -> str | None:
        """Whose name git puts on commits made in a folder, "Name <address>"; None: it knows nobody."""
        ...

    def work_tree(self, root: Path, main: str) -> WorkTree: ...

    def attributes(self, root: Path, paths: Sequence[str]) -> Sequence[Attributes]:
        """The attributes that git gives each path."""
        ...

    def git_config(self, root: Path, key: str) -> str | None:
        """The value of a configuration key in a clone; None if it is not set."""
        ...

    def key_facts(self, path: Path) -> KeyFacts:
        """What there is to say of a private key file, without its content."""
        ...


class YamlEditor(Protocol):
    """Edits a YAML text in place: comments, order and quotes of everything else stay."""

    def put(self, data: bytes, path: Sequence[str], value: Json) -> bytes:
        """Set the value at a path of map keys."""
        ...

    def append(self, data: bytes, path: Sequence[str], value: Json) -> bytes:
        """Add a value to the list at a path of map keys."""
        ...
