"""The addition keeps the signal; the norm behind it removes two directions of it."""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Diag, Reciprocal
from derive.calculus.maps import JacobianOf
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import HANDBOOK
from proofs.placements.post_norm_null_vectors import theorem as post_norm_null_vectors
from proofs.setting import F, block_jacobian, gain, identity, one, x

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-residual-preserves-signal",
    area="documents",
    title="The residual preserves the signal",
    statement="In a post-norm block the residual connection preserves the original signal.",
    verdict=Verdict.CONDITIONAL,
    uses=(post_norm_null_vectors,),
    steps=(
        Step(
            (
                "Up to the addition it does: the Jacobian of $x + F(x)$ is $I + "
                r"D\!F(x)$."
            ),
            "sum rule",
            Identity(
                claim=lambda J: (J, identity + JacobianOf(F, x)),
                of=lambda: derive.jacobian(x + F(x), x),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            (
                r"After the norm one direction is lost for every $\epsilon$ and every "
                r"$F$: $\gamma^{-\top}J = 0$."
            ),
            (
                r"$\mathbf 1^\top(I - \mathbf 1\mathbf 1^\top/d) = 0$ and $\mathbf "
                r"1^\top\hat x = 0$"
            ),
            Identity(
                claim=lambda J: (one.T * Diag(Reciprocal(gain)) * J, sp.ZeroMatrix(1, d)),
                of=block_jacobian("post"),
                instead=block_jacobian("pre"),
            ),
        ),
    ),
    sources=(
        HANDBOOK("intuition behind post-norm", seen="text"),
        HANDBOOK("paragraph on the three components", seen="text"),
    ),
    holds_when="What is meant is the sum in front of the norm.",
    fails_when=(
        "What is meant is the output of the block: mean and scale of the sum "
        "are not in it, so that the Jacobian is singular whatever the "
        "sublayer does."
    ),
)
