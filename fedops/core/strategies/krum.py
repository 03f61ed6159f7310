"""The one delta that lies closest to the others."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

from fedops.core.errors import ConfigError
from fedops.core.facts import F64, Json, Scan, Weighted
from fedops.core.findings import Finding, finding
from fedops.core.ids import AGGREGATION_PATH
from fedops.core.strategies.contract import Combine
from fedops.core.strategies.parameters import check_names

_TOO_FAR = sys.float_info.max  # the score of an update whose own has no float64 value


class Krum:
    """new = current + the delta with the lowest score: the sum of its n - f - 2 smallest squared distances to others.

    Distances are over all float tensors at once. Of equal scores the smallest site id is taken. A score beyond float64
    becomes the largest number there is, so that an absurd update is ranked last and keeps nobody else from being
    chosen. num_examples and staleness play no part.

    Source: Blanchard et al. 2017, Machine learning with adversaries: Byzantine tolerant gradient descent: needs
        n >= 2 f + 3 for f sites that say anything whatever.
    """

    name = "krum"
    linear = False
    scan: Literal["distances"] = "distances"
    state: tuple[str, ...] = ()

    def __init__(self, parameters: Mapping[str, Json]) -> None:
        check_names(self.name, parameters, "f")
        f = parameters["f"]
        if not isinstance(f, int) or isinstance(f, bool) or f < 0:
            raise ConfigError(
                f"strategy {self.name}: f: {f!r} -> a whole number from 0 on",
                hint="correct `strategy.f`: how many sites may be wrong at once",
            )
        self._f = f
        self.parameters: Mapping[str, Json] = {"f": f}
        self.least = 2 * f + 3

    def withstands(self, n: int) -> int:
        return self._f if n >= self.least else 0

    def buffers(self, n: int) -> int:  # noqa: ARG002 the same for any number of updates
        return 1

    def refuses(self, n: int) -> Finding | None:
        if n >= self.least:
            return None
        return finding("krum_too_few", AGGREGATION_PATH, got=n, expected=self.least, detail=self.parameters)

    def scores(self, scan: Scan | None) -> tuple[float, ...]:
        assert scan is not None
        near = len(scan.distances) - self._f - 2
        return tuple(
            _sum(sorted(d for j, d in enumerate(row) if j != i)[:near]) for i, row in enumerate(scan.distances)
        )

    def prepare(self, weights: Sequence[Weighted], denominator: float, scan: Scan | None) -> Combine | Finding:  # noqa: ARG002
        scores = self.scores(scan)
        place = scores.index(min(scores))  # the first: weights are in ascending site id
        if scores[place] == _TOO_FAR:
            detail = {"what": "distances between the updates"}
            return finding("non_finite_result", AGGREGATION_PATH, got="inf", detail=detail)

        def take(deltas: Iterator[F64], out: F64, state: Mapping[str, F64]) -> None:  # noqa: ARG001
            out[...] = next(islice(deltas, place, None))

        return take


def chosen(scores: Mapping[str, float]) -> str | None:
    """The site whose update was taken: the lowest score, of equal ones the smallest id; None if nobody has a score."""
    return min(sorted(scores), key=scores.__getitem__, default=None)


def _sum(distances: Sequence[float]) -> float:
    try:
        return min(math.fsum(distances), _TOO_FAR)
    except OverflowError:
        return _TOO_FAR
