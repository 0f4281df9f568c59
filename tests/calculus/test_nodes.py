"""Nodes are SymPy objects: they rebuild from their arguments, keep shapes, and substitute."""

import pytest
import sympy as sp

import derive
from derive.blocks.attention import CrossAttention
from derive.blocks.norms import BatchNorm, DynamicTanh, GroupNorm, L2Norm, ScaleNorm
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Reciprocal, Vector, eye
from derive.calculus.differential import Differential, Differentiator
from derive.calculus.explicit import explicit
from derive.calculus.maps import Map
from derive.calculus.tensor import Tensor, Transposed, product, total
from derive.calculus.tokens import (
    EXPERTS,
    TOKENS,
    At,
    IndexSum,
    ScalarIndexSum,
    index,
    index_sum,
)
from derive.errors import ShapeError, UnknownNodeError
from derive.symbols import X, d, latex_name, n

x = derive.state("x")
W = Matrix("W", d, d)
gain = Vector("gain", d)

BLOCKS = {
    f"{placement}-{norm}-{sublayer}": derive.block(placement, norm, sublayer)
    for placement in ("post", "sandwich", "parallel", "admin")
    for norm in ("layernorm", "rmsnorm")
    for sublayer in ("abstract", "gated", "rotary-attention")
} | {
    "layer": derive.layer("pre"),
    "norms": sum((k(x) for k in (L2Norm(), ScaleNorm(), DynamicTanh(), BatchNorm())), 0 * x),
    "groups": GroupNorm()(x),
    "cross": x + CrossAttention(label="c")(x),
    "norms of query and key": derive.Attention(
        query_norm=derive.RMSNorm("q"), key_norm=derive.RMSNorm("k"), softcap=5, sinks=True
    )(x),
}


def every_node(expr, seen=None):
    seen = set() if seen is None else seen
    if expr not in seen:
        seen.add(expr)
        yield expr
        for arg in expr.args:
            yield from every_node(arg, seen)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_node_rebuilds_from_its_arguments(name):
    D = derive.derivation(BLOCKS[name], x)
    nodes = [*every_node(D.jacobian), *every_node(D.block)]
    nodes += [m for step in D.steps for m in every_node(step.after)]
    own = [m for m in nodes if isinstance(m, Tensor | Map | Inner) and m.args]
    assert own
    for node in own:
        assert node.func(*node.args) == node


@pytest.mark.parametrize("name", BLOCKS)
def test_the_result_is_a_sympy_expression(name):
    J = derive.jacobian(BLOCKS[name], x)
    assert isinstance(J, sp.Expr)
    assert J.shape == (d, d)
    assert d in J.free_symbols
    assert sp.latex(J)
    assert sp.srepr(J)
    assert J.subs(d, 3).shape == (3, 3)
    assert J.xreplace({x: derive.state("z")}) != J


def test_own_symbols_come_from_one_place():
    assert derive.symbols.d is derive.state("x").shape[0]


ILL_SHAPED = {
    "sum": (lambda: x + x.T, "d x 1.*1 x d"),
    "sum of two lengths": (lambda: x + Ones(n), "d x 1.*n x 1"),
    "sum with a scalar": (lambda: x + 1, "cannot add the scalar 1"),
    "product": (lambda: x * W, "d x 1.*d x d"),
    "inner product": (lambda: Inner(x, Ones(n)), "length d.*length n"),
    "power": (lambda: W**2, "write powers of a matrix as products"),
    "diag of a matrix": (lambda: Diag(W), "diag: expected a column vector"),
    "division by a vector": (lambda: x / x, "divisor: expected a scalar"),
    "norm of a matrix": (lambda: derive.LayerNorm()(W), "argument of N: expected a column vector"),
    "sublayer of a number": (lambda: derive.Sublayer("F")(2), "argument of F"),
    "block that is a scalar": (
        lambda: derive.derivation(Inner(x, x), x),
        "block: expected a column",
    ),
    "state that is none": (lambda: derive.derivation(x, gain), "state: expected a state"),
    "reciprocal of a matrix": (lambda: Reciprocal(W), "reciprocal: expected a column vector"),
}


@pytest.mark.parametrize("case", ILL_SHAPED)
def test_shape_errors_show_what_came(case):
    action, message = ILL_SHAPED[case]
    with pytest.raises(ShapeError, match=message):
        action()


class Unknown(Tensor):
    shape = (d, sp.S.One)

    def __new__(cls, argument):
        return sp.Basic.__new__(cls, argument)


def test_a_node_without_a_rule_raises_and_is_never_zero():
    with pytest.raises(UnknownNodeError, match="no rule for Unknown"):
        derive.derivation(Unknown(x), x)
    with pytest.raises(UnknownNodeError, match="no rule for the scalar"):
        Differentiator(lambda e: e == x)(sp.Indexed(sp.IndexedBase("m"), Inner(x, x)))


def test_second_derivatives_are_refused():
    J = derive.jacobian(derive.Sublayer("F")(x), x)
    with pytest.raises(UnknownNodeError, match="varying matrix factor"):
        derive.derivation(J * gain, x)


def test_a_block_without_the_state_has_zero_jacobian():
    z = derive.state("z")
    assert derive.jacobian(derive.block("post", x=z), x) == sp.ZeroMatrix(d, d)
    assert derive.jacobian(derive.let("g", gain), x) == sp.ZeroMatrix(d, d)
    assert derive.jacobian(x, x) == sp.Identity(d)


def test_algebra_against_entries():
    """Laws of the product and the transpose, entry by entry at d = 3."""
    values = {"W": [[1, 2, 0], [3, -1, 4], [0, 5, 2]], "x": [1, -2, 3], "gain": [2, 0, -1]}

    def entries(expr):
        return explicit(expr, {"d": 3}, values=values)

    w, v, g = (entries(e) for e in (W, x, gain))
    assert entries(W.T) == w.T
    assert entries((W * x * gain.T).T) == (w * v * g.T).T
    assert entries(W * x + gain) == w * v + g
    assert entries(x * (gain.T * W * x)) == v * (g.T * w * v)[0]
    assert entries(Diag(gain) * W) == sp.diag(*g) * w
    assert entries(total([x, product([-1, x])])) == sp.zeros(3, 1)
    assert entries(product([2, x, 3])) == 6 * v
    assert entries(eye(d) * W) == w
    assert Transposed(Transposed(W)) == W


def test_renaming_an_index_does_not_capture_it():
    i, j, *_ = TOKENS
    weight = sp.Indexed(sp.IndexedBase("p"), i, j)
    sum_over_j = index_sum(product([weight, At(x, j)]), j, n)
    renamed = sum_over_j.xreplace({i: j})
    assert isinstance(renamed, IndexSum)
    assert renamed.index != j
    assert j in renamed.free_symbols
    assert sum_over_j.xreplace({sum_over_j: gain}) == gain


def test_differential_of_a_vector_is_a_vector():
    assert Differential(x).shape == x.shape
    assert not hasattr(Differential(Inner(x, x)), "shape")


LATEX = {
    "sigma2": r"\sigma^{2}",
    "W_out_proj": r"W_{\mathrm{out\_proj}}",
    "W_O": "W_{O}",
    "xhat_1": r"\hat{x}_{1}",
    "var_2": r"\sigma_{2}^{2}",
    "gain": r"\gamma",
    "s": "s",
}


@pytest.mark.parametrize("name", LATEX)
def test_identifiers_as_latex(name):
    assert latex_name(name) == LATEX[name]


@pytest.mark.parametrize("name", ["_x", "x_", "_", "__", "a__b", "x_1_", "W1", "long_name_2", "2x"])
def test_odd_identifiers_compile_and_stay_apart(name):
    body = latex_name(name)
    assert body.count("{") == body.count("}")
    assert "_{}" not in body
    assert not body.endswith("_")
    assert name == name.strip("_") or body != latex_name(name.strip("_") or "x")


def test_a_captured_index_stays_in_its_family():
    """An expert index that must move becomes another expert index, never a token."""
    e, e2 = index("e"), index("e2")
    logit = sp.IndexedBase("l")
    difference = ScalarIndexSum(logit[e2] - logit[e], e2, X)
    renamed = difference.xreplace({e: e2})
    assert renamed.index in EXPERTS
    assert renamed.index not in (e, e2)
    odd = index("odd")
    with pytest.raises(UnknownNodeError, match="index odd"):
        ScalarIndexSum(logit[odd] - logit[e], odd, X).xreplace({e: odd})
