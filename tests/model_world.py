"""Model files for tests: written by the reference library or by hand, opened and closed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedops.adapters.model_files import ModelFile, ModelFiles
from fedops.app.engine import Aggregated, Base, Input, Rule, aggregate
from fedops.core.facts import Specs, Submission, TensorSpec, Weighted
from fedops.core.findings import Finding
from fedops.core.ids import BlobId, CommitId, Digest, SiteId
from fedops.core.settings import Integers, Limits, StrategySettings
from fedops.core.strategies import Strategy, make_strategy
from fedops.core.tensors import DTYPES, canonical_layout

T0 = dt.datetime(2026, 3, 2, 9, 0, tzinfo=dt.UTC)
Arrays = Mapping[str, NDArray[Any]]
_NAMES = {np.dtype(f.storage).name: d for d, f in DTYPES.items() if d != "BF16"}


def specs_of(arrays: Arrays, bf16: Sequence[str] = ()) -> Specs:
    return {n: TensorSpec("BF16" if n in bf16 else _NAMES[a.dtype.name], a.shape) for n, a in arrays.items()}


def file_bytes(
    arrays: Arrays, *, order: Sequence[str] | None = None, bf16: Sequence[str] = (), metadata: Any = None
) -> bytes:
    """A safetensors file by hand, in any order; tensors named in bf16 are given by their 16 bits."""
    specs = specs_of(arrays, bf16)
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    body = b""
    for name in order or [p.name for p in canonical_layout(specs)]:
        data = np.ascontiguousarray(arrays[name]).tobytes()
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": specs[name].dtype, "shape": list(arrays[name].shape), "data_offsets": offsets}
        body += data
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def roomy() -> Limits:
    return Limits(update_bytes=10**9, expanded_bytes=10**9)


class World:
    """Opens models below one folder and closes them at the end.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._count = 0

    def path(self, data: bytes, name: str | None = None) -> Path:
        self._count += 1
        path = self.folder / (name or f"{self._count}.model")
        path.write_bytes(data)
        return path

    def open(self, data: bytes | Path, limits: Limits | None = None) -> ModelFile:
        path = self.path(data) if isinstance(data, bytes) else data
        model, findings = ModelFiles(self.folder).open(path, limits or roomy(), path.name)
        assert model is not None, findings
        assert findings == ()
        return self._stack.enter_context(model)

    def refused(self, data: bytes | Path, limits: Limits | None = None) -> tuple[Finding, ...]:
        path = self.path(data) if isinstance(data, bytes) else data
        model, findings = ModelFiles(self.folder).open(path, limits or roomy(), "update")
        assert model is None
        assert findings
        assert all(f.where == "update" for f in findings)
        return findings

    def base(self, data: bytes, version: int = 0, sha256: str | None = None) -> Base:
        return Base(self.open(data), f"v{version}", sha256)

    def input(
        self, site: str, data: bytes, *, base: int = 0, weight: float = 1.0, payload: str = "full", sha256: str | None = None
    ) -> Input:  # fmt: skip
        submission = Submission(
            SiteId(site), base, 1, payload, "", "", len(data), Digest(""), BlobId(""), BlobId(""), CommitId(""), T0
        )
        return Input(Weighted(submission, 0, weight, 0.0), self.open(data), f"sites/{site}", sha256)

    def aggregate(
        self, current: int, bases: Mapping[int, Base], inputs: Sequence[Input], **how: Any
    ) -> tuple[Aggregated | tuple[Finding, ...], Path]:
        """Run the engine; keyword arguments of Rule, and two_processes and chunk; the file is there iff a model was made."""
        run = {key: how.pop(key) for key in ("two_processes", "chunk") if key in how}
        how.setdefault("denominator", float(sum(Fraction(i.weighted.weight) for i in inputs)))
        strategy: Strategy = how.pop("strategy", None) or make_strategy(StrategySettings())
        rule = Rule(strategy, how.pop("denominator"), how.pop("integers", Integers()), **how)
        self._count += 1
        target = self.folder / f"out-{self._count}.safetensors"
        with ModelFiles().create(target, bases[current].model.specs) as sink:
            made = aggregate(current, bases, inputs, rule, sink, **run)
        assert target.exists() == isinstance(made, Aggregated)
        assert not list(self.folder.glob("*.part-*"))
        return made, target

    def made(self, current: int, bases: Mapping[int, Base], inputs: Sequence[Input], **how: Any) -> Arrays:
        """The new model's arrays, read by the reference library."""
        made, path = self.aggregate(current, bases, inputs, **how)
        assert isinstance(made, Aggregated), made
        arrays: Arrays = load_file(path)
        return arrays

    def findings(
        self, current: int, bases: Mapping[int, Base], inputs: Sequence[Input], **how: Any
    ) -> tuple[Finding, ...]:
        made, _ = self.aggregate(current, bases, inputs, **how)
        assert not isinstance(made, Aggregated)
        return made


def world(folder: Path) -> Iterator[World]:
    """For a fixture: a world that is closed after the test."""
    with ExitStack() as stack:
        yield World(folder, stack)
