"""Compare an aggregated model with the exact result, element by element.

    python bench/reference.py FOLDER SCENARIO OUTPUT

    new = current + sum_i w_i (update_i - base_i) / sum_i w_i,  w_i = num_examples_i / (1 + staleness_i)

in 80-bit floats (64-bit significand) with none of fedops' code: files are read by the safetensors library. Prints one
JSON line: elements; how many are not the float32 nearest to the exact value; the largest distance from it; and for the
scenario "norms" the L2 norm of each site's delta.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from plans import CURRENT, Scenario, base_of
from safetensors import safe_open

BLOCK = 1 << 20  # elements at a time


@dataclass
class Exact:
    """The right answer.

    Attributes:
        files: name -> open safetensors file.
        examples: site -> num_examples.
        squares: site -> sum of the squares of its delta so far.
    """

    files: dict[str, Any]
    examples: dict[str, int]
    scenario: Scenario
    squares: dict[str, Any] = field(default_factory=dict)

    def values(self, tensor: str, rows: slice) -> NDArray[Any]:
        """The new values of some rows of a tensor; adds to `squares`."""

        def read(name: str) -> NDArray[Any]:
            return cast("NDArray[Any]", self.files[name].get_slice(tensor)[rows].astype(np.longdouble))

        needed = {CURRENT, *(base_of(i, self.scenario) for i in range(len(self.examples)))}
        globals_ = {version: read(f"global-{version}") for version in needed}
        total, weights = np.zeros_like(globals_[CURRENT]), np.longdouble(0)
        for i, (site, count) in enumerate(sorted(self.examples.items())):
            base = base_of(i, self.scenario)
            delta = read(site) - globals_[base]
            weight = np.longdouble(count) / (1 + CURRENT - base)
            total += weight * delta
            weights += weight
            if self.scenario == "norms":
                self.squares[site] = self.squares.get(site, 0) + np.square(delta).sum()
        return cast("NDArray[Any]", globals_[CURRENT] + total / weights)


def blocks(file: Any, tensor: str) -> Iterator[slice]:
    """Ranges of the first axis of a tensor."""
    shape = file.get_slice(tensor).get_shape()
    rows = max(1, BLOCK // math.prod(shape[1:]))
    return (slice(start, min(start + rows, shape[0])) for start in range(0, shape[0], rows))


def compare(folder: Path, scenario: Scenario, output: Path) -> dict[str, Any]:
    """Count what differs."""
    data = json.loads((folder / "data.json").read_text())
    elements = wrong = 0
    worst = 0.0
    with ExitStack() as stack:
        files = {n: stack.enter_context(safe_open(folder / f"{n}.safetensors", "numpy")) for n in data["sha256"]}
        exact = Exact(files, data["num_examples"], scenario)
        made = stack.enter_context(safe_open(output, "numpy"))
        if sorted(made.keys()) != sorted(files[f"global-{CURRENT}"].keys()):
            raise SystemExit(f"{output.name}: other tensors than the inputs")
        for tensor in made.keys():  # noqa: SIM118 no mapping, the library's own object
            for rows in blocks(made, tensor):
                got = made.get_slice(tensor)[rows]
                right = exact.values(tensor, rows)
                if got.dtype != np.float32 or got.shape != right.shape:
                    raise SystemExit(f"{output.name}: {tensor}: {got.dtype} {got.shape} -> float32 {right.shape}")
                elements += got.size
                wrong += int(np.count_nonzero(got != right.astype(np.float32)))
                worst = max(worst, float(np.abs(got - right).max()))
        norms = {site: float(np.sqrt(square)) for site, square in exact.squares.items()}
    return {"elements": elements, "wrong": wrong, "worst": worst, "norms": norms}


if __name__ == "__main__":
    folder_, scenario_, output_ = sys.argv[1:]
    print(json.dumps(compare(Path(folder_), cast("Scenario", scenario_), Path(output_))))
