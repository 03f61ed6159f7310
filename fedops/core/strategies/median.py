"""The median of the deltas, value by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from fedops.core.facts import Json, Scan, Weighted
from fedops.core.strategies.contract import Combine
from fedops.core.strategies.parameters import check_names


class Median:
    """new = current + the median of the sites' deltas, in each value for itself.

    An even number of sites gives the mean of the two middle values. num_examples and staleness play no part.

    Source: Yin et al. 2018, Byzantine-robust distributed learning: towards optimal statistical rates, definition 1.
    """

    name = "median"
    linear = False
    scan: Literal["none"] = "none"
    state: tuple[str, ...] = ()
    parameters: Mapping[str, Json] = {}
    least = 1

    def __init__(self, parameters: Mapping[str, Json]) -> None:
        check_names(self.name, parameters)

    def withstands(self, n: int) -> int:
        return (n - 1) // 2

    def buffers(self, n: int) -> int:
        return n + 1

    def refuses(self, n: int) -> None:  # noqa: ARG002 one update is enough
        return None

    def scores(self, scan: Scan | None) -> tuple[float, ...]:  # noqa: ARG002 it ranks nobody
        return ()

    def prepare(self, weights: Sequence[Weighted], denominator: float, scan: Scan | None) -> Combine:  # noqa: ARG002
        # NOTE: numpy takes a tenth of a second to import, and whoever only reads a policy must not wait for it.
        from fedops.core.strategies.ranked import Ranked, middle

        n = len(weights)
        return Ranked(n, (n - 1) // 2, n // 2 + 1, middle)
