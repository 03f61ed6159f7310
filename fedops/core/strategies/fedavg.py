"""The weighted mean of the deltas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from fedops.core.errors import ConfigError
from fedops.core.facts import F64, Json, Scan, Weighted
from fedops.core.strategies.contract import Combine


class FedAvg:
    """new = current + sum_i w_i (update_i - base_i) / sum_i w_i.

    Source: McMahan et al. 2017, Communication-efficient learning of deep networks, algorithm 1; in delta form with
    staleness weights as in Nguyen et al. 2022, Federated learning with buffered asynchronous aggregation.
    """

    name = "fedavg"
    parameters: Mapping[str, Json] = {}
    linear = True
    scan: Literal["none"] = "none"
    state: tuple[str, ...] = ()

    def __init__(self, parameters: Mapping[str, Json]) -> None:
        if parameters:
            raise ConfigError(
                f"strategy fedavg: parameters {sorted(parameters)} -> none", hint="remove them from `strategy`"
            )

    def buffers(self, n: int) -> int:  # noqa: ARG002 the same for any number of updates
        return 1

    def prepare(self, weights: Sequence[Weighted], denominator: float, scan: Scan | None) -> Combine:  # noqa: ARG002
        return _keep_mean


def _keep_mean(deltas: Iterator[F64], out: F64, state: Mapping[str, F64]) -> None:  # noqa: ARG001
    mean = next(deltas)
    if mean is not out:
        out[...] = mean
