"""The mean of the deltas without the largest and the smallest, value by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from fedops.core.errors import ConfigError
from fedops.core.facts import Json, Scan, Weighted
from fedops.core.findings import Finding, finding
from fedops.core.ids import AGGREGATION_PATH
from fedops.core.strategies.contract import Combine
from fedops.core.strategies.parameters import check_names, decimal


class TrimmedMean:
    """new = current + the mean of the deltas but for the floor(beta n) smallest and largest, in each value for itself.

    beta is taken as the decimal number written, so that 0.3 of 10 sites are 3. What is kept is added in ascending
    order of value, in float64, and divided once: no site's name plays a part, nor do num_examples and staleness.

    Source: Yin et al. 2018, Byzantine-robust distributed learning: towards optimal statistical rates, definition 2.
    """

    name = "trimmed_mean"
    linear = False
    scan: Literal["none"] = "none"
    state: tuple[str, ...] = ()

    def __init__(self, parameters: Mapping[str, Json]) -> None:
        check_names(self.name, parameters, "beta")
        read = decimal(parameters["beta"])
        if read is None or not 0 <= read[1] < 1:
            raise ConfigError(
                f"strategy {self.name}: beta: {parameters['beta']!r} -> a decimal number from 0 to below 0.5",
                hint='correct `strategy.beta`, for example to "0.2"',
            )
        text, self._beta = read
        self.parameters: Mapping[str, Json] = {"beta": text}
        # 2 floor(beta n) < n holds for every n below one half; from there on for some n alone.
        self.least = 1 if 2 * self._beta < 1 else None

    def cut(self, n: int) -> int:
        """How many of n values are left out at each end."""
        return int(self._beta * n)

    def withstands(self, n: int) -> int:
        return self.cut(n)

    def buffers(self, n: int) -> int:
        return n + 1

    def refuses(self, n: int) -> Finding | None:
        if 2 * self.cut(n) < n:
            return None
        detail = {**self.parameters, "updates": n}
        return finding(
            "trim_too_large", AGGREGATION_PATH, got=2 * self.cut(n), expected=f"fewer than {n}", detail=detail
        )

    def scores(self, scan: Scan | None) -> tuple[float, ...]:  # noqa: ARG002 it ranks nobody
        return ()

    def prepare(self, weights: Sequence[Weighted], denominator: float, scan: Scan | None) -> Combine:  # noqa: ARG002
        # NOTE: numpy takes a tenth of a second to import, and whoever only reads a policy must not wait for it.
        from fedops.core.strategies.ranked import Ranked, mean

        n = len(weights)
        return Ranked(n, self.cut(n), n - self.cut(n), mean)
