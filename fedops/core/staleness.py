"""The discount s(tau) of an update by its staleness tau; part of `engine: 1`, so it never changes."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

from fedops.core.settings import Staleness

# 50 digits are 33 more than float64 holds, so the one rounding to float64 is the nearest value in all but
# about one case in 10 ** 33. libm's pow and numpy's power differ between processors; decimal does not.
_DIGITS = Context(prec=50)


def staleness_factor(settings: Staleness, tau: int) -> float:
    """Discount of an update that is `tau` versions behind the current one: 1.0 for tau 0, never above 1.

    constant 1 · inverse 1/(1+tau) · inverse_sqrt 1/sqrt(1+tau) · polynomial (1+tau)^-alpha ·
    hinge 1 up to b, then 1/(a(tau-b)+1). The result is the exact value, rounded once to float64. Parameters are
    taken as the decimal numbers that the policy shows (0.1 is one tenth), as any reader of the record would.

    Args:
        tau: staleness in versions, >= 0.

    Source: hinge and polynomial: Xie et al. 2019, Asynchronous federated optimization, section 5.2;
        inverse_sqrt: Nguyen et al. 2022, Federated learning with buffered asynchronous aggregation (FedBuff).
    """
    assert tau >= 0, tau
    if settings.kind == "constant":
        return 1.0
    if settings.kind == "inverse":
        return 1 / (1 + tau)  # of two int: rounded once
    if settings.kind == "inverse_sqrt":
        return float(_DIGITS.divide(Decimal(1), _DIGITS.sqrt(Decimal(1 + tau))))
    if settings.kind == "polynomial":
        assert settings.alpha is not None
        return float(_DIGITS.power(Decimal(1 + tau), -Decimal(repr(settings.alpha))))
    assert settings.a is not None
    assert settings.b is not None
    a, b = as_written(settings.a), as_written(settings.b)
    return 1.0 if tau <= b else float(1 / (a * (tau - b) + 1))


def as_written(number: float) -> Fraction:
    """The exact decimal number that a person reads in a policy or record: 0.1 is 1/10, not its float64 neighbour."""
    return Fraction(repr(number))
