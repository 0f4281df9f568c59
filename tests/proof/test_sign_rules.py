"""Signs of scalars in several symbols, and what must not be shown."""

import pytest
import sympy as sp

from derive.proof.scalars import same, sign_rule
from derive.symbols import L

k, t, x = sp.symbols("k t x", positive=True)

NOT_NEGATIVE = {
    "bernoulli": (1 + t) ** (1 + k) - 1 - (1 + k) * t,
    "logarithm": t - sp.log(1 + t),
    "second order": sp.log(1 + t) - t + t**2 / 2,
    "depth": t - L * sp.log(1 + t / L),
}
SOMETIMES_NEGATIVE = {
    "difference": t - x,
    "product": t * x - 1,
    "concave": (1 + t) ** k - 1 - k * t,
    "logarithm": sp.log(1 + t) - t,
    "too sharp": sp.log(1 + t) - t + t**2 / 3,
    "shifted": (t - x) ** 2 - x,
}


@pytest.mark.parametrize("case", NOT_NEGATIVE)
def test_shown(case):
    assert sign_rule(NOT_NEGATIVE[case])


@pytest.mark.parametrize("case", SOMETIMES_NEGATIVE)
def test_not_shown(case):
    assert not sign_rule(SOMETIMES_NEGATIVE[case])


def test_harmonic_numbers():
    assert same(sp.harmonic(L + 1), sp.harmonic(L) + 1 / (L + 1))
    assert not same(sp.harmonic(L + 1), sp.harmonic(L) + 1 / L)
