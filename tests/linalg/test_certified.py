"""Enclosures: they hold what exact arithmetic gives, and reject what is off by more."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from derive.errors import DomainError, MissingExtraError, ShapeError, WeightError
from derive.linalg import certified
from derive.linalg.certified import (
    Interval,
    balls,
    enclosure,
    entry_error,
    frobenius_error,
    singular_value_enclosures,
)

flint = pytest.importorskip("flint")


def exact_product(factors):
    """The product of float64 matrices in exact rationals."""
    out = [[Fraction(int(i == j)) for j in range(len(factors[0]))] for i in range(len(factors[0]))]
    for factor in factors:
        rows = [[Fraction(float(v)) for v in row] for row in factor]
        out = [
            [
                sum((a * row[j] for a, row in zip(line, out, strict=True)), Fraction(0))
                for j in range(len(out))
            ]
            for line in rows
        ]
    return out


def ball_product(factors):
    with flint.ctx.workprec(128):
        out = balls(np.eye(len(factors[0])))
        for factor in factors:
            out = balls(factor).dot(out)
    return out


@pytest.fixture
def factors():
    return list(np.random.default_rng(0).normal(size=(6, 4, 4)))


def test_entry_error_is_the_exact_one(factors):
    exact = exact_product(factors)
    answer = np.eye(4)
    for factor in factors:
        answer = factor @ answer
    errors = [abs(Fraction(answer[i, j]) - exact[i][j]) for i in range(4) for j in range(4)]
    found = entry_error(ball_product(factors), answer)
    assert Fraction(found.lower) <= max(errors) <= Fraction(found.upper)
    assert found.upper - found.lower < 1e-25
    total = frobenius_error(ball_product(factors), answer)
    square = sum(e**2 for e in errors)
    assert Fraction(total.lower) ** 2 <= square <= Fraction(total.upper) ** 2


@pytest.mark.parametrize("off", [1e-3, 1e-10, 1e-13])
def test_a_perturbed_answer_is_proved_wrong(factors, off):
    matrix = ball_product(factors)
    answer = np.array([[float(e.mid()) for e in row] for row in matrix])
    good = entry_error(matrix, answer)
    bad = answer.copy()
    bad[2, 1] += off
    found = entry_error(matrix, bad)
    assert good.upper < off / 10
    assert found.lower > good.upper  # no number in the balls is the perturbed one
    assert found.lower > 0.9 * off


@pytest.mark.parametrize("seed", range(5))
def test_singular_values_are_those_of_mpmath(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(5, 5))
    if seed == 1:
        matrix[:, 4] = matrix[:, 0]  # an exact zero
    if seed == 2:
        matrix = np.diag([3.0, 3.0, 3.0, 1e-20, 0.0])
    if seed == 3:
        matrix = matrix * 1e-200
    with mpmath.workdps(60):
        gram = mpmath.matrix(matrix.tolist())
        exact = sorted(mpmath.svd_r(gram, compute_uv=False), reverse=True)
    with flint.ctx.workprec(200):
        found = singular_value_enclosures(balls(matrix))
    scale = float(exact[0])
    for interval, value in zip(found, exact, strict=True):
        slack = 1e-40 * scale  # of the 60 digits
        assert interval.lower - slack <= value <= interval.upper + slack
        assert interval.upper - interval.lower < 1e-13 * scale


def test_a_wrong_singular_value_is_outside():
    found = singular_value_enclosures(balls(np.diag([2.0, 1.0])))
    assert 2.0 in found[0]
    assert 2.0 * (1 + 1e-13) not in found[0]
    assert found[0].error_of(2.0) < 1e-14
    assert found[0].error_of(2.5) >= 0.5


def test_wide_balls_give_wide_intervals():
    """All matrices within the radius: the extreme ones have singular values 2.1 and 1.9."""
    matrix = np.array([[flint.arb(2, 0.1), flint.arb(0)], [flint.arb(0), flint.arb(1)]], object)
    first = singular_value_enclosures(matrix)[0]
    assert first.lower <= 1.9
    assert first.upper >= 2.1
    assert first.upper < 2.3


def test_an_interval_is_rounded_outwards():
    with flint.ctx.workprec(100):
        third = enclosure(flint.arb(1) / 3)
    assert Fraction(third.lower) < Fraction(1, 3) < Fraction(third.upper)
    assert third.upper == np.nextafter(third.lower, 1)
    assert enclosure(flint.arb(0.5)) == Interval(0.5, 0.5)


def test_mistakes_are_named(monkeypatch):
    with pytest.raises(DomainError, match="ball: expected a finite enclosure"):
        enclosure(flint.arb("nan"))
    with pytest.raises(DomainError, match="within double precision"):
        enclosure(flint.arb(10) ** 400)
    with pytest.raises(ShapeError, match=r"answer: expected shape \(2, 2\), got \(2, 3\)"):
        entry_error(balls(np.eye(2)), np.ones((2, 3)))
    with pytest.raises(ShapeError, match="matrix: expected a square matrix"):
        singular_value_enclosures(balls(np.ones((2, 3))))
    with pytest.raises(WeightError, match="values: expected finite entries"):
        balls([np.nan])
    monkeypatch.setitem(__import__("sys").modules, "flint", None)
    with pytest.raises(MissingExtraError, match=r"install normderive\[certified\]"):
        certified.flint()
