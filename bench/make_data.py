"""Make one aggregation's files: four global versions, N sites' updates, and what is known of them.

    python bench/make_data.py FOLDER --sites 10 --mb 500 [--one-base]

FOLDER gets global-0 … global-3 (with --one-base the last of them), site-000 …, all .safetensors, and data.json:
num_examples and sha256 of each file.
The model has the shape of GPT-2 (one large table, blocks of matrices, biases and layer norms): at 500 MB 145 tensors.
Values are normal: 0.02 for the weights; the versions and the updates differ from them by 0.0005 and 0.001, as after
fine-tuning. Everything comes from fixed seeds, one per file and tensor, so that memory does not grow with the model.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from plans import CURRENT, VERSIONS

from fedops.adapters.model_writer import writing
from fedops.core.facts import Specs, TensorSpec
from fedops.core.tensors import canonical_layout


def shapes(mb: float) -> Specs:
    """Names and shapes of a GPT-2-like model of `mb` * 10**6 bytes in float32."""
    target = int(mb * 1e6 / 4)
    width, layers = 64, 12
    while layers * _block(width + 64) < 0.72 * target:
        width += 64
    if layers * _block(width) > 0.9 * target:  # a model of a few MB: one narrow block
        layers = 1
        while _block(width) > 0.9 * target and width > 8:
            width //= 2
    found: dict[str, tuple[int, ...]] = {"wte.weight": (max(8, (target - layers * _block(width)) // width), width)}
    for i in range(layers):
        matrices = {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width),
                    "mlp.c_fc": (width, 4 * width), "mlp.c_proj": (4 * width, width)}  # fmt: skip
        for name, shape in matrices.items():
            found |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[1:]}
        for name in ("ln_1", "ln_2"):
            found |= {f"h.{i}.{name}.weight": (width,), f"h.{i}.{name}.bias": (width,)}
    return {name: TensorSpec("F32", shape) for name, shape in found.items()}


def _block(width: int) -> int:
    """Parameters of one block."""
    return 12 * width * width + 13 * width


def values(tensor: int, shape: tuple[int, ...], file: int, size: float) -> NDArray[np.float32]:
    """One tensor of one file: common weights, and noise of its own."""
    common = np.random.Generator(np.random.SFC64([0, tensor])).standard_normal(shape, dtype=np.float32)
    noise = np.random.Generator(np.random.SFC64([1 + file, tensor])).standard_normal(shape, dtype=np.float32)
    common *= np.float32(0.02)
    noise *= np.float32(size)
    common += noise
    return common


def make(folder: Path, sites: int, mb: float, versions: range) -> None:
    """Write all files."""
    folder.mkdir(parents=True, exist_ok=True)
    specs = shapes(mb)
    files = {f"global-{v}": v for v in versions} | {f"site-{i:03d}": VERSIONS + i for i in range(sites)}
    digests: dict[str, str] = {}
    for name, number in files.items():
        with writing(folder / f"{name}.safetensors", specs, md5=False) as writer:
            for tensor, placed in enumerate(canonical_layout(specs)):
                array = values(tensor, placed.spec.shape, number, 0.0005 if number < VERSIONS else 0.001)
                writer.append(array.reshape(-1).view(np.uint8).data)
            digests[name] = writer.commit()[0]
    examples = {f"site-{i:03d}": 200 + 1777 * ((7 * i) % 11) for i in range(sites)}
    facts = {"mb": mb, "tensors": len(specs), "num_examples": examples, "sha256": digests}
    (folder / "data.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--mb", type=float, default=500.0)
    parser.add_argument("--one-base", action="store_true")
    given = parser.parse_args()
    make(given.folder, given.sites, given.mb, range(CURRENT if given.one_base else 0, VERSIONS))
