"""The same bytes on other processors: with each of numpy's dispatch targets switched off, and with all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy._core import _multiarray_umath as umath

from fedops.core.norms import BLOCK
from tests.model_world import file_bytes

ROOT = Path(__file__).parents[2]
# What numpy has compiled more than once and this processor can run.
TARGETS: list[str] = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bits")
    for seed, name in enumerate(["v1", "v4", "site-a", "site-b", "site-c", "site-d", "site-e"]):
        rng = np.random.Generator(np.random.PCG64(seed))
        count = BLOCK + 1001
        tensors: dict[str, Any] = {
            "single": rng.standard_normal(count).astype(np.float32),
            "half": rng.standard_normal(count).astype(np.float16),
            "double": rng.standard_normal(count),
            "brain": (rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16),
            "tiny": rng.standard_normal(1001).astype(np.float32) * np.float32(1e-42),
            "n": rng.integers(-1000, 1000, 777),
        }
        (folder / name).write_bytes(file_bytes(tensors, bf16=["brain"]))
    return folder


def run(folder: Path, off: str) -> tuple[list[str], Any]:
    env = {**os.environ, "NPY_DISABLE_CPU_FEATURES": off, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.app.engine_once", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told["features"], told["results"]


def test_every_dispatch_target_switched_off_gives_the_same_bytes(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("shown", f"numpy dispatch targets that were switched off one by one: {', '.join(TARGETS)}")
    assert TARGETS, "numpy can switch nothing off here, so this test shows nothing"
    features, expected = run(folder, "")
    assert set(TARGETS) <= set(features)
    for off in [*TARGETS, " ".join(TARGETS)]:
        features, got = run(folder, off)
        assert not set(off.split()) & set(features), f"{off} is still on"
        assert got == expected, f"other bits without {off}"
