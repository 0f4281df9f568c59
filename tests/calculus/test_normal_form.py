"""The decision procedure: what it proves holds, what differs is not called equal."""

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Reciprocal, Vector, eye
from derive.calculus.explicit import explicit
from derive.calculus.maps import JacobianOf
from derive.calculus.normal_form import equal, is_zero
from derive.calculus.tensor import product, total
from derive.errors import UnknownNodeError
from derive.symbols import alpha, d, eps

x = derive.state("x")
one, gain = Ones(d), Vector("gain", d)
W, V = Matrix("W", d, d), Matrix("V", d, d)
F = derive.Sublayer("F")
A = derive.Attention()
phi = derive.activation("phi")
mixing = derive.jacobian(A(x), x)
scale = derive.derivation(derive.RMSNorm()(x), x).lets[1]  # r, a scalar of each token

EQUAL = {
    "associative": ((W * V) * x, W * (V * x)),
    "distributive": (W * (x + one), W * x + W * one),
    "transposed product": ((W * V).T, V.T * W.T),
    "outer product contracts": ((x * one.T) * x, Inner(one, x) * x),
    "1'1 = d": (one.T * one * x, d * x),
    "diagonals commute": (Diag(gain) * Diag(x), Diag(x) * Diag(gain)),
    "diagonal of ones": (Diag(one), eye(d)),
    "diagonal times ones": (Diag(gain) * one, gain),
    "inverse diagonal": (Diag(gain) * Diag(Reciprocal(gain)), eye(d)),
    "diagonal changes sides": (Diag(gain) * x, Diag(x) * gain),
    "bilinear form transposed": (Inner(x, W * gain), Inner(gain, W.T * x)),
    "root squared": (scale**2, Inner(x, x) / d + eps),
    "root in a denominator": (1 / scale, scale / (Inner(x, x) / d + eps)),
    "root of a quotient": (sp.sqrt(Inner(x, x) / d), sp.sqrt(Inner(x, x)) / sp.sqrt(d)),
    "root of a multiple": (sp.sqrt(4 * Inner(x, x) + 4), 2 * sp.sqrt(Inner(x, x) + 1)),
    "root of a reciprocal": (sp.sqrt(1 / Inner(x, x)) * x, sp.sqrt(1 / Inner(x, x)) * x),
    "SymPy's own product": (2 * eye(d) - eye(d) / d, (2 - 1 / d) * (W * 0 + eye(d))),
    "Jacobians at one point": (JacobianOf(F, W * (x + one)), JacobianOf(F, W * one + W * x)),
    "a function at one point": (phi(x / scale + one), phi(one + scale**-1 * x)),
    "a map at a point given twice": (F(F(x + x)), F(F(2 * x))),
    "constant past a mixing operator": (mixing * (alpha * x), alpha * (mixing * x)),
}
DIFFERENT = {
    "matrices do not commute": (W * V, V * W),
    "not symmetric": (W.T, W),
    "outer product is not its transpose": (x * one.T, one * x.T),
    "form is not symmetric": (Inner(x, W * gain), Inner(x, W.T * gain)),
    "twice": (W * x, 2 * (W * x)),
    "root of a sum": (sp.sqrt(Inner(x, x) + d), sp.sqrt(Inner(x, x)) + sp.sqrt(d)),
    "SymPy's own product": (2 * eye(d), 3 * eye(d)),
    "root is not its square": (scale, Inner(x, x) / d + eps),
    "token scalar past a mixing operator": (mixing * (scale * x), scale * (mixing * x)),
    "token scalar past a transposed mixing operator": (
        mixing.T * (scale * x),
        scale * (mixing.T * x),
    ),
    "form across a mixing operator": (gain * x.T * mixing * one, gain * one.T * mixing.T * x),
    "functions at two points": (phi(x / scale), phi(x / scale**2)),
    "a map at two nested points": (F(F(x + x)), F(F(x))),
    "Jacobians at two points": (JacobianOf(F, x), JacobianOf(F, one)),
    "d is not d - 1": (d * x, (d - 1) * x),
    "scalar against matrix": (Inner(x, x), x * x.T),
    "shapes": (x, x.T),
}


@pytest.mark.parametrize("case", EQUAL)
def test_equal_expressions_are_proved_equal(case):
    left, right = EQUAL[case]
    assert equal(left, right)
    assert equal(right, left)


@pytest.mark.parametrize("case", DIFFERENT)
def test_different_expressions_are_told_apart(case):
    left, right = DIFFERENT[case]
    assert not equal(left, right)
    assert not equal(right, left)


NULL = {
    "J_LN 1": lambda s: derive.jacobian(derive.LayerNorm()(x), x) * one,
    "left null of J_LN": lambda s: (
        one.T * Diag(Reciprocal(gain)) * derive.jacobian(derive.LayerNorm()(x), x)
    ),
    "left null of a post-norm block": lambda s: (
        one.T * Diag(Reciprocal(gain)) * derive.jacobian(derive.block("post", "layernorm", s), x)
    ),
    "pre-norm keeps 1": lambda s: (
        derive.jacobian(derive.block("pre", "layernorm", s), x) * one - one
    ),
    "pre-norm keeps x at eps = 0": lambda s: (
        derive.jacobian(derive.block("pre", derive.LayerNorm(eps=0), s), x) * x - x
    ),
}


@pytest.mark.parametrize("sublayer", ["abstract", "ffn", "gated", "attention"])
@pytest.mark.parametrize("case", NULL)
def test_null_directions_whatever_the_sublayer(case, sublayer):
    assert is_zero(NULL[case](sublayer))


@pytest.mark.parametrize("case", ["left null of a post-norm block", "pre-norm keeps 1"])
def test_null_directions_are_lost_with_rmsnorm(case):
    ones = derive.jacobian(derive.block("pre", "rmsnorm"), x) * one - one
    left = one.T * Diag(Reciprocal(gain)) * derive.jacobian(derive.block("post", "rmsnorm"), x)
    assert not is_zero(ones if case.startswith("pre") else left)


def test_named_vectors_are_opened_where_their_parts_occur_beside_them():
    u = derive.let("u", x + F(x))
    assert equal(u - x, F(x))
    assert equal(Inner(u, u), Inner(x, x) + 2 * Inner(x, F(x)) + Inner(F(x), F(x)))
    assert not equal(u, x)


@pytest.mark.parametrize(
    "expr", [mixing.block(0, 1), sp.Function("f")(Inner(x, x))], ids=["indexed", "function"]
)
def test_outside_the_fragment_it_says_so(expr):
    with pytest.raises(UnknownNodeError, match="normal form"):
        equal(expr, 2 * expr)


# -- soundness against explicit entries: random words over a small alphabet

ALPHABET = {
    "matrix": [W, W.T, V, Diag(gain), Diag(x), eye(d), x * one.T, gain * x.T],
    "column": [x, one, gain],
}
VALUES = {
    "x": [sp.Rational(1, 2), -2, 3],
    "gain": [2, sp.Rational(-1, 3), 1],
    "W": [[1, 2, 0], [0, -1, 3], [4, 0, 1]],
    "V": [[0, 1, 1], [2, 0, -1], [1, 1, 0]],
}

words = st.lists(st.sampled_from(ALPHABET["matrix"]), max_size=3)
terms = st.tuples(st.integers(-2, 2), words, st.sampled_from(ALPHABET["column"]))
columns = st.lists(terms, min_size=1, max_size=3).map(
    lambda ts: total([product([c, *word, v]) for c, word, v in ts])
)


@given(columns, columns)
@settings(max_examples=150, deadline=None)
def test_equality_agrees_with_explicit_entries(left, right):
    """At these values generic letters stay apart, so the converse is seen as well."""
    if not hasattr(left, "shape") or not hasattr(right, "shape"):
        return
    a, b = (explicit(e, {"d": 3}, values=VALUES) for e in (left, right))
    if equal(left, right):
        assert a == b
    assert equal(left, left)
