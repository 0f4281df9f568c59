"""Interval arithmetic encloses: against 60 digits of mpmath, and at the edges of its functions."""

import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy as sp

from derive.calculus.atoms import Inner, Matrix, Vector
from derive.calculus.pointwise import normal_cdf, sigmoid
from derive.errors import DomainError, UnknownNodeError
from derive.proof.interval import Interval, IntervalRing, enclose, entries, sizes_at
from derive.symbols import d

t, u = sp.symbols("t u", real=True)
p = sp.Symbol("p", positive=True)

EXPRESSIONS = {
    "polynomial": t**3 - 2 * t * u + sp.Rational(1, 3),
    "quotient": (t + 2) / (u**2 + 1),
    "root": sp.sqrt(t**2 + p),
    "power": p ** sp.Rational(2, 3),
    "exponential": sp.exp(t - u),
    "tanh": sp.tanh(t),
    "sigmoid": sigmoid(t),
    "normal distribution": normal_cdf(t),
    "gamma": sp.gamma(p + 2),
    "constants": sp.pi * t + sp.E,
    "cases": sp.Piecewise((t, t > 0), (-2 * t, True)),
    "largest": sp.Max(t, u),
    "sine": sp.sin(t) + sp.cos(u),
    "logarithm": sp.log(p),
}


def _reference(expr, at):
    with mpmath.workdps(60):
        expr = expr.replace(normal_cdf, lambda x: (1 + sp.erf(x / sp.sqrt(2))) / 2)
        expr = expr.replace(sigmoid, lambda x: 1 / (1 + sp.exp(-x)))
        return sp.N(expr.subs({s: sp.Rational(str(v)) for s, v in at.items()}), 60)


@pytest.mark.parametrize("expr", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_the_value_is_inside_and_the_interval_narrow(expr):
    drawn = random.Random(5)
    for _ in range(6):
        at = {s: Fraction(drawn.randint(-60, 60), 17) for s in (t, u)}
        at[p] = Fraction(drawn.randint(1, 60), 17)
        found, value = enclose(expr, at), _reference(expr, at)
        low, high = map(mpmath.make_mpf, found.iv._mpi_)
        with mpmath.workdps(60):
            assert low <= mpmath.mpf(str(value)) <= high
            assert high - low <= mpmath.mpf("1e-28") * (1 + abs(high))


def test_a_third_is_not_a_point():
    third = enclose(sp.Rational(1, 3))
    assert third.iv.a < third.iv.b
    assert not third.apart(enclose(sp.Rational(1, 3)))
    assert third.apart(enclose(sp.Rational(1, 3) + sp.Rational(1, 10**30)))
    assert enclose(sp.Integer(2)).above(third)
    assert not third.above(third)


def test_what_is_not_defined_raises():
    with pytest.raises(DomainError, match="divisor that is not 0"):
        enclose(1 / t, {t: 0})
    with pytest.raises(DomainError, match="positive base"):
        enclose(t ** sp.Rational(1, 3), {t: -1})
    with pytest.raises(DomainError, match="kink"):
        enclose(EXPRESSIONS["cases"], {t: 0})
    with pytest.raises(UnknownNodeError, match="no enclosure"):
        enclose(sp.besselj(0, t), {t: 1})
    with pytest.raises(UnknownNodeError):
        enclose(t)


def test_matrices_of_intervals_enclose_products_of_fractions():
    A, v = Matrix("A", d, d), Vector("v", d)
    given = {"A": ((1, 2, "1/3"), (0, -1, 4), ("5/7", 1, 1)), "v": (1, "-2/3", 3)}
    found = entries(Inner(v, A * v), IntervalRing(0, given), sizes_at(3))[0]
    array = np.array([[Fraction(str(e)) for e in row] for row in given["A"]], dtype=object)
    column = np.array([Fraction(str(e)) for e in given["v"]], dtype=object)
    exact = column @ array @ column
    assert found.meets(exact - Fraction(1, 10**30), exact + Fraction(1, 10**30))
    assert not found.meets(exact + Fraction(1, 10**30), exact + 1)


def test_the_same_values_come_again_with_the_same_seed():
    v = Vector("v", d)
    first, again, other = (
        [float(e) for e in entries(v, IntervalRing(seed), sizes_at(4))] for seed in (3, 3, 4)
    )
    assert first == again != other
    assert float(Interval(Fraction(1, 4))) == 0.25
