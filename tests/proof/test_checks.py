"""The pieces of the kernel by themselves: what each must accept, and what it must refuse."""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Diag, Ones, Vector
from derive.errors import DomainError
from derive.proof import (
    Assumption,
    Counterexample,
    Expectation,
    Gaussian,
    Identity,
    Induction,
    MonteCarlo,
    Observed,
)
from derive.proof.assumption import satisfying
from derive.proof.check import differ
from derive.proof.counterexample import agrees
from derive.proof.interval import Interval
from derive.proof.montecarlo import LEVEL, LOOKS
from derive.proof.perturb import wrong_sides
from derive.proof.scalars import common_gammas, same
from derive.symbols import L, d, eps

x = derive.state("x")
one = Ones(d)
p, q = sp.symbols("p q", positive=True)
z = sp.Symbol("z", real=True)


# -- equality of scalars


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((p + q) ** 2, p**2 + 2 * p * q + q**2),
        (sp.gamma(p + 2), p * (p + 1) * sp.gamma(p)),
        (1 / (sp.sqrt(p) - sp.sqrt(q)) * (p - q), sp.sqrt(p) + sp.sqrt(q)),
        (sp.gamma(p + sp.Rational(3, 2)) / sp.gamma(p + sp.Rational(1, 2)), p + sp.S.Half),
        (sp.exp(p) * sp.exp(q), sp.exp(p + q)),
    ],
    ids=str,
)
def test_scalars_that_are_equal(left, right):
    assert same(left, right)
    assert not same(left, right * sp.Rational(101, 100))
    assert not same(left, right + sp.Rational(1, 10**6))
    assert not same(left, -right)


def test_equal_at_a_point_is_not_equal():
    assert not same(p**2, p)
    assert not same(sp.Abs(z), z)


def test_gammas_that_do_not_differ_by_integers_stay():
    expr = sp.gamma(p) * sp.gamma(p + sp.S.Half)
    assert common_gammas(expr) == expr


# -- what differs


def test_differ_tells_generic_expressions_apart_and_no_others():
    J = derive.jacobian(derive.LayerNorm()(x), x)
    assert not differ(J * one, 0 * x)
    assert differ(J * x, 0 * x)
    assert differ(J, J.T)
    assert differ(J * x, x.T)  # shapes
    assert not differ(J.xreplace({eps: sp.S.Zero}) * x, 0 * x)


# -- wrong versions of an equation


def test_wrong_sides_are_wrong_and_of_every_kind():
    left, right = Diag(Vector("g", d)) * (x + one), Diag(Vector("g", d)) * x + Vector("g", d)
    assert not differ(left, right)
    found = wrong_sides((left, right), lambda sides: differ(*sides))
    assert {kind for kind, sides in found.items() if sides} == {"sign", "factor", "term", "zero"}
    assert all(differ(*sides) for changed in found.values() for sides in changed)


def test_a_change_that_leaves_the_equation_true_is_none():
    found = wrong_sides((sp.S.Zero * p, sp.S.Zero), lambda sides: sides[0] != sides[1])
    assert found["sign"] == found["factor"] == []
    assert found["term"]


# -- assumptions


def test_assumptions_that_contradict_each_other():
    zero, unit = (Assumption(f"eps-{v}", "", ((eps, v),)) for v in (0, 1))
    assert satisfying([zero]) == {eps: 0}
    with pytest.raises(DomainError, match="no input satisfies both"):
        satisfying([zero, unit])


def test_relations_that_nothing_satisfies():
    wide, narrow = Assumption("wide", "", (), d > 3), Assumption("narrow", "", (), d < 3)
    assert satisfying([wide])[d] > 3
    with pytest.raises(DomainError, match="nothing was found that satisfies wide, narrow"):
        satisfying([wide, narrow])


def test_an_assumption_that_makes_a_relation_false():
    fixed = Assumption("d-two", "", ((d, 2),))
    with pytest.raises(DomainError, match="nothing was found"):
        satisfying([fixed, Assumption("wide", "", (), d > 3)])


# -- digits of a counterexample


@pytest.mark.parametrize(
    ("value", "stated", "agree"),
    [
        (Fraction(1, 3), "0.333", True),
        (Fraction(1, 3), "0.3333333", True),
        (Fraction(1, 3), "0.334", False),
        (Fraction(1, 3), "0.3334", False),
        (Fraction(2, 3), "0.667", True),
        (Fraction(2, 3), "0.666", False),
        (24, "24", True),
        (Fraction(2401, 100), "24", False),
        (Fraction(123456), "1.23e5", True),
        (Fraction(123600), "1.23e5", False),
        (Fraction(-1, 4), "-0.250", True),
        (Fraction(-1, 4), "0.250", False),
    ],
)
def test_a_stated_number_agrees_to_its_last_digit(value, stated, agree):
    assert agrees(Interval(value), stated) is agree


@pytest.mark.parametrize("stated", ["0.33", "1.2", "about 3", "", "1e5"])
def test_too_few_digits_are_refused(stated):
    with pytest.raises(DomainError, match="stated: expected"):
        agrees(Interval(Fraction(1, 3)), stated)


def test_a_witness_has_to_be_on_the_right_side():
    def check(relation, stated=("2", "1")):
        return Counterexample(
            claim=lambda v: (v, sp.S.One),
            of=lambda: sp.Integer(2),
            instead=lambda: sp.S.One,
            relation=relation,
            stated=stated,
        )

    assert check(">").certificate().holds
    assert check("!=").certificate().holds
    assert not check("<").certificate().holds
    assert not check(">", ("3", "1")).certificate().holds
    with pytest.raises(DomainError, match="relation"):
        check(">=")


# -- induction, expectations, observations


def test_induction_needs_start_and_step():
    def check(closed, start=sp.S.One, ways=2):
        return Induction(
            claim=lambda k: (closed, start, lambda y, _: k * y), of=lambda: ways, instead=lambda: 3
        )

    assert check(2**L).certificate().holds
    assert "the start fails" in check(2**L, sp.Integer(2)).certificate().detail
    assert "the step fails" in check(1 + L).certificate().detail


def test_expectations_are_exact():
    square = Gaussian(
        claim=lambda f: (Expectation(f(z), z), sp.S.One), of=lambda: lambda v: v**2, instead=None
    )
    assert square.certificate().holds
    fourth = Gaussian(
        claim=lambda f: (Expectation(f(z), z), sp.S.One), of=lambda: lambda v: v**4, instead=None
    )
    assert not fourth.certificate().holds
    assert Expectation(z**4, z).quadrature() == pytest.approx(3, rel=1e-10)


def test_an_observation_is_exact_where_it_states_an_integer():
    def check(found, stated):
        return Observed(
            claim=lambda v: v, of=lambda: found, instead=None, stated=stated, quantity="n"
        )

    assert check(12, "12").certificate().holds
    assert not check(12.0001, "12").certificate().holds
    assert check(0.12345, "0.123").certificate().holds
    assert not check(0.1236, "0.123").certificate().holds


# -- looks of a Monte Carlo check


def _mean(value, spread=1.0, mean=5.0, first=2000):
    def draw(rng, size):
        sizes.append(size)
        return rng.normal(mean, spread, size)

    sizes = []
    check = MonteCarlo(
        claim=lambda d: (d, value), of=lambda: draw, instead=None, quantity="z", first=first
    )
    return check, sizes


def test_looks_double_and_stop_by_width_alone():
    right, sizes = _mean(5)
    wrong, again = _mean(7)
    assert right.certificate().holds
    assert not wrong.certificate().holds
    assert sizes == again  # where the claim lies has no influence on when to stop
    assert sizes[:3] == [2000, 2000, 4000]


def test_there_is_a_last_look():
    check, sizes = _mean(5, spread=1e4, first=10)
    certificate = check.certificate()
    assert not certificate.holds
    assert "too wide" in certificate.detail
    assert len(sizes) == LOOKS


def test_a_wrong_claim_by_one_percent_is_outside():
    check, _ = _mean(5.05)
    assert not check.certificate().holds


def test_true_claims_are_accepted_whatever_the_seed():
    """True claims: at level 1e-4 none of 5 seeds fails, except with probability 0.0005."""
    draws = [
        MonteCarlo(
            claim=lambda _: (lambda rng, size: rng.exponential(1.0, size), 1),
            of=lambda: None,
            instead=None,
            quantity="z",
            seed=seed,
        )
        for seed in range(5)
    ]
    assert LEVEL <= 1e-4
    assert all(check.certificate().holds for check in draws)


def test_samples_have_to_be_finite():
    check = MonteCarlo(
        claim=lambda _: (lambda rng, size: np.full(size, np.nan), 1),
        of=lambda: None,
        instead=None,
        quantity="z",
    )
    with pytest.raises(DomainError, match="finite samples"):
        check.certificate()


def test_an_identity_rejects_every_wrong_version_of_itself():
    check = Identity(
        claim=lambda norm: (derive.jacobian(norm(x), x) * one, 0 * x),
        of=derive.LayerNorm,
        instead=derive.RMSNorm,
    )
    assert check.certificate().holds
    kinds = {
        kind: [w.certificate().holds for k, w in check.wrong() if k == kind]
        for kind in ("sign", "factor", "term", "zero", "placement")
    }
    assert all(holds and not any(holds) for holds in kinds.values())
