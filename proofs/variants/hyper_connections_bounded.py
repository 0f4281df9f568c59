r"""Free matrices of streams can grow without bound: two streams that each add the other double.

With a_11 = a_12 = a_21 = a_22 = 1 the sum of the streams doubles at each block even if the sublayer
returns 0. With the same numbers divided by 2 the matrix is doubly stochastic, and nothing grows.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import HC, MHC
from proofs.variants.mhc_doubly_stochastic import theorem as mhc

__all__ = ["theorem"]


def through(matrix: sp.Matrix, blocks: int) -> sp.Expr:
    """Return the mean of the streams' sums after so many blocks without sublayers, from (1, 1)."""
    return sum(matrix**blocks * sp.Matrix([1, 1])) / 2


SUMS, MIXED = sp.Matrix([[1, 1], [1, 1]]), sp.Matrix([[1, 1], [1, 1]]) / 2

theorem = Theorem(
    id="hyper-connections-bounded",
    area="variants",
    title="Hyper-connections keep their streams bounded",
    statement="A matrix of residual streams keeps signal and gradient bounded over depth.",
    verdict=Verdict.CONDITIONAL,
    uses=(mhc,),
    steps=(
        Step(
            "Doubly stochastic: the mean of the streams is the same after every block.",
            "rows add up to 1",
            Induction(
                claim=lambda M: (
                    sp.S.One,
                    1,
                    lambda y, _: y * through(M, 1),
                ),
                of=lambda: MIXED,
                instead=lambda: SUMS,
                name="m_L",
            ),
        ),
        Step(
            "Free: two streams that add each other double at every block.",
            r"$(1, 1)$ is an eigenvector with eigenvalue 2",
            Induction(
                claim=lambda M: (2**L, 1, lambda y, _: y * through(M, 1)),
                of=lambda: SUMS,
                instead=lambda: MIXED,
                name="m_L",
            ),
        ),
        Step(
            "After 24 blocks the streams have grown by 16777216.",
            "a number",
            Counterexample(
                claim=lambda M: (through(M, 24), 1),
                of=lambda: SUMS,
                instead=lambda: MIXED,
                relation=">",
                stated=("16777216", "1"),
            ),
        ),
    ),
    sources=(
        HC("static hyper-connections", seen="memory"),
        MHC("the motivation of the constraint", seen="secondary"),
    ),
    holds_when="The matrix of the streams is doubly stochastic, or its products are bounded.",
    fails_when="The matrix is free: its largest singular value compounds over depth.",
)
