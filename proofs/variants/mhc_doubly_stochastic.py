r"""mHC: a doubly stochastic matrix of streams neither grows nor shrinks their mean.

|H|_2 <= 1, a product of such matrices is one, and the mean of the streams passes unchanged. What
differs between two streams shrinks by 1 - 2a at each block. Free matrices of streams can grow.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Matrix, Ones
from derive.calculus.structured import DoublyStochastic
from derive.proof import Bound, Identity, Induction, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import L, d, n
from proofs.bibliography import MHC

__all__ = ["theorem"]

one = Ones(n)
H, H_2, free = DoublyStochastic("H", n), DoublyStochastic("H_2", n), Matrix("H", n, n)
X = Matrix("X", n, d)
a = sp.Symbol("a", positive=True)


def _difference(matrix: sp.Matrix) -> sp.Expr:
    """Return the factor of the difference of two streams."""
    return matrix[0, 0] - matrix[1, 0]


theorem = Theorem(
    id="mhc-doubly-stochastic",
    area="variants",
    title="Doubly stochastic streams are bounded and averaged",
    statement=(
        r"For doubly stochastic matrices $H$ of $n$ streams, $\lVert H\rVert_2 \le 1$, products "
        r"are doubly stochastic again and $\mathbf 1^\top HX = \mathbf 1^\top X$; of two streams "
        r"mixed by $a$ the difference after $L$ blocks is multiplied by $(1 - 2a)^L$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"$\lVert HX\rVert_2 \le \lVert X\rVert_2$.",
            "Schur's test: rows and columns add up to 1",
            Bound(
                claim=lambda A: (SpectralNorm(A * X), SpectralNorm(X)),
                of=lambda: H,
                instead=lambda: 2 * H,
            ),
        ),
        Step(
            "The rows of a product add up to 1.",
            r"$H_2H\mathbf 1 = H_2\mathbf 1$",
            Identity(claim=lambda A: (H_2 * A * one, one), of=lambda: H, instead=lambda: free),
        ),
        Step(
            "So do its columns: the mean of the streams passes.",
            r"$\mathbf 1^\top H_2H = \mathbf 1^\top H$",
            Identity(
                claim=lambda A: (one.T * H_2 * A * X, one.T * X),
                of=lambda: H,
                instead=lambda: free,
            ),
        ),
        Step(
            "Two streams: their difference decays, unless a is 0 or 1.",
            "(1, -1) is an eigenvector",
            Induction(
                claim=lambda M: ((1 - 2 * a) ** L, 1, lambda y, _: _difference(M) * y),
                of=lambda: sp.Matrix([[1 - a, a], [a, 1 - a]]),
                instead=lambda: sp.Matrix([[1, a], [0, 1]]),
                name=r"\delta_L",
            ),
        ),
    ),
    sources=(MHC("the constraint of the residual matrix", seen="code"),),
    remark=(
        "The product over depth also averages the streams; what keeps them apart is how the blocks "
        "read and write them."
    ),
)
