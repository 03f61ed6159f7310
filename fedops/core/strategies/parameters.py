"""What the constructors of strategies check: which parameters there are, and what they may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from fedops.core.errors import ConfigError
from fedops.core.facts import Json

# No exponent: 1e999999 would be a number of a million digits.
_DECIMAL = re.compile(r"([0-9]{1,20}(\.[0-9]{1,40})?|\.[0-9]{1,40})\Z")


def check_names(strategy: str, given: Mapping[str, Json], *known: str) -> None:
    """Stop where a parameter is missing, or is none of this strategy.

    Raises:
        ConfigError: names it.
    """
    others = sorted(given.keys() - set(known))
    if others:
        raise ConfigError(
            f"strategy {strategy}: parameters {others} -> {', '.join(known) or 'none'}",
            hint="remove them from `strategy`",
        )
    for name in known:
        if name not in given:
            raise ConfigError(f"strategy {strategy}: {name}: required, but absent", hint="add it to `strategy`")


def decimal(value: Json) -> tuple[str, Fraction] | None:
    """A decimal number as the policy shows it, and its exact value: "0.1" and 0.1 are one tenth; None: it is none."""
    if isinstance(value, str) and _DECIMAL.match(value):
        return value, Fraction(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e20:
        return repr(value), Fraction(repr(value))
    return None
