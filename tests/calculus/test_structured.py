"""Structured matrices: what the normal form does with them holds at random matrices of the kind."""

import random
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Inner, Matrix, Ones, Vector
from derive.calculus.jets import JetRing, exact_blocks, exact_jacobian
from derive.calculus.normal_form import equal
from derive.calculus.pointwise import Activation, Pointwise
from derive.calculus.structured import DoublyStochastic, Orthogonal, RowStochastic
from derive.calculus.trace import Trace
from derive.errors import ShapeError
from derive.proof.check import differ
from derive.symbols import d, f

R, P, H = Orthogonal("R", d), RowStochastic("P", d), DoublyStochastic("H", d)
A = Matrix("A", d, d)
x, v, one = derive.state("x"), Vector("v", d), Ones(d)

EQUAL = {
    "R'R": (R.T * R * v, v),
    "RR'": (R * R.T * v, v),
    "length": (Inner(R * v, R * v), Inner(v, v)),
    "P1": (P * one, one),
    "1'P'": (one.T * P.T, one.T),
    "H1": (H * one, one),
    "1'H": (Inner(one, H * v), Inner(one, v)),
    "PH1": (P * H * one, one),
    "tr RAR'": (Trace(R * A * R.T), Trace(A)),
    "tr RARR'R'": (Trace(R * A * R * R.T * R.T), Trace(A)),
    "tr 1v'P": (Trace(one * v.T * H), Inner(one, v)),
    "1'H'R'RH1": (Inner(one, H.T * R.T * R * H * one), d),
}
UNEQUAL = {
    "RR": (R * R * v, v),
    "R twice another": (R.T * Orthogonal("Q", d) * v, v),
    "R1": (R * one, one),
    "1'P": (Inner(one, P * v), Inner(one, v)),
    "P'1": (P.T * one, one),
    "tr RA": (Trace(R * A), Trace(A)),
    "tr RAR": (Trace(R * A * R), Trace(A)),
    "HH'": (H * H.T * v, v),
}


@pytest.mark.parametrize("sides", EQUAL.values(), ids=EQUAL)
def test_equal_and_so_at_random_matrices(sides):
    assert equal(*sides)
    assert not differ(*sides)


@pytest.mark.parametrize("sides", UNEQUAL.values(), ids=UNEQUAL)
def test_unequal_and_so_at_random_matrices(sides):
    assert not equal(*sides)
    assert differ(*sides)


def _free(size: int) -> np.ndarray:
    drawn = random.Random(size)
    return np.array(
        [[Fraction(drawn.randint(1, 9), 7) for _ in range(size)] for _ in range(size)], dtype=object
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_filled_is_of_its_kind(size):
    one, unit = np.ones(size, dtype=int), np.eye(size, dtype=int)
    turned, rows, both = (
        k.filled(_free(size), Fraction) for k in (Orthogonal, RowStochastic, DoublyStochastic)
    )
    assert (turned.T.dot(turned) == unit).all()
    assert (rows.dot(one) == 1).all()
    assert (rows >= 0).all()
    assert (both.dot(one) == 1).all()
    assert (both.T.dot(one) == 1).all()
    assert (both >= 0).all()
    if size > 2:
        assert (turned != turned.T).any()
        assert (both.dot(both.T) != both.T.dot(both)).any()


def test_jacobian_through_an_orthogonal_matrix_agrees_with_dual_numbers():
    block = x + derive.RMSNorm()(R * x)
    ring = JetRing(3)
    direct = exact_jacobian(block, ring, {d: 3}, 1, 3)
    assert (direct == exact_blocks(derive.jacobian(block, x), ring, {d: 3}, 1)).all()


def test_square_only():
    with pytest.raises(ShapeError, match=r"R: expected a square matrix, got d x f"):
        Orthogonal("R", d, f)


def test_exp_is_its_own_derivative():
    t = sp.Symbol("t", real=True)
    exp, tanh = Activation("exp", sp.Lambda(t, sp.exp(t))), derive.activation("tanh")
    assert Pointwise(exp, 2, v) == exp(v)
    assert Pointwise(tanh, 1, v).order == 1
    softmax = 1 / Inner(one, exp(x)) * exp(x)
    ring = JetRing(1)
    direct = exact_jacobian(softmax, ring, {d: 3}, 1, 3)
    assert (direct == exact_blocks(derive.jacobian(softmax, x), ring, {d: 3}, 1)).all()
