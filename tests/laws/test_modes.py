"""Laws of uniform attention in closed form, and leading terms, against recursions."""

import math

import pytest
import sympy as sp

from derive.blocks.placements import PLACEMENTS
from derive.errors import DomainError
from derive.laws.asymptotic import leading
from derive.laws.law import DepthLaw
from derive.laws.modes import A, B
from derive.symbols import L

SINGLE = [name for name, entry in PLACEMENTS.items() if not entry.is_layer]
TOKENS, RHO, R = 6, 0.2, 0.7
SHARE, BACK = ((1 + (TOKENS - 1) * r) / TOKENS for r in (RHO, R))


@pytest.mark.parametrize("placement", SINGLE)
def test_forward_moments_are_the_law_of_the_gradient(placement):
    """B m_L/m_0 + (1 - B) delta_L/delta_0, for every placement; with B of another r it is not."""
    law = DepthLaw(placement, sublayers=("attention",), tokens=TOKENS)
    found = law.predict(7, correlation=RHO, gradient_correlation=R)
    first, last = found.forward[0], found.forward[-1]
    mean = (last.v + (TOKENS - 1) * last.c) / (first.v + (TOKENS - 1) * first.c)
    apart = (last.v - last.c) / (first.v - first.c)
    assert found.gradient_ratio == pytest.approx(BACK * mean + (1 - BACK) * apart, rel=1e-10)
    if placement != "rezero":
        assert found.gradient_ratio != pytest.approx(SHARE * mean + (1 - SHARE) * apart, rel=1e-3)


def test_random_scores_do_not_obey_it():
    law = DepthLaw("post", sublayers=("attention",), tokens=TOKENS, scores="gaussian")
    found = law.predict(7, correlation=RHO, gradient_correlation=R)
    first, last = found.forward[0], found.forward[-1]
    mean = (last.v + (TOKENS - 1) * last.c) / (first.v + (TOKENS - 1) * first.c)
    apart = (last.v - last.c) / (first.v - first.c)
    assert found.gradient_ratio != pytest.approx(BACK * mean + (1 - BACK) * apart, rel=1e-3)


SOLVED = {
    "post": ((1 + B * (2**L - 1)) / (1 + A * (2**L - 1)), B / A),
    "pre": (None, B * L / A),
    "sandwich": (1 + B * L / A, B * L / A),
    "no-norm": (1 + B * (2**L - 1), B * 2**L),
    "lns": (None, B * sp.log(L) / A),
}


@pytest.mark.parametrize("placement", SOLVED)
def test_solutions_meet_the_recursion(placement):
    law = DepthLaw(placement, sublayers=("attention",), tokens=TOKENS)
    solved = law.token_solution
    gradient, far = SOLVED[placement]
    for layers in (1, 2, 9):
        found = law.predict(layers, correlation=RHO, gradient_correlation=R)
        given = {"forward": found.growth} if solved.forward is None else {}
        forward, ratio = solved.at(layers, TOKENS, RHO, R, **given)
        assert forward == pytest.approx(found.growth, rel=1e-12)
        assert ratio == pytest.approx(found.gradient_ratio, rel=1e-12)
        if gradient is not None:
            sizes = {L: layers, A: SHARE, B: BACK}
            assert ratio == pytest.approx(float(gradient.subs(sizes)), rel=1e-12)
    assert sp.simplify(solved.asymptotic[1] - far) == 0


def test_leading_terms_of_attention_are_where_the_recursion_goes():
    """At L = 3000; sums of 1/v cost a logarithm of L beside L."""
    for placement, slack in (("post", 1e-9), ("sandwich", 1e-3), ("pre", 2e-2)):
        law = DepthLaw(placement, sublayers=("attention",), tokens=TOKENS)
        found = law.predict(3000, correlation=RHO, gradient_correlation=R)
        sizes = {L: 3000, A: SHARE, B: BACK}
        for value, term in zip(
            (found.growth, found.gradient_ratio), law.token_solution.asymptotic, strict=True
        ):
            assert value == pytest.approx(float(sp.sympify(term).subs(sizes)), rel=slack)
            assert value != pytest.approx(2 * float(sp.sympify(term).subs(sizes)), rel=0.4)


def test_an_unsolved_law_asks_for_its_forward_value():
    solved = DepthLaw("pre", sublayers=("attention",), tokens=4).token_solution
    with pytest.raises(DomainError, match="forward: expected v_L, which is not solved, got none"):
        solved.at(3, 4)


def test_post_norm_attention_stays_between_one_over_n_and_n():
    gradient = DepthLaw("post", sublayers=("attention",), tokens=4).token_solution.gradient
    for a, b in ((0.25, 1), (1, 0.25), (0.25, 0.25)):
        assert float(gradient.subs({A: a, B: b, L: 200})) == pytest.approx(b / a)


@pytest.mark.parametrize(
    ("expr", "want"),
    [
        (L / 2 + 1, L / 2),
        (1 + sp.harmonic(L) / 2, sp.log(L) / 2),
        (sp.Rational(3, 2) ** L + L**5, sp.Rational(3, 2) ** L),
        (sp.Rational(1, 2) ** L, sp.Rational(1, 2) ** L),
        (sp.Rational(1, 2) ** L + 1 / L, 1 / L),
        (sp.gamma(L + 3) / sp.gamma(L + sp.Rational(1, 2)), L ** sp.Rational(5, 2)),
        ((L + 1) / (2 * L + sp.sqrt(L)), sp.Rational(1, 2)),
        (((L**2 + 1) / (L**2 + 2)) ** L, 1),
        (((L + 1) / (L + 3)) ** L, sp.exp(-2)),
        (sp.Piecewise((5, L <= 36), (L, True)) + 1, L),
        (sp.sin(L), None),
        (sp.gamma(L), None),
        (((sp.sqrt(L) + 1) / (sp.sqrt(L) + 2)) ** L, None),
    ],
)
def test_leading_terms(expr, want):
    found = leading(expr)
    assert found == want or sp.simplify(found - want) == 0


@pytest.mark.parametrize(
    ("placement", "sublayer", "forward", "power"),
    [
        ("pre", "ffn:gelu", L, 1.072032),
        ("pre", "ffn:relu", L / 2, 1.0),
        ("lns", "ffn:relu", sp.log(L) / 2, 0.0),
        ("admin", "ffn:gelu", sp.S.One, 0.072032),
        ("post", "ffn:relu", sp.S.One, 0.0),
    ],
)
def test_laws_have_leading_terms(placement, sublayer, forward, power):
    """The power of L in the gradient law: b/a of gelu is 1.072032."""
    law = DepthLaw(placement, sublayers=(sublayer,))
    ahead, behind = law.solution.asymptotic
    constants = dict(law.solution.where)
    growth = sp.log(behind.subs(constants).subs(L, 10**8) / behind.subs(constants).subs(L, 10**7))
    assert float(growth) / math.log(10) == pytest.approx(
        power, abs=0.06 if forward.has(sp.log) else 1e-5
    )
    assert not (ahead.subs(constants) / forward).has(L)
    exact = law.solution.at(4000)
    for value, term in zip(exact, (ahead, behind), strict=True):
        assert value == pytest.approx(float(term.subs(constants).subs(L, 4000)), rel=0.35)
