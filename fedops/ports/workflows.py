"""Runs of the workflow files on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from fedops.core.ids import CommitId
from fedops.core.workflows import Event, Workflow


@dataclass(frozen=True)
class WorkflowRequest:
    """One run of one workflow file.

    Args:
        commit: whose copy of the file runs.
    """

    workflow: Workflow
    commit: CommitId
    event: Event


@dataclass(frozen=True)
class Dispatch:
    """A job asked the forge to start a workflow."""

    file: str
    inputs: Mapping[str, str]


Conclusion = Literal["success", "failure", "skipped", "timed_out"]


@dataclass(frozen=True)
class WorkflowResult:
    """How a run ended.

    Attributes:
        number: of the run, unique at its origin.
        jobs: each job of the file -> "success", "failure" or "skipped".
        outputs: job -> what its steps put out.
        log: text file of everything that the steps printed.
    """

    number: int
    conclusion: Conclusion
    jobs: Mapping[str, str]
    outputs: Mapping[str, Mapping[str, str]]
    seconds: float
    log: Path
    dispatches: tuple[Dispatch, ...] = ()


class WorkflowRunner(Protocol):
    """Runs workflow files as a forge's CI service would."""

    def run(self, request: WorkflowRequest) -> WorkflowResult:
        """Run one file to its end.

        Raises:
            ConfigError: the runner is not installed, or the file asks for what it cannot do.
        """
        ...
