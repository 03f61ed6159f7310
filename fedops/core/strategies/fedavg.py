"""The weighted mean of the deltas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from fedops.core.facts import F64, Json, Scan, Weighted
from fedops.core.strategies.contract import Combine
from fedops.core.strategies.parameters import check_names


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
    least = 1

    def __init__(self, parameters: Mapping[str, Json]) -> None:
        check_names(self.name, parameters)

    def refuses(self, n: int) -> None:  # noqa: ARG002 one update is enough
        return None

    def scores(self, scan: Scan | None) -> tuple[float, ...]:  # noqa: ARG002 it ranks nobody
        return ()

    def withstands(self, n: int) -> int:  # noqa: ARG002 one update may take the mean anywhere
        return 0

    def buffers(self, n: int) -> int:  # noqa: ARG002 the same for any number of updates
        return 1

    def prepare(self, weights: Sequence[Weighted], denominator: float, scan: Scan | None) -> Combine:  # noqa: ARG002
        return _keep_mean


def _keep_mean(deltas: Iterator[F64], out: F64, state: Mapping[str, F64]) -> None:  # noqa: ARG001
    mean = next(deltas)
    if mean is not out:
        out[...] = mean
