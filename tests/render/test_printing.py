"""Brackets, signs and scripts of small expressions, as text and as LaTeX."""

from __future__ import annotations

import pytest
import sympy as sp

from derive.calculus.atoms import Diag, Inner, Matrix, Ones, State, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.printing import latex, text
from derive.calculus.tensor import Transposed, product, total
from derive.calculus.tokens import At, IndexSum, index, index_sum
from derive.symbols import H, d, d_h, n

x, y = State("x", d), Vector("b_1", d)
one = Ones(d)
W = Matrix("W_out_proj", d, d)
mu = ScalarLet("mean", Inner(one, x) / d)
s = ScalarLet("s", sp.sqrt(mu))
i, j, h = index("i"), index("j"), index("h")
q = Let("q", x, h, i)
Z = ScalarLet("Z", mu, h, i)
centred = total([x, product([-mu, one])])


class Case:
    def __init__(self, expr, shown, tex):
        self.expr, self.shown, self.tex = expr, shown, tex


CASES = [
    Case(Inner(centred, y), "(x - mean 1)' b_1", r"(x - \mu \mathbf{1})^{\top} b_{1}"),
    Case(Inner(centred, centred), "|x - mean 1|^2", r"\lVert x - \mu \mathbf{1} \rVert^{2}"),
    Case(Inner(one, x) / d, "1' x/d", r"\frac{1}{d} \mathbf{1}^{\top} x"),
    Case(2 * s * Inner(y, x) / d, "(2 s/d) x' b_1", r"\frac{2 s}{d} x^{\top} b_{1}"),
    Case(
        total([sp.Identity(d), product([-1 / d, one, one.T])]),
        "I - 11'/d",
        r"I - \frac{1}{d} \mathbf{1} \mathbf{1}^{\top}",
    ),
    Case(
        product([1 / s, Diag(y), total([sp.Identity(d), product([-1 / d, one, one.T])])]),
        "(1/s) diag(b_1) (I - 11'/d)",
        r"\frac{1}{s} \operatorname{diag}(b_{1})\,"
        r"\bigl(I - \tfrac{1}{d} \mathbf{1} \mathbf{1}^{\top}\bigr)",
    ),
    Case(product([W, x]), "W_out_proj x", r"W_{\mathrm{out\_proj}} x"),
    Case(Transposed(W), "W_out_proj'", r"W_{\mathrm{out\_proj}}^{\top}"),
    Case(Transposed(q), "q[h,i]'", r"q^{(h)\top}_{i}"),
    Case(Transposed(At(W, h)), "W_out_proj[h]'", r"W^{(h)\top}_{\mathrm{out\_proj}}"),
    Case(At(State("z_1", d), j), "z_1[j]", r"z_{1,j}"),
    Case(1 / Z**2, "1/Z[h,i]^2", r"\frac{1}{\bigl(Z^{(h)}_{i}\bigr)^{2}}"),
    Case(
        sp.KroneckerDelta(i, j) / sp.sqrt(d_h),
        "delta[i,j]/sqrt(d_h)",
        r"\frac{\delta_{ij}}{\sqrt{d_{h}}}",
    ),
    Case(
        index_sum(product([-1, At(W, h), At(x, h)]), h, H),
        "-(sum_h W_out_proj[h] x[h])",
        r"-\sum_{h} W^{(h)}_{\mathrm{out\_proj}} x^{(h)}",
    ),
    Case(
        total([x, index_sum(product([-1, At(x, j)]), j, n)]),
        "x - (sum_j x[j])",
        r"x - \sum_{j} x_{j}",
    ),
    Case(product([-1, W, x]), "-W_out_proj x", r"-W_{\mathrm{out\_proj}} x"),
    Case(total([product([-1, x]), y]), "-x + b_1", r"-x + b_{1}"),
    Case(Let("F(z_1)", x, i), "F(z_1)[i]", r"F(z_{1})_{i}"),
    Case(ScalarLet("var_2", mu), "var_2", r"\sigma_{2}^{2}"),
    Case(ScalarLet("var_2", mu, i), "var_2[i]", r"\sigma^{2}_{2,i}"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.shown)
def test_prints(case):
    assert text(case.expr) == case.shown
    assert latex(case.expr) == case.tex


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.shown)
def test_rebuilds(case):
    assert case.expr.func(*case.expr.args) == case.expr


def test_an_inner_sum_takes_another_index():
    weight = Inner(At(x, j), y)
    nested = IndexSum(product([weight, index_sum(At(x, j), j, n)]), j, n)
    assert text(nested) == "sum_j (x[j]' b_1) (sum_k x[k])"
    assert latex(nested) == r"\sum_{j} x_{j}^{\top} b_{1} \sum_{k} x_{k}"


def test_settings_of_sympy_are_kept():
    alpha = sp.Symbol("alpha")
    shown = sp.latex(product([alpha, x]), symbol_names={alpha: "A"})
    assert shown == "A x"
