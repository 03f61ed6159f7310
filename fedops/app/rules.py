"""Whether this version of fedops can compute what a policy asks for; imports no numpy, since `fedops status` asks too."""

from __future__ import annotations

from fedops.core.errors import ConfigError, MainFileError
from fedops.core.ids import AGGREGATION_PATH
from fedops.core.settings import Aggregation
from fedops.core.strategies import make_strategy

_HINT = "a lead corrects it on main; until then no version is made, and nothing that was handed in is lost"


def refuse_unavailable_rules(policy: Aggregation) -> None:
    """Stop where the policy asks for something that this version of fedops does not compute.

    Raises:
        MainFileError: differential privacy, or a strategy that is not known or not with these parameters.
    """
    if policy.privacy is not None:
        raise MainFileError(f"{AGGREGATION_PATH}: privacy: not available in this version -> null", hint=_HINT)
    try:
        make_strategy(policy.strategy)
    except ConfigError as e:
        raise MainFileError(f"{AGGREGATION_PATH}: {e.message}", hint=_HINT) from e
