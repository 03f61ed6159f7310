"""One aggregation of the files of a folder in a process of its own: `python -m tests.app.engine_once FOLDER`.

Prints as JSON: the processor features that numpy may use, and everything that enters a digest.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

from fedops.app.engine import Aggregated
from fedops.core.settings import Integers, StrategySettings
from fedops.core.strategies import make_strategy
from tests.model_world import World


def main(folder: Path) -> None:
    from numpy._core._multiarray_umath import __cpu_features__ as features  # type: ignore[import-not-found, unused-ignore]

    with ExitStack() as stack:
        files = World(folder, stack)
        bases = {v: files.base((folder / f"v{v}").read_bytes(), v) for v in (1, 4)}
        sites = sorted(p.name for p in folder.glob("site-*"))
        inputs = [
            files.input(s, (folder / s).read_bytes(), base=(1, 4)[i % 2], weight=100.0 / (i + 3))
            for i, s in enumerate(sites)
        ]
        results = {}
        for clip in (None, 5.0):
            rule = Integers(default="rounded_mean")
            made, _ = files.aggregate(4, bases, inputs, clip_norm=clip, want_norms=True, integers=rule)
            assert isinstance(made, Aggregated)
            results[str(clip)] = [made.sha256, [x.hex() for x in made.norms.values()], list(made.clip_factors.values())]
        for given in ({"name": "median"}, {"name": "trimmed_mean", "beta": "0.2"}, {"name": "krum", "f": 1}):
            strategy = make_strategy(StrategySettings.model_validate(given))
            made, _ = files.aggregate(4, bases, inputs, strategy=strategy)
            assert isinstance(made, Aggregated)
            results[strategy.name] = [made.sha256, [x.hex() for x in made.scores.values()]]
    print(json.dumps({"features": sorted(k for k, on in features.items() if on), "results": results}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
