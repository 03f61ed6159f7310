"""The registry of strategies, and the mean."""

from __future__ import annotations

import numpy as np
import pytest

from fedops.core.errors import ConfigError
from fedops.core.findings import Finding
from fedops.core.ids import is_digest
from fedops.core.settings import StrategySettings
from fedops.core.strategies import ENGINE, STRATEGIES, describe, make_strategy


def test_mean_is_the_default_and_takes_no_parameter() -> None:
    strategy = make_strategy(StrategySettings())
    assert (strategy.name, strategy.linear, strategy.scan, strategy.state) == ("fedavg", True, "none", ())
    assert strategy.buffers(10) == strategy.buffers(1000) == 1
    with pytest.raises(ConfigError, match="beta"):
        make_strategy(StrategySettings.model_validate({"name": "fedavg", "beta": "0.2"}))


def test_unknown_strategy_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="fedavg"):
        make_strategy(StrategySettings(name="fedavgg"))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_record_names_strategy_and_code_and_is_the_same_each_time(name: str) -> None:
    entry = describe(StrategySettings(name=name))
    assert (entry.name, entry.provider) == (name, "fedops")
    assert is_digest(entry.code)
    assert entry == describe(StrategySettings(name=name))
    assert ENGINE == 1


def test_new_delta_of_the_mean_is_the_mean_delta() -> None:
    combine = make_strategy(StrategySettings()).prepare([], 1.0, None)
    assert not isinstance(combine, Finding)
    mean, out = np.array([1.0, -2.0]), np.empty(2)
    combine(iter((mean,)), out, {})
    assert out.tolist() == [1.0, -2.0]
    combine(iter((mean,)), mean, {})  # in place
    assert mean.tolist() == [1.0, -2.0]
