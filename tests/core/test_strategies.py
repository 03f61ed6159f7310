"""The registry of strategies, what their parameters may be, and the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedops.core.errors import ConfigError
from fedops.core.findings import Finding
from fedops.core.ids import is_digest
from fedops.core.settings import StrategySettings
from fedops.core.strategies import ENGINE, STRATEGIES, Strategy, counts_examples, describe, least_updates, make_strategy

GIVEN: dict[str, dict[str, Any]] = {"fedavg": {}, "krum": {"f": 1}, "median": {}, "trimmed_mean": {"beta": "0.2"}}


def settings(name: str, **parameters: Any) -> StrategySettings:
    return StrategySettings.model_validate({"name": name, **parameters})


def made(name: str, **parameters: Any) -> Strategy:
    return make_strategy(settings(name, **parameters))


def test_mean_is_the_default_and_takes_no_parameter() -> None:
    strategy = make_strategy(StrategySettings())
    assert (strategy.name, strategy.linear, strategy.scan, strategy.state) == ("fedavg", True, "none", ())
    assert strategy.buffers(10) == strategy.buffers(1000) == 1
    assert (strategy.least, strategy.refuses(1), strategy.withstands(99), strategy.scores(None)) == (1, None, 0, ())
    with pytest.raises(ConfigError, match="beta"):
        made("fedavg", beta="0.2")


def test_unknown_strategy_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="'fedavgg' -> one of fedavg, krum, median, trimmed_mean"):
        make_strategy(StrategySettings(name="fedavgg"))


def test_every_strategy_is_tried_here() -> None:
    assert GIVEN.keys() == STRATEGIES.keys()


@pytest.mark.parametrize("name", GIVEN)
def test_record_names_strategy_parameters_and_code_and_is_the_same_each_time(name: str) -> None:
    entry = describe(settings(name, **GIVEN[name]))
    assert (entry.name, entry.provider) == (name, "fedops")
    assert (entry.model_extra or {}) == GIVEN[name]
    assert is_digest(entry.code)
    assert entry == describe(settings(name, **GIVEN[name]))
    assert ENGINE == 1


def test_code_of_each_strategy_has_a_digest_of_its_own() -> None:
    assert len({describe(settings(name, **given)).code for name, given in GIVEN.items()}) == len(GIVEN)


@pytest.mark.parametrize("name", GIVEN)
def test_a_parameter_of_another_strategy_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"strategy {name}: parameters \['gamma'\] -> "):
        made(name, **GIVEN[name], gamma=1)


@pytest.mark.parametrize(("name", "missing"), [("krum", "f"), ("trimmed_mean", "beta")])
def test_a_parameter_that_is_not_there_is_named(name: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"strategy {name}: {missing}: required, but absent"):
        made(name)


@pytest.mark.parametrize(
    "beta", ["-0.1", "1", "1.0", "2", "0,2", "1/5", "2e-1", "", " 0.2", "0.2\n", "nan", "\u0660.\u0662"]
)
def test_a_share_that_can_never_be_cut_is_an_error(beta: str) -> None:
    with pytest.raises(ConfigError, match=r"beta: .* -> a decimal number from 0 to below 0\.5"):
        made("trimmed_mean", beta=beta)


@pytest.mark.parametrize("beta", [-0.1, 1, 1.0, float("nan"), float("inf"), 1e300, True, False, None, [0.2], {"a": 1}])
def test_a_share_that_is_no_such_number_is_an_error(beta: Any) -> None:
    with pytest.raises(ConfigError, match="strategy trimmed_mean: beta"):
        STRATEGIES["trimmed_mean"]({"beta": beta})


@pytest.mark.parametrize(
    ("beta", "text"),
    [("0.2", "0.2"), (0.2, "0.2"), (0.3, "0.3"), (0, "0"), ("0", "0"), (".25", ".25"), (1e-05, "1e-05")],
)
def test_a_share_is_kept_as_the_policy_shows_it(beta: Any, text: str) -> None:
    assert made("trimmed_mean", beta=beta).parameters == {"beta": text}


@pytest.mark.parametrize("f", [-1, 1.0, 0.5, "1", True, False, None, [1]])
def test_a_number_of_wrong_sites_that_is_no_whole_number_is_an_error(f: Any) -> None:
    with pytest.raises(ConfigError, match=r"strategy krum: f: .* -> a whole number from 0 on"):
        STRATEGIES["krum"]({"f": f})


def test_as_few_updates_as_a_strategy_can_be_used_on() -> None:
    assert [least_updates(settings(name, **given)) for name, given in GIVEN.items()] == [1, 5, 1, 1]
    assert [least_updates(settings("krum", f=f)) for f in (0, 1, 2, 7)] == [3, 5, 7, 17]
    # What cannot be made, and what can be used on some numbers alone, is told elsewhere.
    assert least_updates(settings("krum")) == least_updates(settings("fedavgg")) == 1
    assert (made("trimmed_mean", beta="0.5").least, least_updates(settings("trimmed_mean", beta="0.5"))) == (None, 1)


def test_weights_count_in_the_mean_alone_and_in_what_is_not_known_here() -> None:
    assert {name: counts_examples(name) for name in [*GIVEN, "newer"]} == {
        "fedavg": True,
        "krum": False,
        "median": False,
        "trimmed_mean": False,
        "newer": True,
    }


def test_new_delta_of_the_mean_is_the_mean_delta() -> None:
    combine = make_strategy(StrategySettings()).prepare([], 1.0, None)
    assert not isinstance(combine, Finding)
    mean, out = np.array([1.0, -2.0]), np.empty(2)
    combine(iter((mean,)), out, {})
    assert out.tolist() == [1.0, -2.0]
    combine(iter((mean,)), mean, {})  # in place
    assert mean.tolist() == [1.0, -2.0]
