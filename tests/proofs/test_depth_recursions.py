"""The recursions that the depth theorems rest on, against formulas by hand and against relu."""

import pytest
import sympy as sp

from derive.proof import Identity
from derive.symbols import L, l
from proofs.depth._shared import b, f, general, law, v

AT = {v: 1.7, f: 0.4, b: 0.9, L: 5, l: 3}
V, F, B, DEPTH, NUMBER = AT[v], AT[f], AT[b], AT[L], AT[l]

BY_HAND = {
    "post": (1, (1 + B) / (V + F * V)),
    "pre": (V + F, 1 + B / V),
    "sandwich": (V + 1, 1 + B / (F * V)),
    "res-post": (V + 1, 1 + B / (F * V)),
    "no-norm": (V + F * V, 1 + B),
    "deepnorm": (1, (DEPTH**0.5 + B) / (DEPTH**0.5 * V + F * V)),
    "keel": (1, (DEPTH**2 + B / V) / (DEPTH**2 * V + F)),
    "lns": (V + F / NUMBER, 1 + B / (NUMBER * V)),
    "scaled-residual": (V + F / DEPTH, 1 + B / (DEPTH * V)),
}
RELU = {f: sp.Rational(1, 2), b: sp.Rational(1, 2)}


@pytest.mark.parametrize("placement", BY_HAND)
def test_general_recursion_by_hand(placement):
    found = general(placement)()
    forward, gradient = BY_HAND[placement]
    assert float(found.forward.subs(AT)) == pytest.approx(forward, rel=1e-12)
    assert float(found.gradient.subs(AT)) == pytest.approx(gradient, rel=1e-12)
    assert float(found.gradient.subs({**AT, b: 1.0})) != pytest.approx(gradient, rel=1e-3)


@pytest.mark.parametrize("placement", BY_HAND)
def test_relu_is_a_branch_of_one_half_and_one_half(placement):
    of_any, of_relu = general(placement)(), law(placement)()
    for name in ("forward", "gradient"):
        difference = getattr(of_any, name).subs(RELU) - getattr(of_relu, name)
        assert sp.simplify(difference) == 0


@pytest.mark.parametrize("placement", ["post", "pre", "keel", "lns"])
def test_paths_add_to_the_gain(placement):
    """The gain is the skip and what returns through the branch: at b = 0 the skip alone."""
    found = general(placement)()
    assert sp.simplify(found.gradient.subs(b, 0) - found.skip) == 0


def test_a_composed_side_prints_by_its_name():
    check = Identity(claim=lambda s: (s, f + v), of=lambda: f + v, instead=lambda: f, name="v_1")
    assert check.formula().text == "v_1 = f + v"
    assert check.certificate().holds
