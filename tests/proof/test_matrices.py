"""Claims about matrices of numbers and about matrices that are not square have wrong versions."""

import sympy as sp

from derive.calculus.atoms import Matrix
from derive.proof import Exact, Identity
from derive.proof.perturb import KINDS
from derive.symbols import d, f

A = sp.Matrix([[1, 2], [3, sp.sqrt(2)]])
EXACT = Exact(
    claim=lambda M: (M * M, sp.Matrix([[7, 2 + 2 * sp.sqrt(2)], [3 + 3 * sp.sqrt(2), 8]])),
    of=lambda: A,
    instead=lambda: A.T,
    sizes="d=2",
)
W, V = Matrix("W", f, d), Matrix("V", f, d)
WIDE = Identity(claim=lambda M: ((M + V) / 2 + (M - V) / 2, W), of=lambda: W, instead=lambda: V)


def test_every_wrong_version_is_made_and_refused():
    for check in (EXACT, WIDE):
        assert check.certificate().holds
        wrong = list(check.wrong())
        assert {kind for kind, _ in wrong} == set(KINDS) - {"assumption"}
        assert not any(w.certificate().holds for _, w in wrong)
