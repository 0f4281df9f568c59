"""One node of every class: rebuilt, resized, represented; the algebra against plain matrices."""

from __future__ import annotations

import random

import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Reciprocal, State, Vector, eye
from derive.calculus.differential import Differential, ScalarDifferential
from derive.calculus.explicit import explicit
from derive.calculus.let import Let, ScalarLet, let
from derive.calculus.maps import Apply, JacobianOf, TokenBlocks
from derive.calculus.pointwise import Pointwise
from derive.calculus.structured import DoublyStochastic, Orthogonal, RowStochastic
from derive.calculus.tensor import Product, Sum, Tensor, Transposed, product, total
from derive.calculus.tokens import At, IndexSum, ScalarIndexSum, index, index_sum
from derive.calculus.trace import Trace
from derive.errors import ShapeError
from derive.render.paths import BlockName
from derive.symbols import alpha, d, eps, f, n

x = derive.state("x")
one, gain, hidden = Ones(d), Vector("gain", d), Vector("c", f)
W, V = Matrix("W", d, d), Matrix("V", f, d)
F, A = derive.Sublayer("F"), derive.Attention()
i, j, k = index("i"), index("j"), index("k")
u = let("u", x + F(x))
s = ScalarLet("s", sp.sqrt(Inner(x, x) / d + eps))
phi = derive.activation("phi")

ZOO = {
    State: x,
    Vector: gain,
    Matrix: V,
    Ones: one,
    Diag: Diag(gain),
    Reciprocal: Reciprocal(gain),
    Inner: Inner(x, gain),
    Trace: Trace(W * W),
    Sum: W * x + alpha * one - gain / s,
    Product: alpha * W * x * gain.T,
    Transposed: W.T,
    Let: u,
    ScalarLet: s,
    Apply: F(u),
    JacobianOf: JacobianOf(F, u),
    TokenBlocks: derive.jacobian(A(x), x),
    Pointwise: phi(V * x),
    At: At(x, i),
    IndexSum: IndexSum(Inner(At(x, j), At(x, i)) * At(x, j), j, n),
    ScalarIndexSum: ScalarIndexSum(sp.exp(Inner(At(x, j), At(x, i))), j, n),
    Differential: Differential(x),
    ScalarDifferential: ScalarDifferential(s),
    Orthogonal: Orthogonal("R", d),
    RowStochastic: RowStochastic("P", d),
    DoublyStochastic: DoublyStochastic("H", d),
    BlockName: BlockName(JacobianOf(A, x), i, j),
}


def subexpressions(expr):
    return {e for e in sp.preorder_traversal(expr) if isinstance(e, sp.Expr) and e.args}


def subclasses(cls):
    return {cls}.union(*(subclasses(c) for c in cls.__subclasses__()))


def test_the_zoo_has_every_node():
    ours = {c for c in subclasses(Tensor) if c.__module__.startswith("derive.")}
    assert {c for c in ours if not c.__name__.startswith("_")} - {Tensor} <= set(ZOO)


@pytest.mark.parametrize("node", ZOO.values(), ids=lambda e: type(e).__name__)
def test_a_node_is_rebuilt_from_its_arguments(node):
    for expr in subexpressions(node):
        assert expr.func(*expr.args) == expr
    assert sp.srepr(node)
    assert sp.latex(node)
    assert str(node)


@pytest.mark.parametrize("replace", ["subs", "xreplace"])
@pytest.mark.parametrize("node", ZOO.values(), ids=lambda e: type(e).__name__)
def test_the_width_can_be_set(node, replace):
    sized = getattr(node, replace)({d: 3, f: 5})
    assert not {d, f} & sized.free_symbols
    if isinstance(node, Tensor):
        assert sized.shape == tuple(sp.sympify(r).subs({d: 3, f: 5}) for r in node.shape)
    again = getattr(node, replace)({sp.Symbol("unrelated"): 7})
    assert again == node


def test_a_state_can_be_replaced_inside_names_and_maps():
    y = derive.state("y")
    assert u.xreplace({x: y}) == let("u", y + F(y))
    assert JacobianOf(F, u).subs(x, y) == JacobianOf(F, let("u", y + F(y)))


def test_free_symbols_are_what_a_node_depends_on():
    assert (W * x).free_symbols == {W, x, d}
    assert s.free_symbols == {x, d, eps}
    assert IndexSum(At(x, j), j, n).free_symbols == {x, d, n}
    assert IndexSum(At(x, j) * Inner(At(x, i), one), j, n).free_symbols == {x, d, n, i}


MISFITS = {
    "sum": (lambda: x + hidden, r"x of shape d x 1 and c of shape f x 1 do not fit"),
    "product": (lambda: V * hidden, r"V of shape f x d and c of shape f x 1 do not fit"),
    "inner of a matrix": (lambda: Inner(W, x), "expected column vectors, got W"),
    "activation": (lambda: phi(W), "phi: expected a column vector, got W"),
    "let": (lambda: let("a", W), "definition: expected a column vector, got W"),
    "scalar let": (lambda: ScalarLet("a", x), "definition: expected a scalar, got x"),
    "divisor": (lambda: x / W, "divisor: expected a scalar, got W of shape d x d"),
    "block": (
        lambda: TokenBlocks(JacobianOf(A, x), V, i, j),
        r"block: expected shape \(d, d\), got \(f, d\)",
    ),
    "empty name": (lambda: Vector("", d), "name: expected a non-empty string"),
    "not an expression": (lambda: x + sp.S.true, "expected a scalar or a matrix expression"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_says_so(case):
    build, message = MISFITS[case]
    with pytest.raises(ShapeError, match=message):
        build()


# -- the algebra, by explicit entries with other arithmetic than that of the nodes

SIZES = {"d": 3, "f": 2}
_random = random.Random(2)
VALUES = {
    name: [[sp.Rational(_random.randint(-9, 9), 4) for _ in range(cols)] for _ in range(rows)]
    for name, rows, cols in [("W", 3, 3), ("V", 2, 3), ("x", 3, 1), ("gain", 3, 1), ("c", 2, 1)]
}
VALUES["x"] = [row[0] for row in VALUES["x"]]
PLAIN = {m: sp.Matrix(v) for m, v in VALUES.items()} | {"one": sp.ones(3, 1)}


def entries(expr):
    return explicit(expr, SIZES, values=VALUES)


LAWS = {
    "associative": (V * (W * x), (V * W) * x, lambda m: m["V"] * m["W"] * m["x"]),
    "sum": (x + (gain + one), (x + gain) + one, lambda m: m["x"] + m["gain"] + m["one"]),
    "distributive": (W * (x + gain), W * x + W * gain, lambda m: m["W"] * (m["x"] + m["gain"])),
    "transpose reverses": ((V * W * x).T, x.T * W.T * V.T, lambda m: (m["V"] * m["W"] * m["x"]).T),
    "transpose twice": (V.T.T, V, lambda m: m["V"]),
    "row column": (
        x.T * W * gain * V,
        Inner(x, W * gain) * V,
        lambda m: (m["x"].T * m["W"] * m["gain"])[0] * m["V"],
    ),
    "column row": (gain * (x.T * W), (gain * x.T) * W, lambda m: m["gain"] * m["x"].T * m["W"]),
    "outer times column": (
        (one * x.T) * gain,
        Inner(gain, x) * one,
        lambda m: m["one"] * m["x"].T * m["gain"],
    ),
    "identity": (eye(d) * W * eye(d), W, lambda m: m["W"]),
    "diagonal": (Diag(gain) * x, Diag(x) * gain, lambda m: sp.diag(*m["gain"]) * m["x"]),
    "reciprocal": (Diag(Reciprocal(gain)) * gain, one, lambda m: m["one"]),
    "difference": (W - W.T, -(W.T - W), lambda m: m["W"] - m["W"].T),
    "quotient": (x / d, sp.Rational(1, 3) * x, lambda m: m["x"] / 3),
    "merged": (x + gain + 2 * x - gain, 3 * x, lambda m: 3 * m["x"]),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_algebra_is_that_of_matrices(law):
    left, right, plain = LAWS[law]
    expected = plain(PLAIN)
    assert entries(left) == entries(right) == expected
    assert entries(2 * left) != expected
    assert left.shape == right.shape


def test_nothing_is_expanded():
    assert str(W * (x + gain)) == "W (x + gain)"
    assert (W * (x + gain)).func is Product


def test_what_cancels_is_a_zero_of_its_shape():
    assert x - x == sp.ZeroMatrix(d, 1)
    assert sp.ZeroMatrix(f, d) == 0 * V
    assert V * (x - x) == sp.ZeroMatrix(f, 1)
    assert total([x, sp.ZeroMatrix(d, 1)]) == x
    assert Inner(x, 0 * x) == 0


def test_scalars_stay_left_of_an_operator_that_mixes_tokens():
    mixing = ZOO[TokenBlocks]
    assert product([s, mixing, x]) != product([mixing, s, x])
    assert product([x.T, s, mixing.T]) == product([mixing, s, x]).T


# -- sums over an index


def test_a_bound_index_is_not_captured():
    inner = IndexSum(Inner(At(x, i), At(x, j)) * At(x, j), j, n)
    moved = inner.xreplace({i: j})
    assert moved.free_symbols == {x, d, n, j}
    assert moved.index != j
    values = [[2, 3], [5, 7]]
    expected = {t: sp.Matrix([29, 41]) * 0 for t in (0, 1)}
    for t in (0, 1):
        row = sp.Matrix(values[t])
        expected[t] = sum((row.dot(sp.Matrix(v)) * sp.Matrix(v) for v in values), sp.zeros(2, 1))
        found = explicit(moved.xreplace({j: t}), {"d": 2, "n": 2}, tokens=2, values={"x": values})
        assert found == expected[t]
    assert expected[0] != expected[1]


def test_a_bound_index_is_not_replaced():
    inner = IndexSum(At(x, j), j, n)
    assert inner.xreplace({j: i}) == inner
    assert inner.subs(j, 1) == inner


@pytest.mark.parametrize(
    ("summand", "plain"),
    [
        (At(x, i), lambda v, t: 2 * v[t]),
        (Inner(At(x, i), At(x, j)) * At(x, i), lambda v, t: v[t].dot(v[0] + v[1]) * v[t]),
        (At(x, j) + At(x, i), lambda v, t: v[0] + v[1] + 2 * v[t]),
        (alpha * W * At(x, j), lambda v, t: 7 * sp.Matrix([[1, 2], [3, 4]]) * (v[0] + v[1])),
    ],
    ids=["constant", "scalar", "sum", "constant factors"],
)
def test_what_does_not_carry_the_index_stands_outside(summand, plain):
    values = [sp.Matrix([2, 3]), sp.Matrix([5, 7])]
    outside = index_sum(summand, j, n)
    atoms = {"x": [list(v) for v in values], "alpha": 7, "W": [[1, 2], [3, 4]]}
    for t in (0, 1):
        found = explicit(outside.xreplace({i: t}), {"d": 2, "n": 2}, tokens=2, values=atoms)
        assert found == plain(values, t)
