"""Facts on entries and structured matrices: each is used where it holds, refused where it fails."""

from dataclasses import replace

import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector
from derive.calculus.pointwise import Activation, Pointwise
from derive.calculus.structured import DoublyStochastic, Orthogonal, RowStochastic
from derive.proof import Bound, Entries, Laplacian, MaxAbs, SpectralNorm
from derive.proof.bound import upper
from derive.proof.entrywise import entries_not_negative
from derive.symbols import d

t = sp.Symbol("t", real=True)
EXP = Activation("exp", sp.Lambda(t, sp.exp(t)))
tanh = derive.activation("tanh")
x, v, w, one = derive.state("x"), Vector("v", d), Vector("w", d), Ones(d)
e = EXP(x)
p = 1 / Inner(one, e) * e
S = Diag(p) - p * p.T
A = Matrix("A", d, d)


@pytest.mark.parametrize("vector", [one, e, p, Diag(v) * v, Diag(v) * Diag(e) * v, e + one])
def test_entries_not_negative(vector):
    assert entries_not_negative(vector)


@pytest.mark.parametrize("vector", [v, x, tanh(x), Diag(e) * v, e - one, A * e, -1 * e])
def test_entries_of_unknown_sign(vector):
    assert not entries_not_negative(vector)


def test_laplacian():
    rows = 2 * p - 2 * Diag(p) * p
    assert Laplacian(S, p, sp.S.Half).holds()
    assert Laplacian(S, p, MaxAbs(rows)).holds()
    assert not Laplacian(S, p, sp.Rational(49, 100)).holds()
    assert not Laplacian(S, p, MaxAbs(rows - p)).holds()
    assert not Laplacian(Diag(p) + p * p.T, p, sp.S.Half).holds()
    mass = Inner(one, v)
    assert not Laplacian(mass * Diag(v) - v * v.T, v, MaxAbs(2 * mass * v)).holds()
    assert not Laplacian(Inner(one, e) * Diag(e) - e * e.T, e, sp.S.Half).holds()


def test_entries():
    assert Entries(Pointwise(tanh, 1, v), sp.S.One).holds()
    assert not Entries(Pointwise(tanh, 1, v), sp.Rational(99, 100)).holds()
    assert not Entries(Pointwise(tanh, 0, v), sp.S.One).holds()  # its entries may be negative
    assert not Entries(Pointwise(derive.activation("phi"), 0, v), sp.S.One).holds()
    square = Diag(e - one) * (e - one)
    assert Entries(2 * e, sp.S.Half + 1, sp.Rational(3, 2) * one - 2 * e).holds() is False
    assert not Entries(e, sp.S.One, square).holds()
    part = Diag(p) * p
    assert not Entries(part, sp.S.One, one - part).holds()  # true, but not by these signs


def test_norms_of_structured_matrices():
    assert upper(Orthogonal("R", d) * A)[0] == SpectralNorm(A)
    assert upper(DoublyStochastic("H", d))[0] == 1
    assert upper(RowStochastic("P", d))[0] == sp.sqrt(d)


CAUCHY_SCHWARZ = Bound(
    claim=lambda pair: (sp.Abs(Inner(*pair)), SpectralNorm(v) * SpectralNorm(w)),
    of=lambda: (v, w),
    instead=lambda: (v, 2 * w),
)


def test_cauchy_schwarz():
    assert CAUCHY_SCHWARZ.certificate().holds
    assert not replace(CAUCHY_SCHWARZ, of=lambda: (v, v)).certificate().holds


def test_every_wrong_version_is_refused():
    softmax = Bound(
        claim=lambda J: (SpectralNorm(J), sp.S.Half),
        of=lambda: derive.jacobian(p, x),
        instead=lambda: derive.jacobian(2 * p, x),
        facts=lambda J: [Laplacian(J, p, sp.S.Half)],
    )
    assert softmax.certificate().holds
    for check in (softmax, CAUCHY_SCHWARZ):
        for kind, wrong in check.wrong():
            assert not wrong.certificate().holds, kind
