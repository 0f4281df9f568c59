"""The trace: its rules at symbolic d against numbers, and what it refuses."""

import numpy as np
import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector, eye
from derive.calculus.normal_form import equal
from derive.calculus.trace import Trace
from derive.errors import ShapeError
from derive.proof.interval import IntervalRing, entries, sizes_at
from derive.symbols import d, f

A, B, W = Matrix("A", d, d), Matrix("B", d, d), Matrix("W", f, d)
u, v = Vector("u", d), Vector("v", d)
G, K = Diag(u), Diag(v)
x = derive.state("x")

SAME = {
    "identity": (Trace(2 * eye(d)) + Inner(u, u), 2 * d + Inner(u, u)),
    "outer product": (Trace(u * v.T), Inner(u, v)),
    "outer product inside": (Trace(A * u * v.T * B), Inner(v, B * A * u)),
    "diagonal": (Trace(G * K), Inner(u, v)),
    "rotation": (Trace(A * B * G), Trace(G * A * B)),
    "rotation that splits diagonals": (Trace(G * A * K * B), Trace(A * K * B * G)),
    "diagonals that meet": (Trace(G * A * K), Trace(K * G * A)),
    "transpose": (Trace(A * B), Trace(B.T * A.T)),
    "of two shapes": (Trace(W.T * W), Trace(W * W.T)),
    "linear": (Trace(A + 3 * B), Trace(A) + 3 * Trace(B)),
}
DIFFERENT = {
    "order of three": (Trace(A * B * G), Trace(B * A * G)),
    "one transposed": (Trace(A * B), Trace(A * B.T)),
    "factor": (Trace(u * v.T), 2 * Inner(u, v)),
    "projection": (Trace(eye(d) - Ones(d) * Ones(d).T / d), d),
}


def _numbers(*exprs: sp.Expr) -> list[float]:
    """Evaluate at d = 4 by arrays of intervals, at the same values of all atoms."""
    ring = IntervalRing(3)
    return [float(value) for expr in exprs for value in entries(expr, ring, sizes_at(4))]


@pytest.mark.parametrize("sides", SAME.values(), ids=SAME)
def test_equal_traces(sides):
    assert equal(*sides)
    np.testing.assert_allclose(*_numbers(*sides), rtol=1e-12)


@pytest.mark.parametrize("sides", DIFFERENT.values(), ids=DIFFERENT)
def test_different_traces(sides):
    assert not equal(*sides)
    left, right = _numbers(*sides)
    assert abs(left - right) > 1e-3


def test_trace_of_a_matrix_is_the_sum_of_its_diagonal():
    *array, found = _numbers(A * B, Trace(A * B))
    assert found == pytest.approx(np.trace(np.reshape(array, (4, 4))), rel=1e-14)


def test_what_has_no_trace():
    with pytest.raises(ShapeError, match="trace: expected a square matrix"):
        Trace(W)
    with pytest.raises(ShapeError, match="trace: expected a square matrix"):
        Trace(d)


def test_printing():
    assert str(Trace(A * B)) == "tr(A B)"
    assert sp.latex(Trace(A)).startswith(r"\operatorname{tr}")
    assert Trace(A).func(*Trace(A).args) == Trace(A)
