r"""Attention alone draws tokens together, whatever its weights; a skip stops that.

With C = I - 11'/n, CX are the deviations of the tokens from their mean. Weights P with rows that
add up to 1 have C P = C P C. If every weight is at least (1 - theta)/n then
P = (1 - theta) 11'/n + theta R with R of the same kind, and C P = theta C R: each layer multiplies
the deviations by theta. Uniform weights (theta = 0) leave none; with a skip they leave all.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Matrix, Ones, eye
from derive.calculus.structured import RowStochastic
from derive.proof import Bound, Identity, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import L, d, n
from proofs.bibliography import DONG, NOCI

__all__ = ["theorem"]

one, X, Y = Ones(n), Matrix("X", n, d), Matrix("Y", n, d)
C = eye(n) - one * one.T / n
R, R_2 = RowStochastic("R", n), RowStochastic("R_2", n)
free = Matrix("R", n, n)
theta = sp.Symbol("theta", positive=True)


def uniform() -> sp.Basic:
    """Return the weights 1/n."""
    return one * one.T / n


def mixed(A: sp.Basic) -> sp.Basic:
    """Return (1 - theta) 11'/n + theta A."""
    return (1 - theta) * uniform() + theta * A


theorem = Theorem(
    id="rank-collapse",
    area="attention",
    title="Attention without a skip makes all tokens equal",
    statement=(
        r"If all weights of every layer are at least $(1 - \theta)/n$, then after $L$ layers "
        r"without skip the deviations $CX$ of the tokens from their mean are at most "
        r"$\theta^L\sqrt n\,\lVert CX\rVert_2$; with uniform weights they are 0 after one layer. "
        "With a skip uniform attention leaves them as they are."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"Uniform attention without skip: $CPX = 0$.",
            "every token gets the mean",
            Identity(
                claim=lambda P: (C * P * X, sp.ZeroMatrix(n, d)),
                of=uniform,
                instead=lambda: R,
            ),
        ),
        Step(
            r"Uniform attention with skip: $C(X + PX) = CX$.",
            "the mean is added to each token",
            Identity(
                claim=lambda P: (C * (X + P * X), C * X),
                of=uniform,
                instead=lambda: R,
            ),
        ),
        Step(
            r"For any weights the deviations depend on deviations only: $CPX = CPCX$.",
            r"$P\mathbf 1 = \mathbf 1$",
            Identity(
                claim=lambda P: (C * P * X, C * P * C * X),
                of=lambda: R,
                instead=lambda: free,
            ),
        ),
        Step(
            r"$P_2P_1X$ has the deviations of $\theta^2R_2RX$, and so on over the layers.",
            r"$C\mathbf 1 = 0$ and $R\mathbf 1 = \mathbf 1$",
            Identity(
                claim=lambda A: (C * mixed(R_2) * mixed(A) * X, theta**2 * C * R_2 * A * C * X),
                of=lambda: R,
                instead=lambda: free,
            ),
        ),
        Step(
            "A product of such weights has rows that add up to 1.",
            r"$R_2R\mathbf 1 = R_2\mathbf 1$",
            Identity(claim=lambda A: (R_2 * A * one, one), of=lambda: R, instead=lambda: free),
        ),
        Step(
            r"So that $\lVert CP_L\cdots P_1X\rVert_2 = \theta^L\lVert CRCX\rVert_2 \le "
            r"\theta^L\sqrt n\lVert Y\rVert_2$ with $R$ their product and $Y = CX$.",
            "Schur's test",
            Bound(
                claim=lambda A: (
                    theta**L * SpectralNorm(C * A * Y),
                    theta**L * sp.sqrt(n) * SpectralNorm(Y),
                ),
                of=lambda: R,
                instead=lambda: 50 * R,
            ),
        ),
    ),
    sources=(
        DONG("Theorem 2.2, with a doubly exponential rate where weights adapt", seen="memory"),
        NOCI("section 3", seen="memory"),
    ),
    remark=(
        r"Weights are positive, so that $\theta < 1$ always exists for one input, but nothing "
        r"bounds it away from 1: sharp attention may keep tokens apart. Projections of the values "
        "multiply from the right and do not change the argument."
    ),
)
