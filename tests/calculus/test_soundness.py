"""The decision procedure on random expressions: what is rewritten is proved, what differs is not.

A random tree of sums, products, transposes and scalars is built twice: as it stands, and multiplied
out with its terms in another order. The two are equal for every
d; with one coefficient changed they
are not. Values at random sizes decide independently.
"""

from __future__ import annotations

import random

import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector, eye
from derive.calculus.explicit import explicit
from derive.calculus.let import ScalarLet
from derive.calculus.normal_form import equal
from derive.calculus.tensor import Transposed, product, total
from derive.symbols import d, eps

x = derive.state("x")
one, gain = Ones(d), Vector("gain", d)
W, V = Matrix("W", d, d), Matrix("V", d, d)
mean = ScalarLet("mean", Inner(one, x) / d)
s = ScalarLet("s", sp.sqrt(Inner(x, x) / d - mean**2 + eps))

LETTERS = [W, V, Diag(gain), Diag(x), eye(d), x * gain.T, one * x.T, W * x * one.T]
SCALARS = [sp.Integer(2), 1 / d, s, 1 / s, mean, s**2, Inner(x, W * gain), Inner(gain, x) / (d + 1)]

leaves = st.sampled_from(LETTERS).map(lambda m: ("leaf", m))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("+"), inner, inner),
        st.tuples(st.just("*"), inner, inner),
        st.tuples(st.just("T"), inner),
        st.tuples(st.just("s"), st.sampled_from(SCALARS), inner),
    ),
    max_leaves=5,
)


def built(tree):
    """Return the expression as the tree says."""
    kind, *rest = tree
    match kind:
        case "leaf":
            return rest[0]
        case "+":
            return total(map(built, rest))
        case "*":
            return product(map(built, rest))
        case "T":
            return Transposed(built(rest[0]))
    return product([rest[0], built(rest[1])])


def words(tree, transposed=False):
    """Return the expression multiplied out: a list of (coefficient, letters)."""
    kind, *rest = tree
    match kind:
        case "leaf":
            return [(sp.S.One, [Transposed(rest[0]) if transposed else rest[0]])]
        case "+":
            return words(rest[1], transposed) + words(rest[0], transposed)
        case "*":
            first, second = reversed(rest) if transposed else rest
            left, right = words(first, transposed), words(second, transposed)
            return [(a * b, u + v) for b, v in right for a, u in left]
        case "T":
            return words(rest[0], not transposed)
    return [(rest[0] * c, w) for c, w in words(rest[1], transposed)]


def multiplied_out(tree, change=0):
    terms = words(tree)
    terms[0] = (terms[0][0] * (1 + change), terms[0][1])
    return total([product([*letters, c]) for c, letters in terms])


def numeric(expr, size):
    rng = random.Random(size)

    def draw(*shape):
        if not shape:
            return sp.Float(rng.randint(-99, 99) / sp.Integer(10), 40)
        return [draw(*shape[1:]) for _ in range(shape[0])]

    values = {"W": draw(size, size), "V": draw(size, size), "x": draw(size), "gain": draw(size)}
    return explicit(expr, {"d": size}, values=values | {"eps": sp.Rational(1, 3)}).evalf(30)


def gap(left, right, size):
    a, b = numeric(left, size), numeric(right, size)
    scale = max(1, *(abs(v) for v in a))
    return max(abs(v) for v in a - b) / scale


@given(trees, st.sampled_from([2, 3, 4]))
@settings(max_examples=60, deadline=None)
def test_what_is_multiplied_out_is_proved_equal(tree, size):
    left, right = built(tree), multiplied_out(tree)
    assert gap(left, right, size) < 1e-25  # 30 digits, cancellation between a few terms
    assert equal(left, right)


@given(trees, st.sampled_from([sp.Rational(1, 100), sp.Integer(-2), 1 / d]))
@settings(max_examples=60, deadline=None)
def test_what_differs_is_never_called_equal(tree, change):
    left, right = built(tree), multiplied_out(tree, change)
    if max(gap(left, right, size) for size in (2, 3)) > 1e-20:
        assert not equal(left, right)
    else:
        assert numeric(left, 3).is_zero_matrix or equal(left, right)
