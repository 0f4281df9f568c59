"""Rules of bounds: what they show holds in numbers, and what they must not show."""

import numpy as np
import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector, eye
from derive.proof import (
    AtMost,
    Bound,
    Contraction,
    MaxAbs,
    NormFact,
    SmallestSingular,
    SpectralNorm,
)
from derive.proof.bound import upper
from derive.proof.interval import IntervalRing, sizes_at
from derive.proof.size import measured
from derive.symbols import d, eps

A, B = Matrix("A", d, d), Matrix("B", d, d)
g, v = Vector("g", d), Vector("v", d)
one, identity = Ones(d), eye(d)
centring = identity - one * one.T / d
x = derive.state("x")
t = sp.Symbol("t", real=True)


def _bound(left, right, facts=()):
    return Bound(
        claim=lambda _: (left, right), of=lambda: None, instead=lambda: None, facts=lambda _: facts
    )


@pytest.mark.parametrize(
    "matrix",
    [A + B, A * B, t * A, Diag(g) * A, centring * A, A.T - 2 * B, A * v, g * v.T, identity + A * B],
    ids=str,
)
def test_upper_bound_is_above_the_norm(matrix):
    bound, trace = upper(matrix)
    assert trace
    for seed in range(6):
        ring = IntervalRing(seed)
        at = sizes_at(3 + seed % 2)
        assert measured(SpectralNorm(matrix), ring, at) <= measured(bound, ring, at) * (1 + 1e-12)


TRUE = {
    "triangle": (SpectralNorm(A + B), SpectralNorm(A) + SpectralNorm(B)),
    "projection": (SpectralNorm(centring * A), SpectralNorm(A)),
    "homogeneity": (SpectralNorm(-3 * A), 3 * SpectralNorm(A)),
    "exponential": (SpectralNorm(identity + A), sp.exp(SpectralNorm(A))),
    "Weyl": (1 - SpectralNorm(A), SmallestSingular(identity + A)),
    "smallest of a product": (SmallestSingular(A) * SmallestSingular(B), SmallestSingular(A * B)),
}
FALSE = {
    "triangle without a term": (SpectralNorm(A + B), SpectralNorm(A)),
    "sum in place of a product": (
        SpectralNorm((identity + A) * (identity + B)),
        1 + SpectralNorm(A) + SpectralNorm(B),
    ),
    "no projection": (SpectralNorm((identity + centring) * A), SpectralNorm(A)),
    "two lower bounds below zero": (
        (1 - SpectralNorm(A)) * (1 - SpectralNorm(B)),
        SmallestSingular((identity + A) * (identity + B)),
    ),
    "an upper bound of what is subtracted": (
        -SpectralNorm(A + B),
        -SpectralNorm(A) - SpectralNorm(B),
    ),
    "an upper bound of a divisor": (
        1 / SpectralNorm(A + B),
        1 / (SpectralNorm(A) + SpectralNorm(B)),
    ),
    "a lower bound of what is subtracted": (
        1 - SmallestSingular(identity + A),
        SpectralNorm(A) - SmallestSingular(identity + A),
    ),
}


@pytest.mark.parametrize("sides", TRUE.values(), ids=TRUE)
def test_bound_is_shown(sides):
    assert _bound(*sides).certificate().holds


@pytest.mark.parametrize("sides", FALSE.values(), ids=FALSE)
def test_bound_is_not_shown(sides):
    assert not _bound(*sides).certificate().holds


@pytest.mark.parametrize("sides", FALSE.values(), ids=FALSE)
def test_bound_is_not_shown_by_the_rules_alone(sides, monkeypatch):
    """Without the random inputs, which would refute it: the rules are sound by themselves."""
    monkeypatch.setattr(Bound, "_closest", lambda *_: 0.5)
    assert not _bound(*sides).certificate().holds


def test_a_contraction_that_is_none():
    assert Contraction(centring).holds()
    assert Contraction(centring / 2, [(sp.Rational(1, 4), centring * v)]).holds() is False
    assert not Contraction(2 * centring).holds()
    assert not Contraction(A).holds()
    wrong_sign = Contraction(identity - v * v.T, [(-1, v)])
    assert not wrong_sign.holds()
    refused = _bound(SpectralNorm(2 * centring), sp.S.One, [Contraction(2 * centring)])
    assert not refused.certificate().holds


def test_at_most_needs_its_slack():
    good = AtMost(1 / sp.sqrt(eps + d), 1 / sp.sqrt(eps), d, power=-2)
    assert good.holds()
    assert not AtMost(1 / sp.sqrt(eps + d), 1 / sp.sqrt(eps), d + 1, power=-2).holds()
    assert not AtMost(1 / sp.sqrt(eps), 1 / sp.sqrt(eps + d), -d, power=-2).holds()


def test_the_length_of_a_normalised_vector():
    found = derive.derivation(derive.RMSNorm()(x), x)
    xhat = next(q for q in found.lets if q.name == "xhat")
    r = next(q for q in found.lets if q.name == "r")
    fact = AtMost(SpectralNorm(xhat), sp.sqrt(d), d * eps / r**2, power=2)
    assert fact.holds()
    assert _bound(SpectralNorm(xhat), sp.sqrt(d), [fact]).certificate().holds
    shorter = AtMost(SpectralNorm(xhat), sp.sqrt(d - 1), d * eps / r**2, power=2)
    assert not shorter.holds()
    assert not _bound(SpectralNorm(xhat), sp.sqrt(d - 1), [shorter]).certificate().holds


def test_a_fact_is_named_in_the_detail():
    fact = NormFact(A, sp.S.One, "somewhere")
    bound, trace = upper(A * B, [fact])
    assert bound == SpectralNorm(B)
    assert "theorem somewhere" in trace
    # a fact that is not true is refuted by random inputs
    assert not _bound(SpectralNorm(A), sp.S.One, [fact]).certificate().holds


def test_sizes_of_an_array():
    ring, at = IntervalRing(2), sizes_at(3)
    array = np.array([[1.0, -7.0], [2.0, 3.0]])
    assert SpectralNorm.of(array) == pytest.approx(np.sqrt(np.linalg.eigvalsh(array.T @ array)[-1]))
    product = SmallestSingular.of(array) * SpectralNorm.of(array)
    assert product == pytest.approx(abs(np.linalg.det(array)))
    assert MaxAbs.of(array) == 7.0
    expected = sp.Max(0, 1 - SpectralNorm(A))
    assert measured(expected, ring, at) == max(0.0, 1 - measured(SpectralNorm(A), ring, at))
    assert measured(Inner(v, v) + 1, ring, at) > 1
