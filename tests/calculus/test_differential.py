"""Each rule of the differential against central differences of its own expression."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import sympy as sp

import derive
from derive import symbols
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector
from derive.calculus.explicit import explicit
from derive.calculus.instantiate import Instantiation
from derive.calculus.let import ScalarLet, let
from derive.symbols import alpha, d

from . import oracles
from .measured import STEP, TOLERANCE, MpmathRing

x = derive.state("x")
one, gain, W = Ones(d), Vector("gain", d), Matrix("W_Q", d, d)
F = derive.Sublayer("F")
tanh = derive.activation("tanh")
square = Inner(x, x)
u = let("u", x + F(x))

RULES = {
    "sum": x + gain - 3 * x,
    "linear map": W * x + alpha * x,
    "product of scalar and vector": square * x,
    "product of three scalars": square * Inner(gain, x) * Inner(x, W * x) * gain,
    "quotient": x / (1 + square),
    "quotient of scalars": Inner(gain, x) / (2 + square) * gain,
    "power": square**3 * gain,
    "root": sp.sqrt(1 + square) * x,
    "reciprocal root": x / sp.sqrt(1 + square),
    "exponential": sp.exp(-square / 50) * x,
    "inner product, bilinear": Inner(x, W * x) * gain,
    "inner product of two functions": Inner(tanh(x), W * F(x)) * gain,
    "element-wise function": tanh(W * x),
    "element-wise product": Diag(tanh(W * x)) * x,
    "element-wise product of three": Diag(x) * Diag(tanh(x)) * (W * x),
    "product of an outer product": gain * (x.T * W * x),
    "abstract map": F(x),
    "abstract map of a map": F(W * F(x)),
    "named vector": u + W * u,
    "named scalar": ScalarLet("s", sp.sqrt(1 + square)) * x,
    "named vector in a scalar": Inner(u, u) * u,
    "constant factor in the middle": Inner(one, x) * (W * (Inner(gain, x) * x)),
}


@pytest.fixture(scope="module")
def weights():
    with mpmath.workdps(60):
        w = oracles.random_weights(3, n=1, heads=1, d_h=3, seed=11)
        w["W_Q"] = w["W_Q"][0]
        return oracles.as_mpmath(w)


def jacobian_and_differences(block, claimed, w):
    with mpmath.workdps(60):
        sizes, columns = {symbols.d: 3}, []
        for k in range(3):
            step = np.array([[mpmath.mpf(int(k == c)) * STEP for c in range(3)]], dtype=object)
            ahead, behind = (
                Instantiation(MpmathRing(w, w["x"] + sign * step), sizes)(block) for sign in (1, -1)
            )
            columns.append((ahead - behind)[:, 0] / (2 * STEP))
        found = Instantiation(MpmathRing(w, w["x"]), sizes)(claimed)
        return oracles.distance(found, np.array(columns, dtype=object).T)


@pytest.mark.parametrize("rule", RULES)
def test_rule_agrees_with_differences(rule, weights):
    block = RULES[rule]
    J = derive.jacobian(block, x)
    assert J.shape == (d, d)
    assert jacobian_and_differences(block, J, weights) < TOLERANCE
    assert jacobian_and_differences(block, -1 * J, weights) > 1


@pytest.mark.parametrize("rule", ["quotient", "product of scalar and vector", "named vector"])
def test_numerator_layout(rule, weights):
    J = derive.jacobian(W * RULES[rule], x)
    assert jacobian_and_differences(W * RULES[rule], J, weights) < TOLERANCE
    assert jacobian_and_differences(W * RULES[rule], J.T, weights) > 0.01


def test_a_rectangular_map_has_a_rectangular_jacobian():
    V = Matrix("V", symbols.f, d)
    J = derive.jacobian(V * derive.LayerNorm()(x), x)
    assert J.shape == (symbols.f, d)
    assert J.args[0] == V


def test_an_abstract_activation_has_named_derivatives():
    J = derive.jacobian(derive.FFN("phi")(x), x)
    assert str(J) == "W_2 diag(phi'(a)) W_1"
    phi = derive.activation("phi")
    twice = derive.jacobian(Diag(phi(x)) * phi(x), x)
    shown = explicit(twice, {"d": 2})
    assert shown[0, 1] == 0
    assert shown[0, 0].has(sp.Function("phi"))


J_N = "diag(gain) (I - 11'/d - xhat xhat'/d)"
J_N1 = "diag(gain_1) (I - 11'/d - xhat_1 xhat_1'/d)"
J_N2 = "diag(gain_2) (I - 11'/d - xhat_2 xhat_2'/d)"
FACTORED = {
    "N(x + F(x))": f"(1/s) {J_N} (I + DF(x))",
    "x + F(N(x))": f"I + DF(N(x)) (1/s) {J_N}",
    "N2(x + F(N1(x)))": f"(1/s_2) {J_N2} (I + DF(N_1(x)) (1/s_1) {J_N1})",
    "h = N1(x + A(x)); N2(h + F(h))": (f"(1/s_2) {J_N2} (I + DF(h)) (1/s_1) {J_N1} (I + DA(x))"),
    "h = x + A(N1(x)); h + F(N2(h))": (
        f"(I + DF(N_2(h)) (1/s_2) {J_N2}) (I + DA(N_1(x)) (1/s_1) {J_N1})"
    ),
    "x + A(N(x)) + F(N(x))": f"I + (DA(N(x)) + DF(N(x))) (1/s) {J_N}",
}


@pytest.mark.parametrize("equation", FACTORED)
def test_the_result_is_factored(equation):
    assert str(derive.jacobian(derive.block(equation), x)) == FACTORED[equation]
