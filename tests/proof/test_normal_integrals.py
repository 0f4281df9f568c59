"""Expectations with normal distribution functions, against quadrature by SciPy."""

import math

import pytest
import sympy as sp
from scipy import integrate, stats
from scipy.special import ndtr

from derive.blocks.activations import activation
from derive.calculus.pointwise import normal_cdf
from derive.errors import UnknownNodeError
from derive.proof import Expectation
from derive.proof.normal_integrals import normal_mean

z = sp.Symbol("z", real=True)
a = sp.Symbol("a", positive=True)

CASES = {
    "one": (normal_cdf(z), lambda t: ndtr(t)),
    "slope": (z * normal_cdf(2 * z), lambda t: t * ndtr(2 * t)),
    "two": (normal_cdf(z) * normal_cdf(-3 * z), lambda t: ndtr(t) * ndtr(-3 * t)),
    "fourth": (z**4 * normal_cdf(z / 2) ** 2, lambda t: t**4 * ndtr(t / 2) ** 2),
    "narrow": (
        z**3 * sp.exp(-(z**2) / 3) * normal_cdf(z),
        lambda t: t**3 * math.exp(-(t**2) / 3) * ndtr(t),
    ),
    "erf": ((1 + sp.erf(z)) ** 2, lambda t: (2 * ndtr(t * 2**0.5)) ** 2),
    "erfc": (z * sp.erfc(z), lambda t: t * 2 * ndtr(-t * 2**0.5)),
}


@pytest.mark.parametrize("case", CASES)
def test_against_quadrature(case):
    function, plain = CASES[case]
    expected = integrate.quad(lambda t: plain(t) * stats.norm.pdf(t), -12, 12, epsabs=1e-13)[0]
    assert float(normal_mean(function, z)) == pytest.approx(expected, abs=1e-11)  # of quad
    assert Expectation(function, z).quadrature() == pytest.approx(expected, abs=1e-11)


def test_symbolic_slope():
    expected = sp.Rational(1, 4) + sp.asin(a**2 / (1 + a**2)) / (2 * sp.pi)
    assert sp.simplify(normal_mean(normal_cdf(a * z) ** 2, z) - expected) == 0


def test_second_moment_of_gelu():
    square = activation("gelu").derivative(0)(z) ** 2
    assert sp.simplify(Expectation(square, z).doit() - (2 * sp.pi + sp.sqrt(3)) / (6 * sp.pi)) == 0


@pytest.mark.parametrize(
    "function",
    [normal_cdf(z + 1), sp.sin(z) * normal_cdf(z), normal_cdf(z) ** 3, normal_cdf(z) / z],
    ids=str,
)
def test_other_forms_are_refused(function):
    with pytest.raises(UnknownNodeError, match="expectation: no rule"):
        normal_mean(function, z)


def test_no_finite_integral():
    with pytest.raises(UnknownNodeError, match="no finite integral"):
        normal_mean(sp.exp(z**2 / 2) * normal_cdf(z), z)
