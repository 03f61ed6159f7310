"""The strategies that fedops knows, by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress

from fedops.core.errors import ConfigError
from fedops.core.facts import Json
from fedops.core.ids import digest_of_hex
from fedops.core.records import StrategyEntry
from fedops.core.settings import StrategySettings
from fedops.core.strategies.contract import Combine, Strategy
from fedops.core.strategies.fedavg import FedAvg
from fedops.core.strategies.krum import Krum, chosen
from fedops.core.strategies.median import Median
from fedops.core.strategies.trimmed_mean import TrimmedMean

__all__ = [
    "ENGINE",
    "STRATEGIES",
    "Combine",
    "Strategy",
    "chosen",
    "counts_examples",
    "describe",
    "least_updates",
    "make_strategy",
]

ENGINE = 1  # the frozen numeric semantics; a change of any number is a new one, and the old one stays
PROVIDER = "fedops"
_LINEAR: Mapping[str, Callable[[Mapping[str, Json]], Strategy]] = {FedAvg.name: FedAvg}
_ROBUST: Mapping[str, Callable[[Mapping[str, Json]], Strategy]] = {s.name: s for s in (Krum, Median, TrimmedMean)}
STRATEGIES = {**_LINEAR, **_ROBUST}


def make_strategy(settings: StrategySettings) -> Strategy:
    """Make the strategy of a policy.

    Raises:
        ConfigError: there is none of this name, or a parameter can never be valid.
    """
    if settings.name not in STRATEGIES:
        raise ConfigError(
            f"strategy {settings.name!r} -> one of {', '.join(sorted(STRATEGIES))}",
            hint="correct `strategy.name` in policies/aggregation.yaml",
        )
    return STRATEGIES[settings.name](settings.parameters)


def least_updates(settings: StrategySettings) -> int:
    """As few updates as the strategy of a policy can always be used on; 1 if it cannot be made, which others tell."""
    with suppress(ConfigError):
        return make_strategy(settings).least or 1
    return 1


def counts_examples(name: str) -> bool:
    """True if weights decide what a site counts in the strategy of this name; also of one that is not known here."""
    return name not in _ROBUST


def describe(settings: StrategySettings) -> StrategyEntry:
    """A strategy as the version record names it: every parameter resolved, and which code it is.

    fedops's own strategies are frozen by the engine number, so their code is named by it and by the name: a later
    release with the same engine computes the same numbers and must be able to verify the record.

    Raises:
        ConfigError: as `make_strategy`.
    """
    strategy = make_strategy(settings)
    code = digest_of_hex(hashlib.sha256(f"{PROVIDER} engine {ENGINE} {strategy.name}\n".encode()).hexdigest())
    return StrategyEntry(name=strategy.name, provider=PROVIDER, code=code, **strategy.parameters)
