from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedops.core.settings import Staleness
from fedops.core.staleness import as_written, staleness_factor


def settings(kind: str, **parameters: float) -> Staleness:
    values: dict[str, Any] = {"kind": kind, "max": None, **parameters}
    return Staleness(**values)


def nearest(low: Fraction, high: Fraction) -> float:
    """The float64 nearest to a number that is known to lie in a narrow interval."""
    assert float(low) == float(high)
    return float(low)


def root_of_inverse(number: int, root: int = 2) -> float:
    """number ** (-1 / root), rounded once, by integer square roots: root must be a power of two."""
    scale = 10**80
    value, left = scale**root // number, root
    while left > 1:
        value, left = math.isqrt(value), left // 2
    return nearest(Fraction(value, scale), Fraction(value + 1, scale))


@pytest.mark.parametrize("tau", [0, 1, 2, 7, 1000])
def test_constant_never_discounts(tau: int) -> None:
    assert staleness_factor(settings("constant"), tau) == 1.0


@given(st.integers(0, 10**6))
def test_inverse_is_one_over_one_plus_tau_rounded_once(tau: int) -> None:
    assert staleness_factor(settings("inverse"), tau) == float(Fraction(1, 1 + tau))


@given(st.integers(0, 10**6))
def test_inverse_sqrt_equals_the_integer_square_root_reference(tau: int) -> None:
    assert staleness_factor(settings("inverse_sqrt"), tau) == root_of_inverse(1 + tau)


@given(st.integers(0, 10**6))
def test_polynomial_with_alpha_one_half_and_one_quarter_equals_nested_integer_roots(tau: int) -> None:
    assert staleness_factor(settings("polynomial", alpha=0.5), tau) == root_of_inverse(1 + tau)
    assert staleness_factor(settings("polynomial", alpha=0.25), tau) == root_of_inverse(1 + tau, 4)


@given(st.integers(0, 10**4), st.integers(0, 20))
def test_polynomial_with_whole_alpha_is_the_exact_power(tau: int, alpha: int) -> None:
    assert staleness_factor(settings("polynomial", alpha=float(alpha)), tau) == float(Fraction(1, (1 + tau) ** alpha))


@pytest.mark.parametrize(("tau", "alpha"), [(1, 0.1), (4, 0.3), (99, 0.7), (12345, 1.5)])
def test_polynomial_takes_alpha_as_the_decimal_number_written(tau: int, alpha: float) -> None:
    # x = (1 + tau) ** (-p / 10)  <=>  x ** 10 == (1 + tau) ** -p: the float64 neighbours must bracket that root.
    p = round(alpha * 10)
    got = staleness_factor(settings("polynomial", alpha=alpha), tau)
    exact = Fraction(1, (1 + tau) ** p)
    low = (Fraction(got) + Fraction(math.nextafter(got, 0.0))) / 2
    high = (Fraction(got) + Fraction(math.nextafter(got, 2.0))) / 2
    assert low**10 <= exact <= high**10


@given(st.integers(0, 500), st.integers(1, 400), st.integers(0, 200))
def test_hinge_is_one_up_to_b_and_then_falls(tau: int, tenths_of_a: int, halves_of_b: int) -> None:
    a, b = tenths_of_a / 10, halves_of_b / 2
    over = tau - Fraction(halves_of_b, 2)
    expected = 1.0 if over <= 0 else float(1 / (Fraction(tenths_of_a, 10) * over + 1))
    assert staleness_factor(settings("hinge", a=a, b=b), tau) == expected


def test_hinge_of_the_paper_with_a_10_and_b_4() -> None:
    hinge = settings("hinge", a=10.0, b=4.0)
    assert [staleness_factor(hinge, tau) for tau in (0, 4, 5, 6)] == [1.0, 1.0, 1 / 11, 1 / 21]


@pytest.mark.parametrize("alpha", [1e-300, 1e300, 5e-324, 1.7e308])
def test_absurd_alphas_give_a_number_between_zero_and_one(alpha: float) -> None:
    got = staleness_factor(settings("polynomial", alpha=alpha), 5)
    assert got == (1.0 if alpha < 1 else 0.0)
    assert staleness_factor(settings("polynomial", alpha=alpha), 0) == 1.0


ALL = [
    settings("constant"),
    settings("inverse"),
    settings("inverse_sqrt"),
    settings("polynomial", alpha=0.0),
    settings("polynomial", alpha=0.37),
    settings("hinge", a=0.5, b=2.5),
]


@pytest.mark.parametrize("discount", ALL, ids=lambda d: d.kind)
def test_no_discount_for_fresh_updates_and_never_more_for_older_ones(discount: Staleness) -> None:
    factors = [staleness_factor(discount, tau) for tau in range(200)]
    assert factors[0] == 1.0
    assert all(later <= earlier for earlier, later in pairwise(factors))
    assert all(0.0 < f <= 1.0 for f in factors)


def test_a_negative_staleness_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        staleness_factor(settings("inverse"), -1)


def test_numbers_are_the_decimals_that_people_read() -> None:
    assert as_written(0.1) == Fraction(1, 10) != Fraction(0.1)
    assert as_written(1e-07) == Fraction(1, 10**7)
    assert as_written(2.0) == 2
