"""A folder with an aggregate plan, its models and its records, for the tests of `fedops aggregate`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from fedops.adapters.model_files import ModelFiles
from fedops.app.aggregate import aggregate_files
from fedops.core.aggregated import Outcome

Item = dict[str, Any]


class World:
    """Two global versions of two numbers, v4 (0, 0) and v7 (1, 2); files of submissions are named after their site."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out = path / "out"
        self.globals = {4: self.model("v4", [0, 0]), 7: self.model("v7", [1, 2])}

    def write(self, name: str, data: bytes) -> str:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_bytes(data)
        return name

    def model(self, name: str, values: Sequence[float] | NDArray[Any], **more: NDArray[Any]) -> str:
        """A file with the tensor `w`, float32 unless an array says otherwise, and others."""
        array = values if isinstance(values, np.ndarray) else np.array(values, np.float32)
        return self.write(f"{name}.safetensors", save({"w": array, **more}))

    def sha256(self, name: str) -> str:
        return hashlib.sha256((self.path / name).read_bytes()).hexdigest()

    def item(
        self, site: str, values: Sequence[float] | NDArray[Any], base: int = 7, n: int = 100, **record: Any
    ) -> Item:
        """A submission with its record inline."""
        return {
            "update": self.model(f"{site}-{base}-{n}", values),
            "record": {"site": site, "base_version": base, "num_examples": n} | record,
        }

    def filed(self, item: Item, path: str, **changes: Any) -> Item:
        """The same with a whole record in a file."""
        record = {
            "schema": "fedops.submission/v1",
            "format": "safetensors",
            "payload": "full",
            "sha256": self.sha256(item["update"]),
            "metrics": {},
            "created_at": "2026-03-02T09:30:00Z",
        }
        text = json.dumps(record | item["record"] | changes)
        return item | {"record": self.write(path, text.encode())}

    def plan(self, *items: Item, **changes: Any) -> Path:
        plan = {
            "schema": "fedops.aggregate-plan/v1",
            "globals": {str(v): {"path": name} for v, name in self.globals.items()},
            "submissions": list(items),
        }
        return self.path / self.write("plan.json", json.dumps(plan | changes).encode())

    def run(self, *items: Item, dry_run: bool = False, out: Path | None = None, **changes: Any) -> Outcome:
        return aggregate_files(self.plan(*items, **changes), out or self.out, ModelFiles(), dry_run=dry_run)

    def values(self, out: Path | None = None) -> list[float]:
        return [float(v) for v in load_file((out or self.out) / "model.safetensors")["w"]]

    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.out / "version.json").read_bytes())
        return record

    def files(self, out: Path | None = None) -> Mapping[str, bytes]:
        folder = out or self.out
        return {p.name: p.read_bytes() for p in sorted(folder.iterdir())} if folder.exists() else {}


def told(outcome: Outcome) -> list[tuple[str, str]]:
    return [(f.slug, f.where) for f in outcome.findings]


def good(world: World) -> list[Item]:
    """Two submissions on v7 whose mean is (4, 4): (100 * 2 + 300 * x) / 400."""
    return [world.item("hospital-a", [1, 1], n=100), world.item("hospital-b", [5, 5], n=300)]
