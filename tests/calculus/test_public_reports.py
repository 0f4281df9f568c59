"""Situations met in public reports, each with the value or the verdict that is right.

The numbers after ``case`` are those of the project's collection; printed values have 8 digits.
"""

from __future__ import annotations

import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector, eye
from derive.calculus.explicit import explicit
from derive.calculus.let import ScalarLet
from derive.calculus.normal_form import equal, is_zero
from derive.calculus.tensor import product
from derive.symbols import alpha, d, eps

x = derive.state("x")
one, gain, dy = Ones(d), Vector("gain", d), Vector("dy", d)
W = Matrix("W", d, d)
F = derive.Sublayer("F")
LN, RMS = derive.LayerNorm(bias=False), derive.RMSNorm()
C = eye(d) - one * one.T / d


def named(block):
    """Return the Jacobian of a block and its named quantities."""
    D = derive.derivation(block, x)
    return D.jacobian, {v.name: v for v in D.lets}


def backward(block, values):
    """Return J' dy at given values: exact rationals, printed to 10 digits."""
    values = {k: _rational(v) for k, v in values.items()}
    column = explicit(derive.jacobian(block, x).T * dy, {"d": len(values["x"])}, values=values)
    return [float(v) for v in column.evalf(15)]


def _rational(value):
    return [sp.Rational(str(v)) for v in value] if isinstance(value, list) else sp.Rational(value)


def printed(values):
    return pytest.approx(values, rel=0, abs=1e-8)  # as many digits as the report gives


CASE_01 = {"x": [0.5, -1, 2, 0.25], "gain": [1, 0.5, 2, -1], "dy": [0.1, -0.2, 0.3, 0.7]}


def test_case_01_layernorm_backward_without_its_averages():
    values = CASE_01 | {"eps": "1e-5"}
    right = [0.10152891, 0.29104597, 0.1933916, -0.58596648]
    assert backward(LN(x), values) == printed(right)
    J, q = named(LN(x))
    s, xhat, u = q["s"], q["xhat"], Diag(gain) * dy
    assert equal(J.T * dy, (u - Inner(one, u) / d * one - Inner(xhat, u) / d * xhat) / s)
    for claimed in (
        (u - Inner(one, u) / d * one) / s,
        (u - Inner(xhat, u) / d * xhat) / s,
        (u / s - Diag(xhat) * Diag(u) * xhat / s**2) / d,
    ):
        assert not equal(J.T * dy, claimed)


def test_case_02_the_fourth_term_is_zero():
    J, q = named(derive.LayerNorm(gain=False, bias=False)(x))
    s, xhat = q["s"], q["xhat"]
    three = (dy - Inner(one, dy) / d * one - Inner(xhat, dy) / d * xhat) / s
    four = three + Inner(one, dy) / d * Inner(one, xhat) / d * xhat / s
    assert equal(three, four)
    assert equal(J.T * dy, four)


def bessel(divisor):
    mean = ScalarLet("mean", Inner(one, x) / d)
    centred = x - mean * one
    return product([1 / ScalarLet("s", sp.sqrt(Inner(centred, centred) / divisor)), centred])


def test_case_04_bessels_correction_is_another_norm():
    values = {"x": [1, 2, 4, 8]}
    corrected, biased = (
        explicit(derive.jacobian(bessel(divisor), x), {"d": 4}, values=values)
        for divisor in (d - 1, d)
    )
    plain = derive.LayerNorm(eps=0, gain=False, bias=False)(x)
    assert biased.applyfunc(sp.radsimp) == explicit(
        derive.jacobian(plain, x), {"d": 4}, values=values
    ).applyfunc(sp.radsimp)
    assert (corrected - sp.sqrt(sp.Rational(3, 4)) * biased).applyfunc(sp.radsimp).is_zero_matrix
    assert not equal(derive.jacobian(bessel(d - 1), x), derive.jacobian(plain, x))
    assert equal(derive.jacobian(bessel(d), x), derive.jacobian(plain, x))


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (derive.RMSNorm(), [2.46784814, 1.31404888, 0.8813744]),
        (derive.RMSNorm(gain=False), [1.68582802, 0.86535184, 0.55766775]),
    ],
    ids=["with the gain", "gain forgotten"],
)
def test_case_06_rmsnorm_backward_needs_the_gain(norm, expected):
    values = {"x": [0.3, -1.1, 0.8], "gain": [2, 0.5, -1.5], "dy": [1, 2, -0.5], "eps": "1e-6"}
    assert backward(norm(x), values) == printed(expected)


def test_case_07_the_root_is_not_constant():
    values = {
        "x": [0.3, -1.1, 0.8, 2],
        "gain": [2, 0.5, -1.5, 1],
        "dy": [1, 2, -0.5, 0.25],
        "eps": "0.1",
    }
    dx = backward(RMS(x), values)
    assert dx == printed([1.5660518, 0.87698901, 0.53558971, 0.0482344])
    assert sum(a * b for a, b in zip(values["x"], dx, strict=True)) == printed(0.03006819448)
    J, q = named(RMS(x))
    assert equal(Inner(x, J.T * dy), eps / q["r"] ** 3 * Inner(x, Diag(gain) * dy))
    claimed = Diag(gain) * dy / q["r"]
    assert not equal(J.T * dy, claimed)
    assert equal(claimed - J.T * dy, Inner(x, Diag(gain) * dy) / d * x / q["r"] ** 3)


def test_case_08_the_residual_cotangent_bypasses_the_norm():
    values = {"x": [1, 2, -1], "residual": [0.5, -0.5, 3], "dy": [1, -1, 2], "eps": "1e-6"}
    block = derive.RMSNorm(gain=False)(x + Vector("residual", d))
    own = backward(block, values)
    cotangent = [0.1, 0.2, 0.3]
    right = [a + b for a, b in zip(own, cotangent, strict=True)]
    assert right == printed([0.27473204, -0.81344481, 0.929035])
    both = [a + sp.Rational(str(b)) for a, b in zip(values["dy"], cotangent, strict=True)]
    wrong = backward(block, values | {"dy": both})
    assert wrong == printed([0.12405983, -1.00470817, 0.66048679])


def test_case_09_the_sum_of_layernorm_has_no_gradient():
    plain = derive.jacobian(derive.LayerNorm(gain=False)(x), x)
    assert is_zero(one.T * plain)
    assert not is_zero(one.T * derive.jacobian(LN(x), x))
    assert not is_zero(one.T * derive.jacobian(derive.RMSNorm(gain=False)(x), x))


def test_case_28_skip_after_the_norm_has_no_identity_path():
    J = derive.jacobian(derive.block("c = N(x); c + F(c)"), x)
    assert is_zero(J * one)
    assert not is_zero(derive.jacobian(derive.block("pre"), x) * one)


def test_case_35_layernorm_is_rmsnorm_after_centring():
    centred = derive.jacobian(derive.RMSNorm(gain=False)(C * x), x)
    plain = derive.jacobian(derive.LayerNorm(gain=False)(x), x)
    assert equal(centred, plain)
    assert not equal(derive.jacobian(derive.RMSNorm(gain=False)(x), x), plain)
    values = {"x": [1, -2, 3, -2], "eps": sp.Rational(7, 4) ** 2 - sp.Rational(9, 2) + 4}
    rms = derive.jacobian(derive.RMSNorm(gain=False)(x), x)
    difference = explicit(rms - plain, {"d": 4}, values=values)
    root = sp.sqrt(sp.Rational(18, 4) + values["eps"])
    assert (difference - sp.ones(4, 4) / (4 * root)).applyfunc(sp.radsimp).is_zero_matrix


def test_case_38_euler_degree_tells_multiplying_from_dividing():
    r = ScalarLet("r", sp.sqrt(Inner(x, x) / d))
    wrong = r * x  # x / rsqrt(ms)
    J = derive.jacobian(wrong, x)
    assert equal(J, r * eye(d) + x * x.T / (d * r))
    assert equal(J * x, 2 * wrong)
    assert is_zero(derive.jacobian(derive.RMSNorm(eps=0)(x), x) * x)


def test_case_40_alpha_on_the_branch_is_another_block():
    right, wrong = derive.block("N(alpha*x + F(x))"), derive.block("N(x + alpha*F(x))")
    assert str(derive.jacobian(right, x)).endswith("(alpha I + DF(x))")
    assert str(derive.jacobian(wrong, x)).endswith("(I + alpha DF(x))")
    assert not equal(derive.jacobian(right, x), derive.jacobian(wrong, x))
    norm, values = derive.LayerNorm(eps=0), {"x": [1, 2, 4], "gain": [2, 1, -1], "alpha": 3}
    scaled, plain = (
        explicit(derive.jacobian(block, x), {"d": 3}, values=values).applyfunc(sp.radsimp)
        for block in (norm(alpha * x), norm(x))
    )
    assert scaled == plain  # with a zero branch alpha cancels


def test_case_44_folding_the_gain_is_exact_before_a_linear_map_only():
    plain = derive.LayerNorm(gain=False, bias=False)
    folded = W * Diag(gain)
    assert equal(derive.jacobian(x + W * LN(x), x), derive.jacobian(x + folded * plain(x), x))
    h, h0 = LN(x), plain(x)
    assert not equal(derive.jacobian(h + W * h, x), derive.jacobian(h0 + folded * h0, x))
    _, q = named(plain(x))
    assert equal(folded * q["xhat"], folded * C * q["xhat"])
    y = Diag(gain) * q["xhat"]
    assert not equal(W * y, W * C * y)


def test_case_49_a_sum_of_squared_norms_has_a_gradient():
    v = Vector("v", d)
    J = derive.jacobian((Inner(x, x) + Inner(W * x, W * x)) * v, x)
    assert equal(J, 2 * v * x.T + 2 * v * x.T * W.T * W)
    assert not is_zero(J)


def test_case_50_one_layout():
    assert derive.jacobian(W * x, x) == W
    values = {"W": [[1, 2], [3, 4]], "x": [5, 6]}
    assert explicit(derive.jacobian(W * x, x), {"d": 2}, values=values) == sp.Matrix(values["W"])
    product_of_two = derive.jacobian(W * F(x), x)
    assert str(product_of_two) == "W DF(x)"


def test_case_71_layernorm_does_not_bound_the_gradient():
    J, q = named(derive.LayerNorm(gain=False)(x))
    s, identity = q["s"], eye(d)
    assert is_zero(J * (J - identity / s) * (J - eps / s**3 * identity))
    assert not is_zero(J * (J - identity / s))
    assert not is_zero((J - identity / s) * (J - eps / s**3 * identity))
    centred = x - q["mean"] * one
    assert equal(J * centred, eps / s**3 * centred)
    free = derive.jacobian(derive.LayerNorm(eps=0, gain=False)(x), x)
    small, large = (
        explicit(free, {"d": 3}, values={"x": [c * v for v in (1, 2, 4)]}).applyfunc(sp.radsimp)
        for c in (1, 1000)
    )
    assert small == 1000 * large
