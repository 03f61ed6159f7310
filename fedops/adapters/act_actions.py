"""Stand-ins for the pinned actions: what a local run does in place of each, shipped in the package."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from pathlib import Path

from fedops.core.errors import ConfigError
from fedops.core.workflows import FOLDER, Workflow

# NOTE: keyed by the whole pin. An action of another version may do something else, and act would fetch an unknown one
# from the network, even for a step that is skipped.
STAND_INS: Mapping[str, str] = {
    "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1": "checkout",  # v7.0.1
    "actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97": "setup-python",  # v7.0.0
}


def demand_runnable(workflow: Workflow) -> None:
    """Check that a local run can do what a file asks for.

    Raises:
        ConfigError: an action without a stand-in, or something that act would skip or run elsewhere.
    """
    where = f"{FOLDER}/{workflow.file}"
    unknown = [pin for pin in workflow.uses if pin not in STAND_INS]
    if unknown:
        raise ConfigError(
            f"{where}: no stand-in for {', '.join(unknown)} -> {', '.join(STAND_INS)}",
            hint="a local run fetches nothing; `fedops upgrade` brings the workflows to the installed fedops",
        )
    if workflow.faults:
        raise ConfigError(
            f"{where}: {workflow.faults[0]}: not in a local run", hint="it runs on this machine, without containers"
        )


def place_stand_ins(workflow: Workflow, folder: Path) -> list[tuple[str, Path]]:
    """Write the stand-ins that a file uses below a folder; (pin, folder) of each."""
    placed = []
    for pin in workflow.uses:
        name = STAND_INS[pin]
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        # NOTE: bytes of the package, never a file of the repository that the run is about.
        source = importlib.resources.files("fedops.template").joinpath("act", name, "action.yml")
        (target / "action.yml").write_bytes(source.read_bytes())
        placed.append((pin, target))
    return placed
